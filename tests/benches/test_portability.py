"""The bench of places: what it takes away is gone there, and a campaign that cannot run has to say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benches import portability
from benches.portability import Place, links, other_version, run, versions


def test_torch_has_another_version_there(tmp_path: Path) -> None:
    folder = other_version(tmp_path / "site", "2.16.0.dev20261120+cpu")
    assert versions(Place("nightly", added={"PYTHONPATH": str(folder)}))[1] == "2.16.0.dev20261120+cpu"


def test_no_compiler_is_found_there_and_other_commands_are(tmp_path: Path) -> None:
    own = os.environ | {"PATH": str(links(tmp_path / "bin"))}
    for command, found in (("g++", False), ("sh", True)):
        done = subprocess.run(["/bin/sh", "-c", f"command -v {command}"], env=own, capture_output=True)
        assert (done.returncode == 0) == found


@pytest.mark.parametrize(
    ("lacks", "code", "summary", "error", "passed"),
    [
        (False, 0, '{"programs": 7}', "said", True),
        (False, 0, '{"programs": 0}', "said", False),
        (False, 3, "", "backfuzz: no", False),
        (True, 3, "", "backfuzz: there is no g++", True),
        (True, 1, "", "Traceback (most recent call last)\nKeyError", False),
        (True, 0, '{"programs": 7}', "said", False),
    ],
)
def test_a_place_passes_by_what_was_expected_of_it(
    lacks: bool, code: int, summary: str, error: str, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho '{summary}'\nprintf '%s' '{error}' >&2\nexit {code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(portability, "versions", lambda place: ("3.11", "2.13"))
    row = run(Place("here", python=str(script), lacks=lacks, folder="größer, with a space"), tmp_path / "0", 0.1)
    assert (row.code, row.passed) == (code, passed)
    assert row.said == error.splitlines()[-1]


@pytest.mark.slow
def test_a_short_campaign_runs_under_a_nightlys_version_and_in_the_locale_c(tmp_path: Path) -> None:
    added = {"PYTHONPATH": str(other_version(tmp_path / "site", "2.16.0.dev20261120+cpu")), "LC_ALL": "C"}
    row = run(Place("both", added=added, python=sys.executable), tmp_path / "0", 0.05)
    assert row.passed, row
