"""Every command runs in an empty folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzzer.ledger.diagnosed import DIAGNOSER, diagnosed_by
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test runs in an empty folder; `fuzz` takes over Ctrl-C, which is given back."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`show` and `export` find nothing to diagnose; a test that wants it says what comes of it (`outdated`)."""
    monkeypatch.setattr("fuzzer.ledger.diagnosed.is_current", lambda finding: True)


@pytest.fixture
def outdated(monkeypatch: pytest.MonkeyPatch, _diagnosed: None) -> None:
    """A finding is as current as its diagnosis says."""
    monkeypatch.setattr("fuzzer.ledger.diagnosed.is_current", lambda f: diagnosed_by(f) == DIAGNOSER)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A ledger with one finding."""
    path = tmp_path / "ledger.db"
    with open_store(path) as opened:
        opened.add(FINDING)
    return path
