"""What is built: the rarest loops for what they take, one after the other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fuzzer.coverage.structure import LOOPS
from fuzzer.guidance import rarest
from fuzzer.guidance.novelty import FeatureCounts
from fuzzer.guidance.rarest import Asked, choose_rarest, explore_rarest
from fuzzer.trial.batch import Batch
from fuzzer.trial.sift import Choose, SiftedReport
from fuzzer.workers.messages import Report, Task

EQUAL = (1.0, 0.0)  # all programs take as long


def counted(*programs: range) -> bytes:
    """The counts after these were built."""
    counts = FeatureCounts()
    for program in programs:
        counts.count(program)
    return counts.packed()


def chosen(
    loops: list[range], share: float, counts: bytes = b"", cost: tuple[float, float] = EQUAL, seed: int = 0
) -> set[int]:
    """Which of programs with these loops are built."""
    shown = [{LOOPS: frozenset(own), "node": frozenset({7})} for own in loops]
    found = choose_rarest(shown, counts, share, cost, random.Random(seed))
    return {n for n, sifted in enumerate(found) if sifted.built}


def test_a_program_whose_loops_were_never_built_is_chosen_before_those_whose_were() -> None:
    known = counted(range(20), range(20), range(20, 40))
    assert chosen([range(20), range(20, 40), range(40, 55), range(5, 25)], 0.25, known) == {2}
    assert chosen([range(20), range(20, 40)], 0.5, known) == {1}, "built once, not twice"


def test_what_is_chosen_counts_as_built_for_those_after_it() -> None:
    assert chosen([range(20), range(20), range(50, 65)], 2 / 3) == {0, 2}


def test_rarity_is_weighed_against_what_a_program_takes() -> None:
    assert chosen([range(20), range(30, 40)], 0.5) == {0}
    assert chosen([range(20), range(30, 40)], 0.5, counted(range(10)), (0.1, 1.0)) == {1}


def test_a_part_of_a_program_is_one_by_chance() -> None:
    built = [len(chosen([range(n, n + 3) for n in range(3)], 0.5, seed=seed)) for seed in range(40)]
    assert set(built) == {1, 2}
    assert 10 < sum(n == 2 for n in built) < 30


@pytest.mark.parametrize(("share", "many"), [(0.0, 0), (1.0, 3)])
def test_none_or_all_can_be_asked_for(share: float, many: int) -> None:
    assert len(chosen([range(3), range(3), range(0)], share)) == many


def test_reports_depend_on_the_task_and_on_what_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same numbers and counts the same programs are built, whatever the process did before."""

    def explored(task: Task, batch: Batch, choose: Choose) -> list[Any]:
        shown = [{LOOPS: frozenset(random.Random(n).sample(range(99), 20))} for n in batch.numbers]
        return [SiftedReport(str(n), rarity=s.rarity, stage="" if s.built else "ir")
                for n, s in zip(batch.numbers, choose(shown), strict=True)]  # fmt: skip

    monkeypatch.setattr(rarest, "explore_sifted", explored)
    asked = Asked(Batch(tuple(range(12))), counted(range(50)), 0.3, (0.5, 0.01))
    first, other = explore_rarest(Task(seed=3), asked), explore_rarest(Task(seed=3), asked)
    assert first == other
    assert sum(not report.stage for report in first) in (3, 4)  # type: ignore[union-attr]
    assert explore_rarest(Task(seed=3), asked._replace(counts=counted(range(50, 99)))) != first


def test_one_program_has_one_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rarest, "explore_sifted", lambda task, batch, choose: [SiftedReport("alone")])
    found = explore_rarest(Task(), Asked(Batch((4,)), b"", 0.5, EQUAL))
    assert isinstance(found, Report)
