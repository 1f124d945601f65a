"""`backfuzz import`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzzer.commands import main
from fuzzer.language.text import parse

SEEDS = Path(__file__).parents[2] / "corpus" / "seeds"
FILE = """
import torch

inputs = (torch.randn(4, 13, 33), torch.randn(4, 6, 33))

def step(x, y):
    return torch.slice_scatter(x, y, dim=1, start=0, end=6).sum(dim=1)
"""


def test_the_command_writes_a_program_and_says_what_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repro.py").write_text(FILE)
    found = CliRunner().invoke(main, ["import", "repro.py"])
    assert (found.exit_code, found.stdout) == (0, "step.prog\n")
    text = (tmp_path / "step.prog").read_text()
    assert text.startswith("# The function step of repro.py.\n# x0, x1 hold drawn values, not those")
    assert parse(text).nodes == parse((SEEDS / "slice_scatter_sum.prog").read_text()).nodes
    again = CliRunner().invoke(main, ["import", "repro.py:step"])
    assert (again.exit_code, again.stderr) == (
        2,
        "backfuzz: step.prog exists; --out names another file, or this one to replace it\n",
    )
    assert CliRunner().invoke(main, ["import", "repro.py:step", "--out", "step.prog"]).exit_code == 0


REFUSED = {
    "missing.py": (None, "missing.py: no such file; name FILE.py, FILE.py:FUNCTION or MODULE:FUNCTION"),
    "broken.py": ("1 / 0", "broken.py raised ZeroDivisionError: division by zero"),
    "bare.py": ("def f(x): pass", "bare.py: it has no tuple of tensors called `inputs` to call the function with"),
    "two.py": (FILE + "def g(x): pass", "two.py defines step, g: name one, two.py:FUNCTION"),
    "leaves.py": ("import sys; sys.exit('bye')", "leaves.py exits, with 'bye'"),
    "f.py:f": (
        "import torch\ninputs = (torch.ones(3),)\ndef f(x): raise ValueError('no\\nway')",
        "f.py:f raised ValueError: no way",
    ),
    "e.py": ("import torch\ninputs = (torch.ones(3),)\ndef f(x): raise SystemExit(3)", "e.py:f exits, with 3"),
    "c.py:C": (
        "import torch\ninputs = (torch.ones(3),)\nclass C(torch.nn.Module): pass",
        "c.py: C is a class; make an object of it there, and name that",
    ),
    "one.py:g": (FILE, "one.py: no function 'g'; it defines step"),
    "j.py": (
        "import torch\ninputs = (torch.ones(3),)\ndef f(x): return torch.special.bessel_j0(x) * x",
        "expressed: special_bessel_j0(f32[3])\n"
        "backfuzz: j.py: no program says it, for 1 reason(s); `backfuzz ops` lists the ops",
    ),
}


@pytest.mark.parametrize("reference", REFUSED)
def test_bad_input_gets_one_line_and_exit_code_2(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, words = REFUSED[reference]
    if text is not None:
        (tmp_path / reference.partition(":")[0]).write_text(text)
    found = CliRunner().invoke(main, ["import", reference])
    assert found.exit_code == 2
    assert found.stderr.endswith(words + "\n")
