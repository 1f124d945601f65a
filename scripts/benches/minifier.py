"""PyTorch's own minifier on a program of ours: what it leaves, and whether that still shows the fault.

The program becomes the script that `export` writes. It runs with TORCHDYNAMO_REPRO_AFTER ("dynamo" or "aot") and
TORCHDYNAMO_REPRO_LEVEL; if torch then leaves a minifier_launcher.py, that runs too; the repro.py that it leaves is
counted and judged twice: by its own check, and by our oracles (`kept`). Every process has a folder of its own, and no
compiler switch in its environment but those two.

What it can express, by its source (torch/_dynamo/repro/after_dynamo.py and after_aot.py of 2.11 and 2.13):

- Level 4 looks at values only. A compiler that raises goes through without a launcher, and compiled code that raises
  counts as accurate (`same_two_models` returns True). Level 2 is the one for exceptions, and looks at nothing else.
- "dynamo" calls what inductor returned with one list, because it carries AOTAutograd's `_boxed_call`, and it takes its
  inputs one by one: it raises, whatever it would compute. At level 4 that counts as accurate; at level 2 that exception
  is minified for, unless the compiler raised first. (Level 4 would compare input gradients of a loss of its own, the
  mean of the outputs: the program's cotangents are no part of it.)
- "aot" compares what each of the two graphs, forward and backward, returns.
- Both compare copies of the inputs. A copy of a tensor that overlaps itself (an expanded one) has other strides, and
  the compiled code's stride assertion then raises: see above.
- Equal is within 1e-3, absolutely and relatively; else, in the root mean square of the whole tensor, no farther from
  float64 than three times eager's error (twice, from 1000 elements on) plus 1e-4.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from fuzzer.export import script as export
from fuzzer.judgement.expectation import expected
from fuzzer.judgement.verdict import FINDINGS, Finding, Signature
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.workers.server import HIDDEN

_AFTER = ("dynamo", "aot")
LEVELS = {"wrong": (4,), "raises": (2, 4)}  # those worth a try, by the fault's class: see above
_ROOT = Path(__file__).parent.parent.parent
_COUNTED = {"tried": "there", "repros": "repro", "kept": "ours"}
_STARTS = _ROOT / "corpus" / "starts"


@dataclass(frozen=True)
class Row:
    """What the minifier made of one program.

    after, level   the two switches.
    there          the program shows its fault here; else nothing was tried.
    launched       torch noticed, and left a minifier_launcher.py.
    repro          the launcher left a repro.py (the smallest so far, where the deadline ended it).
    theirs, ours   it still shows the fault: by the file's own check, by ours.
    nodes          operations in its graph; not inputs, constants, unpacking or the output.
    lines, files   of the text; tensors stored beside it.
    seconds        of the script and the launcher together, the two checks not counted.
    note           why something is not so, in torch's words where it has some.
    """

    after: str
    level: int
    there: bool = False
    launched: bool = False
    repro: bool = False
    theirs: bool = False
    ours: bool = False
    nodes: int | None = None
    lines: int | None = None
    files: int | None = None
    seconds: float = 0.0
    note: str = ""


def switches(after: str, level: int) -> dict[str, str]:
    return {"TORCHDYNAMO_REPRO_AFTER": after, "TORCHDYNAMO_REPRO_LEVEL": str(level)}


def starts(names: Sequence[str] = ()) -> dict[str, Program]:
    """The programs of these names in corpus/starts, or of these files; all of corpus/starts without a name."""
    known = {path.stem: path for path in sorted(_STARTS.glob("*.prog"))}
    paths = [known.get(name, Path(name)) for name in names] or list(known.values())
    return {path.stem: parse(path.read_text()) for path in paths}


def fault_class(program: Program) -> str:
    """The class of the program's fault, by its header; "wrong" where that says nothing of one."""
    return next((name for name in expected(program) if name in FINDINGS), "wrong")


def measure_minifier(
    programs: Mapping[str, Program], deadline: float, device: str, workers: int = 1
) -> Iterator[dict[str, Any]]:
    """A row for every program, place and level, this many at a time; `program` is its name."""
    cases = [
        (name, program, level, after)
        for name, program in programs.items()
        for level, after in itertools.product(LEVELS[fault_class(program)], _AFTER)
    ]

    def row(name: str, program: Program, level: int, after: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="minifier-", ignore_cleanup_errors=True) as folder:
            found = minify(program, fault_class(program), Path(folder), after, deadline, level, device)
        return {"program": name, **asdict(found)}

    with ThreadPoolExecutor(workers) as threads:  # each waits for processes of its own
        yield from threads.map(row, *zip(*cases, strict=True))


def minifier_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of `measure_minifier`, and how many were tried, left a repro, and left one that keeps the fault."""
    counts = {name: sum(row[key] for row in rows) for name, key in _COUNTED.items()}
    return {"torch": str(torch.__version__), **counts, "rows": list(rows)}


def minify(
    program: Program, verdict: str, folder: Path, after: str, deadline: float, level: int = 4, device: str = "cpu"
) -> Row:
    """Run PyTorch's minifier on a program whose fault is of this class, "wrong" or "raises".

    `folder` is empty, or not there yet, and keeps everything. `deadline` is what the script and the launcher have
    together, in seconds, and what each check has again. Raises ExportError where no script can be written.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    script, start = folder / "script.py", folder / "start.prog"
    script.write_text(written(program, verdict, device))
    start.write_text(show(program))
    row = Row(after, level)
    before = _ours(start, verdict, device, folder / "before", deadline)
    if not before["kept"]:
        return replace(row, note=f"no fault here: {before['how']}")
    found = run_process([script], folder / "found", deadline, switches(after, level))
    row = replace(row, there=True, seconds=found.seconds)
    launcher = max((folder / "found").rglob("minifier_launcher.py"), key=os.path.getmtime, default=None)
    if launcher is None:
        return replace(row, note=f"no launcher: {found.reason}")
    launcher.write_text(without_switches(launcher.read_text()))
    small = run_process([launcher], folder / "small", deadline - found.seconds)
    row = replace(row, launched=True, seconds=round(found.seconds + small.seconds, 1))
    note = f"the launcher: {small.reason}" if small.code != 0 else ""
    repro = folder / "small" / "repro.py"
    if not repro.exists():
        return replace(row, note=f"no repro; {note}")
    error = "AccuracyError" if verdict == "wrong" else innermost(before["how"])
    return _judged(replace(row, note=note), repro, verdict, error, device, deadline)


def _judged(row: Row, repro: Path, verdict: str, error: str, device: str, deadline: float) -> Row:
    """The row with this repro.py counted and checked; `error` is what its own check raises while the fault is there."""
    folder, text = repro.parent.parent, repro.read_text()
    repro.write_text(without_switches(text))
    own = run_process([repro], folder / "theirs", deadline)
    found = _ours(repro, verdict, device, folder / "ours", deadline)
    same = own.code not in (0, None) and error in own.text
    told = [row.note, "" if same else f"its own check: {own.reason}", "" if found["kept"] else f"ours: {found['how']}"]
    return replace(
        row,
        repro=True,
        theirs=same,
        ours=found["kept"] and (verdict == "wrong" or error in found["how"]),
        nodes=nodes(text),
        lines=len(text.splitlines()),
        files=files(text),
        note="; ".join(part for part in told if part),
    )


def _ours(path: Path, verdict: str, device: str, folder: Path, deadline: float) -> dict[str, Any]:
    """What `kept` says of a program or a repro, in a process of its own."""
    ended = run_process(["-m", "benches.kept", path, verdict, device], folder, deadline)
    found: dict[str, Any] = json.loads(ended.last) if ended.code == 0 else {"kept": False, "how": ended.reason}
    return found


# ---------------------------------------------------------------- texts


def written(program: Program, verdict: str, device: str) -> str:
    """The program as the script that a finding of this class is posted as."""
    oracle = "compile_does_not_raise" if verdict == "raises" else "gradients_agree"
    text = show(program)
    place = {"backend": "inductor", "device": device}
    return export.repro(Finding(Signature(oracle, verdict, "backward", "other"), "as drawn", text, text, place, 0, 0))


def innermost(text: str) -> str:
    """The exception at the bottom of a line, as "CppCompileError: C++ compile error"; the line where it names none."""
    bottom = re.search(r".*\b(\w+(?:Error|Exception): [^:]*)", text)
    return bottom.group(1) if bottom else text


def without_switches(text: str) -> str:
    """A launcher or repro of 2.11 sets the switches again, and fails while it hashes its own tensors; 2.13's does not.

    Taken out, in torch's favour.
    """
    return re.sub(r"^os\.environ\['TORCHDYNAMO_REPRO_(AFTER|LEVEL)'\] = .*\n", "", text, flags=re.MULTILINE)


def nodes(text: str) -> int:
    """Operations in the graph of a launcher or repro. Inputs, constants, unpacking and the output are none."""
    forward = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == "forward")
    return sum(isinstance(s, (ast.Assign, ast.AugAssign)) and _operation(s.value) for s in forward.body)


def _operation(value: ast.expr) -> bool:
    """`x.T` and calls are operations; `x`, `None`, `pair[0]` and `self.constant` are not."""
    if isinstance(value, ast.Attribute):
        return not (isinstance(value.value, ast.Name) and value.value.id == "self")
    return not isinstance(value, (ast.Name, ast.Constant, ast.Subscript))


def files(text: str) -> int:
    """Tensors that the repro reads from files beside it."""
    return len(re.findall(r"reader\.storage\('", text))


# ---------------------------------------------------------------- processes


@dataclass(frozen=True)
class Ended:
    """A process that ended: its exit code (None: killed at the deadline), what it printed, its seconds."""

    code: int | None
    text: str
    seconds: float

    @property
    def last(self) -> str:
        return (self.text.strip().splitlines() or [""])[-1]

    @property
    def reason(self) -> str:
        """Why it left nothing, in one line: the exception that made torch pass a graph by, else the last one."""
        if self.code is None:
            return "the deadline ended it"
        plain = re.sub(r"^[EWIV]\d{4} [^\]]*\] (\[\S+\] )*", "", self.text, flags=re.MULTILINE)
        raised = re.findall(r"^(?:[\w.]*\.)?(\w*(?:Error|Exception)\b.*)$", plain, re.MULTILINE)
        if "which is likely an unrelated issue" in plain:
            return f"passed by, the comparison raised {raised[0]}" if raised else "passed by"
        return raised[-1] if raised else f"exit code {self.code}, {self.last}"


def run_process(
    arguments: list[object], folder: Path, deadline: float, added: Mapping[str, str] = MappingProxyType({})
) -> Ended:
    """Run Python with these arguments in this folder; past the deadline, kill it and what it started."""
    folder.mkdir()
    caches = folder.parent / "caches"
    caches.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
    # inductor keeps its caches under the temporary folder; a variable of its own would be written into the launcher
    ours = os.pathsep.join((str(_ROOT), str(_ROOT / "scripts")))
    given = {**kept, "TMPDIR": str(caches), "PYTHONPATH": ours, **added}
    command = [sys.executable, *map(str, arguments)]
    started = time.monotonic()
    with (folder / "printed.txt").open("w") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=given, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(max(deadline, 0))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Ended(code, (folder / "printed.txt").read_text(errors="replace"), round(time.monotonic() - started, 1))
