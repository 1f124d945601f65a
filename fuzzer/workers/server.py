"""The fork server of this process's workers, and the environment that it and they run in.

It imports torch and the compiler once for all workers. `start_server` returns at once and needs no torch itself: a
command calls it before its own imports, which then take place beside the server's.
"""

from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

from fuzzer.language.devices import ROWS
from fuzzer.workers.folders import Folder

# What changes a compile from outside the program's text.
HIDDEN = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_",
          "TORCHDYNAMO_", "TORCH_COMPILE", "TORCH_LOGS", "TORCH_TRACE", "TRITON_", "AOT_", "AOTI_",
          "TORCH_BISECT", "PYTORCH_", "TORCH_FX", "FUNCTORCH_", "OMP_", "MKL_",
          *(start for device in ROWS for start in device.hidden))  # fmt: skip
WORKER_ENVIRONMENT = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # the pool is the parallelism
    "TORCHINDUCTOR_VEC_ISA_OK": "1",  # trust /proc/cpuinfo instead of compiling a probe in every process
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONUTF8": "1",  # inductor reads its own templates in the locale's encoding, and these hold more than ASCII
    "PYTHONSAFEPATH": "1",  # nothing is imported from the working folder
    "MALLOC_PERTURB_": "165",  # freed memory is overwritten: a kernel that writes nothing cannot inherit an answer
    **{name: value for device in ROWS for name, value in device.environment},
}
# `backfuzz`: whoever imports it first gets our `fuzzer`
PRELOADED = ["backfuzz", "fuzzer.workers.preload"]
_IMPORT_FOLDER = Path(__file__).resolve().parents[2]
_starting = threading.Lock()  # the environment is the process's, and pools are made from several threads
# The name of a socket has 107 characters at most; multiprocessing and `_session` take 50 of them.
_LONGEST = 55
_session: list[Folder] = []  # temporary files of the fork server, those of its start too


def clean_environment() -> dict[str, str]:
    """This process's environment without hidden compiler switches, with the workers' own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(HIDDEN)}
    return kept | WORKER_ENVIRONMENT


def server_environment() -> dict[str, str]:
    """`clean_environment` of a fork server: it finds this backfuzz where that is not installed, too."""
    clean = clean_environment()
    if _IMPORT_FOLDER.name in ("site-packages", "dist-packages"):
        return clean
    return clean | {"PYTHONPATH": os.pathsep.join(filter(None, (clean.get("PYTHONPATH"), str(_IMPORT_FOLDER))))}


@contextlib.contextmanager
def environment(wanted: dict[str, str]) -> Iterator[None]:
    """os.environ replaced by `wanted` inside a `with` block."""
    saved = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


@contextlib.contextmanager
def _without_interrupt() -> Iterator[None]:
    """Processes that the main thread starts meanwhile never get Ctrl-C, which a terminal sends to all of a group: the
    fork server ignores it by itself, but not before it has imported torch. (What is blocked instead of ignored the
    start of multiprocessing's resource tracker unblocks.)"""
    if threading.current_thread() is not threading.main_thread():  # it may not set handlers, and the server runs
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def start_server() -> None:
    """Start the fork server, unless it runs, in a clean environment: it keeps that. It is still importing when this
    returns."""
    with _starting:
        if not _session:
            _session.append(Folder(Path("/tmp") if len(tempfile.gettempdir()) > _LONGEST else None, "backfuzz-"))
            # after multiprocessing's own folder, which lies in it, at -100
            multiprocessing.util.Finalize(None, _end, exitpriority=-200)
        folder, before = str(_session[0].path), tempfile.tempdir
        forkserver.set_forkserver_preload(PRELOADED)
        with environment(server_environment() | {"TMPDIR": folder}), _without_interrupt():
            tempfile.tempdir = folder  # the socket's
            try:
                forkserver.ensure_running()
            finally:
                tempfile.tempdir = before


def server_pids() -> list[int]:
    """The fork server's process id, if it runs."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)  # type: ignore[attr-defined]
    return [] if pid is None else [pid]


def _end() -> None:
    """Stop the fork server at the end of this process. It may still be importing, and would complain that its folder is
    gone."""
    for pid in server_pids():
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for folder in _session:
        folder.remove()
