"""Workers on the machines of a Ray cluster, for a campaign that runs on one of them.

An actor is a crew: on its machine it has a pool of processes, as a campaign has without Ray, so that a program that
takes its worker with it harms neither the actor nor other programs. Ray places the crews, notices that a machine is
lost, and starts its crews again where there is room; their tasks go to other crews. The frontier and the ledger stay
with the campaign. Ray is imported only when it is asked for.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from fuzzer.language.devices import HOST, Device, accelerator
from fuzzer.language.errors import NoMachine
from fuzzer.workers.interface import DIED, Stopped, Task, Waiting, WorkerEnded, opened

LOCAL, RAY = "local", "ray"  # where a campaign's workers are
CREW_CORES = 4  # of a crew without a GPU: a fork server, 0.3 GiB, for each
_MOST_LOST = 3  # crews that a task may lose before it is accused
_PLACE_SECONDS = 120.0  # until Ray has placed the first crew, and it has imported torch
_END_SECONDS = 10.0  # of a crew that is told to end: it removes its folder


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster. address: as `ray.init` takes it; "": that of RAY_ADDRESS, else the one that runs here, else
    one of this machine alone ("local")."""

    address: str = ""

    def connect(self, **resources: int) -> ModuleType:
        """Ray, connected. resources: num_cpus and num_gpus of a cluster that begins here. Raises NoMachine."""
        with _own_signals():
            try:
                import ray
                import ray.exceptions
            except ImportError:
                raise NoMachine("no Ray: pip install 'backfuzz[ray]' brings it") from None
            if not ray.is_initialized():
                try:
                    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
                    ray.init(self.address or None, **quiet, **resources)
                except (ConnectionError, ValueError, RuntimeError) as error:
                    where = f" at {self.address}" if self.address else ""
                    raise NoMachine(f"no Ray cluster{where}: {str(error).splitlines()[0]}") from None
        return ray

    def machines(self) -> list[Mapping[str, float]]:
        """What each machine that is up has: CPU, GPU and more. Raises NoMachine."""
        return [node["Resources"] for node in self.connect().nodes() if node["Alive"]]

    def default_workers(self, devices: Sequence[str]) -> int:
        """The number of workers for these devices on all machines together: so many for each core. If a GPU is needed,
        only machines with a GPU count. Raises NoMachine."""
        row = accelerator(devices)
        crews = place_crews(self.machines(), None, row)
        return sum(crew.workers for crew in crews)


@dataclass(frozen=True)
class Crew:
    """The resources that a crew takes of its machine, and its number of workers."""

    cpus: int
    gpus: int
    workers: int


def place_crews(machines: Sequence[Mapping[str, float]], workers: int | None, device: Device | None) -> list[Crew]:
    """The crews for machines of these resources: on one with GPUs one for each, where the device is such, and else one
    for up to CREW_CORES cores. workers: of all together; None: so many a core as the device takes.

    Raises NoMachine where no machine has what is needed.
    """
    crews: list[Crew] = []
    for machine in machines:
        cpus, gpus = int(machine.get("CPU", 0)), int(machine.get("GPU", 0)) if device else 0
        parts = gpus if device else -(-cpus // CREW_CORES)
        each = [cpus * (n + 1) // parts - cpus * n // parts for n in range(parts)]
        crews += [Crew(own, int(device is not None), max(1, own * (device or HOST).per_core)) for own in each]
    if not crews:
        raise NoMachine(f"no machine of the Ray cluster has a {'GPU' if device else 'CPU'}")
    if workers is None:
        return crews
    together = sum(crew.workers for crew in crews)
    ends = [workers * total // together for total in itertools.accumulate(crew.workers for crew in crews)]
    shared = [replace(crew, workers=own) for crew, own in zip(crews, _differences(ends), strict=True)]
    return [crew for crew in shared if crew.workers]


def _differences(ends: Sequence[int]) -> list[int]:
    return [end - before for before, end in itertools.pairwise([0, *ends])]


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Restore this process's handlers of SIGTERM and other signals afterwards, whoever replaces them meanwhile: a
    campaign has its own way to end."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) != before:
            signal.signal(signal.SIGTERM, before)


# ------------------------------------------------------------ on each machine


class Workshop:
    """An actor: a crew's pool on its machine. `run` comes from as many threads as it has workers."""

    def __init__(self, make_pool: Callable[..., Any], settings: Mapping[str, Any], release: str):
        import torch

        if torch.__version__ != release:
            raise NoMachine(f"a machine of the cluster has torch {torch.__version__}, the campaign's has {release}")
        self.pool = make_pool(**settings)
        self.running: dict[int, Future[Any]] = {}

    def ready(self) -> None:
        """Whoever waits for this knows that it runs."""

    def run(self, number: int, call: bytes, seconds: float | None) -> tuple[str, Any, list[int]]:
        """What became of a task: GAVE, RAISED or ENDED, with its value, error, or how its worker ended; and the bytes
        that each worker has."""
        function, arguments = pickle.loads(call)
        future = self.running[number] = self.pool.executor.schedule(function, arguments, seconds)
        try:
            told: tuple[str, Any] = GAVE, future.result()
        except WorkerEnded as end:
            told = ENDED, (end.why, end.code, end.left)
        except BaseException as error:  # the process boundary: the campaign is told
            told = RAISED, error
        finally:
            del self.running[number]
        return *told, self.pool.executor.resident()

    def give_up(self, number: int) -> None:
        """Kill the worker of a task that nobody waits for."""
        if number in self.running:
            self.running[number].cancel()

    def end(self, kill: bool) -> None:
        """End the workers and remove what they wrote."""
        self.pool.close(kill)


GAVE, RAISED, ENDED = "gave", "raised", "ended"

# ------------------------------------------------------------ beside the campaign


@dataclass(eq=False)
class _Task(Task):
    """A task with the number by which its crew knows it."""

    number: int = 0


@dataclass(eq=False)
class _Placed:
    """A crew that Ray has placed or will place: its actor, and its tasks."""

    crew: Crew
    actor: Any
    up: bool = False
    tasks: dict[int, _Task] = field(default_factory=dict)
    resident: list[int] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.crew.workers - len(self.tasks) if self.up else 0


class RayExecutor:
    """The workers of crews on a cluster's machines, as one executor.

    crews     what is asked of Ray.  make_pool  makes a crew's pool of its `settings`.
    nothing   what is left of a worker whose machine is lost.
    """

    def __init__(self, cluster: Cluster, crews: Sequence[Crew], make_pool: Callable[..., Any],
                 settings: Callable[[Crew], Mapping[str, Any]], nothing: Any):  # fmt: skip
        import torch

        self.ray, self.nothing = cluster.connect(), nothing
        self.tasks, self.numbers = Waiting[_Task](), itertools.count()
        self.changed = threading.Condition(threading.RLock())
        self.closing, self.stopped = False, ""
        make = self.ray.remote(Workshop)
        self.placed = [_Placed(crew, make.options(
            num_cpus=crew.cpus, num_gpus=crew.gpus, scheduling_strategy="SPREAD", max_concurrency=2 * crew.workers + 2,
            max_restarts=-1, max_task_retries=-1,
        ).remote(make_pool, dict(settings(crew)), torch.__version__)) for crew in crews]  # fmt: skip
        opened(self)
        for placed in self.placed:
            self._await(placed)
        self.late = threading.Timer(_PLACE_SECONDS, self._require_one)
        self.late.daemon = True
        self.late.start()

    def schedule(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float | None, behind: bool = False
    ) -> Future[Any]:
        with self.changed:
            if self.stopped or self.closing:
                raise Stopped(self.stopped or "no more tasks are taken")
            task = _Task(pickle.dumps((function, arguments)), seconds, behind, number=next(self.numbers))
            self.tasks.put(task)
        task.future.add_done_callback(functools.partial(self._given_up, task))
        self._hand_out()
        return task.future

    def at_work(self) -> list[tuple[int, Future[Any] | None, float]]:
        with self.changed:
            busy = [(0, task.future, task.began) for placed in self.placed for task in placed.tasks.values()]
            return [*busy, *[(0, None, 0.0)] * sum(placed.room for placed in self.placed)]

    def pids(self) -> list[int]:
        return []  # whatever machine a crew is on, they are its own

    def resident(self) -> list[int]:
        """As the crews told with their last answers."""
        return [size for placed in self.placed for size in placed.resident if placed.up]

    def companions(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def stop(self, why: str = "the workers were stopped") -> None:
        with self.changed:
            self.stopped = self.stopped or why
            under_way = [task for placed in self.placed for task in placed.tasks.values()]
            left = [*self.tasks, *under_way]
            self.tasks.clear()
            for placed in self.placed:
                placed.tasks.clear()
            self.changed.notify_all()
        for task in left:
            task.fail(Stopped(self.stopped))

    def join(self, seconds: float | None = None) -> None:
        with self.changed:
            self.changed.wait_for(self._over, seconds)
        self.late.cancel()
        ended = [placed.actor.end.options(max_task_retries=0).remote(bool(self.stopped)) for placed in self.placed]
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.wait(ended, num_returns=len(ended), timeout=_END_SECONDS)
        for placed in self.placed:
            self.ray.kill(placed.actor)
        self.placed = []

    def _over(self) -> bool:
        under_way = any(placed.tasks for placed in self.placed)
        return bool(self.stopped) or (self.closing and not self.tasks and not under_way)

    # ------------------------------------------------------------ tasks

    def _hand_out(self) -> None:
        """Give tasks to the crews that have the most room for their size."""
        with self.changed:
            while self.tasks:
                placed = max(self.placed, key=lambda p: p.room / p.crew.workers, default=None)
                if placed is None or placed.room <= 0:
                    return
                task = self.tasks.popleft()
                if not task.future.cancelled():
                    task.began = time.monotonic()
                    placed.tasks[task.number] = task
                    # a task goes to another crew where its own is lost: Ray need not wait for that one
                    run = placed.actor.run.options(max_task_retries=0)
                    told = run.remote(task.number, task.call, task.seconds)
                    told.future().add_done_callback(functools.partial(self._take, placed, task))

    def _take(self, placed: _Placed, task: _Task, told: Future[Any]) -> None:
        """Take a crew's answer about a task."""
        with self.changed:
            if placed.tasks.pop(task.number, None) is None:
                return  # it was stopped
            error = told.exception()
            lost = self._is_loss(error)
            if error is None:
                kind, value, placed.resident = told.result()
            elif lost:
                self._lose(placed, task)
        if error is None and kind == GAVE:
            task.give(value)
        elif not lost:
            task.fail(error or (WorkerEnded(*value) if kind == ENDED else value))
        self._hand_out()
        with self.changed:
            self.changed.notify_all()

    def _is_loss(self, error: BaseException | None) -> bool:
        """Whether the error says that a crew, its machine or its answer is lost; else it is an error of `Workshop`
        itself."""
        known = self.ray.exceptions
        return isinstance(error, known.RayError) and not isinstance(error, known.RayTaskError)

    def _lose(self, placed: _Placed, task: _Task) -> None:
        """A crew was lost with a task. The task goes to another crew, unless crews are lost wherever it goes."""
        if placed.up:
            placed.up = False
            self._await(placed)
        task.lost += 1
        if task.lost <= _MOST_LOST:
            self.tasks.appendleft(task)
        else:
            task.fail(WorkerEnded(DIED, None, self.nothing))

    def _given_up(self, task: _Task, future: Future[Any]) -> None:
        """Kill the worker of a task that nobody waits for any more."""
        if not future.cancelled():
            return
        with self.changed:
            for placed in self.placed:
                if task.number in placed.tasks:
                    placed.actor.give_up.options(max_task_retries=0).remote(task.number)

    # ------------------------------------------------------------ crews

    def _await(self, placed: _Placed) -> None:
        """Use a crew as soon as Ray has it running, also for the second time."""
        placed.actor.ready.remote().future().add_done_callback(functools.partial(self._begin, placed))

    def _begin(self, placed: _Placed, told: Future[Any]) -> None:
        error = told.exception()
        if error is not None:  # it cannot start at all
            if not self.stopped and placed in self.placed:
                self.stop(_first_cause(error))
            return
        with self.changed:
            placed.up = True
        self._hand_out()

    def _require_one(self) -> None:
        if not any(placed.up for placed in self.placed) and not self.closing:
            self.stop(f"Ray placed no workers in {_PLACE_SECONDS:.0f} s: `ray status` may say why")


def _first_cause(error: BaseException) -> str:
    """The reason why an actor ended, in a line. Of several errors, the one that its start raised comes last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line.partition("NoMachine: ")[2] for line in lines if "NoMachine: " in line]
    return (named or [f"no workers on the Ray cluster: {lines[-1] if lines else error!r}"])[-1]
