"""What is drawn and looked at, by seed and number alone."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.coverage.wishes import Wishes
from fuzzer.judgement.oracles import ORACLES
from fuzzer.language.ops import OPS
from fuzzer.language.program import is_tracked, writes
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.language.text import show
from fuzzer.trial.draw import Drawn, draw_detectable, draw_program, program_task, report_drawn
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.workers.light import LIGHT


def test_a_sample_depends_on_seed_and_number_alone() -> None:
    asked = [program_task(replace(LIGHT, seed=5), i).also for i in range(2000)]
    assert asked == [program_task(replace(LIGHT, seed=5, routes=("vjp",)), i).also for i in range(2000)]
    assert asked != [program_task(replace(LIGHT, seed=6), i).also for i in range(2000)]
    shares = {oracle.name: oracle.share for oracle in ORACLES if oracle.share}
    assert set(shares) == {"gradients_are_derivatives"}
    for name, share in shares.items():
        assert 0.5 * share < sum(name in names for names in asked) / 2000 < 2 * share


def test_the_share_that_is_judged_before_code_is_chosen_by_seed_and_number_alone() -> None:
    task = Task(seed=5, staged=0.6)
    staged = [program_task(task, i).place.subject.backend for i in range(1000)]
    assert set(staged) == {"inductor", "inductor:ir"}
    assert 550 < staged.count("inductor:ir") < 650
    assert staged == [program_task(replace(task, routes=("vjp",)), i).place.subject.backend for i in range(1000)]
    assert {program_task(replace(task, staged=0.0), i).place for i in range(100)} == {task.place}


def test_a_program_by_cells_holds_the_ops_that_its_number_is_asked_for() -> None:
    task = Task(seed=3, cells=True)
    wishes = Wishes({name: spec for name, spec in OPS.items() if spec.family != "complex"}, task.limits, task.seed)
    numbers = [*range(7), *range(8, 13)]  # the eighth is asked for nothing
    asked = [{wish.op for wish in wishes.of(number)} for number in range(12)]
    programs = [draw_program(task, number) for number in numbers]
    held = [{node.op for node in program.nodes} for program in programs]
    assert sum(len(a & h) for a, h in zip(asked, held, strict=True)) >= 0.9 * sum(map(len, asked))
    assert show(draw_program(task, 4)) == show(programs[4]) != show(draw_program(task, 4, attempt=1))
    assert show(draw_program(replace(task, cells=False), 4)) != show(programs[4])


def test_one_program_in_eight_by_cells_is_drawn_as_it_comes_and_often_with_a_history_of_memory() -> None:
    task = Task(seed=3, cells=True)
    programs = [draw_program(task, number) for number in range(7, 200, 8)]
    assert sum(any(map(writes, p.nodes)) for p in programs) >= len(programs) / 3


def test_the_share_without_a_gradient_is_chosen_by_seed_and_number_and_leaves_the_others_as_they_are() -> None:
    task = Task(seed=3, routes=ANY_BACKEND, forward=0.3)
    drawn = [draw_program(task, number) for number in range(30)]
    without = [number for number, program in enumerate(drawn) if not is_tracked(program)]
    assert 4 <= len(without) <= 15
    usual = [draw_program(replace(task, forward=0.0), number) for number in range(30)]
    assert all((drawn[n] == usual[n]) == (n not in without) for n in range(30))
    assert all(map(is_tracked, usual))
    adding = replace(task, routes=("accumulate",), forward=1.0)  # a route that is about the backward alone
    assert is_tracked(draw_program(adding, without[0]))


def test_a_program_without_a_gradient_is_not_drawn_again_and_counts_as_such() -> None:
    task = replace(LIGHT, seed=3, forward=1.0)
    found = draw_detectable(task, 0, Journal(None))
    assert isinstance(found, Drawn)
    assert found.attempt == 0
    assert report_drawn(found, task, Journal(None)).forward
