"""A page of HTML about a ledger."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fuzzer.commands.shared.exits import Refusal
from fuzzer.commands.shared.web import require_plots, write_page
from fuzzer.ledger.store import open_store


def test_a_page_says_when_it_was_made_and_by_which_version(db: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from fuzzer.export.gather import of_ledger

    with open_store(db) as store:
        write_page(tmp_path / "page.html", of_ledger(store))
    assert " UTC by backfuzz 0." in (tmp_path / "page.html").read_text()


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    with pytest.raises(Refusal, match="jinja2 and matplotlib: pip install"):
        require_plots()
