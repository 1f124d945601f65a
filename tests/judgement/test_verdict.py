"""Verdicts, signatures and findings as values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.judgement.verdict import (
    DIFFERS,
    EAGER,
    NEITHER,
    RAISES,
    UNASKED,
    UNDECIDED,
    Signature,
    parse_signature,
    without_paths,
)
from tests.ledger.found import RELU, finding


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("File /srv/someone/x/torch/_inductor/ir.py, line 3", "File ir.py, line 3"),
        ("in '/opt/lib/libtorch_cpu.so'", "in 'libtorch_cpu.so'"),
        ("~/private/code.py", "code.py"),
        ("torch/_inductor/ir.py", "torch/_inductor/ir.py"),
        ("see https://pytorch.org/docs/stable/index.html", "see https://pytorch.org/docs/stable/index.html"),
        ("1/2 of the elements, and/or none", "1/2 of the elements, and/or none"),
    ],
)
def test_paths_of_the_machine_are_scrubbed_and_nothing_else(text: str, told: str) -> None:
    assert without_paths(text) == told


@pytest.mark.parametrize(
    ("verdict", "pattern", "told", "side"),
    [
        ("wrong", "scattered", "", UNASKED),
        ("wrong", "scattered", "none: no tensor lies outside its floor", UNDECIDED),
        ("wrong", "scattered", "eager wrong: at x0[0]", EAGER),
        ("wrong", "dtype", "", DIFFERS),
        ("raises", "KeyError", "none: it raised", RAISES),
        ("rounding-sensitive", "other", "", NEITHER),
        ("eager-suspect", "other", "", UNASKED),
    ],
)
def test_every_finding_has_a_side_or_says_why_none_is_told(verdict: str, pattern: str, told: str, side: str) -> None:
    shown = finding(RELU, signature=Signature("gradients_agree", verdict, "backward", pattern))
    assert replace(shown, diagnosis={"side": told} if told else {}).side == side


def test_a_signature_is_read_back_from_its_text() -> None:
    for s in (Signature("gradients_agree", "wrong", "backward", "all-zero"), Signature("a", "raises", "", "T < f/g")):
        assert parse_signature(str(s)) == s
