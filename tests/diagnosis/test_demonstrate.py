"""A script run by itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.diagnosis import demonstrate as demonstrates
from fuzzer.diagnosis.demonstrate import demonstrate, versions
from tests.ledger.found import RELU, WORST, finding

FOUND = finding(RELU, comparisons=(WORST,))
ROW = {"compiled": 2.0, "eager": 1.0, "exact": 1.0, "off": 1, "total": 4}


def test_a_script_is_run_in_a_process_of_its_own_without_hidden_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    seen = demonstrate("import os\nprint(os.environ.get('TORCHINDUCTOR_FREEZING'))\nraise SystemExit(1)", finding(RELU))
    assert (seen.code, seen.output, seen.shows) == (1, "None\n", True)
    assert (seen.torch, seen.device, seen.compared) == (torch.__version__, "cpu", ())
    died = demonstrate("raise ValueError('no such operator')", finding(RELU))
    assert (died.shows, died.told()) == (False, "exited with 1")
    assert died.error == "ValueError: no such operator"
    slow = demonstrate("import time\ntime.sleep(9)", finding(RELU), seconds=0.2)
    assert slow.code is None


def test_the_usual_comparisons_are_asked_of_a_script_that_shows_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    rows = [ROW | {"name": "", "index": [2], "close": "", "same": True},
            ROW | {"name": "x1.grad", "index": [], "close": "not close", "same": False},
            {"name": "v0", "index": None, "close": "", "same": True}]  # fmt: skip

    def run(script: Path, before: list[str], *_: Any) -> Any:
        asked.append(before)
        out = f"eager 1\n{json.dumps(rows)}\n" if before else "eager 1\n"
        return subprocess.CompletedProcess([], 0 if before else 1, out, "")

    monkeypatch.setattr(demonstrates, "_run", run)
    seen = demonstrate("", FOUND)
    assert [(c.name, c.index) for c in seen.compared] == [("x1.grad", ()), ("x0.grad", (2,))]
    assert [before for before in asked if before] == [["-m", "fuzzer.diagnosis.look"]]
    assert demonstrate("", finding(RELU, "raises")).compared == ()
    assert demonstrate("", FOUND, compares=False).compared == ()


def test_versions_are_those_that_torch_collects(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter((0, 1))

    def run(command: list[str], **options: Any) -> Any:
        assert command[1:] == ["-m", "torch.utils.collect_env"]
        return subprocess.CompletedProcess(command, next(codes), "PyTorch version: 2.13.0\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    versions.cache_clear()
    assert versions() == versions() == "PyTorch version: 2.13.0"  # asked once
    versions.cache_clear()
    assert versions() == ""
    versions.cache_clear()
