"""What does `check` say of the functions and modules of other people's libraries, and how long does it take?

Each case (benches/library_cases.py) runs in two processes, each with an empty compiler cache and a deadline. Both first
compile and check one small function: the imports of torch's compiler and its facts about the machine are not timed, nor
are the imports of the library and the making of its module. Then one process times `bare`: the call in eager with its
backward, then a fresh torch.compile of the same callable with its backward. The other times `check` of the call. The
ratio is one of CPU seconds, which other work on the machine changes little. The summary's `largest_error` is that of
all compiled tensors (`relative_error`).

The libraries are installed into a virtual environment of the bench's own, which sees the packages of the running
Python; torch stays the one that is installed.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import psutil
import torch
from torch.utils import _pytree as pytree

import backfuzz
from benches.library_cases import CASES, Call, Case, build
from fuzzer.judgement.comparison import as_float64, eagers_error, largest
from fuzzer.judgement.trial import Trial
from fuzzer.language.errors import UsageError
from fuzzer.trial.pipeline import judge_trial
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report

HALVES = ("bare", "check")
_FALLBACK = "no rounding model of"  # begins a verdict's sentence about its fallback
_ROOT = Path(backfuzz.__file__).parent
_ANSWER = "answer: "  # begins the line of a case's process that holds its figures; libraries print lines of their own


# ---------------------------------------------------------------- in a case's process


def answer(name: str, half: str) -> None:
    """Print one half of a case's figures."""
    call = build(next(case for case in CASES if str(case) == name))
    _warm()
    figures = bare(call) if half == "bare" else checked(call)
    print(_ANSWER + json.dumps(figures), flush=True)


def _warm() -> None:
    """One small function, compiled and checked."""
    small = Call(lambda x: (x.sin() * 2).sum(-1), (torch.randn(3, 4, requires_grad=True),))
    bare(small)
    checked(small)


def bare(call: Call) -> dict[str, Any]:
    """Seconds of the call in eager and compiled, each with its backward, and how many gradients each side has."""
    spent = _Spent()
    gradients = [_gradients(call)]
    torch.compiler.reset()
    with torch.compiler.config.patch(force_disable_caches=True):
        gradients.append(_gradients(Call(torch.compile(call.function), call.args, call.kwargs)))
    return {**spent.told(), "gradients": gradients}


def _gradients(call: Call) -> int:
    """How many tensors have a gradient after one call and its backward from ones."""
    outputs = pytree.tree_leaves(call.function(*call.args, **call.kwargs))
    roots = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
    if not roots:
        return 0
    torch.autograd.backward(roots, [torch.ones_like(x) for x in roots])
    given = pytree.tree_leaves((call.args, dict(call.kwargs)))
    leaves = [x for x in given if isinstance(x, torch.Tensor)] + _parameters(call.function)
    found = [x for x in leaves if x.grad is not None]
    for x in found:
        x.grad = None
    return len(found)


def _parameters(function: Any) -> list[torch.Tensor]:
    return list(function.parameters()) if isinstance(function, torch.nn.Module) else []


def checked(call: Call) -> dict[str, Any]:
    """Seconds of the check, its verdict, the sentence of its refusal or another exception, and the `relative_error`."""
    trials: list[Trial] = []

    def judge(trial: Trial, log: Journal) -> Report:
        trials.append(trial)
        return judge_trial(trial, log)

    with patch("fuzzer.trial.check.judge_trial", judge):
        spent = _Spent()
        said = _said(call)
        figures = spent.told()
    return {**figures, **said, "error": max(map(relative_error, trials), default=0.0)}


def _said(call: Call) -> dict[str, Any]:
    try:
        told = backfuzz.check(call.function, *call.args, **call.kwargs)
    except ValueError as error:
        return {"outcome": "refused", "detail": str(error)}
    except Exception as error:
        return {"outcome": "raised", "detail": f"{type(error).__name__}: {error}"}
    return {"outcome": "agrees" if told.agrees else "differs", "detail": str(told)}


def relative_error(trial: Trial) -> float:
    """The largest error of a compiled tensor against float64, as a multiple of `eagers_error`: the factor of the
    fallback in `judgement.comparison` must be larger. Tensors that depend on an operation unknown to the model are left
    out."""
    found = [0.0]
    mine, theirs = trial.named(trial.reference), trial.named(trial.subject)
    for i, name in enumerate(trial.targets):
        eager, compiled = mine[name], theirs.get(name)
        if eager is None or compiled is None or name in trial.unmodelled or eager.shape != compiled.shape:
            continue
        r, unit = trial.model.reference[i].double(), eagers_error(trial, name, i)
        if unit and eager.dtype.is_floating_point:
            found.append(largest(as_float64(compiled, r) - r) / unit)
    return max(found)


class _Spent:
    """The seconds since it was made, on the clock and of the CPU."""

    def __init__(self) -> None:
        self.clock, self.cpu = time.perf_counter(), _cpu_seconds()

    def told(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self.clock, "cpu_seconds": _cpu_seconds() - self.cpu}


def _cpu_seconds() -> float:
    """CPU seconds so far of this process and of those that it started, the compiler's workers among them."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in [own, *own.children(recursive=True)])


# ---------------------------------------------------------------- the environment of the libraries


def default_venv() -> Path:
    """In the user's cache, one for each torch and Python."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "backfuzz" / f"libraries-{version('torch')}-py{sys.version_info.major}.{sys.version_info.minor}"


def install(folder: Path, libraries: Sequence[str]) -> dict[str, str]:
    """Make the environment hold these libraries; why one of them could not be installed. Raises UsageError."""
    python = _python(folder)
    if not python.exists():
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty, and no virtual environment")
        venv.create(folder, with_pip=True)
        (own,) = folder.glob("lib/python*/site-packages")
        shared = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (own / "backfuzz-base.pth").write_text("\n".join(shared))
    pinned = folder / "constraints.txt"
    pinned.write_text(f"torch=={version('torch')}\n")
    failed = {}
    for library in _missing(python, libraries):
        asked = [str(python), "-m", "pip", "install", "-q", "--prefer-binary", "-c", str(pinned), library]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode:
            failed[library] = next((x for x in done.stderr.splitlines() if x.startswith("ERROR")), "pip failed")
    return failed


def _missing(python: Path, libraries: Sequence[str]) -> list[str]:
    """Those that this Python does not hold."""
    asked = "import json; from importlib.metadata import distributions; "
    asked += "print(json.dumps([d.metadata['Name'] for d in distributions()]))"
    found = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout
    held = {_normal(name) for name in json.loads(found)}
    return [library for library in libraries if _normal(library) not in held]


def _normal(name: str) -> str:
    """A distribution's name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


# ---------------------------------------------------------------- the bench


def measure_libraries(cases: Sequence[Case], folder: Path, deadline: float) -> dict[str, Any]:
    """A row a case, printed as it is known, and the summary."""
    libraries = list(dict.fromkeys(case.library for case in cases if case.library != "torch"))
    click.echo(f"installing {len(libraries)} libraries into {folder}", err=True)
    failed = install(folder, libraries)
    rows = []
    for case in cases:
        if case.library in failed:
            rows.append({"case": str(case), "outcome": "not installed", "detail": failed[case.library]})
        else:
            rows.append(measure_case(case, folder, deadline))
        click.echo(shown(rows[-1]))
    return {"torch": torch.__version__, "rows": rows, **summary(rows)}


def measure_case(case: Case, folder: Path, deadline: float) -> dict[str, Any]:
    """Both halves of a case."""
    halves = {half: _half(case, half, folder, deadline) for half in HALVES}
    plain, told = halves["bare"], halves["check"]
    return {
        "case": str(case),
        "outcome": told.get("outcome", "died"),
        "fallback": _FALLBACK in told["detail"],
        "detail": told["detail"],
        "error": told.get("error"),
        "gradients": plain.get("gradients"),
        "bare_failed": plain.get("detail", ""),
        "bare_seconds": plain.get("seconds"),
        "check_seconds": told.get("seconds"),
        "bare_cpu_seconds": plain.get("cpu_seconds"),
        "check_cpu_seconds": told.get("cpu_seconds"),
    }


def _half(case: Case, half: str, folder: Path, deadline: float) -> dict[str, Any]:
    """The figures of one half, or the `detail` of how its process ended without any."""
    command = [str(_python(folder)), "-m", "benches.libraries", str(case), half]
    with tempfile.TemporaryDirectory() as cache:
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "scripts")])
        inherited = {
            **os.environ,
            "PYTHONPATH": path,
            "TORCHINDUCTOR_CACHE_DIR": cache,
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
        }
        try:
            done = subprocess.run(command, env=inherited, capture_output=True, text=True, timeout=deadline)
        except subprocess.TimeoutExpired:
            return {"detail": f"not done after {deadline:g} seconds"}
    for line in done.stdout.splitlines():
        if line.startswith(_ANSWER):
            figures: dict[str, Any] = json.loads(line.removeprefix(_ANSWER))
            return figures
    return {"detail": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the rows."""
    judged = [row for row in rows if row["outcome"] in ("agrees", "differs")]
    ratios = [ratio for row in rows if (ratio := _ratio(row)) is not None]
    return {
        "cases": len(rows),
        "libraries": len({row["case"].partition("/")[0] for row in rows}),
        "verdicts": len(judged),
        "without_fallback": sum(not row["fallback"] for row in judged),
        "differs": sum(row["outcome"] == "differs" for row in judged),
        "largest_error": round(max((row["error"] for row in judged), default=0.0), 2),
        "median_ratio": round(statistics.median(ratios), 2) if ratios else None,
    }


def _ratio(row: dict[str, Any]) -> float | None:
    """CPU seconds of the check over those of the bare call; none where either gave no result."""
    if row["outcome"] not in ("agrees", "differs") or not row.get("bare_cpu_seconds"):
        return None
    return float(row["check_cpu_seconds"] / row["bare_cpu_seconds"])


def shown(row: dict[str, Any]) -> str:
    """One line of the table."""
    ratio = _ratio(row)
    seconds = [row.get(f"{half}_{unit}") for unit in ("seconds", "cpu_seconds") for half in HALVES]
    figures = "".join("       -" if x is None else f"{x:8.1f}" for x in [*seconds, ratio])
    outcome = row["outcome"] + (", fallback" if row.get("fallback") else "")
    told = row["detail"] if row["outcome"] != "agrees" else row["bare_failed"]
    return f"{row['case']:<45} {outcome:<18}{figures}  {' '.join(told.split())[:160]}".rstrip()


def _chosen(only: Sequence[str]) -> list[Case]:
    """The cases named by library or by library/name; all where none are named. Raises UsageError."""
    for name in only:
        if not any(name in (case.library, str(case)) for case in CASES):
            raise UsageError(f"no case or library {name!r}; there are {', '.join(map(str, CASES))}")
    return [case for case in CASES if not only or {case.library, str(case)} & set(only)]


@click.command("libraries")
@click.option("--only", multiple=True, metavar="NAME", help="A library, or library/case; can be given several times.")
@click.option("--venv", "folder", type=click.Path(path_type=Path), help="The libraries' environment; else in ~/.cache.")
@click.option("--deadline", default=600.0, show_default=True, help="Seconds that each half of a case may take.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here.")
def libraries_command(only: tuple[str, ...], folder: Path | None, deadline: float, file: Path | None) -> None:
    """What does `check` say of other people's functions and modules, and how long does it take?"""
    cases = _chosen(only)
    click.echo(f"{'library/case':<45} {'verdict':<18}{'bare s':>8}{'check s':>8}{'CPU s':>8}{'CPU s':>8}{'ratio':>8}")
    figures = measure_libraries(cases, (folder or default_venv()).resolve(), deadline)
    click.echo(" ".join(f"{key}={value}" for key, value in figures.items() if key not in ("torch", "rows")))
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    answer(*sys.argv[1:])
