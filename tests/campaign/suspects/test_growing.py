"""Growing on the pool: what counts as the same fault, what is visible, what must show again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.suspects import growing as growing
from fuzzer.campaign.suspects.growing import grow_finding, visible_error, with_program
from fuzzer.judgement.verdict import Comparison, Finding, Signature, Verdict
from fuzzer.language.text import parse, show
from fuzzer.ledger.recognise import WITHOUT_COMPILER, known_fault
from fuzzer.trial.verify import Verification
from fuzzer.workers.messages import Report, Task
from tests.campaign.fakes import EAGER, PROGRAM, FakePool
from tests.ledger.found import finding

TASK = Task(place=EAGER)
TINY = PROGRAM.replace("f32[4], seed=1", 'f32[4], values="tiny"')
NONFINITE = Signature("no_new_nonfinite", "wrong", "backward", "nonfinite")


def off(eager: float, compiled: float, floor: float = 0.0) -> tuple[Comparison, ...]:
    return (Comparison("x0.grad", (0,), eager, compiled, eager, floor, 1, 4),)


def grown(
    found: Finding, answer: Any, monkeypatch: pytest.MonkeyPatch, reproduced: int = 3, told: str = "agree"
) -> Finding:
    monkeypatch.setattr(
        growing,
        "verify",
        lambda text, task, signature, *_: Verification(reproduced, 3, Verdict(signature, "in /a/b.py")),
    )
    monkeypatch.setattr(growing, "experimenter", lambda *_: lambda name: told)
    pool: Any = FakePool(answer)
    return grow_finding(found, TASK, pool, Path())[0]


def shows(signature: Signature, floor: float = 0.0) -> Any:
    return lambda task, text: Report(text, (Verdict(signature, "it is wrong", off(1.0, 2.0, floor)),))


def test_a_program_that_shows_the_signature_becomes_the_natural_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = finding(TINY, comparisons=off(1.0, 2.0))
    natural = grown(found, shows(found.signature), monkeypatch).natural
    assert natural is not None
    assert "tiny" not in natural.program
    assert natural.detail == "in b.py"


@pytest.mark.parametrize(
    ("signature", "vanishes", "told", "followed"),
    [
        (NONFINITE, True, "agree", True),
        (NONFINITE, True, "wrong", False),
        (NONFINITE, True, "not run: no GPU", False),
        (NONFINITE, False, "agree", False),
        (Signature("no_new_nonfinite", "wrong", "forward", "nonfinite"), True, "agree", False),
        (Signature("compile_does_not_raise", "raises", "backward", "E"), True, "agree", False),
    ],
    ids=["told alike", "told otherwise", "not told", "nothing tells", "other direction", "other class"],
)
def test_another_pattern_is_the_same_fault_where_the_experiments_say_so(
    signature: Signature, vanishes: bool, told: str, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "aten.relu.default left to ATen"
    own = Signature("gradients_agree", "wrong", "backward", "scattered")
    found = finding(TINY, signature=own, comparisons=off(1.0, 2.0), ablation={name: "agree"} if vanishes else {})
    natural = grown(found, shows(signature), monkeypatch, told=told).natural
    assert natural is not None
    assert (natural.program != TINY) == followed


def test_that_eager_shows_a_difference_does_not_tell_one_fault_of_eager_from_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Signature("gradients_agree", "eager-suspect", "backward", "scattered")
    found = finding(TINY, signature=own, comparisons=off(1.0, 2.0), stages={"eager": "eager-suspect"})
    assert [q for known in known_fault("", [found]) for q in known.questions] == [WITHOUT_COMPILER]
    other = Signature("no_new_nonfinite", "eager-suspect", "backward", "nonfinite")
    natural = grown(found, shows(other), monkeypatch, told="eager-suspect").natural
    assert natural is not None
    assert natural.program == TINY


def test_the_minimal_program_is_natural_where_others_show_it_faintly_or_not_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = finding(TINY, comparisons=off(1.0, 2.0))
    for kept in (
        grown(found, shows(found.signature, floor=0.5), monkeypatch),
        grown(found, shows(found.signature), monkeypatch, reproduced=2),
        grown(found, lambda task, text: Report(text), monkeypatch),
    ):
        assert kept.natural is not None
        assert kept.natural.program == TINY
        assert kept.grown is kept


def test_a_program_that_a_person_wrote_is_natural_where_it_shows_the_fault_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = finding(TINY, comparisons=off(1.0, 2.0))
    own = f"# of a report\n{PROGRAM.replace('[4]', '[3, 7]')}"

    def held(answer: Any, reproduced: int = 3) -> Finding | None:
        monkeypatch.setattr(
            growing, "verify", lambda text, task, own, *_: Verification(reproduced, 3, Verdict(own, "wrong"))
        )
        pool: Any = FakePool(answer)
        return with_program(found, parse(own), TASK, pool, Path())

    shown = held(shows(found.signature))
    assert shown is not None
    assert shown.grown.program == PROGRAM.replace("[4]", "[3, 7]")
    assert held(shows(found.signature), reproduced=2) is None
    assert held(lambda task, text: Report(text)) is None


@pytest.mark.parametrize(
    ("eager", "compiled", "error"),
    [(1.0, 1.0 + 1e-6, 0.0), (8.6e-10, 8.5e-10, 0.0), (2.0, 3.0, 0.5), (0.1, math.nan, math.inf), (0.0, 1.0, math.inf)],
)
def test_what_assert_close_lets_pass_is_not_visible(eager: float, compiled: float, error: float) -> None:
    verdict = Verdict(NONFINITE, "", off(eager, compiled))
    assert visible_error(verdict, parse(PROGRAM)) == error
    half = parse(show(parse(PROGRAM)).replace("f32", "bf16"))
    assert visible_error(Verdict(NONFINITE, "", off(1.0, 1.01)), half) == 0.0


def test_a_pattern_that_other_values_change_is_the_same_fault_where_its_cause_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Signature("gradients_agree", "wrong", "backward", "constant-ratio")
    stages = {"eager": "agree", "inductor": "wrong"}
    found = finding(TINY, signature=own, comparisons=off(1.0, 2.0), stages=stages)
    natural = grown(
        found, shows(Signature(own.oracle, "wrong", "backward", "other")), monkeypatch, told="wrong"
    ).natural
    assert natural is not None
    assert natural.program != TINY
