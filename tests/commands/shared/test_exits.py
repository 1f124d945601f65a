"""Errors that end a command: one line on stderr, an exit code, the ledger as it was."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzzer.ledger import file
from fuzzer.ledger.schema import MIGRATIONS
from tests.commands.calls import EAGER, FINDING, ROOT, SEED, call, refused


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("fuzz", "--set", "inductor.no_such_setting=1"), "no_such_setting"),
        (("fuzz", "--set", "inductor.max_fusion_siz=1"), "did you mean inductor.max_fusion_size?"),
        (("fuzz", "--backend", "inducter"), "did you mean inductor?"),
        (("fuzz", "--routes", "autograt"), "did you mean autograd?"),
        (("fuzz", "--set", "inductor.max_fusion_size"), "KEY=VALUE"),
        (("fuzz", "--set", "inductor.max_fusion_size=a"), "cannot be 'a'"),
        (("fuzz", "--backend", "no_such_backend"), "no backend 'no_such_backend'"),
        (("fuzz", "--compare", "eager", "no_such_backend"), "no backend 'no_such_backend'"),
        (("fuzz", "--compare", "inductor", "--programs", "1"), "--compare takes two sides, not inductor alone"),
        (("fuzz", "--max-memory", "1K", "--workers", "2"), "too little for 2 worker(s): give at least 1G, or fewer"),
        (("fuzz", "--compare", "inductor", "eager"), "the reference side"),
        (("fuzz", "--compare", "eager@moon", "inductor"), "eager@moon"),
        (("fuzz", "--compare", "eager@cpu", "eager@cuda:x"), "cuda:x"),
        (("fuzz", "--routes", "no_such_route"), "no route 'no_such_route'"),
        (("fuzz", "--routes", ","), "names no route"),
        (("fuzz", "--lines", "--unguided"), "--lines goes with a campaign"),
        (("fuzz", "--unguided", "--resume"), "keeps no corpus"),
        (("fuzz", "--resume", "--guidance", "mutants"), "its corpus' own guidance"),
        (("fuzz", "--resume", "--again", "choices.jsonl"), "take one of them"),
        (("fuzz", "--again", "choices.jsonl"), "not a log of choices"),
        (("fuzz", "--lines", "--backend", "eager"), "--lines goes with a campaign"),
        (("fuzz", "--ops", "core,no_such_op"), "no op or set of ops 'no_such_op'"),
        (("fuzz", "--routes", "aoti", "--backend", "aot_eager"), "route aoti is for the backend inductor alone"),
        (("fuzz", "--device", "moon"), "'moon'"),
        (("fuzz", "--device", "cuda:x"), "'cuda:x'"),
        (("fuzz", "--known", "other.db"), "there is no other.db: --known takes"),
        (("fuzz", "--ops", "slice_scater"), "did you mean slice_scatter?"),
        (("fuzz", "--ray-address", "auto"), "--ray-address goes with --executor ray"),
        (("fuzz", "--executor", "ray", "--device", "cuda:1"), "on GPUs by itself: cuda, not cuda:1"),
        (("replay", SEED, "--backend", "no_such_backend"), "no backend 'no_such_backend'"),
        (("minimize", SEED, "--backend", "no_such_backend"), "no backend 'no_such_backend'"),
        (("doctor", "--device", "moon"), "'moon'"),
    ],
)
def test_what_does_not_exist_is_refused_in_one_line(arguments: tuple[Any, ...], told: str) -> None:
    device = () if "--device" in arguments else ("--device", "cpu")
    assert told in refused(call(*arguments, *device))


READERS = [
    ("faults",),
    ("faults", "--findings"),
    ("triage",),
    ("show", FINDING.id),
    ("export", FINDING.id),
    ("replay", FINDING.id),
    ("minimize", FINDING.id),
]
USERS = [*READERS, ("fuzz", "--programs", "1", *EAGER)]


def names(commands: list[tuple[str, ...]]) -> list[str]:
    return [" ".join(command[:2]) for command in commands]


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
    monkeypatch.setattr(file, "BUSY_SECONDS", 0.05)
    before = db.read_bytes()
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("begin exclusive")
    assert "is locked by another program" in refused(call(*command, "--db", db))
    other.execute("rollback")
    other.close()
    assert db.read_bytes() == before


@pytest.mark.parametrize("minutes", ["nan", "inf", "-1"])
def test_minutes_are_a_number(minutes: str) -> None:
    done = call("fuzz", "--minutes", minutes)
    assert done.exit_code == 2
    assert minutes in done.stderr.splitlines()[-1]


INTERRUPTED_AT = """
import os, signal, sys
AT = sys.argv.pop()
class Interrupt:
    def find_spec(self, name, *_):
        if name == AT:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
# a shell lets what it starts in the background ignore Ctrl-C, and whatever that starts: these tests, it may be
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
import backfuzz
backfuzz.main()
"""


@pytest.mark.parametrize("module", ["fuzzer.commands", "fuzzer.commands.fuzz", "fuzzer.campaign.loop", "torch"])
def test_ctrl_c_in_the_first_second_is_one_line(module: str) -> None:
    """As it comes while modules are imported, the last of them before the campaign that takes the signal over."""
    command = [sys.executable, "-c", INTERRUPTED_AT, "fuzz", "--programs", "1", "--ops", "add", module]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "backfuzz: interrupted\n")


def test_a_campaign_is_refused_where_its_ledger_cannot_be_written(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda place, mode: mode != os.W_OK or Path(place) != db)
    assert "is read-only: name another with --db" in refused(call("fuzz", "--programs", "1", "--db", db))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_file_that_may_not_be_written_names_a_way_out(code: int, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code), "a/issue.md")

    monkeypatch.setattr(Path, "mkdir", refuse)
    told = refused(call("export", FINDING.id, "--db", db, "--no-run", "--no-natural"))
    assert told == f"backfuzz: a/issue.md: {os.strerror(code)}; change its permissions, or name another place"
