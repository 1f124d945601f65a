"""Watch inductor compile: the graphs that it received, the code that it wrote, its counters.

The hooks themselves stand in `language.private`, with the torch versions that they were tried on.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fuzzer.coverage.lines import trace_this_thread
from fuzzer.coverage.loops import Target, kernel_words
from fuzzer.coverage.structure import CompiledGraph, compiled_words
from fuzzer.language.private import (
    before_code,
    counters,
    inner_graphs,
    kernels_in_work,
    loops_in_work,
    output_code,
    readable,
)
from fuzzer.language.routes import ROUTES


@dataclass
class Watch:
    """The record of one program's compiles by inductor.

    graphs    in the order in which inductor received them. From its cache they have no `kernels`; AOTInductor's no
              code.
    counted   by how much each of inductor's counters grew.
    error     of a hook; `words` raises it.
    seconds   CPU seconds of the hooks, by hook.
    """

    graphs: list[CompiledGraph] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    error: Exception | None = None
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def words(self) -> dict[str, frozenset[str]]:
        """The words of the compiled graphs and code, by family of `structure`. Raises `error`."""
        if self.error is not None:
            raise self.error
        return compiled_words(self.graphs, self.counted)


@contextlib.contextmanager
def watch_inductor(route: str, phase: Callable[[], str], known: Watch | None = None) -> Iterator[Watch]:
    """Watch the compiles of one program under a route. phase: returns "backward" while the program's backward runs.

    known   an earlier record of the same program, to which this one adds.
    """
    watch, before = known or Watch(), counters()

    def direction(backward: bool) -> str:
        if ROUTES[route].joint:
            return "joint"
        return "backward" if backward or phase() == "backward" else "forward"

    def received(module: object, backward: bool) -> bool:
        trace_this_thread()
        with _errors_kept(watch, "graphs"):
            watch.graphs.append(CompiledGraph(direction(backward), readable(module)))
        return True

    def written(code: str) -> None:
        with _errors_kept(watch, "kernels"):
            if watch.graphs:  # else AOTAutograd's cache had everything: this worker has recorded the program before
                watch.graphs[-1].code += code
                watch.graphs[-1].kernels = kernels_in_work()

    def scheduled() -> None:
        with _errors_kept(watch, "loops"):
            if watch.graphs:
                found = watch.graphs[-1].loops
                loops_in_work(lambda bodies, *target: found.update(kernel_words(bodies, Target(*target))))

    try:
        with inner_graphs(received), before_code(scheduled), output_code(written):
            yield watch
    finally:
        for name, number in counters().items():
            watch.counted[name] = watch.counted.get(name, 0) + number - before.get(name, 0)


@contextlib.contextmanager
def _errors_kept(watch: Watch, what: str) -> Iterator[None]:
    """Keep a hook's error in `watch.error`, since the compiler would take the error for its own; and the hook's CPU
    time."""
    started = time.thread_time()
    try:
        yield
    except Exception as error:  # raised by `words`
        watch.error = error
    finally:
        watch.seconds[what] += time.thread_time() - started
