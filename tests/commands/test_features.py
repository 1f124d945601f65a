"""`backfuzz features`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzzer import commands
from fuzzer.language.text import parse


@pytest.mark.slow
def test_features_prints_words(tmp_path: Path) -> None:
    path = tmp_path / "one.prog"
    path.write_text('program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))\n')
    assert parse(path.read_text())
    done = CliRunner().invoke(commands.main, ["features", str(path), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "  operand   forward exp 0: f32 rank 1 contiguous\n" in done.output
    assert "  edge      saved exp > mul 1: contiguous\n" in done.output
