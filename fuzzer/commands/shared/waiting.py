"""Signs of life on stderr, while a command takes longer than a person waits in silence."""

from __future__ import annotations

import datetime
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from fuzzer.workers.pool import Pool

FOLDER = Path(".backfuzz")  # of the working folder: what workers write while they run

LINE_SECONDS = 60.0
LOOK_SECONDS = 0.5


class Waiting:
    """On a terminal a spinner with a text and the time, and a bar if the amount of work is known; it is gone
    afterwards. Elsewhere a line a minute, with the time.

    what     is done; may change.  detail   says more about it, `done` how many of `total` there are by now; both are
    asked twice a second, from another thread.
    """

    def __init__(
        self, what: str, detail: Callable[[], str] = str, done: Callable[[], int] = int, total: int | None = None,
        stream: TextIO | None = None,
    ):  # fmt: skip
        # not imported before it is needed: --help does without
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self.what, self.detail, self.done, self.total = what, detail, done, total
        self.stream = stream or sys.stderr
        self.over = threading.Event()
        console = Console(file=self.stream)
        bar = [] if total is None else [BarColumn(), MofNCompleteColumn()]
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), *bar, TimeElapsedColumn())
        self.shown = Progress(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False,
            disable=not console.is_terminal,
        )  # fmt: skip
        self.task = self.shown.add_task(what, total=total)
        self.thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Waiting:
        self.shown.start()
        self.thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Show nothing any more; may be called twice."""
        self.over.set()
        self.shown.stop()

    def text(self) -> str:
        return ": ".join(filter(None, (self.what, self.detail())))

    def _tell(self) -> None:
        told = time.monotonic()
        while not self.over.wait(LOOK_SECONDS):
            self.shown.update(self.task, description=self.text(), completed=self.done())
            if self.shown.disable and time.monotonic() - told >= LINE_SECONDS:
                told = time.monotonic()
                counted = "" if self.total is None else f" ({self.done()} of {self.total})"
                line = f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S} {self.text()}{counted}"
                print(line, file=self.stream, flush=True)


class Starting(Waiting):
    """While torch is imported the garbage collector rests: it would take a quarter of that time, and finds nothing."""

    def __enter__(self) -> Starting:
        gc.disable()
        super().__enter__()
        return self

    def stop(self) -> None:
        super().stop()
        gc.enable()


def starting(workers: bool = True) -> Waiting:
    """Torch is imported, which takes seconds: shown from now on until it is stopped, or the command ends.

    workers: whether this machine will have some; their fork server begins to import it at the same time.
    """
    from fuzzer.workers.server import start_server

    if workers:
        start_server()
    return click.get_current_context().with_resource(Starting("torch is imported"))


@contextmanager
def working(
    doing: str | Callable[[], str],
    devices: Sequence[str],
    workers: int | None,
    scratch: Path | None = FOLDER,
    total: int | None = None,
) -> Iterator[Pool]:
    """A pool of workers on these devices, and on stderr what they do, while a verb uses it.

    doing    in a word or two; or a function that gives it now.
    workers  None: as many as the machine has room for.
    scratch  the folder for files of workers, made where it is missing; None: one of the system's.
    total    the number of programs, where it is known.
    """
    from fuzzer.workers.at_work import told
    from fuzzer.workers.capacity import default_workers
    from fuzzer.workers.pool import Pool

    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    now = doing if callable(doing) else lambda: doing
    with (
        Pool(workers or default_workers(devices), list(devices), scratch=scratch) as pool,
        Waiting("", lambda: ": ".join(filter(None, (now(), told(pool)))), lambda: pool.finished, total),
    ):
        yield pool
