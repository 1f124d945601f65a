"""What belongs to the source checkout, and to nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzer.ledger import checkout
from fuzzer.ledger.errors import UnwritableStore
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING

ROOT = Path(__file__).parents[2]


def test_findings_of_the_checkouts_own_ledger_leave_their_program_there_from_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert checkout.regressions(ROOT / "findings.db") == ROOT / "corpus" / "regressions"
    monkeypatch.chdir(ROOT)
    assert checkout.regressions(Path("findings.db")) == Path("corpus/regressions")


def test_those_of_any_other_ledger_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checkout.regressions(Path("findings.db")) is None
    assert checkout.regressions(ROOT / "other.db") is None


def test_an_installed_backfuzz_has_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "ROOT", None)
    monkeypatch.chdir(ROOT)
    assert checkout.regressions(Path("findings.db")) is None


def test_the_folder_of_the_usual_ledger_is_made_by_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(checkout.LEDGER) as store:
        assert store.list() == []
        assert not list(tmp_path.iterdir())
        store.add(FINDING)
    assert checkout.LEDGER.is_file()
    with pytest.raises(UnwritableStore, match="there is no folder other"):
        open_store(Path("other/findings.db"))
