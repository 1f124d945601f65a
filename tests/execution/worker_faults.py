"""Faults for test_pool: functions of (task, what) that a worker runs, each ending in its own way."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
import time

import sympy
import torch

from fuzzer.execution.journal import journal
from fuzzer.execution.messages import Report, Task
from fuzzer.execution.usage import cpu_seconds
from fuzzer.language.private import COMPILER, FIRST_COMPILE

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
