"""The worker's end of the pool: every task enters here, and whatever happens becomes a Report.

Workers record and never decide what to do next. The broad `except` is a process boundary.
"""

from __future__ import annotations

import gc
import os
import pickle
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from fuzzer.language.text import ParseError
from fuzzer.workers.accelerator import context_lost
from fuzzer.workers.journal import journal, read_journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.trouble import TROUBLE, trouble
from fuzzer.workers.usage import cpu_seconds

# The exit status of a worker that lost its device (illegal access, device-side assert): it reports what happened, and
# ends.
CONTEXT_LOST = 75
INTERNAL_ERROR = "backfuzz itself failed"


def serve(pipe: Connection, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """A worker: start(*arguments), then every call that comes through the pipe, until that is closed."""
    start(*arguments)
    pipe.send(None)
    while True:
        try:
            function, given = pipe.recv()
        except EOFError:
            return
        pipe.send(None)  # it began: whatever ends this worker from now on is this call's
        try:
            told = True, function(*given)
        except BaseException as error:  # the process boundary; a SystemExit of code under test ends no worker
            error.add_note(traceback.format_exc())
            told = False, error
        try:
            pipe.send(told)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            pipe.send((False, RuntimeError(f"it cannot be told: {error!r}")))
        if context_lost():
            os._exit(CONTEXT_LOST)


def run_task(function: Callable[[Task, Any], Any], task: Task, what: Any) -> Any:
    """The result of the function: a Report, or one for each of several programs. Together their CPU seconds are all
    that the task took."""
    started = cpu_seconds()
    found = to_report(lambda: function(task, what))
    reports = [found] if isinstance(found, Report) else found
    common = cpu_seconds() - started - sum(report.seconds.get("cpu", 0.0) for report in reports)
    for report in reports:
        report.seconds["cpu"] = report.seconds.get("cpu", 0.0) + common / len(reports)
        _collect_garbage()
    return found


_T = TypeVar("_T")


def to_report(work: Callable[[], _T]) -> _T | Report:
    """The result of the work; for an exception other than a ParseError, the Report of it."""
    try:
        return work()
    except ParseError:
        raise
    except MemoryError:
        return Report(_journalled(), rejected="the worker ran out of memory")
    except BaseException as error:  # the process boundary: a fault of ours costs one program, and is told
        if isinstance(error, RuntimeError) and "memory" in str(error):  # torch's allocators
            return Report(_journalled(), rejected=f"the worker ran out of memory: {str(error).splitlines()[0]}")
        if lacking := trouble(error):
            return Report(_journalled(), rejected=f"{TROUBLE}: {lacking}")
        return Report(_journalled(), rejected=f"{INTERNAL_ERROR}: {error!r}", stderr=traceback.format_exc())


def _journalled() -> str:
    """The program that this worker is running, as its journal has it."""
    log = journal().path
    return read_journal(log.read_text())[0] if log is not None and log.exists() else ""


# A collection takes 0.08 s (CPU) to 0.24 s (beside 15 other workers on an H200), up to a tenth of a compile there.
_COLLECT_EVERY = 64
_tasks = 0


def _collect_garbage() -> None:
    """Give memory back every so many tasks; compiled code itself is only freed by recycling the worker."""
    global _tasks
    _tasks += 1
    if _tasks % _COLLECT_EVERY == 0 and not context_lost():
        gc.collect()
