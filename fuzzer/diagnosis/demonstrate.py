"""A finding's script, run in a fresh process on this machine, to confirm the claims about it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from fuzzer.export.demonstration import Compared, Demonstration
from fuzzer.export.machine import Machine
from fuzzer.judgement.verdict import Finding
from fuzzer.language.devices import HOST, device_row
from fuzzer.workers.server import WORKER_ENVIRONMENT, server_environment

_TIMEOUT = 300.0  # a script compiles one program; those of crashes and hangs wait longer themselves
_VERSIONS_TIMEOUT = 120.0


def demonstrate(
    text: str, finding: Finding, seconds: float = _TIMEOUT, bare: bool = True, compares: bool = True
) -> Demonstration:
    """The result of running a finding's script. If it compares tensors, a second process runs the usual comparisons.

    bare       in a plain environment, as a reader runs it; else in a worker's.
    compares   False: no second process.
    """
    device = finding.place.get("device", "cpu")
    environment = _plain() if bare else server_environment()
    machine = this_machine(device)
    where: dict[str, Any] = {"torch": machine.torch, "device": device, "machine": machine, "bare": bare}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "repro.py"
        script.write_text(text)
        done = _run(script, [], seconds, environment)
        if done is None:
            return Demonstration(None, "", "", **where)
        error = (done.stderr.strip().splitlines() or [""])[-1][:300]
        shows = done.returncode == 1 and done.stdout.strip()
        compares = bool(compares and shows and finding.comparisons)
        compared = _compared(script, finding, seconds, environment) if compares else ()
    return Demonstration(done.returncode, done.stdout, error, compared=compared, **where)


def this_machine(device: str) -> Machine:
    """This machine, with a device that it has; threads as in a plain environment."""
    row = device_row(device)
    if row is HOST:
        return Machine(torch.__version__, device, torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
    module = torch.get_device_module(row.type)
    return Machine(torch.__version__, device, getattr(module, "get_device_name", str)(device), 1)


def _plain() -> dict[str, str]:
    """A worker's environment without what makes a process a worker."""
    return {key: value for key, value in server_environment().items() if key not in WORKER_ENVIRONMENT}


def _compared(script: Path, finding: Finding, seconds: float, environment: dict[str, str]) -> tuple[Compared, ...]:
    """The usual comparisons of each tensor, failures first; none where they cannot run."""
    looked = _run(script, ["-m", "fuzzer.diagnosis.look"], seconds, environment)
    if looked is None or looked.returncode or not looked.stdout.strip():
        return ()
    only = finding.comparisons[0].name  # a script that compares a single tensor does not name it
    rows = [row for row in json.loads(looked.stdout.splitlines()[-1]) if row["index"] is not None]
    found = [Compared(**row | {"name": row["name"] or only, "index": tuple(row["index"])}) for row in rows]
    return tuple(sorted(found, key=lambda c: not c.close))


def _run(
    script: Path, before: list[str], seconds: float, environment: dict[str, str]
) -> subprocess.CompletedProcess[str] | None:
    """The script in a process of its own without caches of inductor; None where the time ran out. It trusts what the
    CPU says of itself, as workers do: a probe of that would be compiled each time."""
    environment = environment | {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_VEC_ISA_OK": "1"}
    command = [sys.executable, *before, str(script)]
    try:
        return subprocess.run(
            command, cwd=script.parent, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None


@functools.cache
def versions() -> str:
    """The output of torch.utils.collect_env on this machine; "" where it fails."""
    command = [sys.executable, "-m", "torch.utils.collect_env"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_VERSIONS_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
