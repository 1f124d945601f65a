"""The C heap of the campaign's process."""

from __future__ import annotations

import ctypes


def trim_heap() -> None:
    """Give free pages of the C heap back to the system; nothing where the C library has no `malloc_trim` (not glibc).

    glibc has a heap for each thread and keeps the free pages between blocks in use. Threads of triage read reports and
    ledgers of megabytes, and leave such pages behind for hours.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
