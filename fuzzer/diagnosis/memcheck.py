"""A memory checker on a finding's script, where there is one for its device: compute-sanitizer for CUDA."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzzer.execution.server import clean_environment
from fuzzer.findings.script import ExportError, repro
from fuzzer.judgement.verdict import Finding
from fuzzer.language.devices import HOST, device_row

_EXIT_CODES = (0, 1)  # exit codes of a script that could run; the tool hands them on
_TIMEOUT = 300.0  # the tool slows kernels down about tenfold


def memcheck(finding: Finding, seconds: float = _TIMEOUT) -> str:
    """One line: the number of errors and the first of them, or why it was not run."""
    device = device_row(finding.place.get("device", HOST.type))
    if not device.memcheck:
        return f"not run: there is no such tool for {device.type}"
    if shutil.which(device.memcheck[0]) is None:
        return f"not run: no {device.memcheck[0]} on PATH"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "repro.py"
        try:
            script.write_text(repro(finding))
        except ExportError as error:
            return f"not run: {error}"
        # PyTorch's allocator hands out parts of large blocks, between which nothing is out of bounds
        environment = clean_environment() | {device.uncached: "1"}
        command = [*device.memcheck, sys.executable, str(script)]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return f"ran out of its {seconds:.0f} s"
    if done.returncode not in _EXIT_CODES:
        return f"failed: the script ended with status {done.returncode}; {summary(done.stdout)}"
    return summary(done.stdout)


def summary(output: str) -> str:
    """What the tool's output says, in one line."""
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
