"""The origin of a number's program: drawn, a mutant of kept programs, or a text; judged in the same way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.generation.mutate import MUTATOR_NAMES
from fuzzer.generation.sets import SETS
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.trial import origin
from fuzzer.trial.batch import Batch, explore_batch
from fuzzer.trial.draw import MAX_REDRAWS, Drawn
from fuzzer.trial.origin import Mutation, draw_mutant, explore_from, in_domain
from fuzzer.trial.pipeline import Refused
from fuzzer.trial.tasks import explore
from fuzzer.workers.journal import DIED_DRAWING, Journal, read_journal
from fuzzer.workers.messages import Report, Task

SIDE = Subject("eager", "cpu")
EAGER = Task(place=Place(SIDE, SIDE), seed=11, routes=("autograd", "vjp"), features=True)
PARENT = """program(1)
route("autograd")
x0 = leaf(f32[4, 6], seed=1)
v0 = exp(x0)
v1 = softmax(v0, dim=1)
backward(v1, cotangent(f32[4, 6], seed=2))
"""


def bred(mutator: str) -> Mutation:
    return Mutation(mutator, PARENT, PARENT)


def mutant(task: Task, number: int, mutator: str) -> Program:
    drawn = draw_mutant(task, number, bred(mutator), Journal(None))
    assert isinstance(drawn, Drawn)
    assert drawn.mutator == mutator
    return drawn.trial.program


def test_a_mutant_depends_on_the_task_its_number_and_its_parents_alone() -> None:
    first, again, other = (explore_from(EAGER, (n, bred("havoc"))) for n in (3, 3, 4))
    assert first.mutator == "havoc"
    assert first.features["operand"]
    assert (first.text, first.features) == (again.text, again.features)
    assert first.text not in (other.text, PARENT)


def test_most_mutators_make_a_mutant_of_a_common_program() -> None:
    made = [explore_from(EAGER, (3, bred(mutator))) for mutator in MUTATOR_NAMES]
    assert sum(bool(report.mutator) for report in made) >= len(made) - 3


def test_programs_of_all_origins_report_the_same_in_a_batch_as_alone() -> None:
    origins = {4: bred("fan_out"), 5: PARENT}
    together = explore_batch(EAGER, Batch((3, 4, 5), None, origins))
    alone = [explore(EAGER, 3), *(explore_from(EAGER, (n, origins[n])) for n in (4, 5))]
    assert [(r.text, r.verdict, r.mutator, r.features) for r in together] == [
        (r.text, r.verdict, r.mutator, r.features) for r in alone
    ]
    assert [report.mutator for report in together] == ["", "fan_out", ""]
    assert together[2].text == PARENT


def test_a_mutant_is_judged_at_a_stage_where_the_numbers_own_program_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def noted(drawn: Any, task: Task, log: Journal) -> Report:
        seen.append(task.place.subject.backend)
        return Report("")

    monkeypatch.setattr(origin, "report_drawn", noted)
    staged = Task(place=Place(SIDE, Subject("inductor", "cpu")), seed=5, staged=0.5)
    for number in range(8):
        explore_from(staged, (number, PARENT))
    assert seen == [origin.program_task(staged, number).place.subject.backend for number in range(8)]
    assert set(seen) == {"inductor", "inductor:ir"}


def test_what_no_mutator_can_make_gives_way_to_the_numbers_own_program() -> None:
    alone = replace(EAGER, routes=("autograd",))
    report = explore_from(alone, (3, bred("reroute")))
    assert (report.text, report.mutator) == (explore(alone, 3).text, "")


@pytest.mark.parametrize("refused", [True, False])
def test_a_mutant_that_eager_refuses_or_that_shows_no_fault_is_made_again_a_few_times(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    record = origin.record_reference

    def noted(program: Program, task: Task, log: Journal) -> Any:
        tried.append(show(program))
        if refused:
            raise Refused("it raised")
        return record(program, task, log)

    monkeypatch.setattr(origin, "record_reference", noted)
    monkeypatch.setattr(origin, "is_detectable", lambda trial, log: False)
    report = explore_from(EAGER, (3, bred("havoc")))
    assert len(set(tried)) == MAX_REDRAWS + 1
    # the last that ran is compiled whatever it shows; where none ran, the number's own program is
    given = (explore(EAGER, 3).text, "") if refused else (tried[-1], "havoc")
    assert (report.text, report.mutator) == given


OTHER = """program(1)
route("vjp")
x0 = leaf(f64[2])
v0 = exp(x0)
backward(v0, cotangent(f64[2]))
"""


def test_a_mutant_is_such_a_program_as_the_campaign_draws() -> None:
    fixed = (("inductor.max_fusion_size", 4),)
    assert mutant(replace(EAGER, fixed=fixed), 3, "fan_out").settings == fixed
    few = replace(EAGER, ops=("exp", "softmax", *SETS["core"]))
    made = [explore_from(few, (n, bred("insert_node"))) for n in range(8)]
    grown = [parse(report.text) for report in made if report.mutator]
    assert len(grown) > 3
    assert all(node.op in few.ops for program in grown for node in program.nodes)
    found, other = parse(PARENT), parse(OTHER)
    assert in_domain(EAGER, found, other)
    for narrow in (
        replace(EAGER, routes=("accumulate",)),
        replace(EAGER, ops=("exp",)),
        replace(EAGER, limits=replace(EAGER.limits, dtypes=("f16",))),
    ):
        assert not in_domain(narrow, found, other)
        assert in_domain(narrow, found, parent=found), "its parent has all that"
    drops = parse(PARENT.replace("softmax(v0, dim=1)", "dropout(v0, p=0.5)"))
    assert in_domain(EAGER, drops, found)
    assert not in_domain(replace(EAGER, place=Place(SIDE, Subject("inductor", "cuda"))), drops, drops)


def test_a_mutant_may_be_as_long_as_its_parent_and_two_ops_more() -> None:
    def chain(length: int) -> Program:
        nodes = "".join(f"v{n} = exp({f'v{n - 1}' if n else 'x0'})\n" for n in range(length))
        cotangent = f"backward(v{length - 1}, cotangent(f64[2]))\n"
        return parse(f'program(1)\nroute("vjp")\nx0 = leaf(f64[2])\n{nodes}{cotangent}')

    longest = EAGER.limits.max_nodes + 2
    assert in_domain(EAGER, chain(longest), chain(1))
    assert not in_domain(EAGER, chain(longest + 1), chain(1))
    assert in_domain(EAGER, chain(longest + 5), chain(longest + 3))
    assert not in_domain(EAGER, chain(longest + 6), chain(longest + 3))


def test_what_a_mutator_runs_in_eager_is_written_down_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies in it leaves its text."""
    log, made = Journal(tmp_path / "journal"), list[tuple[str, str]]()
    monkeypatch.setattr("fuzzer.trial.draw.journal", lambda: log)

    def died(program: Program) -> Any:
        made.append(read_journal((tmp_path / "journal").read_text()))
        raise KeyError("it died")

    monkeypatch.setattr("fuzzer.generation.redraft.dry_gradients", died)
    explore_from(EAGER, (3, bred("redraw_cotangent")))
    assert made
    assert all(phase == DIED_DRAWING and parse(text) for text, phase in made)
