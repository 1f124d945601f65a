"""Faults in code: each acts where code is written, in its own program, and says so; before code none is there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from benches.miswritten import CODE
from benches.rare import ALL

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.private import cpp_kernels, reset_compiler
from fuzzer.language.routes import no_phase
from fuzzer.language.settings import in_force
from fuzzer.language.text import parse
from fuzzer.trial.batch import examine_batch
from fuzzer.trial.kernel_units import NotBuilt
from fuzzer.trial.observe import Side
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Task
from tests.benches.test_rare import text_of

BOTH_GRAPHS = (("functorch.force_non_lazy_backward_lowering", True), ("inductor.force_disable_caches", True))
UNBUILDABLE = "mask_of_indices_for_doubles"
PLACE = Place(Subject("eager"), Subject("inductor"))


def acted(text: str) -> set[str]:
    """The faults that act when a program's code is written, which is not built."""

    def never(*given: Any) -> None:
        raise NotBuilt

    def make(types: Any, source: str) -> Callable[..., None]:
        assert "/*" not in source.split("{", 1)[1], "no mark is left"
        return never

    fired, program = set[str](), parse(text)
    reset_compiler()
    with contextlib.ExitStack() as stack:
        stack.enter_context(in_force((*program.settings, *BOTH_GRAPHS)))
        stack.enter_context(cpp_kernels(make))
        for name, plant in CODE.items():
            stack.enter_context(plant(partial(fired.add, name)))
        with contextlib.suppress(NotBuilt):
            Side(program, Subject("inductor"), no_phase).observe()
    return fired


@pytest.mark.parametrize("name", CODE)
def test_a_fault_acts_where_the_code_of_its_program_is_written_and_no_other_does(name: str) -> None:
    assert acted(text_of(name)) == {name}


def test_where_no_code_is_written_none_acts() -> None:
    task = Task(place=PLACE.at("ir"), canary=ALL)
    for name in ("second_of_two_sums", "constant_of_doubles"):
        report = examine(task, text_of(name))
        assert (report.verdict, report.fired, report.stage) == ("agree", (), "ir")


@pytest.mark.slow
def test_a_fault_turns_its_program_wrong_and_without_it_the_program_agrees() -> None:
    """Their code is built together, but for one whose code cannot be built."""
    names = [name for name in CODE if name != UNBUILDABLE]
    texts, task = [text_of(name) for name in names], Task(place=PLACE)
    together = examine_batch(replace(task, canary=ALL), texts)
    assert [(report.verdict, report.fired) for report in together] == [("wrong", (name,)) for name in names]
    assert all(report.seconds.get("build", 0) > 0 for report in together)
    assert [report.verdict for report in examine_batch(task, [*texts, text_of(UNBUILDABLE)])] == ["agree"] * len(CODE)
    alone = examine(replace(task, canary=ALL), text_of(UNBUILDABLE))
    assert (alone.verdict, alone.fired) == ("raises", (UNBUILDABLE,))
