"""The bare loop that backfuzz is measured against: read a program, torch.compile it, run its backward. Nothing else."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import torch

from fuzzer.language import interpret, routes
from fuzzer.language.devices import synchronise
from fuzzer.language.settings import in_force
from fuzzer.language.text import parse
from fuzzer.workers.accelerator import context_is_usable
from fuzzer.workers.headers import headers_apart
from fuzzer.workers.objects import compile_anew
from fuzzer.workers.usage import cpu_seconds


def run_bare(text: str, backend: str, device: str) -> None:
    """Compile one program and run its backward."""
    torch._dynamo.reset()  # else the vjp route's one `step` soon exceeds dynamo's recompile limit and compiles nothing
    program = parse(text)
    spec, options = routes.route_of(program)
    compiler = functools.partial(torch.compile, backend=backend, dynamic=bool(options["dynamic"]), fullgraph=True)
    leaves = interpret.materialise(program.leaves, device)
    cotangents = interpret.cotangents(program, device)
    with in_force(program.settings):
        spec.run(routes.Call(program, interpret.to_function(program), leaves, cotangents, compiler))
    synchronise(device)


def serve(pipe: Any, backend: str, device: str, headers: Path, start: Any, arguments: tuple[Any, ...]) -> None:
    """A process of the bare loop: set up as a worker is, then run texts until told to stop (None).

    It answers each with its seconds, on the clock and of the CPU, and whether it can go on: one whose CUDA context is
    lost cannot, and ends. It would fail in no time at every other program. It compiles all of its code itself, and
    makes its headers in the folder `headers`: the campaign's workers, which had the same programs before it, leave both
    to processes of the same fork server.
    """
    start(*arguments)
    compile_anew()
    headers_apart(headers)
    while (text := pipe.recv()) is not None:
        started, cpu_started, able = time.perf_counter(), cpu_seconds(), True
        try:
            run_bare(text, backend, device)
        except Exception:  # what does not compile costs its time here as it does there
            able = context_is_usable(device)
        pipe.send((time.perf_counter() - started, cpu_seconds() - cpu_started, able))
        if not able:
            return
