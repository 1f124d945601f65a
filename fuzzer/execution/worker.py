"""What runs inside a worker process: draw or read a program, run both sides, ask the oracles, send a Report.

Workers record and never decide what to do next. A broad `except` stands here only where an exception of the code under
test becomes an outcome.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fuzzer import interpret, routes
from fuzzer.execution.guard import Guard
from fuzzer.execution.messages import (
    PENDING,
    RAISED,
    RAN,
    UNCOMPILED,
    Observation,
    Place,
    Raised,
    Report,
    Subject,
    Trial,
)
from fuzzer.execution.usage import Peak, cpu_seconds
from fuzzer.faults import planted
from fuzzer.generate import Rejected, generate
from fuzzer.infer import IllTyped, check_draws
from fuzzer.interpret import UnknownOp
from fuzzer.knobs import USUAL, Knobs
from fuzzer.ops.spec import Limits
from fuzzer.oracles import detectable, unequal, verdicts, within_storage
from fuzzer.private import lacking, output_code, reset_compiler
from fuzzer.program import Attributes, Program, written_leaves
from fuzzer.regions import UnknownRegion
from fuzzer.settings import SAME_DRAWS, UnknownSetting, in_force
from fuzzer.text import ParseError, parse, show
from fuzzer.trace import Recorder, Unreplayable, moved_to
from fuzzer.values import UnknownRecipe
from fuzzer.vocabulary import vocabulary


@dataclass(frozen=True)
class Task:
    """What a campaign fixes for all its programs."""

    place: Place = Place()
    seed: int = 0
    limits: Limits = Limits()
    routes: tuple[str, ...] = ("autograd",)
    fixed: Attributes = ()
    ops: tuple[str, ...] = ()  # names; none means all
    fresh: bool = False  # inductor's caches off, for verification and canaries
    canary: str = ""  # the name of a planted fault (`faults`); it acts on one side's run and nowhere else
    final: bool = True  # verdicts survive the rounding model's final look; exploration is content with suspects
    also: tuple[str, ...] = ()  # oracles that speak only where they are asked (`verdict.ASKED`)
    lines: float = 0.0  # the share of programs of which the compiler's lines are recorded (`lines.recorded`)
    campaign: str = ""  # to which a worker tells lines that it told another
    lacking: tuple[str, ...] = ()  # what inductor does without (`private.lacking`), to find out what is at fault


class Journal:
    """A worker's log: the program, before it runs, then each phase entered. Read by the parent after a death."""

    def __init__(self, path: Path | None):
        self.path = path
        self.phase_name = ""

    def begin(self, text: str) -> None:
        if self.path is not None:
            self.path.write_text(text + "\n# phase: begin\n")

    def phase(self, name: str) -> None:
        self.phase_name = name
        if self.path is not None:
            with self.path.open("a") as log:
                log.write(f"# phase: {name}\n")


def read_journal(text: str) -> tuple[str, str]:
    """(program text, last phase) of a journal."""
    lines = text.splitlines()
    phases = [line.removeprefix("# phase: ") for line in lines if line.startswith("# phase: ")]
    program = [line for line in lines if not line.startswith("# phase: ")]
    return "\n".join(program).strip() + "\n", phases[-1] if phases else ""


# ---------------------------------------------------------------- one side


def compiler(subject: Subject, options: dict[str, Any]) -> routes.Compile:
    """torch.compile for this backend; none for those that compile nothing."""
    if subject.backend in UNCOMPILED:
        return routes.uncompiled
    dynamic = bool(options.get("dynamic"))
    return functools.partial(torch.compile, backend=subject.backend, dynamic=dynamic, fullgraph=True)


def operators(subject: Subject) -> contextlib.AbstractContextManager[Any]:
    """The operators that a side runs with: FlagGems' for `flag_gems`, which registers them over ATen's, else ATen's."""
    if subject.backend != "flag_gems":
        return contextlib.nullcontext()
    import flag_gems

    return flag_gems.use_gems()


@contextlib.contextmanager
def threads(subject: Subject) -> Iterator[None]:
    """The side's own number of threads in force; a worker has one.

    Only while the program runs: several threads that fill a leaf whose elements overlap would race.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(subject.threads if subject.threads > 1 else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def sound(device: str) -> bool:
    """Whether the device still computes, after something raised: an illegal access takes the CUDA context with it."""
    try:
        synchronise(device)
    except RuntimeError:
        return False
    return True


def poison(device: str) -> None:
    """Fill free CUDA memory with NaN, so that a kernel that writes nothing cannot inherit a right answer.

    On the CPU the worker's MALLOC_PERTURB_ does this for every free.
    """
    if device.startswith("cuda"):
        blocks = [
            torch.full((2**power,), float("nan"), device=device) for power in (7, 9, 11, 13, 15, 18) for _ in range(6)
        ]
        torch.cuda.synchronize(device)
        del blocks


def observe(
    program: Program, subject: Subject, phase: Callable[[str], None], recorder: Recorder | None = None
) -> Observation:
    """Run one side; what is compiled and can be, twice. An exception of the code under test becomes the outcome
    `raised`."""
    started, cpu_started = time.perf_counter(), cpu_seconds()
    entered = [""]
    guard = Guard()
    given: dict[str, torch.Tensor] = {}
    touched: dict[str, str] = {}

    def look() -> None:
        for name in guard.touched(given):
            touched.setdefault(name, entered[0])

    def note(name: str) -> None:
        synchronise(subject.device)
        if recorder is None:  # it would record our looking too
            look()
        entered[0] = name
        phase(name)

    spec, options = routes.find(program)
    function = interpret.function(program)
    try:
        leaves = interpret.materialise(program.leaves, subject.device, guard.house)
        cotangents = interpret.cotangents(program, subject.device, guard.house)
        seeds = {f"c{i}": tensor for i, tensor in enumerate(cotangents)}
        if recorder is not None:
            recorder.given("leaf", leaves)
            recorder.given("cotangent", seeds)
        given = leaves | seeds
        poison(subject.device)
        call = routes.Call(program, function, leaves, cotangents, compiler(subject, options), note)
        results = run_once(spec, call, subject, recorder)
        look()
        spent = time.perf_counter() - started, cpu_seconds() - cpu_started
        written = {name: leaves[name].detach() for name in written_leaves(program)}
        seen = Observation(RAN, list(results.outputs), results.gradients, written=written, touched=touched)
        seen = on_host(seen) if recorder is None else seen
        again = run_again(spec, call, subject) if recorder is None and not touched and repeatable(program) else None
    except Exception as error:  # whatever the code under test raises is its outcome
        raised = Raised(_kind(error), _message(error), _frames(error))
        global _poisoned
        _poisoned = _poisoned or not sound(subject.device)
        return Observation(RAISED, phase=entered[0], raised=raised, seconds=time.perf_counter() - started)
    return replace(seen, phase=entered[0], seconds=spent[0], cpu_seconds=spent[1], again=again)


def on_host(seen: Observation) -> Observation:
    """The observation with its tensors on the CPU, where they are judged. One that reaches beyond its storage cannot be
    read, and stays."""
    found = [*seen.outputs, *seen.gradients.values(), *seen.written.values()]
    far = [t for t in found if t is not None and t.is_cuda and within_storage(t)]
    near = {id(t): moved for t, moved in zip(far, moved_to("cpu", [t.detach() for t in far]), strict=True)}
    return replace(
        seen,
        outputs=[near.get(id(t), t) for t in seen.outputs],
        gradients={name: near.get(id(t), t) for name, t in seen.gradients.items()},
        written={name: near.get(id(t), t) for name, t in seen.written.items()},
    )


def run_once(spec: routes.RouteSpec, call: routes.Call, subject: Subject, recorder: Recorder | None) -> routes.Results:
    """The route's run, finished on the device; recorded where there is a recorder."""
    # both sides draw the same; torch.manual_seed looks for five kinds of devices, which takes 0.2 ms
    torch.manual_seed(0) if subject.device != "cpu" else torch.default_generator.manual_seed(0)
    if recorder is None:
        with operators(subject), threads(subject):
            results = spec.run(call)
    else:
        with recorder:
            results = spec.run(call)
    synchronise(subject.device)
    return results


def repeatable(program: Program) -> bool:
    """Whether a second run finds its inputs as the first did, and runs the same code: CUDA graphs record the second."""
    return not written_leaves(program) and not dict(program.settings).get("inductor.triton.cudagraphs")


def run_again(spec: routes.RouteSpec, call: routes.Call, subject: Subject) -> Observation | None:
    """What the same compiled code gives on the same inputs, and the memory that it takes without a compiler."""
    if not spec.repeats or subject.backend == "eager":
        return None
    for leaf in call.leaves.values():
        leaf.grad = None  # results of the first run, which lie elsewhere
    started = cpu_seconds()
    with Peak(subject.device) as peak:
        results = run_once(spec, call, subject, None)
    spent = cpu_seconds() - started
    return on_host(Observation(RAN, list(results.outputs), results.gradients, peak=peak.taken, cpu_seconds=spent))


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


# ---------------------------------------------------------------- both sides


class Refused(ValueError):
    """A program that did not run on the reference side, with the reason."""


def run_reference(program: Program, task: Task, journal: Journal) -> Trial:
    """Run the reference side and record it. Raises Refused where it does not run.

    It runs twice: under a dispatch mode some backwards take the formula that they have for the compiler (cumprod's and
    prod's, torch 2.11), and what eager itself computes is what a person sees without one.
    """
    return settled(recorded(program, task, journal), task, journal)


def recorded(program: Program, task: Task, journal: Journal) -> Trial:
    """The recording alone: enough to say what the program exercises and whether a fault could show. Raises Refused."""
    recorder = Recorder()
    reset_compiler()
    seen = referred(program, task, journal, recorder)
    targets = {o.value: recorder.ref(t) for o, t in zip(program.outputs, seen.outputs, strict=True)}
    targets |= {name: recorder.ref(t) for name, t in seen.written.items()}
    gradients = {f"{n}.grad": recorder.ref(t) for n, t in seen.gradients.items() if t is not None}
    pending = Observation(PENDING)
    return Trial(program, task.place, seen, pending, recorder.trace, targets | gradients, task.final)


def settled(trial: Trial, task: Task, journal: Journal) -> Trial:
    """The trial with what the reference side computes where nothing records it. Raises Refused."""
    trial.reference = referred(trial.program, task, journal)
    return trial


def referred(program: Program, task: Task, journal: Journal, recorder: Recorder | None = None) -> Observation:
    """One run of the reference side. Raises Refused."""
    with planted(task.canary, "reference") as tamper:
        seen = observe(program, task.place.reference, lambda name: journal.phase(f"reference {name}"), recorder)
        if seen.raised is not None:
            raise Refused(f"{seen.phase} raised {seen.raised.kind}: {seen.raised.message.splitlines()[:1]}")
        return tamper(seen) if recorder is None else seen


def run_subject(trial: Trial, task: Task, journal: Journal) -> Trial:
    """The trial with the side that is on trial run too; without the program's settings as well, where that is asked."""
    trial.also = task.also
    trial.subject = run_compiled(trial.program, trial, task, journal)
    bare = without_settings(trial.program)
    if "settings_agree" in task.also and bare != trial.program:
        journal.begin(show(bare))
        reset_compiler()
        trial.bare = run_compiled(bare, trial, task, journal)
    return trial


def without_settings(program: Program) -> Program:
    """The program under torch's defaults, but for what makes both sides draw the same."""
    return replace(program, settings=tuple(pair for pair in program.settings if pair == SAME_DRAWS))


def run_compiled(program: Program, trial: Trial, task: Task, journal: Journal) -> Observation:
    """The side that is on trial, under the program's settings, with what the task plants or leaves out."""
    # a planted fault is in no cache key, and the benign run of the same program must not meet its code
    uncached: Attributes = (("inductor.force_disable_caches", True),) if task.fresh or task.canary else ()
    with contextlib.ExitStack() as stack:
        stack.enter_context(in_force((*program.settings, *uncached)))
        tamper = stack.enter_context(planted(task.canary, "subject"))
        for name in task.lacking:
            stack.enter_context(lacking(name))
        codes: list[str] = []
        stack.enter_context(output_code(codes.append))
        seen = tamper(observe(program, task.place.subject, journal.phase))
        if codes:
            seen.atomics = any("atomic_add" in code for code in codes)
        if seen.again is not None:
            seen.again = tamper(seen.again)
            if unequal(trial.named(seen), trial.named(seen.again)):
                seen.admitted = admitted(program, trial, task.place.subject, journal)
    return seen


def admitted(program: Program, trial: Trial, subject: Subject, journal: Journal) -> str:
    """What torch says of a program whose two runs differ, asked under torch.use_deterministic_algorithms: that they do
    not differ there, or which operation has no set order; "" where it says nothing."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    reset_compiler()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            seen = observe(program, subject, journal.phase)
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    if seen.again is not None and not unequal(trial.named(seen), trial.named(seen.again)):
        return "two runs are equal under torch.use_deterministic_algorithms"
    told = (str(warning.message).partition(".")[0] for warning in said)
    return next((f"torch says: {text}" for text in told if "deterministic" in text), "")


def try_program(program: Program, task: Task, journal: Journal) -> Trial:
    """Run both sides. Raises Refused where the reference side does not run."""
    return run_subject(run_reference(program, task, journal), task, journal)


def observed(task: Task, text: str) -> Trial:
    """Both sides of a program's text, run and logged. Raises ParseError and Refused."""
    program = parse(text)
    _journal.begin(text)
    trial = try_program(program, task, _journal)
    _journal.phase("look")
    return trial


class Dull(Exception):
    """A program whose gradients would not show any fault: all zero, nonfinite or noise."""


# What looks at a trial that was judged, while its tensors are there: its Report, with more in it.
Closer = Callable[[Report, Trial], Report]


def as_it_is(report: Report, trial: Trial) -> Report:
    return report


def report(program: Program, task: Task, journal: Journal, choosy: bool = False, closer: Closer = as_it_is) -> Report:
    """The Report of a program: run, judged, counted. Raises Dull, before the compile, where `choosy`."""
    try:
        trial = sketch(program, task, journal)
        started = cpu_seconds()
        if choosy and not is_heard(trial, journal):
            raise Dull
        looked = cpu_seconds() - started
        return end(settled(trial, task, journal), task, journal, closer, looked)
    except REFUSED as error:
        return refusal(show(program), error)


REFUSED = (
    Refused, IllTyped, UnknownOp, UnknownRegion, UnknownSetting, UnknownRecipe, routes.UnknownRoute, Unreplayable
)  # fmt: skip


def refusal(text: str, error: Exception) -> Report:
    """The Report of a program that one of REFUSED ended."""
    why = "the trace cannot be replayed: " if isinstance(error, Unreplayable) else ""
    return Report(text, rejected=f"{why}{error}")


def begin(program: Program, task: Task, journal: Journal) -> Trial:
    """A program logged, checked and run on the reference side. Raises what stands in REFUSED."""
    return settled(sketch(program, task, journal), task, journal)


def sketch(program: Program, task: Task, journal: Journal) -> Trial:
    """A program logged, checked and recorded. Raises what stands in REFUSED."""
    journal.begin(show(program))
    routes.find(program)
    if task.place.subject.backend != "eager":
        routes.check(program.route.name, task.place.subject.backend)
    check_draws(program)
    return recorded(program, task, journal)


def is_heard(trial: Trial, journal: Journal) -> bool:
    """Whether a fault could show in a gradient of the reference side. Raises Unreplayable."""
    journal.phase("reference judge")
    with torch.no_grad():
        return detectable(trial)[0] > 0


def end(trial: Trial, task: Task, journal: Journal, closer: Closer = as_it_is, looked: float = 0.0) -> Report:
    """The Report of a trial that was begun: compiled, judged, counted. Raises Unreplayable.

    looked   CPU seconds that judging took before.
    """
    run_subject(trial, task, journal)
    journal.phase("judge")
    started = cpu_seconds()
    with torch.no_grad():
        found = tuple(verdicts(trial))
        seen, total = detectable(trial) if trial.subject.outcome == RAN else (0, 0)
    seconds = {"reference": trial.reference.seconds, "subject": trial.subject.seconds}
    seconds["judge"] = looked + cpu_seconds() - started
    told = Report(show(trial.program), found, detectable=seen, elements=total, seconds=seconds)
    return closer(replace(told, gradients=nonzero(trial), fired=trial.subject.fired), trial)


def nonzero(trial: Trial) -> int:
    """How many gradients both sides have, of those that are not zero everywhere on the reference side."""
    theirs = trial.subject.gradients
    mine = ((name, g) for name, g in trial.reference.gradients.items() if g is not None)
    return sum(bool(g.any()) for name, g in mine if theirs.get(name) is not None)


# ---------------------------------------------------------------- entry points (called in the worker by the pool)

_journal = Journal(None)
_task_count = 0


def use_journal(path: Path) -> None:
    """Log to this file from now on."""
    global _journal
    _journal = Journal(path)


# A worker whose CUDA context is lost (illegal access, device-side assert) reports what happened, then ends with this
# status as soon as it is given another task, which the pool gives to another worker.
POISONED = 75
OUR_FAULT = "backfuzz itself failed"
_poisoned = False


def journal() -> Journal:
    """The log of this worker."""
    return _journal


def run(token: str, function: Callable[[Task, Any], Report], task: Task, what: Any) -> Report:
    """Every task enters here: note whose it is, so that a death finds its owner."""
    if _poisoned:
        os._exit(POISONED)
    if _journal.path is not None:
        _journal.path.with_name("owner").write_text(token)
    started = cpu_seconds()
    try:
        found = function(task, what)
        found.seconds["cpu"] = cpu_seconds() - started
        return found
    except ParseError:
        raise
    except MemoryError:
        return Report("", rejected="the worker ran out of memory")
    except Exception as error:  # the process boundary: a fault of ours costs one program, and is told
        if isinstance(error, RuntimeError) and "memory" in str(error):  # torch's allocators
            return Report("", rejected=f"the worker ran out of memory: {str(error).splitlines()[0]}")
        text = read_journal(_journal.path.read_text())[0] if _journal.path is not None else ""
        return Report(text, rejected=f"{OUR_FAULT}: {error!r}", stderr=traceback.format_exc())


# A collection takes 0.08 s (CPU) to 0.24 s (beside 15 other workers on an H200), up to a tenth of a compile there.
TIDY_EVERY = 64


def tidy(task: Task) -> None:
    """Give memory back every so many programs; compiled code itself is only freed by recycling the worker."""
    global _task_count
    _task_count += 1
    if _task_count % TIDY_EVERY == 0:
        gc.collect()


# The share of programs on which `settings_agree` is asked: a compile costs as much as all else of a trial, and none of
# the first 224 findings came by it.
SAMPLE = 1 / 64


def sampled(task: Task, index: int) -> Task:
    """The task of one program: `settings_agree` asked of some, lines recorded of some, by their number alone."""

    def drawn(what: str, share: float) -> bool:
        return random.Random(f"{task.seed}/{index}/{what}").random() < share

    also = (*task.also, "settings_agree") if drawn("settings_agree", SAMPLE) else task.also
    return replace(task, also=also, lines=float(drawn("lines", task.lines)))


# How often a program is drawn anew because no fault could show in its gradients; then it is compiled all the same.
REDRAWS = 3


def explore(task: Task, index: int, closer: Closer = as_it_is) -> Report:
    """Draw program number `index` of the task's seed, and report on it. Depends on the task and the index alone."""
    found, task = Report(""), sampled(task, index)
    for attempt in range(REDRAWS + 1):
        started = time.perf_counter()
        _journal.begin(f"# program {index} of seed {task.seed}, not drawn yet")
        try:
            program = draw(task, index, attempt)
            drawn = time.perf_counter() - started
            found = report(program, task, _journal, choosy=attempt < REDRAWS, closer=closer)
        except Dull:
            continue
        except (Rejected, IllTyped) as error:
            return Report("", rejected=str(error), redrawn=attempt)
        found.seconds["generate"] = drawn
        found = replace(found, redrawn=attempt)
        break
    tidy(task)
    return found


def draw(task: Task, index: int, attempt: int = 0, knobs: Knobs = USUAL) -> Program:
    """Program number `index` of the task's seed, in its n-th drawing. Raises Rejected."""
    rng = random.Random(f"{task.seed}/{index}/{attempt}")
    device, other = (side.device.split(":")[0] for side in (task.place.subject, task.place.reference))
    known = vocabulary(task.limits, task.ops)
    return generate(rng, known, task.limits, task.routes, device, task.fixed, device != other, knobs)


def examine(task: Task, text: str) -> Report:
    """Report on this program. Raises ParseError."""
    found = report(parse(text), task, _journal)
    tidy(task)
    return found


def record(task: Task, text: str) -> Report:
    """What the program's values hold where the reference side runs. Raises ParseError."""
    program = parse(text)
    _journal.begin(text)
    _journal.phase("reference forward")
    try:
        return Report(text, recorded=interpret.record(program, task.place.reference.device))
    except Exception as error:  # what is not recorded is not proposed
        return Report(text, rejected=f"it cannot be recorded: {error!r}")
