"""Where a program's time goes: CPU seconds by phase, of a campaign's own path, in its own workers.

A phase is a stack of them: what the compiler does in the middle of a run counts for the compiler alone. torch tells its
own phases; ours are functions that the bench wraps. What compilers take as processes of their own, as g++ and ptxas do,
counts as `kernels`, and so does Triton, which compiles in the worker.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

import click

from benches.options import common_options, print_figures, programs_option, task_on
from fuzzer.campaign.turns import in_flight
from fuzzer.language.private import compile_phases
from fuzzer.language.program import Attributes
from fuzzer.language.settings import UnknownSetting, parse_assignment
from fuzzer.trial import draw, exercise, pipeline, tasks
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

# Phases in the order in which they are told, and what is in them.
PHASES = {
    "generation": "drawing programs until a fault could show in one",
    "trace": "running them in eager, recorded",
    "features": "of traces and of the compile",
    "eager": "running the last one in eager, not recorded",
    "dynamo": "tracing Python, guards",
    "aot": "AOTAutograd: functionalizing, the joint graph, the partitioner",
    "inductor": "graph passes, lowering, scheduling, writing code",
    "kernels": "g++ or Triton, loading what they made",
    "run": "running compiled code twice, checks of the inputs",
    "oracles": "the rounding model and comparisons",
    "other": "collections, journal, resets",
    "messages": "between two programs: unpacking the task, packing the report",
}
# Of torch's phases, by how their names begin; all others count for the phase that they are in.
TOLD = {
    "dynamo": "dynamo",
    "entire_frame_compile": "dynamo",
    "backend_compile": "aot",
    "create_aot_dispatcher_function": "aot",
    "entire_backward_compile": "aot",
    "_recursive_": "inductor",
    "compile_fx": "inductor",
    "inductor_compile": "inductor",
    "compile_file": "kernels",
    "async_compile": "kernels",
    "CachingAutotuner": "kernels",
    "StaticAutotunerFuture": "kernels",
}
# Ours: the module in whose name the function is called, the function, the phase.
OURS = (
    (draw, "draw_program", "generation"),
    (draw, "record_reference", "trace"),
    (draw, "is_detectable", "oracles"),
    (exercise, "as_compiled", "trace"),
    (exercise, "trace_words", "features"),
    (pipeline, "feature_ids", "features"),
    (pipeline, "rerun_reference", "eager"),
    (pipeline, "compile_subject", "run"),
    (pipeline, "verdicts", "oracles"),
    (pipeline, "detectable", "oracles"),
    (pipeline, "nonzero_gradients", "oracles"),
)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Stopwatch:
    """CPU seconds by phase. Time counts for the phase entered last; that of ended child processes for `kernels`."""

    def __init__(self, own: Callable[[], float] = time.process_time, children: Callable[[], float] = _children_seconds):
        self.own, self.children = own, children
        self.last = own(), children()
        self.inside = ["other"]
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def _count(self) -> None:
        now = self.own(), self.children()
        self.seconds[self.inside[-1]] += now[0] - self.last[0]
        self.seconds["kernels"] += now[1] - self.last[1]
        self.last = now

    def enter(self, phase: str) -> None:
        self._count()
        self.inside.append(phase)

    def leave(self) -> None:
        self._count()
        self.inside.pop()

    def enter_told(self, name: str) -> None:
        """Enter a phase of torch's."""
        self.enter(next((ours for begin, ours in TOLD.items() if name.startswith(begin)), self.inside[-1]))

    def wrapped(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            self.enter(phase)
            try:
                return function(*given, **named)
            finally:
                self.leave()

        return timed


@contextlib.contextmanager
def timing(watch: Stopwatch) -> Iterator[None]:
    """All phases go to this watch."""
    before = [getattr(module, name) for module, name, _ in OURS]
    for (module, name, phase), function in zip(OURS, before, strict=True):
        setattr(module, name, watch.wrapped(function, phase))
    try:
        with compile_phases(watch.enter_told, watch.leave):
            yield
    finally:
        for (module, name, _), function in zip(OURS, before, strict=True):
            setattr(module, name, function)


@dataclass(frozen=True)
class Timed(Report):
    """A Report with CPU seconds by phase."""

    phases: dict[str, float] = field(default_factory=dict)


_ended: tuple[float, float] | None = None  # when the last task of this worker did


def _timed(task: Task, index: int) -> Report:
    """A campaign's program, with what it took."""
    global _ended
    watch = Stopwatch()
    if _ended is not None:
        watch.seconds["messages"] = sum(watch.last) - sum(_ended)
    with timing(watch):
        found = tasks.explore(task, index)
    watch.leave()
    _ended = watch.last
    return Timed(**vars(found), phases=dict(watch.seconds))


def measure_profile(task: Task, programs: int, workers: int, beside: Attributes = ()) -> dict[str, Any]:
    """CPU seconds of a program by phase, in workers and in this process; then those of the same programs, in workers
    of their own, with these settings in place of the drawn ones. First compiles do not count."""
    started = time.monotonic()
    figures = _measure(task, programs, workers)
    if beside:
        other = _measure(replace(task, fixed=(*task.fixed, *beside)), programs, workers)
        figures["beside"] = {"settings": dict(beside), **other}
    return figures | {
        "workers": workers,
        "device": task.place.subject.device,
        "backend": task.place.subject.backend,
        "seconds": round(time.monotonic() - started, 1),
    }


def _measure(task: Task, programs: int, workers: int) -> dict[str, Any]:
    with Pool(workers, task.place.devices) as pool:
        explored(pool, task, range(2 * workers))
        cpu = time.process_time()
        reports = explored(pool, task, range(2 * workers, 2 * workers + programs))
        return profile_summary(reports, time.process_time() - cpu)


def explored(pool: Pool, task: Task, numbers: range) -> list[Report]:
    """The Reports of these programs."""
    left, running, found = list(reversed(numbers)), set[Future[Report]](), list[Report]()
    while left or running:
        while left and len(running) < in_flight(pool.workers):
            running.add(pool.submit(_timed, replace(task, final=False, features=True), left.pop()))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            found.append(pool.result(future, task))
    return found


def profile_summary(reports: list[Report], own: float) -> dict[str, Any]:
    """The figures of these reports. own: CPU seconds of the process that the workers report to."""
    told = [r for r in reports if isinstance(r, Timed) and not r.rejected]
    spent = {name: sum(report.phases.get(name, 0.0) for report in told) for name in PHASES}
    ran, total = max(len(told), 1), max(sum(spent.values()) + own, 1e-9)
    rows = spent | {"main": own}
    return {
        "programs": len(told),
        "cpu_seconds_per_program": round(total / ran, 4),
        "phases": {name: round(seconds / ran, 5) for name, seconds in rows.items()},
        "shares": {name: round(seconds / total, 4) for name, seconds in rows.items()},
    }


@click.command("profile")
@programs_option(60)
@click.option("--beside", default="", metavar="KEY=VALUE", help="The same programs again under this setting.")
@common_options
def profile_command(
    programs: int, beside: str, workers: int, seed: int, device: str, backend: str, as_json: bool
) -> None:
    """Where does a program's CPU time go, by phase, from drawing it to the report?"""
    try:
        other = (parse_assignment(beside),) if beside else ()
    except UnknownSetting as error:
        raise click.BadParameter(str(error)) from None
    print_figures(measure_profile(task_on(device, backend, seed), programs, workers, other), as_json)
