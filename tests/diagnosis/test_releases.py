"""On which releases of torch a finding shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzer.diagnosis.releases import environments, releases
from tests.diagnosis.cases import finding


def environment(folder: Path, release: str, script: str) -> Path:
    """A fake environment of a release, whose Python does what this shell script does."""
    python = folder / f".venv-{release}" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def test_a_finding_is_tried_on_the_releases_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.findings.checkout.ROOT", tmp_path)
    assert environments() == []
    shows = environment(tmp_path, "2.9.1", 'test -s "$1" && echo evidence; exit 1')
    gone = environment(tmp_path, "2.15.0", "echo equal")
    dead = environment(tmp_path, "2.100", "echo ImportError: no torch >&2; exit 1")
    assert environments() == [shows, gone, dead]
    told = releases(finding(), environments())
    assert told.split("; ") == [
        "torch 2.9.1: shows",
        "torch 2.15.0: gone",
        "torch 2.100: failed with status 1: ImportError: no torch",
    ]
    assert releases(finding(), []).startswith("not run: ")
    slow = environment(tmp_path, "3.0", "exec sleep 9")
    assert releases(finding(), [slow], 0.2) == "torch 3.0: ran out of its 0 s"
