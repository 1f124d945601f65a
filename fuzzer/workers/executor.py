"""Worker processes, each with a pipe of its own and a thread that waits for it.

The outcome of a task is a Future: the value that its function returned, the error that it raised, or `WorkerEnded`.
Workers share neither a lock nor a pipe, so that an accident of one stays its own. One more thread watches them all:
deadlines, tasks that were given up, processes that somebody stopped, and processes that hang while they die of a fatal
signal.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from fuzzer.workers.interface import CLOSED, DEADLINE, DIED, STUCK, Stopped, Task, Waiting, WorkerEnded, opened
from fuzzer.workers.usage import resident_bytes

_GIVEN_UP = "given up"
GONE = ("", psutil.STATUS_ZOMBIE)  # states of processes that have ended
# Signals that a program under test does not send itself: a person, a service manager, the kernel when memory is out.
_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP}
# Signals of faults, whose handlers run with them blocked.
_FATAL = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_UNKNOWN = 255  # what multiprocessing says where nobody tells it an exit status
_MOST_LOST = 3  # workers that a task may lose before it began, or with their fork server
_TICK_SECONDS = 0.1  # between two looks at deadlines: the least that matters is 4 s
_LOOK_SECONDS = 1.0  # between two looks for processes that somebody stopped
# In the handler of a fatal signal. torch's takes 0.3 s, or waits for ever: it allocates, and where glibc finds the heap
# corrupt the signal comes while malloc's lock is held.
_HANDLER_SECONDS = 5.0
_START_SECONDS = 120.0  # a worker starts in 0.2 s; its fork server may import torch first, 20 s from a cold disk
_END_SECONDS = 5.0  # between the end of a pipe and that of its process, whose GPU's driver cleans up
_LEAVE_SECONDS = 10.0  # of a worker that was told to end: it removes its folder
_BACK_OFF_SECONDS = 60.0  # at most, between two starts that fail
_MOST_FAILURES = 5  # starts in a row, without one that succeeded: then there is no use in waiting
# multiprocessing polls all children whenever it starts one, and an exit status can be read once only
_reaping = threading.Lock()


class _Worker:
    """A process, the pipe to it, and what it is at.

    end   a descriptor that can be read once the process has ended, also where the fork server that tells its exit
          status did so before it: workers outlive that.
    dying  the fatal signal whose handler it was seen in, 0 where in none, and since when.
    """

    def __init__(self, process: BaseProcess, pipe: Connection, companions: Iterable[int]):
        assert process.pid is not None
        self.companions, self.end = tuple(companions), _end_of(process)
        self.process, self.pipe, self.pid = process, pipe, process.pid
        self.task: Task | None = None
        self.until: float | None = None
        self.begun = 0  # tasks that it began
        self.killed = ""  # why we killed it
        self.dying, self.dying_since = 0, 0.0
        self.ended = False
        self.lock = threading.Lock()  # nobody kills a process id that may be another's by now

    def receive(self, seconds: float | None = None) -> Any:
        """The next message of the worker. Raises EOFError where it ends, closes its pipe, or sends nothing for
        so long."""
        if self.pipe not in wait([self.pipe, self.end], seconds) and not self.pipe.poll():
            raise EOFError
        return pickle.loads(self.pipe.recv_bytes())

    def kill(self, why: str) -> None:
        """End it, and the compilers that it started."""
        with self.lock:
            if not self.ended:
                self.killed = self.killed or why
                _kill_group(self.pid, True)

    def alive(self) -> bool:
        return not wait([self.end], 0)

    def reap(self, seconds: float) -> tuple[int | None, str]:
        """Its exit status once it has ended, by force after so many seconds, and why it was killed, if it was. Where
        a companion died, which told the status, there is none. Asked once."""
        wait([self.end], seconds)
        with self.lock:
            living = process_state(self.pid) not in GONE
            killed = self.killed or (CLOSED if living and self.alive() else "")
            _kill_group(self.pid, living)
            self.ended = True
        wait([self.process.sentinel], _LEAVE_SECONDS)
        with _reaping:
            code = self.process.exitcode
            if code is not None:
                self.process.close()
        self.pipe.close()
        os.close(self.end)
        if code == _UNKNOWN and not killed:
            time.sleep(_TICK_SECONDS)  # a process closes its files before it is seen to be dead
            code = None if any(process_state(pid) in GONE for pid in self.companions) else code
        return code, killed


class Executor:
    """So many workers, each replaced when it ends.

    start       starts a process at the other end of a pipe, for the worker of this number; it says anything once it is
                ready, and of every call (function, arguments) that it began it, then (True, value) or (False, error).
    tasks_each  after which a worker is replaced.
    bury        what a process of this id left when it ended, which is removed; called once for each.
    companions  ids of other processes that workers need, the fork server's: they are continued when somebody stops
                them, and without them no exit status is told.  renew  starts those anew that ended.
    grown       whether a process of this id takes so much that it is replaced after its task.
    lived       told of each worker that ended by itself: its number, and how many tasks it began, 0 where it did not
                start; gives why no other is to start, "" where one is.
    """

    def __init__(
        self,
        workers: int,
        start: Callable[[int, Connection], BaseProcess],
        tasks_each: int,
        bury: Callable[[int], Any],
        companions: Callable[[], Iterable[int]] = tuple,
        grown: Callable[[int], bool] = lambda pid: False,
        renew: Callable[[], None] = lambda: None,
        lived: Callable[[int, int], str] = lambda number, tasks: "",
    ):
        self.start, self.tasks_each, self.bury, self.companions, self.grown = start, tasks_each, bury, companions, grown
        self.renew, self.lived = renew, lived
        self.tasks: Waiting[Task] = Waiting()
        self.changed = threading.Condition()
        self.workers: list[_Worker | None] = [None] * workers
        self.leaving: list[threading.Thread] = []
        self.closing, self.stopped, self.started = False, "", False
        self.starting: float | None = None
        keepers = [threading.Thread(target=self._keep, args=(n,), daemon=True) for n in range(workers)]
        self.keepers, self.watcher = keepers, threading.Thread(target=self._watch, daemon=True)
        opened(self)
        for thread in (*self.keepers, self.watcher):
            thread.start()

    def schedule(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float | None, behind: bool = False
    ) -> Future[Any]:
        """Run function(*arguments) in a worker, which is killed after so many seconds; behind: after every task that is
        not. Raises Stopped."""
        task = Task(pickle.dumps((function, arguments)), seconds, behind)
        with self.changed:
            if self.stopped or self.closing:
                raise Stopped(self.stopped or "no more tasks are taken")
            self.tasks.put(task)
            self.changed.notify()
        return task.future

    def pids(self) -> list[int]:
        """The processes that run."""
        return [worker.pid for worker in list(self.workers) if worker is not None]

    def resident(self) -> list[int]:
        """The bytes that each process that runs has in memory."""
        return list(map(resident_bytes, self.pids()))

    def at_work(self) -> list[tuple[int, Future[Any] | None, float]]:
        """Of each process that runs, in the order of their numbers: its id, its task if it has one, and since when."""
        found = [(worker.pid, worker.task) for worker in list(self.workers) if worker is not None]
        return [(pid, task.future if task else None, task.began if task else 0.0) for pid, task in found]

    def close(self) -> None:
        """Take no more tasks; workers end when those that were scheduled are done."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def stop(self, why: str = "the workers were stopped") -> None:
        """Kill the workers; what was scheduled fails with Stopped."""
        with self.changed:
            self.stopped = self.stopped or why
            left, self.tasks = self.tasks, Waiting()
            self.changed.notify_all()
        for task in left:
            task.fail(Stopped(self.stopped))
        for worker in list(self.workers):
            if worker is not None:
                worker.kill(self.stopped)

    def join(self, seconds: float | None = None) -> None:
        """Wait, this long at most, until all workers have ended."""
        until = None if seconds is None else time.monotonic() + seconds

        def join_all(threads: Iterable[threading.Thread]) -> None:
            for thread in threads:
                thread.join(None if until is None else max(0.0, until - time.monotonic()))

        join_all((*self.keepers, self.watcher))
        join_all(self.leaving)  # whom the keepers let leave

    # ------------------------------------------------------------ one worker's thread

    def _keep(self, number: int) -> None:
        """Run one worker after another, while there may be tasks."""
        failures = 0
        while not self._over():
            worker = self._begin(number)
            if worker is None:
                failures += 1
                self._take_leave(number, 0)
                self._back_off(failures)
                continue
            failures, self.started = 0, True
            self._live(worker)
            with self.changed:
                self.workers[number] = None
            if not worker.ended:
                self._let_leave(worker)
            else:
                self._take_leave(number, worker.begun)

    def _take_leave(self, number: int, tasks: int) -> None:
        """Tell that a worker ended by itself; take no more tasks where no other is to start."""
        if not self._over() and (why := self.lived(number, tasks)):
            self.stop(why)

    def _live(self, worker: _Worker) -> None:
        """Let a worker do tasks until it has ended or is to be replaced."""
        for _ in range(self.tasks_each):
            task = self._next(worker)
            if task is None or not self._run(worker, task) or self.grown(worker.pid):
                return

    def _let_leave(self, worker: _Worker) -> None:
        """Let a worker end by itself. The next worker starts beside it and need not wait."""

        def see_off() -> None:
            worker.reap(_LEAVE_SECONDS)
            self.bury(worker.pid)

        worker.pipe.close()
        if self.stopped:
            worker.kill(self.stopped)
        thread = threading.Thread(target=see_off, daemon=True)
        thread.start()
        with self.changed:
            self.leaving = [other for other in self.leaving if other.is_alive()] + [thread]

    def _over(self) -> bool:
        return bool(self.stopped) or (self.closing and not self.tasks)

    def _begin(self, number: int) -> _Worker | None:
        ours, theirs = Pipe()
        worker = None
        try:
            with _reaping:
                self.starting = time.monotonic()
                process = self.start(number, theirs)
                self.starting = None
            worker = _Worker(process, ours, self.companions())
            self.workers[number] = worker
            theirs.close()
            worker.receive(_START_SECONDS)
            return worker
        except (OSError, EOFError, pickle.UnpicklingError):
            if worker is not None:
                self.workers[number] = None
                worker.kill("it did not start")
                worker.reap(_LEAVE_SECONDS)
                self.bury(worker.pid)
            ours.close()
            return None
        finally:
            theirs.close()

    def _back_off(self, failures: int) -> None:
        """Wait before the next start, longer each time; where none ever succeeded, give up."""
        if not self.started and failures >= _MOST_FAILURES:
            self.stop("no worker can be started: `backfuzz doctor` may say why")
            return
        with self.changed:
            if not self._over():
                self.changed.wait(min(_BACK_OFF_SECONDS, 0.25 * 2.0**failures))

    def _next(self, worker: _Worker) -> Task | None:
        """The next task, which is the worker's from now on; None where no more will come, or the worker has ended."""
        while True:
            with self.changed:
                if not self.tasks and not self._over():
                    self.changed.wait(_LOOK_SECONDS)
            if self._over():
                return None
            if not worker.alive():
                worker.reap(0.0)
                self.bury(worker.pid)
                return None
            with self.changed:
                while self.tasks:
                    task = self.tasks.popleft()
                    if not task.future.cancelled():
                        task.began = time.monotonic()
                        worker.until = None if task.seconds is None else task.began + task.seconds
                        worker.task = task
                        return task

    def _run(self, worker: _Worker, task: Task) -> bool:
        """Let the worker do its task. False where the worker ended with it."""
        before = worker.begun
        try:
            worker.pipe.send_bytes(task.call)
            worker.receive()
            worker.begun += 1
            done, value = worker.receive()
        except Exception:  # whatever came through the pipe, or did not: this worker is of no use any more
            self._lose(worker, task, worker.begun > before)
            return False
        finally:
            worker.task = None
        task.give(value) if done else task.fail(value)
        return True

    def _lose(self, worker: _Worker, task: Task, begun: bool) -> None:
        """The worker of a task has ended. The task goes to another worker, unless the task itself or its deadline ended
        this one."""
        code, killed = worker.reap(_END_SECONDS)
        code = -worker.dying if killed == STUCK else code
        left = self.bury(worker.pid)
        blameless = _MOST_LOST if not begun or code is None else 1 if code in _OUTSIDE else 0
        if self.stopped and killed != DEADLINE:
            task.fail(Stopped(self.stopped))
        elif killed in (DEADLINE, CLOSED):
            task.fail(WorkerEnded(killed, code, left))
        elif task.lost < blameless:
            task.lost += 1
            with self.changed:
                self.tasks.appendleft(task)
                self.changed.notify()
        else:
            task.fail(WorkerEnded(killed if killed == STUCK else DIED, code, left))

    # ------------------------------------------------------------ the thread that watches

    def _watch(self) -> None:
        looked = 0.0
        while any(keeper.is_alive() for keeper in self.keepers):
            now = time.monotonic()
            for worker in [worker for worker in self.workers if worker is not None]:
                self._look_after(worker, now)
            if now - looked > _LOOK_SECONDS:
                looked = now
                for worker in [worker for worker in self.workers if worker is not None]:
                    self._end_dying(worker, now)
                self._let_go_on(now)
            time.sleep(_TICK_SECONDS)

    def _look_after(self, worker: _Worker, now: float) -> None:
        task, until = worker.task, worker.until
        if task is not None and task.future.cancelled():
            worker.kill(_GIVEN_UP)
        elif task is not None and until is not None and now > until:
            worker.kill(DEADLINE)

    def _end_dying(self, worker: _Worker, now: float) -> None:
        """Kill a worker that has been in the handler of a fatal signal too long: it died of that signal."""
        seen = handled_signal(worker.pid) if worker.task is not None else 0
        if seen != worker.dying:
            worker.dying, worker.dying_since = seen, now
        elif seen and now - worker.dying_since > _HANDLER_SECONDS:
            worker.kill(STUCK)

    def _let_go_on(self, now: float) -> None:
        """Continue processes that somebody stopped; they would cost their deadline, and a fork server everything."""
        companions = list(self.companions())
        for pid in (*companions, *(worker.pid for worker in self.workers if worker is not None)):
            if process_state(pid) == psutil.STATUS_STOPPED:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        if not self._over() and any(process_state(pid) in GONE for pid in companions):
            with contextlib.suppress(OSError):  # as of a machine that is out of memory; it is tried again
                self.renew()  # now, while workers run on: the next start need not wait until it has imported torch
        starting = self.starting
        if starting is not None and now - starting > _START_SECONDS:
            for pid in companions:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # the next start makes another


def _end_of(process: BaseProcess) -> int:
    """A new descriptor that can be read once a process has ended; where there is none of processes themselves (no
    Linux), also once its fork server has."""
    try:
        return os.pidfd_open(process.pid or 0)
    except (AttributeError, OSError):  # it may be gone already
        return os.dup(process.sentinel)


def process_state(pid: int) -> str:
    """The state of a process by psutil's name for it, such as "running", "stopped" or "zombie"; "" where there is no
    such process."""
    try:
        return psutil.Process(pid).status()
    except psutil.Error:
        return ""


def handled_signal(pid: int) -> int:
    """The fatal signal in whose handler a thread of a process is; 0 where none is, or nobody tells (no Linux).

    A thread that has all of them blocked is in no handler: some threads of libraries take no signals, and none does
    while it starts another or a process.
    """
    every = sum(1 << number - 1 for number in _FATAL)
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # the thread has ended
            blocked = int(status.read_text().partition("SigBlk:")[2].split()[0], 16) & every
            if blocked and blocked != every:
                return next(number for number in sorted(_FATAL) if blocked >> number - 1 & 1)
    return 0


def _kill_group(pid: int, living: bool) -> None:
    """Kill what a process started, and where it is `living` itself: one that has just begun leads no group yet."""
    for kill in (os.killpg, os.kill) if living else (os.killpg,):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
