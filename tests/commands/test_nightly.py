"""`backfuzz nightly`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fuzzer.commands import nightly
from fuzzer.commands.nightly import campaign_words, run_campaign
from fuzzer.judgement.verdict import Finding
from fuzzer.language.errors import UsageError
from fuzzer.ledger.faults import GONE, SHOWS
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, call, refused

HERE, OTHER = "9.9.0.dev20261122", "9.8.0"
FOUND = replace(
    FINDING,
    program=FINDING.program.replace("relu", "sigmoid"),
    place=FINDING.place | {"torch": HERE},
    diagnosis={"culprit": "another"},
)
SUMMARY = {"programs": 12, "seconds": 3.0}


class Night:
    """A night on a torch on which the ledger's faults show or not, beside an older one on which nothing shows; its
    campaign finds FOUND (code 1), or ends with another code.

    asked   the findings that ran on the older torch.  words   the campaign's.
    """

    def __init__(self, db: Path):
        self.db, self.release, self.here, self.code = db, HERE, SHOWS, 1
        self.asked: list[str] = []
        self.words: list[str] = []

    def __call__(self, *arguments: Any, here: str = SHOWS, code: int = 1) -> Result:
        self.here, self.code = here, code
        return call("nightly", "--db", self.db, "--python", "some/older", *arguments)

    def release_of(self, python: Path) -> str:
        return OTHER if python.name == "older" else self.release

    def run_there(self, python: Path, findings: Sequence[Finding], *_: Any) -> dict[str, str]:
        if python.name != "older":
            return {f.id: self.here for f in findings}
        self.asked += [f.id for f in findings]
        return {f.id: GONE for f in findings}

    def run_campaign(self, words: Sequence[str]) -> tuple[int, dict[str, Any]]:
        self.words = list(words)
        if self.code == 1:
            with open_store(self.db) as store:
                store.add(FOUND)
        return self.code, SUMMARY


@pytest.fixture
def night(db: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    made = Night(db)
    for module in ("matrix", "rerun"):
        monkeypatch.setattr(f"fuzzer.diagnosis.{module}.release_of", made.release_of)
    monkeypatch.setattr("fuzzer.diagnosis.matrix.run_there", made.run_there)
    monkeypatch.setattr(nightly, "run_campaign", made.run_campaign)
    return made


def test_what_moved_and_what_is_new_is_told_with_where_it_lives(night: Night) -> None:
    done = night(here=GONE)
    assert done.exit_code == 1, done.output
    assert f"torch {HERE}: 0 reproduce, 1 are gone, 0 are unknown" in done.stdout
    new, moved = done.stdout.partition("new:")[2].split("moved:")
    assert f"(cpu {HERE}, not 9.8)" in new
    assert f"new -> fixed {HERE}" in moved
    assert night.asked == [FOUND.id], "what is fixed here is not run elsewhere, and what is new is"


def test_what_the_ledger_knows_of_another_release_is_not_run_again(night: Night) -> None:
    night(code=0)
    night("--anyway", code=0)
    assert night.asked == [FINDING.id]


def test_a_fault_that_came_back_is_told_and_a_whole_night_is_kept(night: Night) -> None:
    assert night(here=GONE, code=0).exit_code == 0
    night.release = "9.9.0"
    done = night("--json", code=0)
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["changes"] == {"came_back": [f"F{FINDING.id[:7]}"], "new": [], "moved": []}
    assert (told["torch"], told["campaign"], told["again"][0]["outcome"]) == ("9.9.0", SUMMARY, SHOWS)
    assert json.loads(nightly.REPORT_FILE.read_text()) == told


def test_a_torch_that_was_looked_at_is_left_unless_its_night_was_cut_short(night: Night) -> None:
    stopped = night(code=130)
    assert stopped.exit_code == 130
    assert "no fault is new, came back or moved" in stopped.stdout
    assert night(code=0).exit_code == 0
    night.words = []
    left = night()
    assert (left.exit_code, night.words) == (0, [])
    assert f"torch {HERE} was looked at on 20" in left.stdout


def test_a_page_tells_what_changed_first(night: Night, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "there is no folder" in refused(night("-o", "no/folder/page.html"))
    night("-o", "page.html", here=GONE)
    text = (tmp_path / "page.html").read_text()
    assert text.index("What changed") < text.index(f"fixed {HERE}") < text.index('id="faults"')


def test_the_first_night_has_an_empty_ledger(night: Night, db: Path) -> None:
    db.unlink()
    done = night("--json", code=0)
    assert (done.exit_code, json.loads(done.stdout)["again"]) == (0, [])


def test_a_campaign_has_an_end_and_a_seed_unless_it_was_given_some(tmp_path: Path) -> None:
    db = Path("a.db")
    assert campaign_words((), db, None, "20261122") == ["--db", "a.db", "--seed", "20261122", "--duration", "1h"]
    given = ("--programs=8", "--seed", "3")
    assert campaign_words(given, db, 2, "20261122") == ["--db", "a.db", *given, "--workers", "2"]
    (tmp_path / "backfuzz.toml").write_text("[fuzz]\nminutes = 5\n")
    assert campaign_words((), db, None, "7") == ["--db", "a.db", "--seed", "7"]
    with pytest.raises(UsageError, match="before `--`"):
        campaign_words(("--db", "b.db"), db, None, "7")


SCRIPT = """#!/bin/sh
trap 'echo "{\\"programs\\": 1}"; exit 130' INT
touch begun
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do sleep 0.2; done
exit 7
"""


def test_the_campaign_is_told_to_end_where_the_night_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text(SCRIPT)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    before = signal.getsignal(signal.SIGINT)
    assert run_campaign(["--seed", "1"]) == (130, {"programs": 1})
    assert signal.getsignal(signal.SIGINT) == before
