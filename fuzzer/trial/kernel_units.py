"""C++ kernels that are not compiled when inductor asks for them, but later, those of several programs in one unit.

An empty kernel costs 0.43 CPU seconds of g++, 0.34 of them for a header and 0.09 for linking; 20 real ones cost 0.65
each alone, and 0.10 each with 16 to a unit.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuzzer.language.private import build_command, build_unit, cpp_kernels
from fuzzer.language.program import Attributes
from fuzzer.language.settings import in_force
from fuzzer.workers.usage import cpu_seconds

# Characters. Such a kernel takes so long (0.45 CPU seconds and 0.5 for each 10,000) that a unit saves it little, and by
# itself it is known what it costs. One in 20 is longer.
_LONG = 32_768


class NotBuilt(BaseException):
    """A program called a kernel that is not compiled yet. It is no Exception, so that nothing on the way takes it for
    an outcome."""


@dataclass(frozen=True, eq=False)
class Unit:
    """One run of the C++ compiler: its CPU seconds, how many kernels it was given, and their length."""

    seconds: float
    kernels: int
    length: int


@dataclass(eq=False)
class Kernel:
    """A C++ kernel, to be called once it is compiled.

    settings  under which inductor asked for it, and under which it is compiled.
    units     that it was in; more than one, where these did not compile.
    broken    whether it does not compile even alone.
    """

    types: tuple[str, ...]
    source: str
    settings: Attributes
    function: Callable[..., None] | None = None
    units: list[Unit] = field(default_factory=list)
    broken: bool = False

    @property
    def share(self) -> float:
        """The kernel's part of the CPU seconds of its units, by the length of its source."""
        return sum(unit.seconds * len(self.source) / unit.length for unit in self.units)

    def __call__(self, *given: Any) -> None:
        """Run it. Raises NotBuilt."""
        if self.function is None:
            raise NotBuilt
        self.function(*given)


class Units:
    """The kernels that inductor has asked for. Those whose compilers are called in the same way share a unit, and equal
    kernels are compiled once."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[str, tuple[str, ...], str], Kernel] = {}

    @contextlib.contextmanager
    def collecting(self, settings: Attributes, asked: set[Kernel]) -> Iterator[None]:
        """Inductor gets kernels that are not built; `asked` gets them too. These settings are in force."""

        def make(types: Sequence[str], source: str) -> Kernel:
            key = build_command(), tuple(types), source
            kernel = self.kernels.setdefault(key, Kernel(key[1], source, settings))
            asked.add(kernel)
            return kernel

        with cpp_kernels(make):
            yield

    def build(self) -> None:
        """Compile all kernels that are not compiled yet."""
        waiting: defaultdict[str, list[Kernel]] = defaultdict(list)
        for (command, _, source), kernel in self.kernels.items():
            if kernel.function is None and not kernel.broken:
                waiting[source if len(source) > _LONG else command].append(kernel)
        for unit in waiting.values():
            _build(unit)


def seconds_of(kernels: Iterable[Kernel]) -> tuple[float, float]:
    """The least and the most CPU seconds that compiling these kernels by themselves may take: the seconds of the units
    that they have to themselves, and those of all their units."""
    known = {unit for kernel in kernels for unit in kernel.units}
    return sum(unit.seconds for unit in known if unit.kernels == 1), sum(unit.seconds for unit in known)


def _build(kernels: Sequence[Kernel]) -> None:
    """Compile these as one unit. Where that fails, compile each half, until each kernel that fails is alone."""
    started = cpu_seconds()
    with in_force(kernels[0].settings):
        functions = build_unit([(kernel.types, kernel.source) for kernel in kernels])
    unit = Unit(cpu_seconds() - started, len(kernels), sum(len(kernel.source) for kernel in kernels))
    for i, kernel in enumerate(kernels):
        kernel.units.append(unit)
        kernel.function = functions[i] if functions is not None else None
    if functions is not None:
        return
    kernels[0].broken = len(kernels) == 1
    for half in (kernels[: len(kernels) // 2], kernels[len(kernels) // 2 :]):
        if 0 < len(half) < len(kernels):
            _build(half)
