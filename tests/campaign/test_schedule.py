"""Schedules that draw blindly: programs are those of their numbers, with features told or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.schedule import BySeed, BySeedWithCorpus
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.text import show
from fuzzer.trial.draw import draw_program
from fuzzer.trial.tasks import explore
from fuzzer.workers.messages import Task

EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")), seed=11, routes=("autograd", "vjp"))


def test_features_can_be_told_without_changing_the_programs() -> None:
    ran = 0
    for n in range(6):
        told, plain = explore(replace(EAGER, features=True), n), explore(EAGER, n)
        assert (told.text, told.redrawn, told.rejected) == (plain.text, plain.redrawn, plain.rejected)
        assert not plain.features
        if not told.rejected:
            ran += 1
            assert told.features["operand"]
            assert told.text == show(draw_program(EAGER, n, told.candidate))
    assert ran >= 5


class Asked:
    """A pool that only notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def submit(self, *given: Any, behind: bool) -> None:
        assert behind, "what triage asks for goes first"
        self.asked.append(given)


def test_a_blind_schedule_asks_for_numbers_and_sends_nothing_else(tmp_path: Path) -> None:
    fresh, covering = Asked(), Asked()
    BySeed().submit(fresh, EAGER, 9)  # type: ignore[arg-type]
    assert fresh.asked == [(explore, EAGER, 9)]
    folder = tmp_path / "corpus"
    BySeedWithCorpus(EAGER, Corpus(folder, {}).start()).submit(covering, EAGER, 9)  # type: ignore[arg-type]
    assert covering.asked == [(explore, replace(EAGER, features=True, campaign=str(folder)), 9)]
    assert {path.name for path in folder.iterdir()} == {"index.jsonl", "state.json"}
