"""Which variants are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.judgement.verdict import Signature
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.store import Store, open_store
from tests.ledger.found import RELU, TWO_OPS, finding

WRONG = finding(TWO_OPS, note="a 'quoted' word", created="2026-01-01")
RAISES = replace(
    finding(RELU, created="2026-01-02", unsupported="setting x", detail="the forward raised KeyError: block_ptr1"),
    signature=Signature("compile_does_not_raise", "raises", "forward", "KeyError < body"),
    place={"backend": "inductor", "device": "cuda", "torch": "2.11.0+cu130"},
)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path: Path = tmp_path_factory.mktemp("query") / "findings.db"
    with open_store(path) as opened:
        opened.add(WRONG)
        opened.add(RAISES)
        yield opened


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), "WR"),
        (Wanted(verdict="wrong"), "W"),
        (Wanted(verdict="unsupported"), "R"),
        (Wanted(verdict="raises"), ""),
        (Wanted(op="sum"), "W"),
        (Wanted(op="su"), ""),
        (Wanted(torch="2.1"), "WR"),
        (Wanted(torch="2.13"), "W"),
        (Wanted(device="cuda"), "R"),
        (Wanted(lives_on="2.11.0"), "R"),
        (Wanted(state="known"), ""),
        (Wanted(text="slice_scatter"), "W"),
        (Wanted(text="slice sum"), "W"),
        (Wanted(text="zero"), "W"),  # of the fault's title
        (Wanted(text="quoted"), "W"),
        (Wanted(text="block_ptr1"), "R"),
        (Wanted(text='"'), "WR"),
        (Wanted(text="nowhere"), ""),
        (Wanted(text="sum or nowhere"), ""),
        (Wanted(text="slice_scatter", verdict="unsupported"), ""),
    ],
)
def test_filters_are_all_met(ledger: Store, wanted: Wanted, found: str) -> None:
    letters = {WRONG.id: "W", RAISES.id: "R"}
    assert "".join(letters[f.id] for f in ledger.list(wanted)) == found
