"""Faults for test_pool: functions of (task, what) that a worker runs, each ending in its own way."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time

import sympy
import torch

from fuzzer.language.private import COMPILER, FIRST_COMPILE
from fuzzer.language.text import ParseError
from fuzzer.trial.tasks import examine
from fuzzer.workers import worker
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.usage import cpu_seconds

TEXT = 'program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))\n'


def enter(phase: str) -> None:
    journal().begin(TEXT)
    journal().phase(phase)


def fine(task: Task, what: str) -> Report:
    enter("forward")
    return Report(TEXT, stderr=what)


def segfault(task: Task, phase: str) -> Report:
    enter(phase)
    os.write(2, b"about to read address zero\n")
    ctypes.string_at(0)
    raise AssertionError("unreachable")


def abort(task: Task, phase: str) -> Report:
    enter(phase)
    os.abort()


def hang(task: Task, phase: str) -> Report:
    enter(phase)
    time.sleep(600)
    raise AssertionError("unreachable")


def print_much(task: Task, size: str) -> Report:
    """Make the worker's log so many bytes long, without writing them all."""
    try:
        os.ftruncate(2, int(size))
    except OSError as error:
        return Report(TEXT, stderr=os.strerror(error.errno or 0))
    return Report(TEXT, stderr="written")


def abort_in_a_handler(task: Task, phase: str) -> Report:
    """Abort with a handler that never returns, as torch's does where malloc's lock is held."""
    enter(phase)
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.signal(signal.SIGABRT, ctypes.cast(library.pause, ctypes.c_void_p))
    os.abort()


def leave(task: Task, phase: str) -> Report:
    enter(phase)
    os._exit(7)


def die_undrawn(task: Task, index: str) -> Report:
    journal().begin(f"# program {index} of seed 1, not drawn yet")
    os._exit(3)


def fill_python_memory(task: Task, phase: str) -> Report:
    enter(phase)
    return Report(TEXT, stderr=str(len(bytearray(64 * 2**30))))


def fill_torch_memory(task: Task, phase: str) -> Report:
    enter(phase)
    return Report(TEXT, stderr=str(torch.ones(16 * 2**30).sum()))


def tell(task: Task, name: str) -> Report:
    """What a worker sees of its environment."""
    seen = {
        "environment": dict(os.environ),
        "pid": os.getpid(),
        "threads": torch.get_num_threads(),
        "temporary": tempfile.gettempdir(),
        "spent": cpu_seconds(),
        "known": preloaded(),
    }
    return Report(TEXT, stderr=repr(seen[name]))


def preloaded() -> dict[str, object]:
    """What this process has in memory of the compiler, and knows of the machine; whether it touched a GPU."""
    from torch._dynamo import guards
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    return {
        "compiler": {*COMPILER, *FIRST_COMPILE} <= set(sys.modules),
        "instructions": valid_vec_isa_list.cache_info().currsize == 1,
        "frozen": gc.get_freeze_count() > 100_000,
        "simplified": hasattr(sympy.simplify, "cache_info"),
        "timed": guards.profile_guard_manager.__name__ == "profile_guard_manager",
        "gpu": torch.cuda.is_initialized(),
    }


def litter(task: Task, name: str) -> Report:
    path = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], name)
    os.makedirs(path)
    return Report(TEXT, stderr=path)


def lose_device(task: Task, what: str) -> Report:
    """The worker tells its report and reads no more. Its process takes half a second to end, as one with CUDA does."""
    worker.context_lost = lambda: time.sleep(0.5) or True  # type: ignore[assignment,func-returns-value]
    return fine(task, what)


def leave_quietly(task: Task, phase: str) -> Report:
    enter(phase)
    os._exit(0)


def raise_exit(task: Task, phase: str) -> Report:
    enter(phase)
    raise SystemExit(0)


def raise_interrupt(task: Task, phase: str) -> Report:
    enter(phase)
    raise KeyboardInterrupt


def close_everything(task: Task, phase: str) -> Report:
    enter(phase)
    os.closerange(3, 1 << 12)
    time.sleep(600)
    raise AssertionError("unreachable")


def stop_itself(task: Task, phase: str) -> Report:
    enter(phase)
    os.kill(os.getpid(), signal.SIGSTOP)
    return Report(TEXT, stderr="went on")


def killed_once(task: Task, where: str) -> Report:
    """Killed, the first time, as the kernel does it where memory is out."""
    enter("backward")
    if not os.path.exists(where):
        open(where, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return Report(TEXT, stderr="the second time")


def killed_always(task: Task, where: str) -> Report:
    enter("backward")
    with open(where, "a") as log:
        log.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def flood(task: Task, phase: str) -> Report:
    enter(phase)
    for _ in range(64):
        os.write(2, b"x" * (1 << 20))
    os.abort()


def hang_in_c(task: Task, where: str) -> Report:
    """As native code hangs: it keeps the interpreter's lock. A compiler that it started runs on."""
    enter("backward")
    child = subprocess.Popen(["sleep", "600"])
    with open(where, "w") as told:
        told.write(f"{os.getpid()} {child.pid}")
    ctypes.PyDLL(None).sleep(600)
    raise AssertionError("unreachable")


def examine_without_compiler(task: Task, text: str) -> Report:
    """The worker found a C++ compiler when it began; now it is gone."""
    os.environ["PATH"] = "/nowhere"
    return examine(task, text)


def sleep(task: Task, seconds: float) -> Report:
    enter("backward")
    time.sleep(seconds)
    return Report(TEXT, stderr="slept")


def refuse(task: Task, text: str) -> Report:
    """A program that cannot be read is an error of whoever asked."""
    raise ParseError(1, 1, text)
