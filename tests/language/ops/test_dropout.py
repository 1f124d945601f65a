"""Ops that draw random numbers: the setting they need, equal draws on both sides, and their replay."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from fuzzer.export.script import repro
from fuzzer.generation.generate import generate
from fuzzer.judgement.oracles import detectable, verdicts
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Finding, Signature
from fuzzer.language.infer import IllTyped, infer
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.settings import SAME_DRAWS
from fuzzer.language.text import parse, show
from fuzzer.rounding.floors import FACTOR, SCALE, Model
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.replay import Replay
from fuzzer.trial.pipeline import report_program, run_both
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.drawn import drawn

EAGER = Place(Subject("eager", "cpu"), Subject("eager", "cpu"))
HEAD = 'program(1)\nsettings({"inductor.fallback_random": True})\nroute("autograd")\n'
TWO_DRAWS = (
    HEAD
    + """x0 = leaf(f32[6, 8], seed=1)
v0 = dropout(x0, p=0.3)
v1 = randn_like(v0)
v2 = mul(v0, v1)
v3 = rrelu_training(v2, training=True)
backward(v3, cotangent(f32[6, 8], seed=2))
"""
)


def test_a_program_that_draws_has_the_setting_under_which_both_sides_draw_the_same() -> None:
    known = {name: spec for name, spec in OPS.items() if spec.family in ("dropout", "pointwise")}
    drawing = 0
    for p in drawn([f"draws/{number}" for number in range(20)], known, fixed=(("inductor.fallback_random", False),)):
        draws = any(OPS[node.op].random for node in p.nodes)
        drawing += draws
        assert (SAME_DRAWS in p.settings) == draws
        made = run_both(p, Task(place=EAGER), Journal(None))
        assert verdicts(made) == [], show(p)
    assert drawing > 5


def test_without_the_setting_nothing_is_run() -> None:
    bare = replace(parse(TWO_DRAWS), settings=())
    with pytest.raises(IllTyped, match="dropout draws random numbers"):
        infer(bare)
    assert "draws random numbers" in report_program(bare, Task(place=EAGER), Journal(None)).rejected


def test_the_dry_runs_of_the_generator_always_draw_the_same() -> None:
    known = {spec.name: spec for spec in (*ops_by_family()["dropout"], OPS["sum"])}
    told = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        told.append(show(generate(random.Random("same"), known)))
        assert torch.equal(torch.get_rng_state(), state)
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["dropout", "rrelu"])
def test_kernels_that_draw_and_multiply_are_replayed_from_their_operand(name: str) -> None:
    x = torch.randn(50, dtype=torch.float32)
    recorder = Recorder()
    recorder.ref(x)
    with recorder:
        y = x * (1 / 3)
        if name == "dropout":
            out = torch.native_dropout(y, 0.25, True)[0]
        else:
            out = torch.nn.functional.rrelu(y, training=True)
    mine = Replay(recorder.trace).run().value(recorder.ref(out))
    assert torch.equal(mine == 0, out == 0)
    torch.testing.assert_close(mine, out.double(), rtol=1e-6, atol=0)
    assert not torch.equal(mine, out.double())  # the operand is not rounded in the replay, so neither is the result


@pytest.mark.parametrize("x", [1.0, -11.0, 3.0, 0.1])
@pytest.mark.parametrize("p", [0.88, 0.45, 0.1, 0.5, 0.75])
def test_a_kernel_may_round_dropouts_factor_even_where_the_product_needs_no_rounding(p: float, x: float) -> None:
    """CUDA's kernel rounds 1 - p to float32 and takes its reciprocal; 11 * (20 / 11) is representable all the same."""
    recorder = Recorder()
    given = torch.full((64,), x)
    recorder.ref(given)
    with recorder:
        out, mask = torch.native_dropout(given, p, True)
    spread = Model(recorder.trace, [recorder.ref(out)]).spread(8, scale=SCALE)
    floor, reference = spread.floors(FACTOR)[0], spread.reference[0]
    factor = (1.0 / torch.tensor(1 - p).double()).float()
    assert bool(((given * mask * factor - reference).abs() <= floor).all())
    assert bool((floor[mask] == 0).all()) == (p in (0.5, 0.75))
    assert bool((floor <= 16 * torch.finfo(torch.float32).eps * reference.abs()).all())


def test_a_script_seeds_every_run_and_has_the_setting() -> None:
    signature = Signature("gradients_agree", "wrong", "backward", "other")
    text = repro(Finding(signature, "", TWO_DRAWS, TWO_DRAWS, {"backend": "inductor"}, 3, 3))
    assert "fallback_random = True" in text
    assert text.index("def inputs") < text.index("torch.manual_seed(0)") < text.index("def f(")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "inductor"])
@pytest.mark.parametrize("route", ["autograd", "vjp"])
def test_compiled_draws_are_eagers(backend: str, route: str) -> None:
    place = Place(Subject("eager", "cpu"), Subject(backend, "cpu"))
    made = run_both(parse(TWO_DRAWS.replace("autograd", route)), Task(place=place), Journal(None))
    assert verdicts(made) == []
    assert detectable(made)[0] > 0
