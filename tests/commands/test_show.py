"""`backfuzz show`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fuzzer.commands.show import print_tables
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, RELU, call
from tests.ledger.varied import SHAPES, scope


def test_show_prints_the_minimal_program_and_the_evidence(db: Path) -> None:
    text = call("show", FINDING.id[:4], "--db", db).stdout
    for part in (RELU, FINDING.detail, "reproduced 3 of 3", "inductor.max_fusion_size=1: agree", torch.__version__):
        assert part in text
    assert json.loads(call("show", FINDING.id, "--db", db, "--json").stdout)["stages"] == FINDING.stages


def test_on_a_terminal_the_fault_comes_first_and_what_was_measured_stands_in_tables(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(db) as opened:
        finding, fault = opened.get(FINDING.id), opened.fault_of(FINDING.id)
    not_run = {f"inductor.x={i}": "not run: it acts later" for i in range(3)}
    print_tables(replace(finding, ablation=finding.ablation | not_run), fault, [])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{FINDING.id}  {FINDING.signature}")
    assert lines[1].startswith(f"fault {fault.id}: wrong gradient of F.relu (new; ")
    assert [line.rstrip() for line in lines if line.startswith("inductor.")] == ["inductor.max_fusion_size=1  agree"]
    assert any(line.startswith("3 more") for line in lines)
    assert set(map(str.rstrip, lines)) > {"stages", "settings", "place", *RELU.splitlines()}


def test_show_takes_the_id_of_a_fault_and_tells_what_is_known_of_it(db: Path) -> None:
    fault = f"F{FINDING.id[:7]}"
    text = call("show", fault[:4], "--db", db).stdout
    assert text.startswith(FINDING.id)
    assert f"fault {fault}: wrong gradient of F.relu (new; 1 finding(s), 1 program(s))" in text
    assert json.loads(call("show", fault, "--db", db, "--json").stdout)["fault"]["id"] == fault


def test_show_tells_the_scope(db: Path) -> None:
    with open_store(db) as opened:
        opened.set_scope(scope(*SHAPES, finding=FINDING.id))
    text = call("show", FINDING.id, "--db", db).stdout
    assert (
        "scope: fails in f32; any of 6 sizes and attributes tried; the wrong sum is the right one times n / (n - k)"
        in text
    )
    assert "  20           7            5      1.53846 (20/13)       1.53846\n" in text
    [told] = json.loads(call("show", FINDING.id, "--db", db, "--json").stdout)["scopes"]
    assert told["formula"] == "n / (n - k), n = x0.shape[1], k = x1.shape[1]"
