"""Watch inductor at work: what it was given, what it wrote, what it counted. The adapter between `structure` and
`private`, where the hooks stand with the torch versions that they were tried on."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fuzzer.execution.lines import follow
from fuzzer.private import counters, inner_graphs, kernels_in_work, output_code, readable
from fuzzer.settings import INFERENCE
from fuzzer.structure import Compiled, of_compiled


@dataclass
class Watch:
    """What inductor did while it was watched.

    Code that comes from its cache has no `kernels`, and AOTInductor shows nobody the code that it writes.
    """

    graphs: list[Compiled] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    error: Exception | None = None
    seconds: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # of CPU that looking took, by what was looked at

    def words(self) -> dict[str, frozenset[str]]:
        """By family of `structure`. Raises what went wrong in a hook, where it would have been the compiler's fault."""
        if self.error is not None:
            raise self.error
        return of_compiled(self.graphs, self.counted)


@contextlib.contextmanager
def watched(route: str, phase: Callable[[], str]) -> Iterator[Watch]:
    """Watch the compiles of one program. phase: says whether the forward or the backward runs meanwhile."""
    watch, before = Watch(), counters()

    def direction(backward: bool) -> str:
        if route in INFERENCE:
            return "joint"
        return "backward" if backward or phase() == "backward" else "forward"

    def received(module: object, backward: bool) -> bool:
        follow()
        with kept(watch, "graphs"):
            watch.graphs.append(Compiled(direction(backward), readable(module)))
        return True

    def written(code: str) -> None:
        with kept(watch, "kernels"):
            if watch.graphs:  # else AOTAutograd had all of it in its cache: this worker has shown it before
                watch.graphs[-1].code += code
                watch.graphs[-1].kernels = kernels_in_work()

    with inner_graphs(received), output_code(written):
        yield watch
    watch.counted = {name: number - before.get(name, 0) for name, number in counters().items()}


@contextlib.contextmanager
def kept(watch: Watch, what: str) -> Iterator[None]:
    """Keep an error of ours from the compiler, for which it would be one of its own; and the time that this took."""
    started = time.thread_time()
    try:
        yield
    except Exception as error:  # raised by `words`
        watch.error = error
    finally:
        watch.seconds[what] += time.thread_time() - started
