"""`backfuzz minimize`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzer.language.text import parse
from fuzzer.ledger.store import open_store
from tests.commands.calls import EAGER, FINDING, PLANTED, ROOT, SEED, call, refused, wait_until


def test_minimize_of_an_agreeing_program_stores_nothing_and_exits_2() -> None:
    done = call("minimize", SEED, *EAGER, "--db", "new.db")
    assert done.exit_code == 2
    assert "agree; nothing to store" in done.stdout
    assert not Path("new.db").exists()


def test_a_ledger_that_is_not_there_is_told_before_anything_runs() -> None:
    told = refused(call("minimize", SEED, *EAGER, "--db", "new.db", "--known", "nowhere.db"))
    assert "nowhere.db" in told
    assert not Path(".backfuzz").exists()


OWN = """
import torch

def compile_graph(module, inputs):
    for node in module.graph.nodes:
        if "relu" in str(node.target):
            node.target = torch.abs
    module.recompile()
    return module
"""


@pytest.fixture
def own_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an installed backend that takes relu for abs, and compiles in no time."""
    folder = tmp_path / "site"
    about = folder / "own-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "own_compiler.py").write_text(OWN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[torch_dynamo_backends]\nown = own_compiler:compile_graph\n")
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
    return "own"


@pytest.mark.slow
def test_a_planted_fault_is_minimized_stored_and_listed_and_then_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tutorial's test replays and exports what a campaign stored, and has its natural program."""
    monkeypatch.setattr("minimizer.natural.STEPS", ())
    (tmp_path / "planted.prog").write_text(PLANTED.replace("v0 = relu(x0)", "v1 = neg(x0)\nv0 = relu(v1)"))
    done = call("minimize", "planted.prog", "--device", "cpu", "--workers", "2", "--db", "new.db", "--json")
    assert done.exit_code == 0, done.output
    [row] = json.loads(done.stdout)
    assert row["minimal"].count("relu(") == 1
    assert "neg(" not in row["minimal"]
    assert row["finding"] in call("faults", "--findings", "--db", "new.db").stdout
    assert row["queries"] > 0
    (tmp_path / "again.prog").write_text(PLANTED.replace("v0 = relu(x0)", "v1 = exp(x0)\nv0 = relu(v1)"))
    again = call(
        "minimize", "again.prog", "--device", "cpu", "--db", "other.db", "--known", "new.db", "--unless-known", "--json"
    )
    assert again.exit_code == 0, again.output
    [met] = json.loads(again.stdout)
    assert (met["finding"], met["queries"]) == (row["finding"], 0), "it is not shrunk"
    assert met["fault"].endswith(" of new.db")
    assert not Path("other.db").exists(), "what is known is not stored again"


@pytest.mark.slow
def test_kill_9_in_the_middle_of_a_reduction_loses_nothing_stored_and_it_can_be_done_again(
    own_backend: str, db: Path, tmp_path: Path
) -> None:
    program = tmp_path / "big.prog"
    program.write_text(LONG)
    asked = ["minimize", str(program), "--backend", own_backend, "--device", "cpu", "--db", str(db)]
    # in processes of their own: torch looks for installed backends once
    command = [sys.executable, "-W", "ignore", "-m", "backfuzz", *asked]
    running = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    # a worker has run several candidates: the reduction is on its way
    wait_until(lambda: any(tmp_path.glob(".backfuzz/pool-*/worker-*/journal")), running)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(timeout=10)
    with open_store(db, create=False) as store:
        assert [f.id for f in store.list()] == [FINDING.id]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    with open_store(db, create=False) as store:
        assert len(store.list()) == 2
        assert {len(parse(f.program).nodes) for f in store.list() if f.id != FINDING.id} == {1}


LONG = """program(1)
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
v0 = exp(x0)
v1 = neg(v0)
v2 = relu(v1)
v3 = sin(v2)
v4 = sum(v3, dim=0)
backward(v4, cotangent(f32[4]))
"""
