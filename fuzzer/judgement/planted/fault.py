"""What a fault is: in force while one side runs, or a change of what was recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from fuzzer.judgement.trial import Observation

Tamper = Callable[[Observation], Observation]


def unchanged(observation: Observation) -> Observation:
    return observation


@dataclass(frozen=True)
class Fault:
    """plant is in force while the side runs; tamper changes what was recorded, after it ran.

    batched   whether it may be planted where a program runs several times, until all of its kernels are built: then
              tamper is asked after each run, after those that were interrupted with nothing recorded (`fired`).
    """

    plant: Callable[[], AbstractContextManager[Any]] = nullcontext
    tamper: Tamper = unchanged
    side: str = "subject"
    batched: bool = False


def combined(*faults: Fault) -> Fault:
    """Several faults in one run of the subject: they must not touch the same tensor's values."""

    @contextlib.contextmanager
    def plant() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for fault in faults:
                stack.enter_context(fault.plant())
            yield

    def tamper(observation: Observation) -> Observation:
        for fault in faults:
            observation = fault.tamper(observation)
        return observation

    return Fault(plant, tamper)
