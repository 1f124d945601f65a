"""A pool of isolated worker processes.

The executor gives deadlines, restarts and recycling. Added here: a fork server that has torch in memory (a worker
starts in a fraction of a second, and a replacement is warm), a scrubbed environment, private cache directories removed
afterwards, each worker on the GPU with the most room, a journal and the tail of stderr for the worker that died.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import math
import multiprocessing
import multiprocessing.util
import os
import resource
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fuzzer.execution import worker
from fuzzer.execution.accelerator import bound_memory, count_devices, use_device
from fuzzer.execution.answering import Answering
from fuzzer.execution.cluster import Cluster, Crew, RayExecutor, place_crews
from fuzzer.execution.executor import Executor
from fuzzer.execution.folders import Folder
from fuzzer.execution.interface import CLOSED, DEADLINE, STUCK, AnyExecutor, WorkerEnded
from fuzzer.execution.journal import read_journal, read_turn, use_journal
from fuzzer.execution.messages import Report, Task
from fuzzer.execution.obituary import report_of_death, top_frame
from fuzzer.execution.placement import placement
from fuzzer.execution.server import server_pids, start_server
from fuzzer.execution.trouble import TROUBLE
from fuzzer.execution.usage import resident_bytes
from fuzzer.judgement.trial import DIED, TIMED_OUT, Observation
from fuzzer.judgement.verdict import CORRUPT_HEAP
from fuzzer.language.devices import HOST, accelerator, device_row
from fuzzer.language.errors import NoMachine

# Compiled code is only freed with its process; at about 1.5 MB a program, 200 programs are 300 MB.
_PROGRAMS_PER_WORKER = 200
# A compile takes 1 to 2 s; the slowest legal ones measured (cumprod's backward) 40 s.
DEADLINE_SECONDS = 90.0
# Address space for data of one CPU worker. A runaway allocation becomes an exception instead of the machine's end.
_WORKER_BYTES = 12 * 2**30
# Resident, after which a worker is replaced: ten times what 200 programs leave (`bench slopes`).
_GROWN_BYTES = 4 * 2**30
_SOON_SECONDS = 1.0  # between two programs of a chain: what the first showed decides the second
_STDERR_TAIL = 8000  # a native stack with the paths of an environment takes 4000
_STACKS_TAIL = 1 << 20  # the stack of the thread that died comes first, then those of all others


def check_devices(devices: list[str]) -> None:
    """Raise NoMachine where a device is asked for that is not there. Touches none."""
    for device in devices:
        kind, _, index = device.partition(":")
        if kind == HOST.type:
            continue
        there, name = count_devices(kind), kind.upper()
        if there == 0:
            raise NoMachine(f"no {name} device: none is found, or this torch is built without {name}; use --device cpu")
        if index and int(index) >= there:
            raise NoMachine(f"no device {device}: this machine has {there} GPU(s)")


def check_flag_gems(device: str) -> None:
    """Raise NoMachine where FlagGems' operators cannot run: they are Triton's, and a package of their own."""
    if device_row(device).code != "triton":
        raise NoMachine(f"flag_gems runs where Triton does, not on {device}")
    if importlib.util.find_spec("flag_gems") is None:
        raise NoMachine("no flag_gems: pip install 'backfuzz[flag_gems]' brings it")


def start_worker(
    scratch: str, number: int, kind: str, there: int, limit: int = _WORKER_BYTES, share: float = 1.0
) -> None:
    """Runs first in every worker: its own directory, caches, stderr, memory limit, and of so many devices of this kind
    that of its number, with this share of its memory."""
    os.setpgid(0, 0)  # with the compilers that it starts; and what a terminal sends is not for it
    worker.end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for fatal in (signal.SIGTERM, signal.SIGALRM):  # the second is a program's own deadline
        signal.signal(fatal, signal.SIG_DFL)
    own = Path(scratch) / f"worker-{os.getpid()}"
    own.mkdir(parents=True, exist_ok=True)
    log = os.open(own / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(own / "triton")
    os.environ["TMPDIR"] = str(own)
    tempfile.tempdir = str(own)
    os.environ.pop(
        "MALLOC_PERTURB_", None
    )  # in force here since the fork server started; the C++ compiler need not pay
    if device_row(kind).limited:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(all_threads=False)
    warnings.simplefilter("ignore")
    import torch

    from fuzzer.execution.remember import remember_simplified
    from fuzzer.language.private import leave_guards_untimed, preload, print_native_stacks

    preload()
    leave_guards_untimed()
    remember_simplified()
    print_native_stacks()
    torch.set_num_threads(1)
    if there:
        use_device(device_row(kind), number, there)
        bound_memory(device_row(kind), share)
    use_journal(own / "journal")
    # a worker that ends by itself leaves nothing; what it left when it died is read by the parent
    multiprocessing.util.Finalize(None, shutil.rmtree, (own, True), exitpriority=10)


@dataclass(frozen=True)
class Owner:
    """What a task is: the function's name, of how many programs, and the seconds that each may take."""

    function: str
    programs: int
    seconds: float


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
        self.workers, self.deadline = workers, deadline
        self.most = min(_GROWN_BYTES, memory // workers if memory else _GROWN_BYTES)
        self.limit = min(_WORKER_BYTES, memory or _WORKER_BYTES)
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
        """The workers on a cluster's machines, each crew with its share of the memory."""

        def settings(crew: Crew) -> dict[str, Any]:
            share = None if memory is None else memory * crew.workers // self.workers
            return common | {"workers": crew.workers, "memory": share}

        crews = place_crews(cluster.machines(), self.workers, accelerator(common["devices"]))
        return RayExecutor(cluster, crews, settings, _Left("", "", ""))

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
        """Run function(task, what), for so many programs, in a worker; from any thread. seconds: that each may take;
        None: the pool's deadline. behind: after every task that is not; others keep the pool `engaged`. Raises
        Stopped."""
        each = self.deadline if seconds is None else seconds
        # each program of several keeps its own deadline in the worker, and so does what they have in common
        together = each if programs == 1 else 2 * programs * each
        future = self.executor.schedule(worker.run_task, (function, task, what), together, behind)
        self.owners[future] = Owner(function.__name__, programs, each)
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
        """The Reports of a finished future's programs, in order; of a worker that died, that of the program whose turn
        it was, and None for those that are to run again. Raises Stopped."""
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
            # SIGALRM: a program's own deadline
            late = end.why == DEADLINE or end.code == -signal.SIGALRM
            _spend(owner.seconds if late else 0.0)
            name = "" if late else CLOSED if end.why == CLOSED else _signal_name(end.code)
            left = end.left
            if end.why == STUCK and not left.frame:  # torch's handler, which prints the stack, waits for malloc's lock
                left = replace(left, frame=CORRUPT_HEAP)
            return _obituary(task, programs, TIMED_OUT if late else DIED, name, left)
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
        """Workers that run, how many died, and the bytes of the host that they take."""
        sizes = self.executor.resident()
        return {"workers": len(sizes), "worker_deaths": self.deaths, "memory_bytes": sum(sizes)}

    def _bury(self, pid: int) -> _Left:
        placement(self.kind).give(self.devices.pop(pid))
        own = self.scratch / f"worker-{pid}"
        journal = (own / "journal").read_text() if (own / "journal").exists() else ""
        left = _Left(journal, _tail(own / "stderr"), top_frame(_tail(own / "stderr", _STACKS_TAIL)))
        shutil.rmtree(own, ignore_errors=True)
        return left

    def close(self, kill: bool = False) -> None:
        """Stop the workers (running tasks end first unless `kill`) and remove what they wrote."""
        self.executor.stop("the workers were stopped") if kill else self.executor.close()
        self.executor.join()
        self.folder.remove()


_spent = [0.0]
_spending = threading.Lock()


def _spend(seconds: float) -> None:
    with _spending:
        _spent[0] += seconds


_troubles = [0]


def troubles() -> int:
    """How many tasks of this process' workers could not run so far for what the machine lacked."""
    return _troubles[0]


def spent_seconds() -> float:
    """CPU seconds that the workers of this process told of so far; of a task that met its deadline, that."""
    return _spent[0]


@dataclass(frozen=True)
class _Left:
    """What a worker left: its journal, the tail of its stderr, the native function in which it died."""

    journal: str
    stderr: str
    frame: str


def _obituary(task: Task, programs: int, outcome: str, name: str, left: _Left) -> list[Report | None]:
    found: list[Report | None] = [None] * programs
    turn = read_turn(left.journal) if programs > 1 else 0
    if turn is not None:
        observed = Observation(outcome, signal=name, frame=left.frame, stderr=left.stderr)
        found[turn] = report_of_death(task.place, observed, *read_journal(left.journal))
    return found


def _signal_name(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit status {code}"


def _tail(path: Path, length: int = _STDERR_TAIL) -> str:
    if not path.exists():
        return ""
    return path.read_bytes()[-length:].decode(errors="replace")
