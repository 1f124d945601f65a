"""The worker's end of the pool: every task enters here, and whatever happens becomes a Report.

Workers record and never decide what to do next. The broad `except` is a process boundary.
"""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from fuzzer.execution.journal import journal, read_journal
from fuzzer.execution.messages import Report, Task
from fuzzer.execution.observe import context_lost
from fuzzer.execution.usage import cpu_seconds
from fuzzer.language.text import ParseError

# The exit status of a worker that lost its device (illegal access, device-side assert): it reports what happened, and
# ends as soon as it is given another task, which the pool gives to another worker.
CONTEXT_LOST = 75
INTERNAL_ERROR = "backfuzz itself failed"


def run_task(token: str, function: Callable[[Task, Any], Any], task: Task, what: Any) -> Any:
    """Every task enters here: note whose it is, so that a death finds its owner. What the function gives: a Report, or
    one for each of several programs; their CPU seconds are together all that the task took."""
    if context_lost():
        os._exit(CONTEXT_LOST)
    log = journal().path
    if log is not None:
        log.with_name("owner").write_text(token)
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
    """What the work gives; the Report of what it raises, but for a ParseError."""
    try:
        return work()
    except ParseError:
        raise
    except MemoryError:
        return Report("", rejected="the worker ran out of memory")
    except Exception as error:  # the process boundary: a fault of ours costs one program, and is told
        if isinstance(error, RuntimeError) and "memory" in str(error):  # torch's allocators
            return Report("", rejected=f"the worker ran out of memory: {str(error).splitlines()[0]}")
        log = journal().path
        text = read_journal(log.read_text())[0] if log is not None else ""
        return Report(text, rejected=f"{INTERNAL_ERROR}: {error!r}", stderr=traceback.format_exc())


# A collection takes 0.08 s (CPU) to 0.24 s (beside 15 other workers on an H200), up to a tenth of a compile there.
_COLLECT_EVERY = 64
_tasks = 0


def _collect_garbage() -> None:
    """Give memory back every so many tasks; compiled code itself is only freed by recycling the worker."""
    global _tasks
    _tasks += 1
    if _tasks % _COLLECT_EVERY == 0:
        gc.collect()
