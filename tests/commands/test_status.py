"""`backfuzz status`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from fuzzer import commands
from fuzzer.campaign import audit
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.schedule import drawing_settings
from fuzzer.coverage.cells import cells
from fuzzer.coverage.features import feature_id, feature_ids
from fuzzer.coverage.lines import line_word
from fuzzer.language.text import parse
from fuzzer.workers.messages import Report, Task
from tests.campaign.module import SOURCE

HERE = {"torch": torch.__version__, "backend": "inductor", "device": "cpu"}
TEXT = 'program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))\n'


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "corpus", HERE).start()


def status(corpus: Corpus, *options: str) -> Result:
    corpus.save({"lines": 1.0, "next": 2})
    return CliRunner().invoke(commands.main, ["status", "--corpus", str(corpus.folder), *options])


def shown(**features: frozenset[int]) -> Report:
    return Report(TEXT, features=features)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler of one file."""
    path = tmp_path / "passes.py"
    path.write_text(SOURCE)
    monkeypatch.setattr(audit, "compiler_files", lambda: {str(path): "_inductor/passes.py"})


@pytest.mark.usefixtures("small")
def test_status_tells_families_and_what_was_never_reached(corpus: Corpus) -> None:
    lines = frozenset(feature_id("source", line_word("_inductor/passes.py", n)) for n in (13, 16))
    corpus.learn(shown(operand=frozenset({1, 2}), source=lines))
    corpus.learn(shown(operand=frozenset({2})))
    done = status(corpus, "--coverage")
    assert done.exit_code == 0, done.output
    assert ": 2 programs, 1 kept (torch" in done.output
    assert "  operand        2 features, the last new one with program 1\n" in done.output
    assert "2 of 6 lines, 2 of 4 functions, 1 of 1 files reached\n" in done.output
    assert "    Pass.run.seen:16 never:24\n" in done.output
    told = json.loads(status(corpus, "--coverage", "--json").output)
    assert told["families"]["source"] == {"features": 2, "last_new": 1}
    assert told["coverage"]["by_file"][0]["never"] == ["Pass.run.seen:16", "never:24"]
    assert "coverage" not in json.loads(status(corpus, "--json").output)


def test_status_tells_the_cells_of_a_campaign_that_was_asked_for_them(corpus: Corpus) -> None:
    corpus.learn(shown(**feature_ids(cells(parse(TEXT)))))
    corpus.save({"next": 1, **drawing_settings(Task(ops=("exp", "softmax"), cells=True))})
    done = CliRunner().invoke(commands.main, ["status", "--corpus", str(corpus.folder)])
    assert "  cells of op: 1 of 2 met, empty: softmax\n" in done.output
    done = CliRunner().invoke(commands.main, ["status", "--corpus", str(corpus.folder), "--json"])
    told = json.loads(done.output)["cells"]
    assert set(told) == {"op", "dtype", "attribute", "layout"}
    assert told["op"] == {"possible": 2, "met": 1, "empty": ["softmax"], "beside": 0, "untold": 0}


def test_status_of_a_campaign_without_lines_says_how_to_record_them(corpus: Corpus) -> None:
    corpus.learn(shown(operand=frozenset({1})))
    assert status(corpus).exit_code == 0
    done = status(corpus, "--coverage")
    assert done.exit_code == 2
    assert "no lines of the compiler were recorded" in done.output
    assert "fuzz --lines" in done.output


def test_lines_of_another_torch_are_not_compared(corpus: Corpus) -> None:
    corpus.place = HERE | {"torch": "2.0.0"}
    corpus.start()
    corpus.learn(shown(source=frozenset({1})))
    done = status(corpus, "--coverage")
    assert done.exit_code == 2
    assert f"was made with torch 2.0.0, this is {torch.__version__}" in done.output


def test_status_reads_a_campaign_that_runs_or_was_killed_before_it_wrote_how_far_it_is(corpus: Corpus) -> None:
    corpus.save({"lines": 0.0, "next": 0})
    corpus.learn(shown(operand=frozenset({1})))  # in the index, not in the state
    done = CliRunner().invoke(commands.main, ["status", "--corpus", str(corpus.folder)])
    assert done.exit_code == 0, done.output
    assert "operand        1 features" in done.output


def test_status_without_a_campaign_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(commands.main, ["status", "--corpus", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert done.output.startswith("backfuzz: no corpus in")
