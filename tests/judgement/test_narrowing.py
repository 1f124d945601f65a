"""Dropped roundings to half precision: what they explain, what they do not, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fuzzer.judgement.narrowing import narrowed
from fuzzer.judgement.oracles import ASKED, verdicts
from fuzzer.judgement.trial import Place, Subject, Trial
from tests.judgement.trials import Change, put, trial

FLOORED = """x0 = leaf(f16[4], requires_grad=False, values=data([0.01, 0.002, 0.005, 1.0]))
x1 = leaf(f16[4], values=data([1.0, 2.0, 3.0, 4.0]))
v0 = cos(x0)
v1 = floor(v0)
v2 = mul(v1, x1)
backward(v2, cotangent(f16[4], values="ones"))
"""
ONES, ZEROS = [1.0, 2.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0]  # v2 with the rounding and without it
BEHIND_A_PRODUCT = """x0 = leaf(f16[1, 1], requires_grad=False, values=data([0.01]))
x1 = leaf(f16[1, 1], values=data([1.0]))
v0 = cos(x0)
v1 = matmul(v0, x1)
v2 = floor(v1)
backward(v1, cotangent(f16[1, 1], values="ones"))
returns(v2)
"""
IN_FLOAT32 = """x0 = leaf(f32[4], requires_grad=False, values=data([0.01, 0.002, 0.005, 1.0]))
x1 = leaf(f16[4], values=data([1.0, 2.0, 3.0, 4.0]))
v0 = cos(x0)
v1 = floor(v0)
v2 = to(v1, dtype=f16)
v3 = mul(v2, x1)
backward(v3, cotangent(f16[4], values="ones"))
"""
THERE_AND_BACK = """x0 = leaf(f32[2], values=data([1.001, 2.002]))
v0 = to(x0, dtype=bf16)
v1 = to(v0, dtype=f32)
v2 = sum(v1)
backward(v2, cotangent(f32[()], values="ones"))
"""


def holding(*values: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: torch.tensor(values, dtype=t.dtype).reshape(t.shape)


def compiled(text: str, change: Change, *, stage: str = "") -> Trial:
    """The program's eager run against a changed copy that stands for inductor's."""
    return replace(trial(text, change), place=Place(Subject("eager"), Subject("inductor").at(stage)), known={})


def told(made: Trial) -> dict[str, tuple[str, ...]]:
    return {name: found.casts for name, found in narrowed(made).items()}


def test_a_dropped_rounding_that_flips_a_decision_is_named() -> None:
    assert told(compiled(FLOORED, put("v2", holding(*ZEROS)))) == {"v2": ("cos to float16",)}


def test_a_cast_to_half_precision_and_back_may_be_dropped() -> None:
    assert told(compiled(THERE_AND_BACK, put("v2", holding(3.003)))) == {"v2": ("_to_copy to bfloat16",)}


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        (FLOORED, "v2", ONES),
        (FLOORED, "v2", [0.0, 2.0, 3.0, 0.0]),  # a choice of where it is dropped
        (FLOORED, "v2", [0.0, 0.0, 0.0, 4.0]),  # a fault of the same size elsewhere, too
        (FLOORED, "x1.grad", [2.0, 2.0, 2.0, 0.0]),
        (IN_FLOAT32, "v3", ONES),  # a rounding added
        (BEHIND_A_PRODUCT, "v2", [0.0]),  # a product reads what is stored
        (THERE_AND_BACK, "v2", [3.0]),
        (THERE_AND_BACK, "v2", [3.006]),
    ],
)
def test_nothing_else_is_explained(text: str, name: str, values: list[float]) -> None:
    assert told(compiled(text, put(name, holding(*values)))) == {}


def test_only_stages_of_inductor_that_drop_roundings_are_asked() -> None:
    made = compiled(FLOORED, put("v2", holding(*ZEROS)), stage="ir")
    assert list(told(made)) == ["v2"]
    for backend in ("inductor:graph", "aot_eager", "eager"):
        assert told(replace(made, place=Place(subject=Subject(backend)), known={})) == {}
    kept = replace(made.program, settings=(("inductor.emulate_precision_casts", True),))
    assert told(replace(made, code=kept, known={})) == {}


@pytest.mark.parametrize("wrong", [False, True])
def test_it_is_counted_or_told_where_another_run_keeps_the_rounding_and_agrees(wrong: bool) -> None:
    made = compiled(FLOORED, put("v2", holding(*ZEROS)))
    if wrong:
        made.known["judged", "v2"] = replace(narrowed(made)["v2"].judged, verdict="wrong")
    as_before = ["outputs_agree/wrong/forward/all-zero"] if wrong else []

    def said(seen: Trial) -> list[str]:
        return [str(v.signature) for v in verdicts(seen)]

    asked = replace(made, also=ASKED)
    assert said(made) == [*as_before, "narrowings_agree/agree/forward/dropped rounding"]
    assert said(replace(asked, kept=trial(FLOORED).subject)) == [
        "narrowings_agree/narrowing-sensitive/forward/dropped rounding"
    ]
    assert said(replace(asked, kept=made.subject)) == as_before
