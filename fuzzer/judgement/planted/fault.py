"""The type of a planted fault: active while one side runs, or a change of the side's record."""

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
    """plant is active while the side runs; tamper changes the side's record afterwards.

    batched   whether the fault may be planted where a program runs several times, until all of its kernels are
              compiled.
              Then tamper is called after each run, also with an empty record after an interrupted run (`fired`).
    """

    plant: Callable[[], AbstractContextManager[Any]] = nullcontext
    tamper: Tamper = unchanged
    side: str = "subject"
    batched: bool = False


def combined(*faults: Fault) -> Fault:
    """Several faults in one run of the subject; they must not touch the same tensor's values."""

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
