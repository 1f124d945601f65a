"""A memory checker for a finding's script: compute-sanitizer for CUDA, glibc's checks of the heap on the CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

from fuzzer.export.checks import DEADLINES
from fuzzer.export.script import ExportError, repro
from fuzzer.judgement.verdict import EAGER_DIES, Finding, side_by_class
from fuzzer.language.devices import HOST, Device, device_row
from fuzzer.workers.obituary import heap_words
from fuzzer.workers.server import clean_environment

_EXIT_CODES = (0, 1)  # exit codes of a script that could run; the tool passes them on
_TIMEOUT = 300.0  # the tool slows kernels down about tenfold
# Classes for which heap corruption by the CPU's kernels is a likely cause.
_OF_THE_HEAP = ("crashes", "nondeterministic")
_HEAP_CHECKER = "libc_malloc_debug.so.0"  # of glibc since 2.34; it checks a block when the block is freed
# Runs a script, its last argument, in eager: torch's own switches would make a compile of a full graph raise.
_UNCOMPILED = (
    "import runpy, sys, torch; torch.compile = lambda f, **options: f; runpy.run_path(sys.argv.pop(), None, '__main__')"
)
EAGER_CORRUPTS = "eager itself corrupts the heap"  # start of the result where eager alone does it


def memcheck(finding: Finding, seconds: float = _TIMEOUT) -> str:
    """One line: the number of errors and the first of them, or why it was not run."""
    device = device_row(finding.place.get("device", HOST.type))
    if device is HOST:
        if finding.signature.verdict not in _OF_THE_HEAP:
            return f"not run: on the CPU it is asked of {' and '.join(_OF_THE_HEAP)} findings alone"
        if sys.platform != "linux":
            return f"not run: there is no such tool for {device.type}"
        if not _checks_heap():
            return f"not run: no {_HEAP_CHECKER}"
    elif not device.memcheck:
        return f"not run: there is no such tool for {device.type}"
    elif shutil.which(device.memcheck[0]) is None:
        return f"not run: no {device.memcheck[0]} on PATH"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "repro.py"
        try:
            script.write_text(repro(finding))
            return _check_heap(finding, script, seconds) if device is HOST else _sanitize(script, device, seconds)
        except ExportError as error:
            return f"not run: {error}"
        except subprocess.TimeoutExpired:
            return f"ran out of its {seconds:.0f} s"


def _run(command: Sequence[str], environment: dict[str, str], folder: Path, seconds: float) -> CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def _sanitize(script: Path, device: Device, seconds: float) -> str:
    """The result of the device's own tool on the script."""
    # PyTorch's allocator cuts tensors from large blocks, within which nothing is out of bounds
    environment = clean_environment() | {device.uncached: "1"}
    done = _run([*device.memcheck, sys.executable, str(script)], environment, script.parent, seconds)
    if done.returncode not in _EXIT_CODES:
        return f"failed: the script ended with status {done.returncode}; {summary(done.stdout)}"
    return summary(done.stdout)


def _heap_environment() -> dict[str, str]:
    # new memory is zero: then a kernel that adds outside its memory changes it, and with it the mark at a block's end
    return clean_environment() | {"LD_PRELOAD": _HEAP_CHECKER, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "255"}


def _checks_heap() -> bool:
    """Whether glibc's checks of the heap are installed: the loader complains if not."""
    done = _run([sys.executable, "-I", "-S", "-c", ""], _heap_environment(), Path(), _TIMEOUT)
    return done.returncode == 0 and not done.stderr


def _check_heap(finding: Finding, script: Path, seconds: float) -> str:
    """The result of glibc's heap checks on the script, first with nothing compiled. If the script has a child process,
    only the child, the side that dies, runs."""
    of_eager = side_by_class(finding.signature) == EAGER_DIES
    child = ["eager" if of_eager else "compiled"] if finding.signature.verdict in DEADLINES else []
    runs = {EAGER_CORRUPTS: ["-c", _UNCOMPILED, *child, str(script)]}
    if not of_eager:
        runs["the compiled side corrupts the heap"] = [str(script), *child]
    for told, arguments in runs.items():
        done = _run([sys.executable, *arguments], _heap_environment(), script.parent, seconds)
        if words := heap_words(done.stderr):
            return f"{told}: {words}"
        if done.returncode < 0:
            return f"no errors before the script ended by signal {-done.returncode}"
        if done.returncode not in _EXIT_CODES:
            return f"failed: the script ended with status {done.returncode}"
    return "no errors"


def summary(output: str) -> str:
    """The tool's output in one line."""
    lines = [line.lstrip("= ").strip() for line in output.splitlines() if line.startswith("=====")]
    total = next((m for line in lines if (m := re.match(r"ERROR SUMMARY: (\d+) errors?", line))), None)
    if total is None:
        return f"failed: {lines[-1] if lines else 'it printed no summary'}"
    if total[1] == "0":
        return "no errors"
    first = next(
        (line for line in lines if re.match(r"(Invalid|Program hit|Misaligned|Uninitialized|Leaked)", line)), ""
    )
    return f"{total[1]} errors" + (f", the first: {first}" if first else "")
