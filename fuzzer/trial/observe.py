"""One side of a trial: a program run on it, and its Observation. A stage of the compiler runs the program where it can.

The broad `except` catches any exception of the code under test: that is an outcome.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch

from fuzzer import stages
from fuzzer.judgement.trial import RAISED, RAN, UNCOMPILED, Code, Observation, Raised, Subject
from fuzzer.language import interpret, routes
from fuzzer.language.devices import synchronise
from fuzzer.language.private import dispatch_kept, reset_compiler, saved_tensor_hooks_kept
from fuzzer.language.program import Program, written_leaves
from fuzzer.language.settings import CUDA_GRAPHS
from fuzzer.rounding.record import Recorder
from fuzzer.trial.guard import Guard
from fuzzer.trial.kernel_units import NotBuilt
from fuzzer.workers.accelerator import collect_before_next, context_is_usable, lose_context, on_host, poison
from fuzzer.workers.trouble import trouble
from fuzzer.workers.usage import Peak, cpu_seconds


def _compile_function(subject: Subject, options: dict[str, Any]) -> routes.Compile:
    """torch.compile for this backend; none for those that compile nothing."""
    if subject.backend in UNCOMPILED:
        return routes.no_compile
    dynamic = bool(options.get("dynamic"))
    return functools.partial(torch.compile, backend=subject.compiler, dynamic=dynamic, fullgraph=True)


def operators(subject: Subject) -> contextlib.AbstractContextManager[Any]:
    """The operators of a side: for `flag_gems` those of FlagGems, which registers them over ATen's; else ATen's."""
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


class Observer(Protocol):
    """A side of a trial: `observe` runs it and returns its record."""

    def observe(self, recorder: Recorder | None = None) -> Observation: ...


class Runs(Code, Protocol):
    """Code that makes its sides itself (`fuzzer.trial.calls.Call`)."""

    def side(self, subject: Subject, phase: Callable[[str], None]) -> Observer: ...


def side_of(code: Code, subject: Subject, phase: Callable[[str], None]) -> Observer:
    """One side of a trial of this code."""
    return Side(code, subject, phase) if isinstance(code, Program) else cast(Runs, code).side(subject, phase)


def observe(
    code: Code, subject: Subject, phase: Callable[[str], None], recorder: Recorder | None = None
) -> Observation:
    """Run one side; what is compiled and can be, twice. An exception of the code under test becomes the outcome
    `raised`. Where a stage cannot run a program, it is built, and `built` says why."""
    if not subject.stage:
        return side_of(code, subject, phase).observe(recorder)
    assert isinstance(code, Program)
    if not (why := stages.cannot_run(code)):
        with stages.in_force(subject.stage) as reasons:
            seen = Side(code, subject, phase).observe(recorder)
        if not reasons:
            return _without_peak(seen)
        why = reasons[0]
        reset_compiler()
    side = Side(code, replace(subject, backend=subject.compiler), phase)
    return replace(side.observe(recorder), built=why)


def _without_peak(seen: Observation) -> Observation:
    """The Observation without its peak memory: a stage takes memory for its own work, which tells nothing of compiled
    code."""
    return seen if seen.again is None else replace(seen, again=replace(seen.again, peak=None))


class Side:
    """One side of a trial. It may be observed again, where kernels were not compiled the first time.

    seconds, cpu_seconds   that the next Observation counts beside its own run: those of interrupted runs and of
    compiling.
    """

    def __init__(self, program: Program, subject: Subject, phase: Callable[[str], None]):
        self.program, self.subject, self.phase = program, subject, phase
        self.spec, options = routes.route_of(program)
        self.function, self.compile = interpret.to_function(program), _compile_function(subject, options)
        self.call: routes.Call | None = None
        self.guard = Guard()
        self.touched: dict[str, str] = {}
        self.entered = ""
        self.seconds = self.cpu_seconds = 0.0

    def observe(self, recorder: Recorder | None = None) -> Observation:
        """What one run shows, with the second run; `raised` where the code under test does. Raises NotBuilt: then
        what was compiled is kept, and the next call runs it from the same values; and what the machine is to blame for
        (`trouble`)."""
        started, cpu_started = time.perf_counter(), cpu_seconds()
        self.touched, self.entered = {}, ""

        def spent() -> tuple[float, float]:
            return self.seconds + time.perf_counter() - started, self.cpu_seconds + cpu_seconds() - cpu_started

        try:
            call = self._inputs(recorder)
            results = _run_once(self.spec, call, self.subject, recorder)
            self._look(recorder)
            took = spent()
            written = {name: call.leaves[name].detach() for name in written_leaves(self.program)}
            seen = Observation(RAN, list(results.outputs), results.gradients, written=written, touched=self.touched)
            seen = on_host(seen) if recorder is None else seen
            repeats = recorder is None and not self.touched and _is_repeatable(self.program)
            again = run_again(self.spec, call, self.subject) if repeats else None
        except NotBuilt:
            self.seconds, self.cpu_seconds = spent()
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # whatever the code under test raises
            return Observation(RAISED, phase=self.entered, raised=raised_by(error, self.subject), seconds=spent()[0])
        return replace(seen, phase=self.entered, again=again, seconds=took[0], cpu_seconds=took[1])

    def _inputs(self, recorder: Recorder | None) -> routes.Call:
        """The inputs with their first values, in the same place unless the program writes to them."""
        if self.call is not None and not written_leaves(self.program):
            self.guard.restore()
            for leaf in self.call.leaves.values():
                leaf.grad = None
            return self.call
        self.call, self.guard = None, Guard()
        leaves = interpret.materialise(self.program.leaves, self.subject.device, self.guard.allocate)
        cotangents = interpret.cotangents(self.program, self.subject.device, self.guard.allocate)
        if recorder is not None:
            recorder.given("leaf", leaves)
            recorder.given("cotangent", _by_name(cotangents))
        poison(self.subject.device)
        note = functools.partial(self._note, recorder)
        self.call = routes.Call(self.program, self.function, leaves, cotangents, self.compile, note)
        return self.call

    def _note(self, recorder: Recorder | None, name: str) -> None:
        """Write the phase into the journal."""
        synchronise(self.subject.device)
        self._look(recorder)
        self.entered = name
        self.phase(name)

    def _look(self, recorder: Recorder | None) -> None:
        """Note which inputs were written. Not under a recorder, which would record this look too."""
        if recorder is None and self.call is not None:
            for name in self.guard.written(self.call.leaves | _by_name(self.call.cotangents)):
                self.touched.setdefault(name, self.entered)


def _by_name(cotangents: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"c{i}": tensor for i, tensor in enumerate(cotangents)}


def _run_once(spec: routes.RouteSpec, call: routes.Call, subject: Subject, recorder: Recorder | None) -> routes.Results:
    """The route's run, finished on the device; recorded where there is a recorder."""
    # both sides draw the same; torch.manual_seed looks for five kinds of devices, which takes 0.2 ms
    torch.manual_seed(0) if subject.device != "cpu" else torch.default_generator.manual_seed(0)
    if recorder is None:
        with operators(subject), thread_count(subject), saved_tensor_hooks_kept(), dispatch_kept():
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
    if spec.recompiles(call.program) or subject.backend == "eager":
        return None
    for leaf in call.leaves.values():
        leaf.grad = None  # results of the first run, which lie elsewhere
    started = cpu_seconds()
    with Peak(subject.device) as peak:
        results = _run_once(spec, call, subject, None)
    spent = cpu_seconds() - started
    return on_host(Observation(RAN, list(results.outputs), results.gradients, peak=peak.bytes, cpu_seconds=spent))


def raised_by(error: BaseException, subject: Subject) -> Raised:
    """The record of an exception of the code under test. Raises the error itself where the machine is to blame."""
    collect_before_next()
    if trouble(error):
        raise error
    raised = Raised(_kind(error), _message(error), _frames(error), _traceback(error))
    if not context_is_usable(subject.device):
        lose_context(error)
    return raised


def _kind(error: BaseException) -> str:
    inner = getattr(error, "inner_exception", None)
    return type(inner if inner is not None else error).__name__


def _message(error: BaseException) -> str:
    """The message of the error itself, without wrappers that say only that there was an error."""
    inner = getattr(error, "inner_exception", None)
    return str(inner if inner is not None else error).strip()


def _frames(error: BaseException) -> tuple[str, ...]:
    """The three innermost functions of torch (or of generated code) on the traceback, innermost first."""
    inner = getattr(error, "inner_exception", None) or error
    stack = traceback.extract_tb(inner.__traceback__) or traceback.extract_tb(error.__traceback__)
    names = [frame.name for frame in stack if "/torch/" in frame.filename.replace("\\", "/")]
    return tuple(reversed(names[-3:]))


# A file as a traceback names it, up to where a package begins: what is before is this machine's.
_BEFORE_PACKAGE = re.compile(r'(?<=File ")[^"]*/(?:(?:site|dist)-packages/|(?=fuzzer/\w))')


def _traceback(error: BaseException) -> str:
    """The whole traceback, with those of the exceptions that led to it."""
    return _BEFORE_PACKAGE.sub("", "".join(traceback.format_exception(error)))
