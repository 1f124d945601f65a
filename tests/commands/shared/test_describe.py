"""A diagnosis, a scope and a fault in lines."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.commands.shared.describe import diagnosis_lines, fault_lines, scope_lines
from fuzzer.ledger.diagnosed import DIAGNOSER, TRACEBACK, VERSION
from fuzzer.ledger.faults import Fault, State
from tests.commands.calls import FINDING
from tests.ledger.varied import SHAPES, scope


def test_a_diagnosis_says_its_version_and_ends_in_the_traceback() -> None:
    assert diagnosis_lines(FINDING) == [f"not diagnosed yet: backfuzz diagnose {FINDING.id}"]
    diagnosis = {"side": "compiled raises: KeyError", VERSION: str(DIAGNOSER)}
    lines = diagnosis_lines(replace(FINDING, diagnosis=diagnosis, attachments={TRACEBACK: "Traceback\n  File"}))
    assert lines[0] == "  side: compiled raises: KeyError"
    assert lines[1].strip() == f"{VERSION}: {DIAGNOSER}"
    assert lines[-3:] == [f"  {TRACEBACK}:", "    Traceback", "      File"]


def test_the_columns_of_a_scope_stand_below_each_other() -> None:
    summary, head, *rows = scope_lines(scope(*SHAPES))
    assert summary.endswith("(torch 2.11.0, cpu, at the stage ir)")
    table = rows[: rows.index("")]
    start = head.index(head.split()[1])
    assert all(row[start - 2 : start] == "  " and row[start] != " " for row in table)


def test_a_fault_says_where_it_lives_where_it_is_gone_and_where_nobody_knows() -> None:
    fault = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("known", "u", "a note"), ("2.11.0 cpu",),
                  ("2.13.0 cpu",), unsaid=("2.12.0 cpu: no op x",))  # fmt: skip
    told = ["lives on: 2.11.0 cpu", "gone on: 2.13.0 cpu", "unknown on: 2.12.0 cpu: no op x", "note: a note"]
    assert fault_lines(fault) == ["fault F1: t (known u; 1 finding(s), 1 program(s))", *(f"  {line}" for line in told)]
