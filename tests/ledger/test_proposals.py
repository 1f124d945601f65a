"""Merges and splits that facts suggest, each with its reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.judgement.verdict import Finding, Signature
from fuzzer.ledger.faults import State
from fuzzer.ledger.proposals import Proposal
from fuzzer.ledger.store import Store, open_store
from tests.ledger.test_cause import HEAD, NO_COMPILER, found, lowering, text
from tests.ledger.test_faults import verified
from tests.ledger.varied import SHAPES, scope

ROOT = Path(__file__).parents[2]
FREEZING = HEAD.replace("route", 'settings({"inductor.freezing": True})\nroute')
HOOKED = (
    HEAD + "x0 = leaf(f32[4], seed={day})\nwith hook(scale=2.0):\n    v0 = {op}(x0)\nbackward(v0, cotangent(f32[4]))\n"
)


def raising(exception: str, op: str, day: int) -> Finding:
    signature = Signature("compile_does_not_raise", "raises", "forward", f"{exception} < lower < call")
    return verified(found(text(op, head=FREEZING), signature=signature), day)


def hooked(op: str, day: int) -> Finding:
    return verified(found(HOOKED.format(op=op, day=day), "aot_eager"), day)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "findings.db") as opened:
        yield opened


def fill(store: Store, *findings: Finding, state: State = State("confirmed")) -> list[str]:  # noqa: B008 (frozen)
    """The ids of the findings' faults, which a person has judged."""
    for finding in findings:
        store.add(finding)
        store.triage(finding.id, state, "2026-02-01", "somebody")
    return [store.fault_of(finding.id).id for finding in findings]


def test_variants_of_one_fault_that_raise_otherwise_may_be_another(store: Store) -> None:
    index, other = raising("IndexError", "sin", 1), raising("AssertionError", "cos", 2)
    fault = fill(store, index, other)[0]
    [told] = store.proposals()
    rest = next(finding for finding in (index, other) if finding.id != store.get(fault).id)
    assert (told.kind, told.faults, told.variants) == ("split", (fault,), (rest.id,))
    assert told.command == f"backfuzz triage --split {fault} {rest.id}"
    assert told.why.startswith("shows ")
    store.split_fault(fault, told.variants, "2026-02-02", "somebody")
    assert store.proposals() == []


def test_variants_that_differ_in_ops_alone_are_one(store: Store) -> None:
    fill(store, *(verified(found(text(op), **lowering("mm")), day) for day, op in enumerate(("sin", "cos"), 1)))
    assert store.proposals() == []


def test_faults_of_one_stage_kind_and_region_may_be_one(store: Store) -> None:
    names = fill(store, hooked("sin", 1), hooked("exp", 2), verified(found(text("cos"), "aot_eager"), 3))
    assert len(set(names)) == 3
    [told] = store.proposals()
    assert (told.kind, set(told.faults)) == ("merge", set(names[:2]))
    assert told.why == "aot_eager: numbers, backward, scattered, in hook"
    store.merge_faults(told.faults, "2026-02-02", "somebody")
    assert store.proposals() == []


def test_faults_of_one_family_of_ops_may_be_one(store: Store) -> None:
    ops = ("logical_not(x0)", "logical_and(x0, x0)")
    names = fill(store, *(verified(found(text(op), "aot_eager"), day) for day, op in enumerate(ops, 1)))
    told = [one for one in store.proposals() if set(one.faults) == set(names)]
    assert [one.why for one in told] == [
        "aot_eager: numbers, backward, scattered, in no region, ops of one family: logical"
    ]


def test_faults_that_a_note_calls_one_may_be_one_unless_their_states_contradict(store: Store) -> None:
    first, second, third = fill(store, *(verified(found(text(op), "aot_eager"), day) for day, op in enumerate(
        ("sin", "exp", "tan"), 1)))  # fmt: skip
    store.triage(second, State("confirmed", note=f"as {first}: it is lost"), "2026-02-02", "somebody")
    store.triage(third, State("confirmed", note=f"kin of {first}, not as such"), "2026-02-02", "somebody")
    assert store.proposals() == [Proposal("merge", (first, second), (), f"notes say: as {first}")]
    store.triage(first, State("fixed", fixed_in="2.14"), "2026-02-03", "somebody")
    assert store.proposals() == []


def test_a_fault_that_is_gone_where_the_cause_of_another_is_may_be_that_one(store: Store) -> None:
    change = "aten.sin.default left to ATen"
    one = verified(found(text("sin"), vanishes=(change,)), 1)
    other = verified(found(text("sin", "exp"), **lowering("exp"), vanishes=(change,)), 2)
    names = fill(store, one, other, verified(found(text("sin", "tan"), **lowering("tan")), 3))
    assert len(set(names)) == 3
    why = f"both agree under one change: {change}"
    assert [(told.faults, told.why) for told in store.proposals() if told.why == why] == [((names[0], names[1]), why)]


def test_what_people_ruled_to_be_two_is_not_proposed(store: Store) -> None:
    findings = [hooked("sin", 1), hooked("exp", 2)]
    one = store.merge_faults(fill(store, *findings), "2026-02-02", "somebody")
    store.split_fault(one.id, [findings[1].id], "2026-02-03", "somebody")
    store.triage(findings[1].id, State("confirmed"), "2026-02-03", "somebody")
    assert [told for told in store.proposals() if told.kind == "merge"] == []


def test_an_equal_formula_at_one_stage_may_be_one_cause(store: Store) -> None:
    findings = [verified(found(text(op), "aot_eager"), day) for day, op in enumerate(("sin", "exp"), 1)]
    names = fill(store, *findings)
    for finding in findings:
        store.set_scope(scope(*SHAPES, finding=finding.id))
    formula = store.newest_scopes()[findings[0].id].formula
    assert formula is not None
    [told] = store.proposals()
    assert (set(told.faults), f"{formula.text} of what is right" in told.why) == (set(names), True)


def test_nothing_is_proposed_about_what_is_no_fault_and_no_split_of_what_is_fixed(store: Store) -> None:
    fill(store, hooked("sin", 1), hooked("exp", 2), state=State("not-a-fault", note="legal"))
    fill(store, raising("IndexError", "sin", 3), raising("KeyError", "cos", 4), state=State("fixed", fixed_in="2.14"))
    assert store.proposals() == []


def test_proposals_are_read_without_torch(store: Store) -> None:
    lost = replace(
        found(text("abs"), **NO_COMPILER), signature=Signature("gradients_agree", "wrong", "backward", "all-zero")
    )
    fill(store, hooked("sin", 1), hooked("exp", 2), verified(lost, 3))
    code = (
        f"import sys; from fuzzer.ledger.store import open_store; told = open_store({str(store.path)!r}).proposals();"
        "assert len(told) == 1, told; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
