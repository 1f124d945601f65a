"""`backfuzz show`."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from fuzzer.findings.store import open_store
from tests.commands.calls import FINDING, RELU, call
from tests.findings.varied import SHAPES, scope


def test_show_prints_the_minimal_program_and_the_evidence(db: Path) -> None:
    text = call("show", FINDING.id[:4], "--db", db).stdout
    for part in (RELU, FINDING.detail, "reproduced 3 of 3", "inductor.max_fusion_size=1: agree", torch.__version__):
        assert part in text
    assert json.loads(call("show", FINDING.id, "--db", db, "--json").stdout)["stages"] == FINDING.stages


def test_show_takes_the_id_of_a_fault_and_tells_what_is_known_of_it(db: Path) -> None:
    fault = f"F{FINDING.id[:7]}"
    text = call("show", fault[:4], "--db", db).stdout
    assert text.startswith(FINDING.id)
    assert (
        f"fault {fault}: silent: wrong gradient of torch.nn.functional.relu (new; 1 finding(s), 1 program(s))" in text
    )
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
