"""What a key of the triage screen exports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzzer.commands.shared.handover import _device_here, exported
from fuzzer.ledger.faults import Fault, release
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING
from tests.commands.test_export import Scripts
from tests.ledger.found import RELU, TWO_OPS, finding

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


def test_another_finding_of_the_fault_is_exported_where_the_first_shows_nothing_here(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = release(torch.__version__)
    elsewhere = replace(FINDING, place=FINDING.place | {"torch": "1.0.0"})
    others = [replace(finding(text), place=one.place) for text, one in ((RELU, elsewhere), (TWO_OPS, FINDING))]
    monkeypatch.setattr("fuzzer.ledger.store.Store.get", lambda _, name: {one.id: one for one in others}.get(
        name, elsewhere))  # fmt: skip
    monkeypatch.setattr("fuzzer.ledger.store.Store.variants", lambda *_: (elsewhere, *others))
    fault = open_fault(db)
    monkeypatch.setattr("fuzzer.ledger.store.Store.fault_of", lambda *_: replace(fault, lives_on=(f"{here} cpu",)))
    Scripts(monkeypatch, False, True, True)
    assert exported(FAULT, db) == f"export/{FAULT}: repro.py exited with 1"
    assert others[1].id in (Path("export") / FAULT / "repro.py").read_text()  # it was found here
    Scripts(monkeypatch, False, False, False)
    assert "repro.py exited with 0" in exported(FAULT, db)
    monkeypatch.setattr("fuzzer.ledger.store.Store.fault_of", lambda *_: replace(fault, lives_on=("1.0.0 cpu",)))
    scripts = Scripts(monkeypatch, False)
    assert "repro.py exited with 0" in exported(FAULT, db)  # the fault does not live here: no other is tried
    assert len(scripts.asked) == 1


def open_fault(db: Path) -> Fault:
    with open_store(db, create=False) as store:
        return store.faults()[0]
