"""What a pool asks of whatever runs its tasks: processes of this machine (`executor.Executor`) or of the machines of a
cluster (`cluster.RayExecutor`). The same tests hold for both."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

DEADLINE, DIED, CLOSED = "deadline", "died", "closed its pipe"
STUCK = "stuck in the handler of a fatal signal"  # of which it died


class WorkerEnded(Exception):
    """A worker ended with a task. why: DEADLINE, DIED, STUCK or CLOSED;  code: its exit status, negative for a signal;
    left: the result of `bury`."""

    def __init__(self, why: str, code: int | None, left: Any):
        super().__init__(f"{why} ({code})")
        self.why, self.code, self.left = why, code, left


class Stopped(BrokenExecutor):
    """The workers were stopped, or cannot start; the message says why."""


@dataclass(eq=False)
class Task:
    """A call that a worker runs.

    call    function and arguments, pickled.  seconds   after which its worker is killed; None: any.
    behind  whether it comes after every task that is not.  future   its outcome.
    began   when a worker took it, by `time.monotonic`.
    lost    the number of workers, or of crews of them, that ended with it by no fault of the task.
    """

    call: bytes
    seconds: float | None
    behind: bool = False
    future: Future[Any] = field(default_factory=Future)
    began: float = 0.0
    lost: int = 0

    def give(self, value: Any) -> None:
        """It ended with this value; nothing where it was given up."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """It ended with this error; nothing where it was given up."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)


AnyTask = TypeVar("AnyTask", bound=Task)


class Waiting(deque[AnyTask]):
    """Tasks that wait for a worker: first come, first served; those that are `behind` after all that are not."""

    def put(self, task: AnyTask) -> None:
        first = next((place for place, other in enumerate(self) if other.behind), len(self))
        self.insert(len(self) if task.behind else first, task)


class AnyExecutor(Protocol):
    """Runs functions in workers, each of which is replaced when it ends."""

    def schedule(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float | None, behind: bool = False
    ) -> Future[Any]:
        """Run function(*arguments) in a worker, which is killed after so many seconds: what it gives or raises, or
        WorkerEnded. behind: after every task that is not. A future that is cancelled is given up, and so is its
        worker. Raises Stopped."""

    def at_work(self) -> list[tuple[int, Future[Any] | None, float]]:
        """Of each worker that runs: its process' id (0 on another machine), its task if it has one, and since when."""

    def pids(self) -> list[int]:
        """The workers that run on this machine."""

    def resident(self) -> list[int]:
        """The bytes that each worker that runs has in its machine's memory."""

    def companions(self) -> Iterable[int]:
        """Ids of other processes of this machine that workers need."""

    def close(self) -> None:
        """Take no more tasks; workers end when those that were scheduled are done."""

    def stop(self, why: str) -> None:
        """Kill the workers; what was scheduled fails with Stopped."""

    def join(self, seconds: float | None = None) -> None:
        """Wait, this long at most, until all workers have ended."""


_open: weakref.WeakSet[AnyExecutor] = weakref.WeakSet()


def opened(executor: AnyExecutor) -> None:
    """Have `stop_all` stop this one too."""
    _open.add(executor)


def stop_all(why: str = "the workers were stopped") -> None:
    """Stop every executor of this process, and the fork server: a start may wait until that has imported torch."""
    companions = set[int]()
    for executor in list(_open):
        executor.stop(why)
        companions |= set(executor.companions())
    for pid in companions:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# before multiprocessing's own, which waits for its children
atexit.register(stop_all)
