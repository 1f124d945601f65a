"""A finding as a row."""

from __future__ import annotations

from fuzzer.ledger.rows import decode, encode, from_row, to_row
from tests.ledger.found import RELU, WORST, finding


def test_a_finding_is_the_same_after_it_was_a_row() -> None:
    made = finding(RELU, comparisons=(WORST,), stages={"eager": "agree", "inductor": "wrong"}, unsupported="setting x")
    assert decode(from_row(to_row(encode(made)))) == made
    assert list(from_row(to_row(encode(made)))["stages"]) == ["eager", "inductor"]
