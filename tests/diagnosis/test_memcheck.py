"""NVIDIA's memory checker on the script of a finding: what is told of its report, and of its absence."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.diagnosis.memcheck import memcheck, summary
from fuzzer.judgement.verdict import Finding
from tests.diagnosis.cases import finding

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
INVALID = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at triton_poi_fused_0+0x150
========= ERROR SUMMARY: 3 errors
"""


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (CLEAN, "no errors"),
        (INVALID, "3 errors, the first: Invalid __global__ write of size 4 bytes"),
        ("", "failed: it printed no summary"),
        ("========= Error: No attachable process found\n", "failed: Error: No attachable process found"),
    ],
)
def test_the_summary_of_the_sanitizer_is_one_line(output: str, told: str) -> None:
    assert summary(output) == told


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake compute-sanitizer on PATH."""
    path = tmp_path / "compute-sanitizer"
    path.write_text(f'#!/bin/sh\ntest "$1$2" = --toolmemcheck && test -s "$4" && cat <<EOF\n{INVALID}EOF\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return path


def on_a_gpu() -> Finding:
    return replace(finding(), place={"device": "cuda", "backend": "inductor", "against": "eager"})


def test_memcheck_runs_the_tool_on_the_script_of_a_gpus_finding(tool: Path) -> None:
    assert memcheck(on_a_gpu()).startswith("3 errors")
    assert memcheck(finding()) == "not run: there is no such tool for cpu"


def test_memcheck_says_when_its_time_is_up(tool: Path) -> None:
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    assert memcheck(on_a_gpu(), 0.2) == "ran out of its 0 s"


def test_memcheck_of_a_script_that_cannot_run_is_no_all_clear(tool: Path) -> None:
    tool.write_text(f"#!/bin/sh\ncat <<EOF\n{CLEAN}EOF\nexit 2\n")
    assert memcheck(on_a_gpu()) == "failed: the script ended with status 2; no errors"


def test_memcheck_says_that_there_is_no_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert memcheck(on_a_gpu()) == "not run: no compute-sanitizer on PATH"
