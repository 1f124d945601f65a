"""A pool of isolated worker processes.

The executor gives deadlines, restarts and recycling. Added here: a fork server that has torch in memory (a worker
starts in a fraction of a second, and a replacement is warm), a scrubbed environment, private cache directories removed
afterwards, each worker on the GPU with the most room, a journal and the tail of stderr for the worker that died.
"""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.util
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fuzzer.judgement.trial import DIED, TIMED_OUT
from fuzzer.judgement.verdict import CORRUPT_HEAP
from fuzzer.language.devices import HOST, accelerator
from fuzzer.workers import worker
from fuzzer.workers.accelerator import check_devices, count_devices
from fuzzer.workers.cluster import Cluster, Crew, RayExecutor, place_crews
from fuzzer.workers.executor import Executor
from fuzzer.workers.folders import Folder, check_paths
from fuzzer.workers.interface import CLOSED, DEADLINE, STUCK, AnyExecutor, WorkerEnded
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.obituary import Left, obituary, signal_name, tail, top_frame
from fuzzer.workers.placement import Answering, placement
from fuzzer.workers.server import server_pids, start_server
from fuzzer.workers.start import WORKER_BYTES, start_worker
from fuzzer.workers.trouble import TROUBLE
from fuzzer.workers.usage import resident_bytes

# Compiled code is only freed with its process; at about 1.5 MB a program, 200 programs are 300 MB.
_PROGRAMS_PER_WORKER = 200
# A compile takes 1 to 2 s; the slowest legal ones measured (cumprod's backward) 40 s.
DEADLINE_SECONDS = 90.0
# Resident, after which a worker is replaced: ten times what 200 programs leave (`bench slopes`).
_GROWN_BYTES = 4 * 2**30
_SOON_SECONDS = 1.0  # between two programs of a chain: what the first showed decides the second
_STACKS_TAIL = 1 << 20  # the stack of the thread that died comes first, then those of all others


@dataclass(frozen=True)
class Owner:
    """The description of a task: the name of its function, the number of programs, the seconds that each may take, and
    whether it comes after all that is not behind."""

    function: str
    programs: int
    seconds: float
    behind: bool = False


class Pool:
    """Workers that run functions of `worker`; a death or a deadline becomes a Report like any other.

    workers   processes kept running;  scratch  a directory for what they write, removed at the end.
    fresh     every task in a process of its own (verification).
    batch     programs that most tasks have;  memory  bytes of the host for all workers together.
    cluster   on whose machines the workers are; None: on this one.
    """

    def __init__(
        self,
        workers: int,
        devices: list[str],
        deadline: float = DEADLINE_SECONDS,
        scratch: Path | None = None,
        fresh: bool = False,
        batch: int = 1,
        memory: int | None = None,
        cluster: Cluster | None = None,
    ):
        check_devices(devices)
        check_paths(devices)
        self.workers, self.deadline = workers, deadline
        self.most = min(_GROWN_BYTES, memory // workers if memory else _GROWN_BYTES)
        self.limit = min(WORKER_BYTES, memory or WORKER_BYTES)
        self.kind = (accelerator(devices) or HOST).type
        self.there = count_devices(self.kind)
        named = sorted({int(index) for device in devices if (index := device.partition(":")[2])})
        self.answering = Answering(self.kind, named or range(self.there))
        self.at: dict[int, int] = {}  # the device of each worker's number
        self.devices: dict[int, int] = {}  # and of each process
        self.folder = Folder(scratch, "pool-")
        self.scratch = self.folder.path
        self.context = multiprocessing.get_context("forkserver")
        self.deaths = 0
        self.deaths_behind = 0  # those of tasks that are behind others: a campaign explores in these
        self.owners: dict[Future[Any], Owner] = {}
        self.ahead: set[Future[Any]] = set()  # tasks that are not behind others
        self.last_ahead = -math.inf  # when one of these ended
        self.finished = 0  # programs
        self.executor: AnyExecutor
        if cluster is not None:
            self.executor = self._on(cluster, {"devices": devices, "fresh": fresh, "batch": batch}, memory)
            return
        start_server()
        tasks_each = 1 if fresh else -(-_PROGRAMS_PER_WORKER // batch)
        self.executor = Executor(
            workers, self._start, tasks_each, self._bury, server_pids, self._grown, start_server, self._lived
        )

    def _on(self, cluster: Cluster, common: dict[str, Any], memory: int | None) -> AnyExecutor:
        """The workers on a cluster's machines, each crew with its part of the memory."""

        def settings(crew: Crew) -> dict[str, Any]:
            share = None if memory is None else memory * crew.workers // self.workers
            return common | {"workers": crew.workers, "memory": share}

        crews = place_crews(cluster.machines(), self.workers, accelerator(common["devices"]))
        return RayExecutor(cluster, crews, Pool, settings, Left("", "", ""))

    def _start(self, number: int, pipe: Connection) -> BaseProcess:
        start_server()  # the one that there was may have died
        self.at[number] = device = placement(self.kind).take(self.answering.left())
        share = 1 / -(-self.workers // max(1, len(self.answering.among)))  # of the memory of a device
        arguments = (str(self.scratch), device, self.kind, self.there, self.limit, share)
        process = self.context.Process(target=worker.serve, args=(pipe, start_worker, arguments), daemon=True)
        try:
            process.start()
        except BaseException:
            placement(self.kind).give(device)
            raise
        assert process.pid is not None
        self.devices[process.pid] = device
        return process

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.close(kill=kind is not None)

    def submit(
        self,
        function: Callable[..., Any],
        task: Task,
        what: Any,
        programs: int = 1,
        seconds: float | None = None,
        behind: bool = False,
    ) -> Future[Any]:
        """Run function(task, what), for so many programs, in a worker. Any thread may call this.

        seconds  that each program may take; None: the pool's deadline.
        behind   after every task that is not behind; those others keep the pool `engaged`. Raises Stopped.
        """
        each = self.deadline if seconds is None else seconds
        # each program of several keeps its own deadline in the worker, and so does what they have in common
        together = each if programs == 1 else 2 * programs * each
        future = self.executor.schedule(worker.run_task, (function, task, what), together, behind)
        self.owners[future] = Owner(function.__name__, programs, each, behind)
        if not behind:
            self.ahead.add(future)
            future.add_done_callback(self._one_less_ahead)
        return future

    def _one_less_ahead(self, future: Future[Any]) -> None:
        self.ahead.discard(future)
        self.last_ahead = time.monotonic()

    def engaged(self) -> bool:
        """Whether tasks that are not `behind` run, wait, or ended within this second: another is likely to follow."""
        return bool(self.ahead) or time.monotonic() - self.last_ahead < _SOON_SECONDS

    def result(self, future: Future[Any], task: Task) -> Report:
        """The Report of a finished future of one program; a death or a deadline is one too. Raises Stopped."""
        (found,) = self.results(future, task)
        assert found is not None, "who is alone in a worker is at fault"
        return found

    def results(self, future: Future[Any], task: Task) -> list[Report | None]:
        """The Reports of a finished future's programs, in order. Of a worker that died: the Report of the program whose
        turn it was, and None for those that are to run again. Raises Stopped."""
        found = self._results(future, task)
        self.finished += len(found) - found.count(None)
        _troubles[0] += any(report is not None and report.rejected.startswith(TROUBLE) for report in found)
        _spend(sum(report.seconds.get("cpu", 0.0) for report in found if report is not None))
        return found

    def _results(self, future: Future[Any], task: Task) -> list[Report | None]:
        owner = self.owners.pop(future)
        programs = owner.programs
        try:
            found = future.result()
        except WorkerEnded as end:
            self.deaths += 1
            self.deaths_behind += owner.behind
            # SIGALRM: a program's own deadline
            late = end.why == DEADLINE or end.code == -signal.SIGALRM
            _spend(owner.seconds if late else 0.0)
            name = "" if late else CLOSED if end.why == CLOSED else signal_name(end.code)
            left = end.left
            if end.why == STUCK and not left.frame:  # torch's handler, which prints the stack, waits for malloc's lock
                left = replace(left, frame=CORRUPT_HEAP)
            return obituary(task, programs, TIMED_OUT if late else DIED, name, left)
        if programs == 1:
            return [found]
        return found if isinstance(found, list) else [None] * programs

    def abandon(self, futures: Iterable[Future[Any]]) -> None:
        """Give up tasks; the workers that run them are killed and replaced."""
        for future in futures:
            future.cancel()
            self.owners.pop(future, None)

    def _grown(self, pid: int) -> bool:
        return resident_bytes(pid) > self.most

    def _lived(self, number: int, tasks: int) -> str:
        return self.answering.lived(self.at[number], tasks)

    def silent_devices(self) -> list[str]:
        """Devices that do not answer any more: workers run on the others."""
        return [f"{self.kind}:{index}" for index in self.answering.silent]

    def health(self) -> dict[str, int]:
        """The number of workers that run, the numbers that died (while exploring, and at all), and the bytes of the
        host's memory that they take."""
        sizes = self.executor.resident()
        deaths = {"exploring_deaths": self.deaths_behind, "worker_deaths": self.deaths}
        return {"workers": len(sizes), **deaths, "memory_bytes": sum(sizes)}

    def _bury(self, pid: int) -> Left:
        placement(self.kind).give(self.devices.pop(pid))
        own = self.scratch / f"worker-{pid}"
        journal = (own / "journal").read_text() if (own / "journal").exists() else ""
        left = Left(journal, tail(own / "stderr"), top_frame(tail(own / "stderr", _STACKS_TAIL)))
        shutil.rmtree(own, ignore_errors=True)
        return left

    def close(self, kill: bool = False) -> None:
        """Stop the workers (running tasks end first unless `kill`) and remove what they wrote."""
        self.executor.stop("the workers were stopped") if kill else self.executor.close()
        self.executor.join()
        self.folder.remove()


_spent = [0.0]
_spending = threading.Lock()
_own = threading.local()


def _spend(seconds: float) -> None:
    _own.seconds = spent_by_thread() + seconds
    with _spending:
        _spent[0] += seconds


_troubles = [0]


def troubles() -> int:
    """How many tasks of this process' workers could not run so far because the machine lacked something."""
    return _troubles[0]


def spent_seconds() -> float:
    """CPU seconds that the workers of this process reported so far. A task that met its deadline counts with that."""
    return _spent[0]


def spent_by_thread() -> float:
    """Of `spent_seconds` those of Reports that this thread took."""
    found: float = getattr(_own, "seconds", 0.0)
    return found
