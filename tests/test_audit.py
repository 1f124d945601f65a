"""What a campaign's programs did not reach of the compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from fuzzer import audit, cli
from fuzzer.audit import File, Function, read, told
from fuzzer.corpus import Corpus
from fuzzer.execution.lines import files, word
from fuzzer.execution.messages import Report
from fuzzer.features import number

SOURCE = '''"""A module."""
import os


class Pass:
    limit = 3

    @property
    def size(
        self,
    ):
        """A size."""
        return self.limit

    def run(self, graph):
        def seen(node):
            return node in graph

        return [
            seen(n) for n in graph
        ]


def never(): return os.name
'''
HERE = {"torch": torch.__version__, "backend": "inductor", "device": "cpu"}
TEXT = 'program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))\n'


def audited(tmp_path: Path, *reached: int) -> File:
    path = tmp_path / "passes.py"
    path.write_text(SOURCE)
    return read(path, "_inductor/passes.py", lambda text: text in {word("_inductor/passes.py", n) for n in reached})


def test_a_function_is_its_lines_without_those_of_functions_inside(tmp_path: Path) -> None:
    found = audited(tmp_path, 13, 16, 19)
    assert [(f.name, f.line, f.reached) for f in found.functions] == [
        ("Pass.size", 8, 1), ("Pass.run", 15, 2), ("Pass.run.seen", 16, 0), ("never", 24, 0)
    ]  # fmt: skip
    assert [f.name for f in found.never] == ["Pass.run.seen", "never"]
    assert found.reached == 3
    assert found.lines == 6  # 13; 16, 19 and 20; 17; 24


def test_lines_of_a_module_run_on_import_and_do_not_count(tmp_path: Path) -> None:
    found = audited(tmp_path, 1, 2, 5, 6, 8, 9)
    assert found.reached == 0
    assert len(found.never) == len(found.functions)


def test_the_text_names_every_function_that_nobody_reached(tmp_path: Path) -> None:
    nothing = File("_inductor/other.py", 2, 0, (Function("f", 1, 2, 0),))
    assert list(told([nothing, audited(tmp_path, 13, 16, 17)])) == [
        "3 of 8 lines, 3 of 5 functions, 1 of 2 files reached",
        "_inductor/passes.py: 3 of 6 lines, 3 of 4 functions; never:",
        "    never:24",
        "_inductor/other.py: none of 1 functions",
    ]


# ---------------------------------------------------------------- the command


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "corpus", HERE).start()


def status(corpus: Corpus, *options: str) -> Result:
    corpus.save({"lines": 1.0, "next": 2})
    return CliRunner().invoke(cli.main, ["status", "--corpus", str(corpus.folder), *options])


def shown(**features: frozenset[int]) -> Report:
    return Report(TEXT, features=features)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler of one file."""
    path = tmp_path / "passes.py"
    path.write_text(SOURCE)
    monkeypatch.setattr(audit, "files", lambda: {str(path): "_inductor/passes.py"})


@pytest.mark.usefixtures("small")
def test_status_tells_families_and_what_was_never_reached(corpus: Corpus) -> None:
    lines = frozenset(number("source", word("_inductor/passes.py", n)) for n in (13, 16))
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


def test_status_without_a_campaign_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.main, ["status", "--corpus", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert done.output.startswith("backfuzz: no corpus in")


def test_the_compiler_that_is_read_is_the_one_that_runs() -> None:
    from torch._inductor import compile_fx, ir

    for module in (compile_fx, ir, torch._meta_registrations):
        assert module.__file__ in files()
    found = read(Path(ir.__file__), "_inductor/ir.py", lambda text: False)
    assert {"Pointwise.make_loader", "Reduction.create"} <= {f.name for f in found.functions}
    assert replace(found, functions=()).never == ()
