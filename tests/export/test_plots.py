"""The plots of a page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Xml
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from fuzzer.export import plots
from fuzzer.export.gather import Contents, of_campaign, of_ledger
from tests.export.reported import filled


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> tuple[Contents, Contents]:
    """A ledger, and its campaign."""
    folder = tmp_path_factory.mktemp("plots")
    with filled(folder / "findings.db") as store:
        return of_ledger(store, folder), of_campaign(store, "c1", folder)


def words(svg: str) -> set[str]:
    """What a well-formed SVG says."""
    return {text for text in (node.text for node in Xml.fromstring(svg).iter()) if text and text.strip()}


def test_each_says_what_it_shows_and_is_the_same_again(contents: tuple[Contents, Contents]) -> None:
    ledger, campaign = contents
    assert {"wrong (1)", "raises (1)", "unsupported (1)", "faults"} <= words(plots.discoveries(ledger))
    assert {"cpu", "programs a second"} <= words(plots.speed(ledger))
    assert {"minutes", "programs a second"} <= words(plots.speed(campaign))
    drawn, name = plots.features(ledger)
    assert ({"edge (360)", "operand (40)", "minutes"} <= words(drawn), name) == (True, "c1")
    assert {"leaf", "scatter", "reduction", "reads it"} <= words(plots.pairs(ledger))
    assert plots.pairs(ledger) == plots.pairs(ledger)


def test_no_two_share_an_id_and_none_needs_another_file(contents: tuple[Contents, Contents]) -> None:
    ledger = contents[0]
    drawn = [plots.discoveries(ledger), plots.speed(ledger), plots.features(ledger)[0], plots.pairs(ledger)]
    ids = [name for svg in drawn for name in re.findall(r'\bid="([^"]*)"', svg)]
    assert len(ids) == len(set(ids)) > 20
    for svg in drawn:
        used = re.findall(r'href="#([^"]*)"', svg) + re.findall(r"url\(#([^)]*)\)", svg)
        assert used
        assert set(used) <= set(re.findall(r'\bid="([^"]*)"', svg))
        assert not re.findall(r'href="(?!#)|<image|<style[^>]*src', svg)


def test_where_nothing_is_known_nothing_is_drawn(tmp_path: Path) -> None:
    nothing = Contents("t", (), {}, one=True)
    assert (plots.discoveries(nothing), plots.speed(nothing), plots.features(nothing), plots.pairs(nothing)) == (
        "", "", ("", ""), "")  # fmt: skip


def test_an_operation_that_is_no_longer_known_is_its_own_family() -> None:
    assert plots.by_family({("relu", "gone_op"): 2, ("tanh", "gone_op"): 1}) == {("activation", "gone_op"): 3}
