"""Places, sides and trials as values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fuzzer.judgement.comparison import judge_tensors, spread
from fuzzer.judgement.trial import Place, Subject, parse_subject
from fuzzer.language.errors import UsageError
from fuzzer.language.settings import SAME_DRAWS
from fuzzer.language.text import parse
from fuzzer.rounding.floors import FIRST_LOOK
from fuzzer.trial.pipeline import run_both, without_settings
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.judgement.trials import ROUNDED, trial


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("inductor", Subject("inductor", "cpu")),
        ("eager@cuda:1", Subject("eager", "cuda:1")),
        ("inductor@cpu/8", Subject("inductor", "cpu", 8)),
        ("inductor@cpu/0", Subject("inductor", "cpu", 1)),
    ],
)
def test_a_side_is_a_backend_on_a_device_with_some_threads(text: str, found: Subject) -> None:
    assert parse_subject(text, "cpu") == found
    assert parse_subject(str(found), "cuda") == found


@pytest.mark.parametrize("text", ["@cpu", "inductor@tpu", "inductor@cpu/many", ""])
def test_what_is_no_side_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="is not a backend or backend@device"):
        parse_subject(text, "cpu")


def test_a_place_names_the_devices_of_both_sides() -> None:
    assert Place(Subject("eager", "cuda"), Subject("inductor", "cpu")).devices == ["cuda", "cpu"]


def test_another_observation_is_judged_by_what_is_known_of_the_reference() -> None:
    made = trial(ROUNDED)
    first = spread(made, FIRST_LOOK)
    made.known["judged", "v1"] = "of the subject"
    name, gradient = next(iter(made.subject.gradients.items()))
    other = made.with_subject(replace(made.subject, gradients={**made.subject.gradients, name: gradient + 1}))
    assert spread(other, FIRST_LOOK) is first
    assert other.model is made.model
    assert ("judged", "v1") not in other.known
    assert torch.equal(other.named(other.subject)[f"{name}.grad"], gradient + 1)
    assert torch.equal(other.named(other.reference)[f"{name}.grad"], made.reference.gradients[name])


def test_what_was_computed_once_is_not_computed_again() -> None:
    made, asked = trial(ROUNDED), list[int]()
    assert [made.once("key", lambda: asked.append(1) or 7) for _ in range(3)] == [7, 7, 7]  # type: ignore[func-returns-value]
    assert asked == [1]


EXPANDED = """program(1)
settings({"functorch.view_replay_for_aliased_outputs": False})
route("autograd")
x0 = leaf(f16[2, 1], values="ones")
x1 = leaf(f32[3, 2, 3], requires_grad=False, values="ones")
v0 = expand_as(x0, x1)
backward(v0, cotangent(f16[3, 2, 3], seed=404))
"""


def test_a_gradient_may_be_summed_in_half_precision_where_as_strided_makes_it() -> None:
    """The backward of expand sums in float32, that of as_strided one by one in the tensors' own dtype."""
    place = Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu"))
    ran = run_both(parse(EXPANDED), Task(place=place), Journal(None))
    assert list(judge_tensors(ran, ["x0.grad"])) == []
    of_expand = replace(ran, code=without_settings(ran.program), known={})
    assert [judged.verdict for judged in judge_tensors(of_expand, ["x0.grad"])] == ["wrong"]


def test_numbers_of_different_draws_are_not_compared() -> None:
    """A window of fractional_max_pool2d is where its samples say; without them it draws its own."""
    drawn = """program(1)
route("autograd")
x0 = leaf(f32[2, 1, 4], values="ones")
v0 = fractional_max_pool2d(x0, kernel_size=1, output_size=(1, 3))
backward(v0, cotangent(f32[2, 1, 3], values="ones"))
"""
    eager = Subject("eager", "cpu")
    ran = run_both(parse(drawn), Task(place=Place(eager, eager)), Journal(None))
    ran.subject.gradients["x0"] = ran.subject.gradients["x0"].roll(1, -1)
    assert list(judge_tensors(ran, ["x0.grad"])) == []
    same = replace(ran, code=replace(ran.program, settings=(SAME_DRAWS,)), known={})
    assert [judged.verdict for judged in judge_tensors(same, ["x0.grad"])] == ["wrong"]
