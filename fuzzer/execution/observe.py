"""One side of a trial: a program run there, and its Observation; a stage's where that can run it. A broad `except`
stands here because whatever the code under test raises is its outcome.
"""

from __future__ import annotations

import contextlib
import functools
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from fuzzer.execution.accelerator import context_is_usable, on_host, poison
from fuzzer.execution.guard import Guard
from fuzzer.execution.usage import Peak, cpu_seconds
from fuzzer.judgement.trial import RAISED, RAN, UNCOMPILED, Observation, Raised, Subject
from fuzzer.language import interpret, routes
from fuzzer.language.devices import synchronise
from fuzzer.language.private import reset_compiler, saved_tensor_hooks_kept
from fuzzer.language.program import Program, written_leaves
from fuzzer.language.settings import CUDA_GRAPHS
from fuzzer.rounding.record import Recorder


def _compile_function(subject: Subject, options: dict[str, Any]) -> routes.Compile:
    """torch.compile for this backend; none for those that compile nothing."""
    if subject.backend in UNCOMPILED:
        return routes.no_compile
    dynamic = bool(options.get("dynamic"))
    return functools.partial(torch.compile, backend=subject.compiler, dynamic=dynamic, fullgraph=True)


def _operators(subject: Subject) -> contextlib.AbstractContextManager[Any]:
    """The operators that a side runs with: FlagGems' for `flag_gems`, which registers them over ATen's, else ATen's."""
    if subject.backend != "flag_gems":
        return contextlib.nullcontext()
    import flag_gems

    return flag_gems.use_gems()


@contextlib.contextmanager
def thread_count(subject: Subject) -> Iterator[None]:
    """The side's own number of threads in force; a worker has one.

    Only while the program runs: several threads that fill a leaf whose elements overlap would race.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(subject.threads if subject.threads > 1 else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_lost = False


def context_lost() -> bool:
    """Whether a device of this process computes no more: an illegal access takes its context with it."""
    return _lost


def observe(
    program: Program, subject: Subject, phase: Callable[[str], None], recorder: Recorder | None = None
) -> Observation:
    """Run one side; what is compiled and can be, twice. An exception of the code under test becomes the outcome
    `raised`. Where a stage cannot run the program, it is built, and `built` says why."""
    if not subject.stage:
        return _observe(program, subject, phase, recorder)
    from fuzzer.execution import stages  # it imports much of inductor

    if not (why := stages.cannot_run(program)):
        with stages.in_force(subject.stage) as reasons:
            seen = _observe(program, subject, phase, recorder)
        if not reasons:
            return _without_peak(seen)
        why = reasons[0]
        reset_compiler()
    return replace(_observe(program, replace(subject, backend=subject.compiler), phase, recorder), built=why)


def _without_peak(seen: Observation) -> Observation:
    """A stage takes memory for its own work: what it takes says nothing of the code that would be built."""
    return seen if seen.again is None else replace(seen, again=replace(seen.again, peak=None))


def _observe(
    program: Program, subject: Subject, phase: Callable[[str], None], recorder: Recorder | None
) -> Observation:
    """One run of one side, as it is given."""
    started, cpu_started = time.perf_counter(), cpu_seconds()
    entered = [""]
    guard = Guard()
    given: dict[str, torch.Tensor] = {}
    touched: dict[str, str] = {}

    def look() -> None:
        for name in guard.written(given):
            touched.setdefault(name, entered[0])

    def note(name: str) -> None:
        synchronise(subject.device)
        if recorder is None:  # it would record our looking too
            look()
        entered[0] = name
        phase(name)

    spec, options = routes.route_of(program)
    function = interpret.to_function(program)
    try:
        leaves = interpret.materialise(program.leaves, subject.device, guard.allocate)
        cotangents = interpret.cotangents(program, subject.device, guard.allocate)
        seeds = {f"c{i}": tensor for i, tensor in enumerate(cotangents)}
        if recorder is not None:
            recorder.given("leaf", leaves)
            recorder.given("cotangent", seeds)
        given = leaves | seeds
        poison(subject.device)
        call = routes.Call(program, function, leaves, cotangents, _compile_function(subject, options), note)
        results = _run_once(spec, call, subject, recorder)
        look()
        spent = time.perf_counter() - started, cpu_seconds() - cpu_started
        written = {name: leaves[name].detach() for name in written_leaves(program)}
        seen = Observation(RAN, list(results.outputs), results.gradients, written=written, touched=touched)
        seen = on_host(seen) if recorder is None else seen
        again = run_again(spec, call, subject) if recorder is None and not touched and _is_repeatable(program) else None
    except Exception as error:  # whatever the code under test raises is its outcome
        raised = Raised(_kind(error), _message(error), _frames(error))
        global _lost
        _lost = _lost or not context_is_usable(subject.device)
        return Observation(RAISED, phase=entered[0], raised=raised, seconds=time.perf_counter() - started)
    return replace(seen, phase=entered[0], seconds=spent[0], cpu_seconds=spent[1], again=again)


def _run_once(spec: routes.RouteSpec, call: routes.Call, subject: Subject, recorder: Recorder | None) -> routes.Results:
    """The route's run, finished on the device; recorded where there is a recorder."""
    # both sides draw the same; torch.manual_seed looks for five kinds of devices, which takes 0.2 ms
    torch.manual_seed(0) if subject.device != "cpu" else torch.default_generator.manual_seed(0)
    if recorder is None:
        with _operators(subject), thread_count(subject), saved_tensor_hooks_kept():
            results = spec.run(call)
    else:
        with recorder:
            results = spec.run(call)
    synchronise(subject.device)
    return results


def _is_repeatable(program: Program) -> bool:
    """Whether a second run finds its inputs as the first did, and runs the same code: CUDA graphs record the second."""
    return not written_leaves(program) and not dict(program.settings).get(CUDA_GRAPHS)


def run_again(spec: routes.RouteSpec, call: routes.Call, subject: Subject) -> Observation | None:
    """A second run of the same compiled code on the same inputs, with its peak memory; None where there is none."""
    if not spec.repeats or subject.backend == "eager":
        return None
    for leaf in call.leaves.values():
        leaf.grad = None  # results of the first run, which lie elsewhere
    started = cpu_seconds()
    with Peak(subject.device) as peak:
        results = _run_once(spec, call, subject, None)
    spent = cpu_seconds() - started
    return on_host(Observation(RAN, list(results.outputs), results.gradients, peak=peak.bytes, cpu_seconds=spent))


def _kind(error: BaseException) -> str:
    inner = getattr(error, "inner_exception", None)
    return type(inner if inner is not None else error).__name__


def _message(error: BaseException) -> str:
    """What went wrong, without the wrappers that say only that something did."""
    inner = getattr(error, "inner_exception", None)
    return str(inner if inner is not None else error).strip()


def _frames(error: BaseException) -> tuple[str, ...]:
    """The three innermost functions of torch (or of generated code) on the traceback, innermost first."""
    inner = getattr(error, "inner_exception", None) or error
    stack = traceback.extract_tb(inner.__traceback__) or traceback.extract_tb(error.__traceback__)
    names = [frame.name for frame in stack if "/torch/" in frame.filename.replace("\\", "/")]
    return tuple(reversed(names[-3:]))
