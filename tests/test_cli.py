"""The command line: what it prints, what it exits with, and what it leaves behind."""

from __future__ import annotations

import ast
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner, Result

from fuzzer import store
from fuzzer.campaign import Campaign, Totals
from fuzzer.cli import main
from fuzzer.execution.messages import Report
from fuzzer.store import MIGRATIONS, open_store
from fuzzer.text import parse
from fuzzer.verdict import Comparison, Finding, Signature, Verdict

ROOT = Path(__file__).parent.parent
SEED = ROOT / "corpus" / "seeds" / "select_scatter_mean.prog"
EAGER = ("--compare", "eager", "aot_eager", "--device", "cpu", "--workers", "1")  # a subject that compiles in no time
COMMANDS: dict[str, click.Command] = dict(main.commands)

RELU = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""
PLANTED = RELU.replace('route("', 'settings({"inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})\nroute("')

FINDING = Finding(
    signature=Signature("gradients_agree", "wrong", "backward", "scattered"),
    detail="x0.grad[2]: compiled 0, eager 1",
    original=RELU,
    program=RELU,
    place={"backend": "inductor", "against": "eager", "device": "cpu", "torch": torch.__version__},
    reproduced=3,
    runs=3,
    comparisons=(Comparison("x0.grad", (2,), 1.0, 0.0, 1.0, 0.0, 1, 4),),
    stages={"eager": "agree", "inductor": "wrong"},
    ablation={"inductor.max_fusion_size=1": "agree"},
    created="2026-01-01T00:00:00+00:00",
)


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test runs in an empty folder; `fuzz` takes over Ctrl-C, which is given back."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A ledger with one finding."""
    path = tmp_path / "ledger.db"
    with open_store(path) as opened:
        opened.add(FINDING)
    return path


def call(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def refused(done: Result, code: int = 2) -> str:
    """The one line on stderr with which a command refused; stdout is empty and there is no traceback."""
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("name", [*COMMANDS, ""])
def test_help_says_what_a_command_does(name: str) -> None:
    done = call(*([name] if name else []), "--help")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) > 4
    assert "Exit codes:" in done.stdout or not name


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_a_usage_error(name: str) -> None:
    assert call(name, "--no-such-option").exit_code == 2


def test_the_version_is_that_of_the_distribution() -> None:
    assert call("--version").stdout.startswith("backfuzz, version ")


# ---------------------------------------------------------------- bad input: files


def test_a_malformed_program_is_refused_with_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "bad.prog").write_text(RELU.replace("relu(x0)", "relu(x0"))
    for command in ("replay", "minimize"):
        line = refused(call(command, "bad.prog", *EAGER))
        assert line.startswith("backfuzz: bad.prog: ")
        assert "line 4" in line
        assert "column" in line


def test_a_name_that_is_not_bound_is_refused_with_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "bad.prog").write_text(RELU.replace("relu(x0)", "relu(x7)"))
    line = refused(call("replay", "bad.prog", *EAGER))
    assert "line 4" in line
    assert "x7" in line


def test_a_missing_file_is_named() -> None:
    assert "nothing.prog: No such file" in refused(call("replay", "nothing.prog", *EAGER))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.prog").write_bytes(bytes(range(256)))
    assert "noise.prog" in refused(call("replay", "noise.prog", *EAGER))


def test_a_program_that_this_torch_cannot_run_is_told_and_the_others_still_run(tmp_path: Path) -> None:
    (tmp_path / "op.prog").write_text(RELU.replace("relu(", "no_such_op("))
    (tmp_path / "setting.prog").write_text(PLANTED.replace("inject_relu_bug_TESTING_ONLY", "no_such_setting"))
    (tmp_path / "route.prog").write_text(RELU.replace('"autograd"', '"no_such_route"'))
    done = call("replay", "op.prog", "setting.prog", "route.prog", SEED, *EAGER)
    assert done.exit_code == 2
    op, setting, route = done.stderr.splitlines()
    assert "op.prog: rejected (no op 'no_such_op'" in op
    assert "no setting" in setting
    assert "no_such_setting" in setting
    assert "no route 'no_such_route'" in route
    assert done.stdout == f"{SEED}: agree\n"


# ---------------------------------------------------------------- bad input: options


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("fuzz", "--set", "inductor.no_such_setting=1"), "no_such_setting"),
        (("fuzz", "--set", "inductor.max_fusion_size"), "KEY=VALUE"),
        (("fuzz", "--set", "inductor.max_fusion_size=a"), "cannot be 'a'"),
        (("fuzz", "--backend", "no_such_backend"), "no backend 'no_such_backend'"),
        (("fuzz", "--compare", "eager", "no_such_backend"), "no backend 'no_such_backend'"),
        (("fuzz", "--compare", "inductor", "eager"), "the reference side"),
        (("fuzz", "--compare", "eager@moon", "inductor"), "eager@moon"),
        (("fuzz", "--compare", "eager@cpu", "eager@cuda:x"), "cuda:x"),
        (("fuzz", "--routes", "no_such_route"), "no route 'no_such_route'"),
        (("fuzz", "--routes", ","), "names no route"),
        (("fuzz", "--lines", "--unguided"), "--lines goes with a campaign"),
        (("fuzz", "--unguided", "--resume"), "keeps no corpus"),
        (("fuzz", "--resume", "--guidance", "trace"), "its corpus' own guidance"),
        (("fuzz", "--no-lines", "--guidance", "lines"), "what is guided by lines needs them"),
        (("fuzz", "--lines", "--backend", "eager"), "--lines goes with a campaign"),
        (("fuzz", "--ops", "core,no_such_op"), "no op or set of ops 'no_such_op'"),
        (("fuzz", "--routes", "aoti", "--backend", "aot_eager"), "route aoti is for the backend inductor alone"),
        (("fuzz", "--device", "moon"), "'moon'"),
        (("fuzz", "--device", "cuda:x"), "'cuda:x'"),
        (("replay", SEED, "--backend", "no_such_backend"), "no backend 'no_such_backend'"),
        (("minimize", SEED, "--backend", "no_such_backend"), "no backend 'no_such_backend'"),
        (("doctor", "--device", "moon"), "'moon'"),
    ],
)
def test_what_does_not_exist_is_refused_in_one_line(arguments: tuple[Any, ...], told: str) -> None:
    device = () if "--device" in arguments else ("--device", "cpu")
    assert told in refused(call(*arguments, *device))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("arguments", [("fuzz",), ("replay", SEED), ("minimize", SEED), ("doctor",)])
def test_a_missing_gpu_exits_3(arguments: tuple[Any, ...]) -> None:
    assert "no CUDA device" in refused(call(*arguments, "--device", "cuda"), 3)


# ---------------------------------------------------------------- bad input: the ledger

READERS = [("list",), ("show", FINDING.id), ("export", FINDING.id), ("replay", FINDING.id), ("minimize", FINDING.id)]
USERS = [*READERS, ("fuzz", "--programs", "1", *EAGER)]


def names(commands: list[tuple[str, ...]]) -> list[str]:
    return [command[0] for command in commands]


@pytest.mark.parametrize("command", READERS, ids=names(READERS))
def test_a_missing_ledger_is_told(command: tuple[str, ...]) -> None:
    assert "there is no ledger.db" in refused(call(*command, "--db", "ledger.db"))
    assert not Path("ledger.db").exists()


@pytest.mark.parametrize("command", USERS, ids=names(USERS))
def test_a_corrupt_ledger_is_told_and_left_as_it_is(command: tuple[str, ...]) -> None:
    Path("noise.db").write_bytes(b"this is no database at all" * 100)
    before = Path("noise.db").read_bytes()
    assert "noise.db is no SQLite database" in refused(call(*command, "--db", "noise.db"))
    assert Path("noise.db").read_bytes() == before


@pytest.mark.parametrize("command", USERS, ids=names(USERS))
def test_a_ledger_of_a_newer_backfuzz_is_told_and_left_as_it_is(db: Path, command: tuple[str, ...]) -> None:
    with sqlite3.connect(db) as connection:
        connection.execute(f"pragma user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = db.read_bytes()
    assert "update backfuzz" in refused(call(*command, "--db", db))
    assert db.read_bytes() == before


@pytest.mark.parametrize("command", USERS, ids=names(USERS))
def test_a_locked_ledger_is_told_and_loses_nothing(
    db: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.05)
    before = db.read_bytes()
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("begin exclusive")
    assert "is locked by another program" in refused(call(*command, "--db", db))
    other.execute("rollback")
    other.close()
    assert db.read_bytes() == before


def test_an_unknown_finding_is_told(db: Path) -> None:
    assert "no finding 000" in refused(call("show", "000", "--db", db))
    assert "'nonsense' is no finding's id" in refused(call("show", "nonsense", "--db", db))


# ---------------------------------------------------------------- list, show, export


def test_list_shows_every_finding_of_the_ledger_and_leaves_it_as_it_is(db: Path) -> None:
    before = db.read_bytes()
    text = call("list", "--db", db).stdout
    assert FINDING.id in text
    assert str(FINDING.signature) in text
    assert text.endswith("1 finding(s)\n")
    [row] = json.loads(call("list", "--db", db, "--json").stdout)
    assert (row["id"], row["class"], row["program"]) == (FINDING.id, "wrong", RELU)
    assert json.loads(call("list", "--db", db, "--json", "--class", "crashes").stdout) == []
    assert db.read_bytes() == before


def test_show_prints_the_minimal_program_and_the_evidence(db: Path) -> None:
    text = call("show", FINDING.id[:4], "--db", db).stdout
    for part in (RELU, FINDING.detail, "reproduced 3 of 3", "inductor.max_fusion_size=1: agree", torch.__version__):
        assert part in text
    assert json.loads(call("show", FINDING.id, "--db", db, "--json").stdout)["stages"] == FINDING.stages


def test_diagnose_stores_and_tells_what_it_found(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"not diagnosed yet: backfuzz diagnose {FINDING.id}" in call("show", FINDING.id, "--db", db).stdout
    known = replace(FINDING, diagnosis={"ratio": "all zero"}, attachments={"x0.grad.txt": "[4]"})
    asked: list[Any] = []
    monkeypatch.setattr("fuzzer.cli.diagnose_one", lambda *given: asked.append(given) or known)
    done = call("diagnose", FINDING.id[:4], "--device", "cpu", "--workers", "1", "--db", db)
    assert done.exit_code == 0
    assert asked == [(FINDING, "cpu", 1)]
    for text in (done.stdout, call("show", FINDING.id, "--db", db).stdout):
        assert "  ratio: all zero\n  attachments (in `backfuzz export`): x0.grad.txt\n" in text
    [row] = json.loads(call("diagnose", FINDING.id, "--db", db, "--json").stdout)
    assert row["diagnosis"] == {"ratio": "all zero"}


def test_diagnose_of_what_does_not_show_here_exits_2_and_stores_nothing(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = db.read_bytes()
    monkeypatch.setattr("fuzzer.diagnose.examine_all", lambda pool, asked: [Report(text) for _, text in asked])
    done = call("diagnose", FINDING.id, "--workers", "1", "--db", db)
    assert done.exit_code == 2
    assert f"{FINDING.id}: it does not show here (found with torch {torch.__version__})" in done.stderr
    assert db.read_bytes() == before


def test_export_writes_an_executable_script_and_the_draft_of_an_issue(db: Path) -> None:
    done = call("export", FINDING.id, "--db", db, "--json")
    assert done.exit_code == 0
    script, issue = map(Path, json.loads(done.stdout)["files"])
    assert (script.name, issue.name) == ("repro.py", "issue.md")
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported <= {"os", "sys", "torch"}
    assert "relu" in issue.read_text()


def test_export_into_what_is_no_folder_is_told(db: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file: File exists" in refused(call("export", FINDING.id, "--db", db, "--out", "file"))


def test_ops_lists_every_operation() -> None:
    rows = json.loads(call("ops", "--json").stdout)
    assert sum(row["differentiable"] for row in rows) >= 90
    shown = call("ops").stdout
    assert f"{len(rows)} op(s)" in shown
    core = [row["name"] for row in rows if "core" in row["sets"]]
    assert {line.split()[1] for line in shown.splitlines() if " core " in line} == set(core)
    assert f"`core` ({len(core)} that" in " ".join(call("fuzz", "--help").stdout.split())


# ---------------------------------------------------------------- replay, minimize


def test_replay_of_an_agreeing_program_exits_0() -> None:
    done = call("replay", SEED, *EAGER, "--json")
    assert done.exit_code == 0, done.output
    [row] = json.loads(done.stdout)
    assert (row["program"], row["class"], row["verdicts"]) == (str(SEED), "agree", [])
    assert row["elements"] >= row["detectable"] > 0


def test_minimize_of_an_agreeing_program_stores_nothing_and_exits_2() -> None:
    done = call("minimize", SEED, *EAGER, "--db", "new.db")
    assert done.exit_code == 2
    assert "agree; nothing to store" in done.stdout
    assert not Path("new.db").exists()


def test_what_replay_exits_with_follows_from_the_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Report(RELU, (Verdict(FINDING.signature, "x0.grad[2]: compiled 0, eager 1"),))
    rejected = Report(RELU, rejected="no such op")
    for reports, code in (([Report(RELU)], 0), ([wrong], 1), ([Report(RELU), wrong, rejected], 2)):
        monkeypatch.setattr("fuzzer.diagnose.examine_all", lambda pool, asked, r=tuple(reports): list(r))
        assert call("replay", *[SEED] * len(reports), *EAGER).exit_code == code


@pytest.mark.slow
def test_replay_of_a_planted_fault_exits_1(tmp_path: Path) -> None:
    (tmp_path / "planted.prog").write_text(PLANTED)
    done = call("replay", "planted.prog", "--device", "cpu", "--workers", "1")
    assert done.exit_code == 1, done.output
    assert "planted.prog: wrong" in done.stdout


@pytest.mark.slow
def test_a_planted_fault_is_minimized_stored_shown_and_exported(tmp_path: Path) -> None:
    (tmp_path / "planted.prog").write_text(PLANTED.replace("v0 = relu(x0)", "v1 = neg(x0)\nv0 = relu(v1)"))
    done = call("minimize", "planted.prog", "--device", "cpu", "--workers", "2", "--db", "new.db", "--json")
    assert done.exit_code == 0, done.output
    [row] = json.loads(done.stdout)
    assert row["minimal"].count("relu(") == 1
    assert "neg(" not in row["minimal"]
    assert row["finding"] in call("list", "--db", "new.db").stdout
    assert call("replay", row["finding"], "--db", "new.db", "--workers", "1").exit_code == 1
    script = json.loads(call("export", row["finding"], "--db", "new.db", "--json").stdout)["files"][0]
    assert subprocess.run([sys.executable, script], capture_output=True).returncode == 1


# ---------------------------------------------------------------- fuzz

KEYS = {
    *("programs", "programs_per_s", "detectable_share", "detectable_elements_share", "rejected_share", "findings"),
    "seconds",
}


def fuzz(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """`backfuzz fuzz` in a process group of its own, as a shell would start it."""
    command = [sys.executable, "-m", "fuzzer.cli", "fuzz", *EAGER, "--db", "new.db", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, start_new_session=True, env=environment, **pipes, **options)  # type: ignore[call-overload]


def test_fuzz_ends_with_one_json_object_and_leaves_nothing_but_its_folder(tmp_path: Path) -> None:
    running = fuzz("--programs", "6", "--routes", "autograd", "--json")
    out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    totals = json.loads(out.splitlines()[-1])
    assert totals.keys() >= KEYS
    assert totals["findings"] == {}
    assert totals["programs"] == round(6 * (1 - totals["rejected_share"]))
    assert [path.name for path in tmp_path.iterdir()] == [".backfuzz"]
    # the workers' folders are gone
    assert sorted(path.name for path in (tmp_path / ".backfuzz").iterdir()) == ["campaigns", "corpus"]


def wait_for(running: subprocess.Popen[str], text: str) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended before it said {text!r}: {running.communicate()}")


@pytest.mark.parametrize(
    ("options", "onward", "end", "left"),
    [
        ((), "its corpus", "--seed 7 --resume\n", ["campaigns", "corpus"]),
        (("--unguided",), "another seed", "--unguided --seed 8\n", ["campaigns"]),
    ],
    ids=["guided", "unguided"],
)
def test_the_first_ctrl_c_stops_cleanly_and_says_how_to_go_on(
    tmp_path: Path, options: tuple[str, ...], onward: str, end: str, left: list[str]
) -> None:
    running = fuzz("--seed", "7", *options)
    wait_for(running, "canaries rang")
    os.killpg(running.pid, signal.SIGINT)  # what a terminal does: every process of the group gets it
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "stopping" in out
    assert "programs in" in out
    assert err.startswith(f"stopped; go on with {onward}: backfuzz fuzz ")
    assert err.endswith(end)
    assert sorted(path.name for path in (tmp_path / ".backfuzz").iterdir()) == left


@pytest.mark.slow
def test_the_second_ctrl_c_kills_at_once() -> None:
    running = fuzz()
    started = time.monotonic()
    time.sleep(4.0)  # torch is imported and the canaries run: a clean stop would wait for them
    while running.poll() is None and time.monotonic() - started < 60:
        os.killpg(running.pid, signal.SIGINT)
        time.sleep(0.3)
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGINT)
            break
    running.wait(timeout=5)
    assert running.returncode in (-signal.SIGKILL, 130)


@pytest.mark.slow
def test_kill_9_in_the_middle_of_a_reduction_loses_nothing_stored_and_it_can_be_done_again(
    db: Path, tmp_path: Path
) -> None:
    program = tmp_path / "big.prog"
    program.write_text(PLANTED_RELU)
    command = [sys.executable, "-W", "ignore", "-m", "fuzzer.cli", "minimize", str(program), "--db", str(db)]
    running = subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    # a worker has run several candidates: the reduction is on its way
    wait_until(lambda: sum(1 for _ in tmp_path.glob(".backfuzz/pool-*/worker-*/inductor/*")) > 4, running)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(timeout=10)
    with open_store(db, create=False) as store:
        assert [f.id for f in store.list()] == [FINDING.id]
    again = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=500)
    assert again.returncode == 0
    with open_store(db, create=False) as store:
        assert len(store.list()) == 2
        assert {len(parse(f.program).nodes) for f in store.list() if f.id != FINDING.id} == {1}


def wait_until(happened: Callable[[], bool], running: subprocess.Popen[Any]) -> None:
    started = time.monotonic()
    while not happened():
        assert running.poll() is None, "it ended before"
        assert time.monotonic() - started < 300
        time.sleep(0.1)


PLANTED_RELU = """program(1)
settings({"inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
v0 = exp(x0)
v1 = relu(v0)
v2 = sin(v1)
v3 = sum(v2, dim=0)
backward(v3, cotangent(f32[4]))
"""


@pytest.mark.parametrize(("options", "found", "code"), [((), 1, 0), (("--fail-on-finding",), 1, 1),
                                                         (("--fail-on-finding",), 0, 0)])  # fmt: skip
def test_fuzz_exits_1_only_when_asked_to_and_only_for_a_new_finding(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], found: int, code: int
) -> None:
    def run(self: Campaign, show_progress: Any) -> Totals:
        self.totals.new["wrong"] += found
        self.totals.known["wrong"] += 1
        return self.totals

    monkeypatch.setattr(Campaign, "run", run)
    done = call("fuzz", "--programs", "1", *EAGER, *options, "--json")
    assert done.exit_code == code, done.output
    assert json.loads(done.stdout)["findings"] == ({"wrong": 1} if found else {})


def test_a_finding_replays_where_it_was_found_unless_told_otherwise() -> None:
    from fuzzer.cli import finding_task

    across = replace(FINDING, place={"backend": "eager", "against": "eager@cpu", "device": "cpu"})
    own = finding_task(across, None, None, None).place
    assert (str(own.reference), str(own.subject)) == ("eager@cpu", "eager@cpu")
    other = finding_task(FINDING, None, "aot_eager", None).place
    assert (str(other.reference), str(other.subject)) == ("eager@cpu", "aot_eager@cpu")
