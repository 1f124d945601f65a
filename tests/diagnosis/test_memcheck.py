"""Memory checkers on the script of a finding: what is told of their reports, and of their absence."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.diagnosis import memcheck as checker
from fuzzer.diagnosis.memcheck import EAGER_CORRUPTS, memcheck, summary
from fuzzer.diagnosis.side import told_side
from fuzzer.judgement.verdict import CORRUPT_HEAP, EAGER_DIES, Finding, Signature
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
    assert memcheck(finding()) == "not run: on the CPU it is asked of crashes and nondeterministic findings alone"


def test_memcheck_says_when_its_time_is_up(tool: Path) -> None:
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    assert memcheck(on_a_gpu(), 0.2) == "ran out of its 0 s"


def test_memcheck_of_a_script_that_cannot_run_is_no_all_clear(tool: Path) -> None:
    tool.write_text(f"#!/bin/sh\ncat <<EOF\n{CLEAN}EOF\nexit 2\n")
    assert memcheck(on_a_gpu()) == "failed: the script ended with status 2; no errors"


def test_memcheck_says_that_there_is_no_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert memcheck(on_a_gpu()) == "not run: no compute-sanitizer on PATH"


# ---------------------------------------------------------------- glibc's, on the CPU

# eager's backward of this pooling writes beside its gradient (torch 2.13 and 2.15)
WRITES_OUTSIDE = """program(1)
route("autograd")
x0 = leaf(f32[1, 1, 1, 2], values="ones")
v0 = max_pool3d(x0, dilation=(2, 1, 1), kernel_size=(2, 1, 1), stride=(1, 1, 2), padding=(1, 0, 0), ceil_mode=True)
backward(v0, cotangent(f32[1, 1, 1, 1], values="ones"))
"""
ON_THE_CPU = pytest.mark.skipif(sys.platform != "linux" or not checker._checks_heap(), reason="glibc cannot check here")


def death(program: str) -> Finding:
    return finding(program, Signature("worker_survives", "crashes", "backward", CORRUPT_HEAP))


def says(monkeypatch: pytest.MonkeyPatch, script: str) -> str:
    """What is told where the finding's script is this."""
    monkeypatch.setattr(checker, "repro", lambda finding: script)
    return memcheck(death(WRITES_OUTSIDE), 60.0)


OVERFLOW = """import ctypes
c = ctypes.pythonapi  # linked with malloc as torch is; what `dlsym` finds is not checked
c.PyMem_RawMalloc.restype, c.PyMem_RawFree.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
block = c.PyMem_RawMalloc(40)
if {where}:
    ctypes.memset(block, 1, 48)
c.PyMem_RawFree(block)
"""


@ON_THE_CPU
@pytest.mark.parametrize(
    ("script", "told"),
    [
        (OVERFLOW.format(where=True), f"{EAGER_CORRUPTS}: free(): invalid pointer"),
        (
            "import torch\n" + OVERFLOW.format(where="torch.compile(len, fullgraph=True) is not len"),
            "the compiled side corrupts the heap: free(): invalid pointer",
        ),
        (OVERFLOW.format(where=False), "no errors"),
        ("import sys\nsys.exit(1)\n", "no errors"),
        ("import sys\nsys.exit(sys.argv[1:] != ['compiled'] and 2)\n", "no errors"),
        ("import sys\nsys.exit(2)\n", "failed: the script ended with status 2"),
        ("import os\nos.kill(os.getpid(), 11)\n", "no errors before the script ended by signal 11"),
    ],
)
@pytest.mark.slow
def test_on_the_cpu_glibc_tells_which_side_corrupts_the_heap(
    monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    assert says(monkeypatch, script) == told


@pytest.mark.slow
@ON_THE_CPU
def test_the_script_of_a_program_that_writes_beside_nothing_ends_well() -> None:
    assert memcheck(death(finding().program)) == "no errors"


@pytest.mark.slow
@ON_THE_CPU
def test_a_kernel_of_eager_that_writes_outside_is_eagers() -> None:
    told = memcheck(death(WRITES_OUTSIDE))
    if told == "no errors":
        pytest.skip("this release of torch does not write there")
    assert told.startswith(f"{EAGER_CORRUPTS}: ")
    assert told_side(death(WRITES_OUTSIDE), "", told) == f"{EAGER_DIES}: {told}"


def test_where_glibc_has_no_checks_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(checker, "_HEAP_CHECKER", "libof_no_such_name.so.0")
    assert memcheck(death(WRITES_OUTSIDE)) == "not run: no libof_no_such_name.so.0"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert memcheck(death(WRITES_OUTSIDE)) == "not run: there is no such tool for cpu"
