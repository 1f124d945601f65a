"""What a campaign's programs did not reach of the compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fuzzer.campaign.audit import Family, File, Function, cell_lines, filled, functions_of_file, report_lines
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.schedule import drawing_settings
from fuzzer.coverage.cells import cells
from fuzzer.coverage.features import feature_ids
from fuzzer.coverage.lines import compiler_files, line_word
from fuzzer.language.text import parse
from fuzzer.workers.messages import Report, Task
from tests.campaign.module import SOURCE


def audited(tmp_path: Path, *reached: int) -> File:
    path = tmp_path / "passes.py"
    path.write_text(SOURCE)
    return functions_of_file(
        path, "_inductor/passes.py", lambda text: text in {line_word("_inductor/passes.py", n) for n in reached}
    )


def test_a_function_is_its_lines_without_those_of_functions_inside(tmp_path: Path) -> None:
    found = audited(tmp_path, 13, 16, 19)
    assert [(f.name, f.line, f.reached) for f in found.functions] == [
        ("Pass.size", 8, 1), ("Pass.run", 15, 2), ("Pass.run.seen", 16, 0), ("never", 24, 0)
    ]  # fmt: skip
    assert [f.name for f in found.unreached] == ["Pass.run.seen", "never"]
    assert found.reached == 3
    assert found.lines == 6  # 13; 16, 19 and 20; 17; 24


def test_lines_of_a_module_run_on_import_and_do_not_count(tmp_path: Path) -> None:
    found = audited(tmp_path, 1, 2, 5, 6, 8, 9)
    assert found.reached == 0
    assert len(found.unreached) == len(found.functions)


def test_the_text_names_every_function_that_nobody_reached(tmp_path: Path) -> None:
    nothing = File("_inductor/other.py", 2, 0, (Function("f", 1, 2, 0),))
    assert list(report_lines([nothing, audited(tmp_path, 13, 16, 17)])) == [
        "3 of 8 lines, 3 of 5 functions, 1 of 2 files reached",
        "_inductor/passes.py: 3 of 6 lines, 3 of 4 functions; never:",
        "    never:24",
        "_inductor/other.py: none of 1 functions",
    ]


# ---------------------------------------------------------------- the command


def test_the_compiler_that_is_read_is_the_one_that_runs() -> None:
    from torch._inductor import compile_fx, ir

    for module in (compile_fx, ir, torch._meta_registrations):
        assert module.__file__ in compiler_files()
    found = functions_of_file(Path(ir.__file__), "_inductor/ir.py", lambda text: False)
    assert {"Pointwise.make_loader", "Reduction.create"} <= {f.name for f in found.functions}
    assert replace(found, functions=()).unreached == ()


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
