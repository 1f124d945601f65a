"""How a stage says no: `Faulty` is its verdict on the compiler, `Cannot` says that it has none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Faulty(RuntimeError):
    """What the compiler made is at fault by itself: an access outside its buffer, lanes that cannot run in any
    order."""


class Cannot(NotImplementedError):
    """The stage cannot run this: the program is built instead."""


@contextlib.contextmanager
def own_work(reasons: list[str]) -> Iterator[None]:
    """The stage's own work, in the midst of the compiler's: whatever is raised within, but its verdict, is a reason why
    the stage cannot, and is noted as one."""
    try:
        yield
    except Faulty:
        raise
    except Exception as error:  # ours, or of something that only the stage called: no outcome of the program
        reasons.append(reason(error))
        raise Cannot(reasons[-1]) from error


def reason(error: Exception) -> str:
    """Why a stage cannot, in one line: a few words, then what they are about."""
    told = next(iter(str(error).splitlines()), "")
    return told if isinstance(error, Cannot) else f"{type(error).__name__}: {told}"
