"""A function or a program put to the test from Python: `backfuzz.check` and `backfuzz.run`."""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fuzzer.judgement.comparison import judge_tensors
from fuzzer.judgement.oracles import differing_tensors
from fuzzer.judgement.trial import RAN, UNCOMPILED, Trial
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.errors import UsageError
from fuzzer.language.private import isa_trusted
from fuzzer.language.program import DIFFERENTIABLE, Attributes, Program, Value
from fuzzer.language.settings import SAME_DRAWS, require
from fuzzer.language.text import parse, show
from fuzzer.language.values import DTYPE_NAMES
from fuzzer.rounding.precision import ULPS
from fuzzer.rounding.record import HigherOrder
from fuzzer.rounding.replay import Unreplayable
from fuzzer.rounding.trace import is_rounded
from fuzzer.rounding.unmodelled import dependent
from fuzzer.trial.calls import Call, Uncheckable
from fuzzer.trial.home import shown_by_program, smallest_module
from fuzzer.trial.observe import observe
from fuzzer.trial.pipeline import (
    EagerRaised,
    compile_subject,
    judge_trial,
    record_reference,
    report_program,
    rerun_reference,
)
from fuzzer.trial.places import make_task
from fuzzer.trial.tasks import examine
from fuzzer.workers.accelerator import tf32_off
from fuzzer.workers.journal import Journal, journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

# dynamo draws numpy's random numbers from torch's generator, unless it leaves them to numpy (torch 2.13).
_NUMPYS_DRAWS: tuple[str, Value] = ("dynamo.use_numpy_random_stream", True)


def check(
    function: Callable[..., Any],
    *args: Any,
    inputs: Sequence[Any] | None = None,
    backend: str = "inductor",
    settings: Mapping[str, Value] | None = None,
    isolated: bool = False,
    **kwargs: Any,
) -> Verdict:
    """Whether function(*args, **kwargs), compiled, computes what eager's can be rounded to: results, gradients, and
    what inputs, parameters and buffers hold afterwards.

    The callable itself runs, in eager and under torch.compile. What it changes is put back.

    function  any callable: a function, a torch.nn.Module, a method. It runs where its tensors are.
    args, kwargs  its arguments. Where no input and no parameter requires a gradient, the floating inputs do here,
              unless the function writes to them.
    inputs    another way to give the positional arguments.
    backend   of torch.compile; a stage of it runs programs alone (`run`).
    settings  of the compiler, by name as in `--set`.
    isolated  in a process of its own, which may die or hang: a script that asks for it needs
              `if __name__ == "__main__":`, and function and arguments must be picklable. Without it all runs in this
              process, in one thread; what torch.compile has compiled here is forgotten.

    Raises Uncheckable (a ValueError whose text says why this function cannot be judged), UsageError and NoMachine.
    """
    if inputs is not None and args:
        raise UsageError("check takes the positional arguments or `inputs=`, not both")
    if hasattr(function, "_torchdynamo_orig_callable") or hasattr(function, "_orig_mod"):
        raise Uncheckable("this is a result of torch.compile; check takes the function itself and compiles it")
    given = tuple(args if inputs is None else inputs)
    for name, value in (settings or {}).items():
        require(name, value)
    call = Call(function, given, kwargs, tuple(sorted((settings or {}).items())))
    task = _task_of(call, backend)
    if isolated:
        return _told_of(_isolated(call, task))
    with _one_thread(), tf32_off(task.place.subject.device), isa_trusted(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "dynamo_pgo force disabled")  # by us: no cache serves a trial
        return _told_of(report_call(call, task, Journal(None)))


def _task_of(call: Call, backend: str) -> Task:
    """The task of a function: both sides run on the device of its tensors. Raises UsageError, NoMachine."""
    tensors = {**call.inputs, **call.state()}
    for name, tensor in tensors.items():
        if tensor.is_meta or tensor.is_quantized or tensor.layout is not torch.strided:
            kind = "meta" if tensor.is_meta else "quantized" if tensor.is_quantized else "sparse"
            raise Uncheckable(f"{name} is a {kind} tensor, whose numbers the recorder cannot hold; give a dense one")
    devices = {str(t.device): t for t in tensors.values()}
    where = next((name for name in devices if name != "cpu"), "cpu")
    task: Task = make_task(where, backend, None, fresh=True)
    if task.place.subject.stage:
        raise UsageError(f"check compiles a function in full; the stage {backend!r} runs programs (backfuzz.run)")
    return task


def _isolated(call: Call, task: Task) -> Report:
    """The Report from a process of its own. Raises Uncheckable where the function cannot travel there."""
    try:
        packed = pickle.dumps((call.function, call.args, call.kwargs, call.settings))
        pickle.loads(packed)
    except Exception as error:
        raise Uncheckable(
            f"isolated=True sends the function to another process, and {call.name} cannot be pickled ({error}); define "
            "it at the top of a module, or leave isolated out"
        ) from None
    with Pool(1, task.place.devices) as pool:
        return pool.result(pool.submit(examine_call, task, packed), task)


def examine_call(task: Task, packed: bytes) -> Report:
    """Report on a pickled call, in a worker."""
    call = Call(*pickle.loads(packed))
    try:
        return report_call(call, task, journal())
    except Uncheckable as error:
        return Report("", rejected=str(error))


# ---------------------------------------------------------------- one call


def report_call(call: Call, task: Task, log: Journal) -> Report:
    """The Report of a call, a difference brought home: to the smallest module that gives its class, and to a program
    if one gives its signature (the Report's text). `notes` holds sentences about the run. Raises Uncheckable."""

    def judge(inner: Call) -> Report:
        return judge_call(inner, task, log)

    told = judge(call)
    if not told.verdicts:
        return told
    name, smallest, shown = smallest_module(call, task, told, judge)
    if name:
        inside = f"in {name} ({type(smallest.function).__name__}) alone: {shown.verdicts[0].detail}"
        told = replace(told, notes={**told.notes, "module": inside})
    return replace(told, text=shown_by_program(smallest, shown, task, log))


def judge_call(call: Call, task: Task, log: Journal) -> Report:
    """The Report of a call; `notes` holds sentences about the run. The author's things are left as they were. Raises
    Uncheckable."""
    try:
        trial, notes = recorded(call, task, log)
        rerun_reference(trial, task, log)
        _check_repeats(trial, call, task)
        compile_subject(trial, task, log)
        told = judge_trial(trial, log)
    except EagerRaised as error:
        raise Uncheckable(_eager_raised(call, task, error)) from None
    except Unreplayable as error:
        raise Uncheckable(f"the trace of {call.name} cannot be replayed in float64: {error}") from None
    finally:
        call.around.restore(gradients=True)
    notes |= _notes_of_compile(trial, task)
    if apart := [name for name, told in trial.reference.structure.items() if told == "float"]:
        notes["numbers"] = f"not compared: {', '.join(apart)}, a Python float"
    return replace(told, notes=notes)


def _check_repeats(trial: Trial, call: Call, task: Task) -> None:
    """Raise Uncheckable where eager itself gives something else for the same inputs, by more than rounding: the
    function keeps state that nobody can put back, such as a global counter."""
    again = observe(call, task.place.reference, lambda name: None)
    if again.outcome != RAN or again.structure != trial.reference.structure:
        raise Uncheckable(
            f"{call.name} does not do the same when it runs again: it keeps state outside its modules; give this as an "
            "argument"
        )
    names = differing_tensors(trial.named(trial.reference), trial.named(again))
    with torch.no_grad():
        apart = [judged.name for judged in judge_tensors(trial.with_subject(again), names)]
    if apart:
        raise Uncheckable(
            f"{call.name} gives another {apart[0]} when it runs again on the same inputs: it keeps state outside its "
            "modules, or draws numbers that torch does not draw; give them as arguments"
        )


def recorded(call: Call, task: Task, log: Journal) -> tuple[Trial, dict[str, str]]:
    """The trial with its recorded eager side, and notes. Raises EagerRaised and Unreplayable."""
    notes: dict[str, str] = {}
    trial = record_reference(call, task, log)
    if not trial.targets:
        raise Uncheckable(f"{call.name} returns no tensor and changes none: there is nothing to compare")
    wanted = _to_differentiate(call, trial)
    if wanted:
        call.around.differentiated = wanted
        try:
            trial = record_reference(call, task, log)
            notes["differentiated"] = f"no input requires a gradient; here {', '.join(sorted(wanted))} did"
        except EagerRaised:  # it runs without a gradient alone, as one that asks for .numpy()
            call.around.differentiated = frozenset()
            trial = record_reference(call, task, log)
    if unseen := _made_unseen(call, trial):  # once more: what lies outside is met again, and a fresh one is not
        trial = record_reference(call, task, log)
        unseen = _made_unseen(call, trial)
    if not any(name.endswith(".grad") for name in trial.targets):
        notes = {"gradient": "no gradient"}
    assert trial.trace is not None
    refs = (ref for step in trial.trace.steps for ref in (*step.inputs, *step.results))
    if strange := {str(ref.dtype) for ref in refs if is_rounded(ref) and ref.dtype.to_real() not in ULPS}:
        raise Uncheckable(f"{call.name} computes in {', '.join(sorted(strange))}, whose rounding is not modelled")
    draws = [SAME_DRAWS] if any(step.recorded for step in trial.trace.steps) else []
    draws += [_NUMPYS_DRAWS] if call.around.numpy_drew else []
    if draws:
        call.settings = tuple(sorted({**dict(call.settings), **dict(draws)}.items()))
        notes["random"] = f"random numbers are eager's: {' and '.join(name for name, _ in draws)} is set"
    trial.unmodelled = {name: found for name, found in dependent(trial.trace, trial.targets, unseen).items() if found}
    if trial.unmodelled:
        operations = sorted({one for found in trial.unmodelled.values() for one in found})
        notes["unmodelled"] = (
            f"no rounding model of {', '.join(operations)}: {len(trial.unmodelled)} of {len(trial.targets)} tensors "
            "are held against eager in float64"
        )
    return trial, notes


def _made_unseen(call: Call, trial: Trial) -> dict[int, str]:
    """The floating storages that only the last recording met and that no call of torch made, by number: results of
    numpy, say. Their numbers are rounded and the trace holds them as exact."""
    assert trial.trace is not None
    floating = {number for number, flat in trial.trace.initial.items() if flat.is_floating_point() or flat.is_complex()}
    fresh = call.around.fresh & floating - trial.trace.roles.keys()
    return dict.fromkeys(fresh, "a tensor that torch did not make (numpy?)")


def _to_differentiate(call: Call, trial: Trial) -> frozenset[str]:
    """Where nothing requires a gradient: the floating inputs that the function does not write to."""
    assert trial.trace is not None
    if call.around.any_gradient() or not any(t.is_floating_point() or t.is_complex() for t in trial.reference.outputs):
        return frozenset()
    written = {ref.storage for step in trial.trace.steps for ref in step.writes}
    return frozenset(
        name
        for name, tensor in call.inputs.items()
        if DTYPE_NAMES.get(tensor.dtype) in DIFFERENTIABLE
        and (ref := trial.trace.given.get(name)) is not None
        and ref.storage not in written
    )


def _eager_raised(call: Call, task: Task, error: EagerRaised) -> str:
    """The sentence for a function that did not run in eager: its own error, or a limit of the recorder."""
    raised = error.seen.raised
    assert raised is not None
    if raised.kind == HigherOrder.__name__:
        return f"{call.name} cannot be recorded: {raised.message}; a program can hold it (backfuzz.run)"
    plain = observe(call, task.place.reference, lambda name: None)
    told = f"{raised.kind}: {raised.message.splitlines()[0] if raised.message else ''}"
    if plain.outcome == RAN:
        return f"{call.name} runs in eager, but not while its ATen operations are recorded: {told}"
    if raised.kind == "NotImplementedError" and "storage" in raised.message:
        return f"{call.name} makes a tensor without a storage, such as a sparse one, which cannot be recorded: {told}"
    if len(call.args) == 1 and isinstance(call.args[0], list | tuple):
        told += "; a list of all arguments goes into `inputs=`"
    return f"{call.name} raises in eager, in the {error.seen.phase}: {told}"


def _notes_of_compile(trial: Trial, task: Task) -> dict[str, str]:
    """The number of graphs and the graph breaks. Raises Uncheckable where nothing was compiled."""
    seen = trial.subject
    if seen.outcome != RAN or task.place.subject.backend in UNCOMPILED or not trial.code.size:
        return {}
    why = f" ({'; '.join(reason.splitlines()[0] for reason in seen.breaks)})" if seen.breaks else ""
    if not seen.graphs:
        raise Uncheckable(f"torch.compile compiled nothing of this function{why}; there is no compiled code to judge")
    count = "1 graph" if seen.graphs == 1 else f"{seen.graphs} graphs"
    return {"graphs": f"compiled as {count}{why}"} if seen.graphs > 1 or seen.breaks else {}


def _told_of(report: Report) -> Verdict:
    """The Verdict of a call's Report with its notes. Raises Uncheckable."""
    if report.rejected:
        raise Uncheckable(report.rejected)
    told = _told(report)
    detail = " ".join([told.detail, *(f"({note})" for note in report.notes.values())])
    return replace(told, detail=detail, program=report.text)


# ---------------------------------------------------------------- programs


def run(
    program: Program | str,
    *,
    backend: str = "inductor",
    device: str = "cpu",
    settings: Mapping[str, Value] | None = None,
    isolated: bool = False,
) -> Verdict:
    """Run a program in eager and compiled, and judge it: the worst that any oracle says, or a verdict that agrees.

    program   or its text. `str()` of the verdict is a line.
    backend   of torch.compile, a third party's too, or a stage, `inductor:ir`.
    settings  of the compiler, by name as in `--set`, over the program's own.
    isolated  in a process of its own, which may die or hang: a script that asks for it needs
              `if __name__ == "__main__":`. Without it the program runs in this process, in one thread; what
              torch.compile has compiled here is forgotten.

    Raises ParseError, UsageError and NoMachine.
    """
    asked = parse(program) if isinstance(program, str) else program
    given = tuple((settings or {}).items())
    for name, value in given:
        require(name, value)
    fixed: Attributes = tuple(sorted({**dict(asked.settings), **dict(given)}.items()))
    task: Task = make_task(device, backend, None, fresh=True)
    asked = replace(asked, settings=fixed)
    if isolated:
        with Pool(1, task.place.devices) as pool:
            return _told(pool.result(pool.submit(examine, task, show(asked)), task))
    with _one_thread():
        return _told(report_program(asked, task, Journal(None)))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """As in workers: threads change the order of sums from run to run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _told(report: Report) -> Verdict:
    """The worst of a Report's verdicts; of one without any, that it agrees or was rejected."""
    if report.verdicts:
        return report.verdicts[0]
    detail = report.rejected or (
        "outputs; there is no gradient"
        if report.forward
        else f"outputs and {report.gradients} gradient(s); an error would show in {report.detectable} of "
        f"{report.elements} elements of gradients"
        + f"; in {report.deaf} legal rounding may change half of the value or more"
        * (report.deaf > 0)
    )
    return Verdict(Signature("", report.verdict, "", ""), detail)
