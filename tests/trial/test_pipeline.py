"""From a program to its verdict: what each step takes and refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fuzzer.judgement.oracles import differing_tensors, verdicts
from fuzzer.judgement.trial import RAN, Observation, Place, Subject
from fuzzer.judgement.verdict import EAGER_RAISES, side_by_class
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import report_program, without_settings
from fuzzer.workers.accelerator import on_host
from fuzzer.workers.journal import Journal
from tests.workers.light import LIGHT, trial

SETTING = 'settings({"functorch.cse": False, "inductor.fallback_random": True})\n'


def test_settings_are_left_out_where_that_is_asked_but_for_those_that_fix_the_draws() -> None:
    made = trial(settings=SETTING, task=replace(LIGHT, also=("settings_agree",)))
    assert without_settings(made.program).settings == (("inductor.fallback_random", True),)
    assert made.bare is not None
    assert differing_tensors(made.named(made.subject), made.named(made.bare)) == []
    assert verdicts(made) == []
    assert trial(settings=SETTING).bare is None
    assert trial(task=replace(LIGHT, also=("settings_agree",))).bare is None


def test_at_a_stage_settings_that_act_in_code_alone_are_not_left_out() -> None:
    asked = replace(LIGHT, also=("settings_agree",), place=Place(Subject("eager"), Subject("inductor:graph")))
    assert trial(settings='settings({"inductor.cpp.simdlen": 1})\n', task=asked).bare is None
    assert trial(settings='settings({"functorch.cse": False})\n', task=asked).bare is not None


FLOORED = """x0 = leaf(f16[4], requires_grad=False, values=data([0.01, 0.002, 0.005, 1.0]))
x1 = leaf(f16[4], seed=2)
v0 = cos(x0)
v1 = floor(v0)
v2 = mul(v1, x1)
backward(v2, cotangent(f16[4], values="ones"))
"""


def test_a_program_whose_roundings_are_dropped_is_compiled_without_that_too_where_it_is_asked() -> None:
    at_ir = replace(LIGHT, place=Place(Subject("eager"), Subject("inductor:ir")))
    asked = replace(at_ir, also=("narrowings_agree",))
    [told] = verdicts(trial(body=FLOORED, task=asked))
    assert str(told.signature) == "narrowings_agree/narrowing-sensitive/forward/dropped rounding"
    assert told.detail.endswith("decided by a rounding that was dropped: cos to float16")
    casts = 'settings({"inductor.emulate_precision_casts": True})\n'
    for settings, task in (("", at_ir), (casts, asked)):
        made = trial(settings=settings, body=FLOORED, task=task)
        assert made.kept is None
        assert [v for v in verdicts(made) if not v.agrees] == []


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


SIGMOID = """program(1)
route("autograd")
x0 = leaf(f32[2], seed=1)
v0 = sigmoid(x0)
backward(v0, cotangent(f32[2], seed=2))
"""
OVERWRITTEN = """program(1)
route("autograd")
x0 = leaf(f32[2], seed=1)
v0 = exp(x0)
v1 = mul_(v0, v0)
backward(v1, cotangent(f32[2], seed=2))
"""
TRACED = replace(LIGHT, place=Place(Subject("eager"), Subject("aot_eager")))


def test_what_raises_in_eager_alone_as_torch_promises_is_told() -> None:
    told = report_program(parse(SIGMOID), replace(TRACED, canary="eager_refuses"), Journal(None))
    (verdict,) = told.verdicts
    assert str(verdict.signature) == "errors_agree/raises/forward/eager alone: a saved tensor is modified in place"
    assert side_by_class(verdict.signature) == EAGER_RAISES


def test_what_raises_on_both_sides_or_where_nothing_is_compiled_is_a_refusal() -> None:
    for task in (TRACED, replace(LIGHT, place=Place(Subject("eager"), Subject("eager")))):
        told = report_program(parse(OVERWRITTEN), task, Journal(None))
        assert told.verdict == "rejected"
        assert "modified by an inplace operation" in told.rejected
