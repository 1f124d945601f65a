"""`--backend flag_gems`: eager with another package's operators, on the subject's side only."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from fuzzer.commands import main
from fuzzer.export.script import repro
from fuzzer.judgement.oracles import verdicts
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Finding, parse_signature
from fuzzer.language.interpret import materialise
from fuzzer.language.text import parse, show
from fuzzer.trial.pipeline import run_both
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task

CASES = sorted((Path(__file__).parents[2] / "corpus" / "seeds" / "flag_gems").glob("*.prog"))
SEED = CASES[0]
PROGRAM = parse('program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nv0 = sin(x0)\nbackward(v0, cotangent(f32[4]))\n')


@contextlib.contextmanager
def doubled_cosine() -> Iterator[None]:
    """A wrong operator in place of ATen's for a while, as FlagGems registers its own."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("cos", lambda x: x.sin().neg().add(1).mul(2), "CPU")
    try:
        yield
    finally:
        library._destroy()


def test_the_package_s_operators_run_on_the_subject_s_side_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flag_gems", SimpleNamespace(use_gems=doubled_cosine))
    place = Place(Subject("eager", "cpu"), Subject("flag_gems", "cpu"))
    trial = run_both(PROGRAM, Task(place=place), Journal(None))
    assert [str(v.signature) for v in verdicts(trial)] == ["gradients_agree/wrong/backward/other"]
    x = materialise(PROGRAM.leaves)["x0"].detach()
    torch.testing.assert_close(x.cos(), torch.cos(x.double()).float())
    benign = run_both(PROGRAM, Task(place=replace(place, subject=Subject("eager", "cpu"))), Journal(None))
    assert not verdicts(benign)


REFUSED = [
    (["--device", "cpu"], "backfuzz: flag_gems runs where Triton does, not on cpu\n"),
    (["--device", "cuda"], "backfuzz: no flag_gems: pip install 'backfuzz[flag_gems]' brings it\n"),
]


@pytest.mark.parametrize(("options", "line"), REFUSED)
def test_where_it_cannot_run_there_is_one_line_and_exit_code_3(
    options: list[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = CliRunner().invoke(main, ["replay", "--backend", "flag_gems", *options, str(SEED)])
    assert (found.exit_code, found.stderr) == (3, line)


@pytest.mark.parametrize("backend", ["frob", "Inductor"])
def test_an_unknown_backend_is_refused_with_the_known_ones(backend: str) -> None:
    found = CliRunner().invoke(main, ["replay", "--backend", backend, str(SEED)])
    assert found.exit_code == 2
    assert found.stderr.startswith(f"backfuzz: no backend '{backend}'; this torch has aot_eager, ")
    assert all(name in found.stderr for name in ("eager", "flag_gems", "inductor"))


def test_an_exported_script_runs_the_compared_side_with_the_package_s_operators() -> None:
    place = {"backend": "flag_gems", "device": "cuda", "against": "eager"}
    for signature in ("gradients_agree/wrong/backward/other", "compile_does_not_raise/raises/backward/RuntimeError"):
        text = repro(Finding(parse_signature(signature), "", show(PROGRAM), show(PROGRAM), place, 3, 3))
        ast.parse(text)
        assert "import flag_gems\n" in text
        assert text.count("in_flag_gems(gradients, f, *") == 1
        assert "torch.compile(" not in text


def test_the_seeds_are_27_cases_of_nearest_upsampling_each_with_and_without_scales() -> None:
    assert len(CASES) == 27
    found = set()
    for path in CASES:
        program = parse(path.read_text())
        assert [dict(node.attrs).keys() for node in program.nodes] == [{"scale_factor"}, {"size"}]
        leaf = program.leaves[0]
        found.add((leaf.dtype, leaf.shape, dict(program.nodes[0].attrs)["scale_factor"]))
    assert len(found) == 27
