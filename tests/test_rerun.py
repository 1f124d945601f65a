"""What is compiled runs twice on equal inputs, and without its settings where that is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fuzzer.execution import worker
from fuzzer.execution.messages import RAN, Observation, Place, Subject, Trial
from fuzzer.execution.worker import SAMPLE, Journal, Task, on_host, sampled, try_program, without_settings
from fuzzer.faults import planted
from fuzzer.faults.deeds import misbehave
from fuzzer.oracles import unequal, verdicts
from fuzzer.private import replaced_decomposition
from fuzzer.routes import ANY_BACKEND
from fuzzer.text import parse

BODY = """x0 = leaf(f32[3, 4], seed=1)
x1 = leaf(f32[4, 2], seed=2)
v0 = mm(x0, x1)
v1 = sin(v0)
backward(v1, cotangent(f32[3, 2], seed=3))
"""
# compiles graphs, and no code
LIGHT = Task(place=Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu")))


def trial(route: str = "autograd", settings: str = "", body: str = BODY, task: Task = LIGHT) -> Trial:
    return try_program(parse(f'program(1)\n{settings}route("{route}")\n{body}'), task, Journal(None))


@pytest.mark.parametrize("route", ANY_BACKEND)
def test_a_second_run_gives_the_same_bits_and_compiles_nothing(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    run = worker.run_again

    def counted(*args: object) -> object:
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        result = run(*args)  # type: ignore[arg-type]
        if result is not None:  # eager does not run again
            counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"] - before)
        return result

    monkeypatch.setattr(worker, "run_again", counted)
    made = trial(route)
    again = made.subject.again
    assert again is not None
    assert again.gradients["x0"] is not made.subject.gradients["x0"]
    assert unequal(made.named(made.subject), made.named(again)) == []
    assert counts == [0]
    assert verdicts(made) == []


def test_bits_are_compared_whatever_the_layout() -> None:
    one = torch.ones(4, dtype=torch.bfloat16)[::2][:1]
    assert one.stride() == (2,)
    assert unequal({"v0": one}, {"v0": torch.ones(1, dtype=torch.bfloat16)}) == []
    assert unequal({"v0": one}, {"v0": -one}) == ["v0"]
    assert unequal({"v0": torch.tensor(0.0)}, {"v0": torch.tensor(-0.0)}) == ["v0"]
    assert unequal({"v0": torch.ones(2, 3).mT}, {"v0": torch.ones(3, 2)}) == []


def test_eager_and_programs_that_write_to_leaves_run_once() -> None:
    eager = replace(LIGHT, place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")))
    assert trial(task=eager).subject.again is None
    writes = BODY.replace("x1 = leaf(", "x2 = leaf(f32[2], requires_grad=False)\nx1 = leaf(").replace(
        "v1 = sin(v0)", "v1 = sin(v0)\nv2 = neg_(x2)"
    )
    assert trial(body=writes).subject.again is None


def test_a_sample_depends_on_seed_and_number_alone() -> None:
    asked = [bool(sampled(replace(LIGHT, seed=5), i).also) for i in range(2000)]
    assert asked == [bool(sampled(replace(LIGHT, seed=5, routes=("vjp",)), i).also) for i in range(2000)]
    assert asked != [bool(sampled(replace(LIGHT, seed=6), i).also) for i in range(2000)]
    assert 0.5 * SAMPLE < sum(asked) / 2000 < 2 * SAMPLE


SETTING = 'settings({"functorch.cse": False, "inductor.fallback_random": True})\n'


def test_settings_are_left_out_where_that_is_asked_but_for_those_that_fix_the_draws() -> None:
    made = trial(settings=SETTING, task=replace(LIGHT, also=("settings_agree",)))
    assert without_settings(made.program).settings == (("inductor.fallback_random", True),)
    assert made.bare is not None
    assert unequal(made.named(made.subject), made.named(made.bare)) == []
    assert verdicts(made) == []
    assert trial(settings=SETTING).bare is None
    assert trial(task=replace(LIGHT, also=("settings_agree",))).bare is None


def test_a_rerun_that_differs_is_asked_about_under_deterministic_algorithms() -> None:
    misbehave()

    def gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return misbehave()(grad * (y * (1 - y)), "alternate")

    light = replace(LIGHT, place=Place(Subject("eager", "cpu"), Subject("aot_eager_decomp_partition", "cpu")))
    with replaced_decomposition(torch.ops.aten.sigmoid_backward.default, gradient), planted("", "subject"):
        made = trial(body=BODY.replace("sin", "sigmoid"), task=light)
    assert made.subject.again is not None
    assert unequal(made.named(made.subject), made.named(made.subject.again))
    assert made.subject.admitted == ""
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu
def test_results_are_judged_on_the_cpu_unless_they_cannot_be_read() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    plain = [torch.arange(6.0).reshape(2, 3).mT, torch.ones(1).expand(4), torch.tensor([1 + 2j]).conj(), torch.ones(0)]
    beyond = torch.ones(4, device="cuda")
    beyond = torch.ops.inductor._reinterpret_tensor(beyond, [8], [1], 0)
    seen = Observation(RAN, [*(t.cuda() for t in plain), beyond], {"x0": plain[0].cuda(), "x1": None})
    near = on_host(seen)
    assert [t.device.type for t in near.outputs] == ["cpu"] * 4 + ["cuda"]
    assert all(torch.equal(a, b) for a, b in zip(near.outputs[:4], plain, strict=True))
    assert torch.equal(near.gradients["x0"], plain[0])
    assert near.gradients["x1"] is None
