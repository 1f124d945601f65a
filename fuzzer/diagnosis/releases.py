"""A finding's script on other releases of torch: in the environments that `scripts/fuzz --torch X` makes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuzzer.execution.pool import clean_environment
from fuzzer.findings import checkout
from fuzzer.findings.script import ExportError, repro
from fuzzer.judgement.verdict import Finding

_EXIT_CODES = {0: "gone", 1: "shows"}  # of the script
_TIMEOUT = 120.0  # each; a script compiles one program


def environments() -> list[Path]:
    """The Pythons of the checkout's environments (folders `.venv-X`) but this one's, oldest release first."""
    folders = checkout.ROOT.glob(".venv-*") if checkout.ROOT is not None else ()
    found = [path / "bin" / "python" for path in folders if (path / "bin" / "python").exists()]
    return sorted((p for p in found if p.parents[1] != Path(sys.prefix)), key=lambda p: _numbers(_release(p)))


def _release(python: Path) -> str:
    return python.parents[1].name.removeprefix(".venv-")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split("+")[0].split(".") if part.isdecimal()]


def releases(finding: Finding, pythons: Sequence[Path], seconds: float = _TIMEOUT) -> str:
    """One line: whether the finding shows on each of these environments' releases, or why it was not run."""
    if not pythons:
        return "not run: in a checkout, `scripts/fuzz --torch X` makes an environment of another release"
    try:
        text = repro(finding)
    except ExportError as error:
        return f"not run: {error}"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "repro.py"
        script.write_text(text)
        return "; ".join(f"torch {_release(python)}: {_outcome(python, script, seconds)}" for python in pythons)


def _outcome(python: Path, script: Path, seconds: float) -> str:
    """ "shows", "gone", or what else became of the script."""
    environment = clean_environment() | {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    try:
        done = subprocess.run(
            [str(python), str(script)],
            cwd=script.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"ran out of its {seconds:.0f} s"
    if (
        done.stdout.strip() and done.returncode in _EXIT_CODES
    ):  # a script that died of itself, with status 1, told nothing
        return _EXIT_CODES[done.returncode]
    last = (done.stderr.strip().splitlines() or ["nothing told"])[-1]
    return f"failed with status {done.returncode}: {last[:200]}"
