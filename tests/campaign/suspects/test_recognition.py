"""A suspect held against known faults, by experiments that are run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.suspects import recognition
from fuzzer.campaign.suspects.recognition import Met, experimenter, fault_elsewhere, fault_shown, met_as_known
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Finding, Signature, Verdict
from fuzzer.language.text import parse, show
from fuzzer.ledger.cause import COPIED, WITHOUT
from fuzzer.ledger.recognise import STAGE, Known, Question
from fuzzer.ledger.store import Store, open_store
from fuzzer.workers.messages import Report, Task
from tests.campaign.fakes import OTHER, PLACE, PROGRAM, SIGNATURE, TANH, FakePool

TASK = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")))
LEFT_TO_ATEN = Question("aten.threshold_backward.default left to ATen", True)
BEFORE = Question(f"{STAGE}aot_eager", True)


def known(*questions: Question) -> Known:
    return Known("F0123456", frozenset({SIGNATURE}), frozenset({frozenset({"relu"})}), questions, True)


def pool(agrees: Callable[[Task], bool]) -> tuple[Any, list[Task]]:
    ran: list[Task] = []

    def answer(task: Task, text: str) -> Report:
        ran.append(task)
        return Report(text, () if agrees(task) else (Verdict(SIGNATURE, "it is wrong"),))

    return FakePool(answer), ran


def test_what_makes_the_fault_vanish_is_tried_and_decides() -> None:
    gone, ran = pool(lambda task: task.lacking == ("aten.threshold_backward.default",))
    assert fault_shown(parse(PROGRAM), SIGNATURE, [known(LEFT_TO_ATEN)], TASK, gone) == ("F0123456", 1)
    assert [task.lacking for task in ran] == [("aten.threshold_backward.default",)]
    assert ran[0].fresh
    still, _ = pool(lambda task: False)
    assert fault_shown(parse(PROGRAM), SIGNATURE, [known(LEFT_TO_ATEN)], TASK, still) == (None, 1)


HOOKED = PROGRAM.replace("v0 = ", "with hook(scale=2.0):\n    v0 = ").replace("relu(x0)", "relu_(x0)")


@pytest.mark.parametrize(
    ("name", "there"), [(f"{WITHOUT}hook", "with hook"), (COPIED, "relu_(x0)")], ids=["region", "written leaf"]
)
def test_a_change_of_the_program_is_asked_by_its_name(name: str, there: str) -> None:
    ran: list[str] = []

    def answer(task: Task, text: str) -> Report:
        ran.append(text)
        return Report(text, ())

    program = parse(HOOKED.replace("seed=1)", "seed=1, requires_grad=False)"))
    assert there in show(program)
    assert experimenter(program, SIGNATURE, TASK, FakePool(answer))(name) == "agree"
    [changed] = ran
    assert there not in changed


def test_a_stage_is_asked_as_a_backend() -> None:
    gone, ran = pool(lambda task: task.place.subject.backend == "aot_eager")
    assert fault_shown(parse(PROGRAM), SIGNATURE, [known(BEFORE)], TASK, gone) == ("F0123456", 1)
    assert len(ran) == 1


def test_what_was_seen_at_a_stage_is_tried_there_and_shows_it_there() -> None:
    gone, ran = pool(lambda task: bool(task.lacking))
    there = replace(TASK, place=TASK.place.at("ir"))
    asked = (LEFT_TO_ATEN, Question(f"{STAGE}inductor:ir", False))
    assert fault_shown(parse(PROGRAM), SIGNATURE, [known(*asked)], there, gone) == ("F0123456", 1)
    assert [task.place.subject.backend for task in ran] == ["inductor:ir"]
    in_code = Question(f"{STAGE}inductor:ir", True)
    assert fault_shown(parse(PROGRAM), SIGNATURE, [known(in_code)], there, gone) == (None, 0), "it is seen before code"


@pytest.mark.parametrize("question", [Question("no.such_setting=1", True), Question(f"{STAGE}no_such_stage", True)])
def test_an_experiment_that_there_is_not_explains_nothing(question: Question) -> None:
    gone, ran = pool(lambda task: True)
    assert fault_shown(parse(PROGRAM), SIGNATURE, [known(question)], TASK, gone) == (None, 0)
    assert ran == []


def test_nothing_runs_for_a_suspect_that_no_fault_resembles() -> None:
    gone, ran = pool(lambda task: True)
    assert fault_shown(parse(PROGRAM), OTHER, [known(LEFT_TO_ATEN)], TASK, gone) == (None, 0)
    assert ran == []


# ---------------------------------------------------------------- other ledgers


STORED = Finding(SIGNATURE, "detail", PROGRAM, PROGRAM, PLACE, 3, 3, created="2026-01-01")


def ledger(path: Path, *findings: Finding) -> str:
    """A ledger with these findings: the first one's fault."""
    with open_store(path) as store:
        for finding in findings:
            store.add(finding)
        return store.fault_of(findings[0].id).id


def test_a_fault_of_another_ledger_is_met_as_known_and_named_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own.db", tmp_path / "other.db"
    fault = ledger(other, STORED)
    before, held = other.read_bytes(), list[set[str]]()

    def shown(text: str, signature: Signature, known: Iterable[Known], *_: Any) -> tuple[str | None, int]:
        held.append({k.fault for k in known})
        return fault, 2

    def held_faults(store: Store) -> tuple[Known, ...]:
        return tuple(replace(known(BEFORE), fault=fault.id) for fault in store.faults())

    monkeypatch.setattr(Store, "known_faults", held_faults)
    monkeypatch.setattr(recognition, "fault_shown", shown)
    pool: Any = None
    met = met_as_known(parse(PROGRAM), SIGNATURE, own, [other], TASK, pool)
    assert met == Met(f"{fault} of other.db", STORED, 2)
    ledger(own, STORED)
    met = met_as_known(parse(PROGRAM), SIGNATURE, own, [other], TASK, pool)
    assert met == Met(fault, STORED, 2), "its own comes first"
    assert held == [{fault}, {fault}]
    assert other.read_bytes() == before


def test_a_finding_is_of_a_fault_elsewhere_that_has_it_or_that_it_would_join(tmp_path: Path) -> None:
    own, other = tmp_path / "own.db", tmp_path / "other.db"
    fault = ledger(other, STORED)
    assert fault_elsewhere(STORED, own, [other], same=True) == f"{fault} of other.db"
    longer = replace(STORED, program=PROGRAM.replace("seed=1", 'values="integers", seed=1'))
    assert longer.id != STORED.id
    assert fault_elsewhere(longer, own, [other], same=True) == ""
    assert fault_elsewhere(longer, own, [other]) == f"{fault} of other.db"
    assert fault_elsewhere(replace(STORED, program=TANH), own, [other]) == ""
    assert fault_elsewhere(STORED, own, []) == ""


def test_a_ledger_is_read_again_only_once_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, reads, known_faults = tmp_path / "a.db", [0], Store.known_faults
    with open_store(path) as store:
        store.add(Finding(SIGNATURE, "detail", PROGRAM, PROGRAM, PLACE, 3, 3, created="2026-01-01"))

    def counted(store: Store) -> tuple[Known, ...]:
        reads[0] += 1
        return known_faults(store)

    def looks(changed: float, times: int) -> int:
        """How often the ledger is read for so many looks, where its files changed at this time."""
        before = reads[0]
        for file in tmp_path.glob("a.db*"):
            os.utime(file, (changed, changed))
        for _ in range(times):
            recognition._faults_of(path)
        return reads[0] - before

    monkeypatch.setattr(Store, "known_faults", counted)
    now = time.time()
    assert looks(now - 60, 3) == 1
    assert looks(now - 50, 3) == 1
    assert looks(now, 3) == 3, "a change of this moment may be followed by one that cannot be told from it"
