"""A new worker before its first task: its folder, caches, limits and device, and its end when its parent is gone."""

from __future__ import annotations

import faulthandler
import fcntl
import functools
import multiprocessing
import multiprocessing.util
import os
import resource
import shutil
import signal
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

from fuzzer.language.devices import device_row
from fuzzer.workers.accelerator import bound_memory, use_device
from fuzzer.workers.journal import use_journal

# Address space for data of one CPU worker. A runaway allocation becomes an exception instead of the machine's end.
WORKER_BYTES = 12 * 2**30
# Size of one file that a worker, or a compiler that it starts, may write: one that prints for ever fills no disk, and
# what it printed is soon removed. The largest that is needed, a precompiled header, has 150 MB.
FILE_BYTES = 2**30


def start_worker(
    scratch: str, number: int, kind: str, there: int, limit: int = WORKER_BYTES, share: float = 1.0
) -> None:
    """Runs first in every worker: its own directory, caches, stderr, memory limit, and of so many devices of this kind
    that of its number, with this share of its memory."""
    os.setpgid(0, 0)  # with the compilers that it starts; and what a terminal sends is not for it
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for fatal in (signal.SIGTERM, signal.SIGALRM):  # the second is a program's own deadline
        signal.signal(fatal, signal.SIG_DFL)
    own = Path(scratch) / f"worker-{os.getpid()}"
    own.mkdir(parents=True, exist_ok=True)
    log = os.open(own / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(own / "triton")
    os.environ["TMPDIR"] = str(own)
    tempfile.tempdir = str(own)
    os.environ.pop(
        "MALLOC_PERTURB_", None
    )  # in force here since the fork server started; the C++ compiler need not pay
    if device_row(kind).limited:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    faulthandler.enable(all_threads=False)
    warnings.simplefilter("ignore")
    import torch

    from fuzzer.language.private import leave_guards_untimed, preload, print_native_stacks

    preload()
    leave_guards_untimed()
    remember_simplified()
    print_native_stacks()
    torch.set_num_threads(1)
    if there:
        use_device(device_row(kind), number, there)
        bound_memory(device_row(kind), share)
    use_journal(own / "journal")
    # a worker that ends by itself leaves nothing; what it left when it died is read by the parent
    multiprocessing.util.Finalize(None, shutil.rmtree, (own, True), exitpriority=10)


def end_with_parent() -> None:
    """Have this process and what it starts killed as soon as its parent is gone, whatever it is at: on Linux by the
    kernel, when the parent's end of a pipe closes."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, fcntl.fcntl(parent.sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()  # it may be gone already


def _follow(parent: Any) -> None:
    parent.join()
    os.killpg(0, signal.SIGKILL)


_MOST = 1 << 16  # answers, some kilobytes each; the 200 programs of a worker's life ask for some 4,000


def remember_simplified() -> None:
    """Have `sympy.simplify` give the answer that it gave before. While inductor writes C++ it asks some 58 times a
    program, three quarters of that again, which is a seventh of all of its Python (docs/speed.md). What is asked does
    not change, nor does the answer depend on anything else: the code stays the same."""
    import sympy  # with inductor, which the pool's own process needs not

    if not hasattr(sympy.simplify, "cache_info"):
        sympy.simplify = functools.lru_cache(maxsize=_MOST, typed=True)(sympy.simplify)
