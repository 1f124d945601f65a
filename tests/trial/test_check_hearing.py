"""`check` hears of a function what a replay hears of the program that says the same."""

from __future__ import annotations

import pytest
import torch

import backfuzz
from fuzzer.language.text import parse
from tests.trial.hearing import REPORTED


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the table's classes are those of torch 2.13")
@pytest.mark.parametrize("name", REPORTED)
@pytest.mark.usefixtures("fewer_replicas")
def test_a_reported_fault_is_heard_as_a_replay_hears_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = REPORTED[name]
    said = name == next(iter(REPORTED))  # one is said as a program too, which is another compile
    if not said:
        monkeypatch.setattr("fuzzer.trial.check.shown_by_program", lambda *_: "")
    told = backfuzz.check(row.function, inputs=row.inputs(), settings=row.settings)
    assert told.signature.verdict == row.heard, told
    if said:
        assert parse(told.program).nodes
