"""What a key of the triage screen exports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzzer.commands.shared.handover import _device_here, exported
from tests.commands.calls import FINDING
from tests.commands.test_export import Scripts

FAULT = f"F{FINDING.id[:7]}"


def test_a_fault_is_exported_as_the_ledger_has_it_and_it_is_told_where(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = Scripts(monkeypatch, True)
    monkeypatch.setattr("fuzzer.commands.shared.again.grow_one", lambda *_: pytest.fail("nothing is made first"))
    assert exported(FAULT, db) == f"export/{FAULT}: repro.py exited with 1"
    assert sorted(path.name for path in (Path("export") / FAULT).iterdir()) == ["issue.md", "repro.py"]
    assert len(scripts.asked) == 1


def test_a_script_that_shows_nothing_is_told_and_nothing_is_written(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Scripts(monkeypatch, False)
    assert "its script exited with 0" in exported(FAULT, db)
    assert not Path("export").exists()


@pytest.mark.parametrize(("lives_on", "device"), [(("2.11.0 xpu", "2.13.0 cpu"), "cpu"), (("2.11.0 xpu",), None)])
def test_a_fault_of_another_device_is_exported_for_one_that_is_here_if_it_lives_there(
    lives_on: tuple[str, ...], device: str | None
) -> None:
    fault: Any = SimpleNamespace(lives_on=lives_on)
    there = replace(FINDING, place=FINDING.place | {"device": "xpu"})
    assert _device_here(there, fault) == device
    assert _device_here(FINDING, fault) is None
