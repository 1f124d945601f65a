"""Line coverage of the compiler's own Python source.

A process reports a line once, for the program that reached it first; a campaign joins the reports of its processes.
From Python 3.12 on `sys.monitoring` sees every thread and costs little, since a reported line is no longer watched.
On older Pythons coverage.py traces, which doubles the time spent in Python, so only a sample of programs is recorded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PARTS = ("_inductor", "_dynamo", "_functorch", "_decomp", "_refs", "_meta_registrations.py")  # of torch
# Shares of programs. A campaign reaches the lines all the same, a little later.
TRACED_SHARE = 1 / 64  # where coverage.py traces (measured: docs/guidance.md)
WATCHED_SHARE = 1 / 4  # elsewhere (measured: docs/guidance.md)

_Line = tuple[str, int]  # of a file below torch


def recorded_share() -> float:
    """The share of programs whose lines are recorded with this Python; 0 where it can record none."""
    if sys.version_info >= (3, 12):
        return WATCHED_SHARE
    return TRACED_SHARE if importlib.util.find_spec("coverage") else 0.0


def _torch_folder() -> Path:
    """The folder where torch is installed; torch is not imported."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@functools.cache
def compiler_files() -> dict[str, str]:
    """The compiler's source files: path to name below torch.

    Only exact paths count: AOTAutograd executes text of its own under made-up names, new each time.
    """
    root = _torch_folder()
    found = (
        path for part in _PARTS for path in ((root / part).rglob("*.py") if (root / part).is_dir() else [root / part])
    )
    return {str(path): path.relative_to(root).as_posix() for path in sorted(found)}


def line_word(name: str, number: int) -> str:
    """A line as the word of a feature of the family LINES."""
    return f"{name} {number}"


@dataclass
class Reached:
    """The lines that no earlier program of this process reached; complete once the recording has ended."""

    lines: set[_Line] = field(default_factory=set)

    def words(self) -> frozenset[str]:
        return frozenset(line_word(*line) for line in self.lines)


_reported: set[_Line] = set()
_campaign = ""


@contextlib.contextmanager
def record_lines(campaign: str = "") -> Iterator[Reached]:
    """Record the lines reached in the `with` block, on all threads (see `trace_this_thread`).

    campaign: its name. When the name changes, every line counts as new again.
    """
    global _campaign
    if campaign != _campaign:
        _reported.clear()
        _arm()
        _campaign = campaign
    reached, found = Reached(), set[_Line]()
    try:
        with _watching() as found:
            yield reached
    finally:
        reached.lines = found - _reported
        _reported.update(reached.lines)


def trace_this_thread() -> None:
    """Trace this thread too where coverage.py traces. Call it where the compiler works on a thread that autograd made:
    Python's tracing does not see such threads; `sys.monitoring` does."""
    trace = threading.gettrace()
    if trace is not None and sys.gettrace() is None:
        sys.settrace(trace)


# ---------------------------------------------------------------- the two ways

if sys.version_info >= (3, 12):
    _TOOL = 4  # one of sys.monitoring's numbers that no tool has reserved

    class _Monitor:
        """A callback for each line, in force for the rest of the process.

        Switching events off and on again would arm every line anew. So they stay on between two recordings, which
        costs a hundred lines a program.
        """

        def __init__(self) -> None:
            self.found: set[_Line] | None = None
            self.names = compiler_files()
            events = sys.monitoring.events.LINE
            sys.monitoring.use_tool_id(_TOOL, "backfuzz")
            sys.monitoring.register_callback(_TOOL, events, self.line)
            sys.monitoring.set_events(_TOOL, events)

        def line(self, code: object, number: int) -> object:
            name = self.names.get(code.co_filename)  # type: ignore[attr-defined]
            if name is not None:
                if self.found is None:
                    return None
                self.found.add((name, number))
            return sys.monitoring.DISABLE

    _monitor = functools.cache(_Monitor)

    def _arm() -> None:
        """Watch all lines again."""
        sys.monitoring.restart_events()

    @contextlib.contextmanager
    def _watching() -> Iterator[set[_Line]]:
        monitor, found = _monitor(), set[_Line]()
        monitor.found = found
        try:
            yield found
        finally:
            monitor.found = None

else:

    def _arm() -> None:
        """Nothing to do: every program is traced anyway."""

    @contextlib.contextmanager
    def _watching() -> Iterator[set[_Line]]:
        import coverage

        names, found = compiler_files(), set[_Line]()
        patterns = [
            str(_torch_folder() / part / "*" if not part.endswith(".py") else _torch_folder() / part) for part in _PARTS
        ]
        tracer = coverage.Coverage(data_file=None, config_file=False, include=patterns)
        tracer.set_option("run:disable_warnings", ["no-data-collected"])  # a program may reach none
        tracer.start()
        try:
            yield found
        finally:
            tracer.stop()
            data = tracer.get_data()
            known = set(data.measured_files()) & names.keys()
            found.update((names[path], number) for path in known for number in data.lines(path) or ())
