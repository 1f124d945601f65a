"""The exceptions of a stage: `Faulty` is its verdict on the compiler, `Cannot` means that it reaches none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Faulty(RuntimeError):
    """The compiler's output is wrong by itself: an access outside its buffer, or lanes whose order changes the
    result."""


class Cannot(NotImplementedError):
    """The stage cannot run this program, which is then compiled in full."""


@contextlib.contextmanager
def own_work(reasons: list[str]) -> Iterator[None]:
    """Wrap the stage's own work, in the midst of the compiler's: any exception but Faulty is noted as a reason why the
    stage cannot run the program."""
    try:
        yield
    except Faulty:
        raise
    except Exception as error:  # raised by our code or a function that only the stage called: not the program's outcome
        reasons.append(reason(error))
        raise Cannot(reasons[-1]) from error


def reason(error: Exception) -> str:
    """Why a stage cannot run, in one line: a few words, then their object."""
    told = next(iter(str(error).splitlines()), "")
    return told if isinstance(error, Cannot) else f"{type(error).__name__}: {told}"
