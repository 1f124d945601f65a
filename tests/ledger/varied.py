"""Scopes of a fault, made by hand."""

from __future__ import annotations

from fuzzer.judgement.verdict import SUMS
from fuzzer.ledger.scope import FAILS, PROGRAM, Row, Scope
from tests.ledger.found import TWO_OPS


def row(axis: str, value: str, outcome: str = FAILS, why: str = "") -> Row:
    return Row(axis, value, outcome, TWO_OPS, why)


def sized(n: int, k: int, start: int, axis: str = "size") -> Row:
    """As inductor of torch 2.11 does it: nothing is left where the slice starts at 0, else all of n."""
    ratios = {SUMS: n / (n - k) if start else 0.0}
    return Row(axis, f"n={n}", FAILS, TWO_OPS, error=1.0, eager=1.0, compiled=0.0, ratios=ratios,
               numbers={"x0.shape[1]": n, "x1.shape[1]": k, "start": start})  # fmt: skip


SHAPES = [sized(20, 7, 5, PROGRAM), sized(40, 7, 5), sized(20, 14, 5), sized(21, 7, 5), sized(13, 6, 0), sized(8, 4, 0)]


def scope(*rows: Row, finding: str = "9957c7827b", torch: str = "2.11.0", created: str = "2026-01-01") -> Scope:
    return Scope(finding, torch, "cpu", "ir", created, rows)
