"""Deaths while a program was drawn are looked at more closely, each once."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import Any, cast

from fuzzer.campaign.deaths_in_drawing import Undrawn
from fuzzer.generation.draft import Rejected
from fuzzer.judgement.trial import DIED, Observation, Place
from fuzzer.language.program import Program
from fuzzer.trial.draw import draw_program
from fuzzer.trial.tasks import examine, explore_announced
from fuzzer.workers.journal import DIED_DRAWING
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.obituary import report_of_death
from fuzzer.workers.pool import Pool
from tests.workers.worker_faults import TEXT


class Asked:
    """A pool that only notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []

    def submit(self, function: Any, task: Task, what: Any) -> Future[Any]:
        self.asked.append((function, what))
        return Future()


def dead(text: str, phase: str) -> Report:
    return report_of_death(Place(), Observation(DIED, signal="SIGSEGV"), text, phase)


def test_the_drawing_is_run_again_and_then_the_program_that_it_died_of() -> None:
    asked, undrawn = Asked(), Undrawn()
    pool = cast(Pool, asked)
    undrawn_report = dead("# program 42 of seed 3, not drawn yet\n", "begin")
    begun = undrawn.look_closer((5, 6, 7), [Report(TEXT), undrawn_report, None], pool, Task())
    assert (list(begun), asked.asked) == ([6], [(explore_announced, 42)])
    assert list(undrawn.look_closer((6,), [dead(TEXT, DIED_DRAWING)], pool, Task())) == [6]
    assert asked.asked[1:] == [(examine, TEXT)]
    for again in (undrawn_report, dead(TEXT, DIED_DRAWING), dead(TEXT, "reference forward")):
        assert undrawn.look_closer((6,), [again], pool, Task()) == {}


def test_a_drawing_announces_what_it_runs_and_draws_the_same_program() -> None:
    said: list[Program] = []
    for index in range(6):
        with suppress(Rejected):
            program = draw_program(Task(), index, announce=said.append)
            assert program == draw_program(Task(), index)
        assert {leaf.name for leaf in program.leaves} <= {leaf.name for leaf in said[-1].leaves}
    assert len(said) > 6
