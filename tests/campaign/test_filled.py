"""Which cells a campaign met and which are empty."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.filled import Family, cell_lines, filled
from fuzzer.campaign.schedule import drawing_settings
from fuzzer.coverage.cells import cells
from fuzzer.coverage.features import feature_ids
from fuzzer.execution.messages import Report, Task
from fuzzer.language.text import parse

TEXT = """program(1)
route("autograd")
x0 = leaf(f32[4, 3], stride=(1, 4))
v0 = exp(x0)
backward(v0, cotangent(f32[4, 3]))
"""
TASK = replace(Task(), ops=("exp", "softmax"), cells=True)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    corpus = Corpus(tmp_path / "corpus", {}).start()
    corpus.learn(Report(TEXT, features=feature_ids(cells(parse(TEXT)))))
    return corpus


def test_cells_that_were_met_are_told_from_those_that_are_empty(corpus: Corpus) -> None:
    found = filled(corpus, drawing_settings(TASK))
    assert (found["op"].possible, found["op"].empty) == (2, ("softmax",))
    assert found["dtype"].possible == 8
    assert "exp f32" not in found["dtype"].empty
    assert "exp f16" in found["dtype"].empty
    assert "exp x permuted" not in found["layout"].empty
    assert "exp x gaps" in found["layout"].empty
    assert found["attribute"].row()["met"] == 0


def test_a_campaign_that_was_not_asked_for_cells_has_none(corpus: Corpus) -> None:
    assert filled(corpus, drawing_settings(replace(TASK, cells=False))) == {}


def test_a_line_names_some_of_the_empty_cells() -> None:
    some, full = Family(10, tuple("abcdefgh"), 1, 0), Family(2, (), 0, 0)
    assert list(cell_lines({"op": some, "dtype": full})) == [
        "cells of op: 2 of 10 met, 1 beside them, empty: a; b; c; d; e; f and 2 more",
        "cells of dtype: 2 of 2 met",
    ]
