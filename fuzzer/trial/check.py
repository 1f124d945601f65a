"""A function or a program put to the test from Python: `backfuzz.check` and `backfuzz.run`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.program import Attributes, Leaf, Program, Value
from fuzzer.language.settings import require
from fuzzer.language.text import parse, show
from fuzzer.language.transcribe import transcribe
from fuzzer.language.values import as_data
from fuzzer.trial.pipeline import report_program
from fuzzer.trial.places import make_task
from fuzzer.trial.tasks import examine
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_MOST_VALUES = 1 << 16  # elements of an input whose values are kept: about a MiB of text


def check(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    *,
    backend: str = "inductor",
    device: str | None = None,
    settings: Mapping[str, Value] | None = None,
    isolated: bool = False,
) -> Verdict:
    """Whether a function's outputs and gradients, compiled, are what eager's can be rounded to.

    function, inputs  as in `program_of`.
    device    of both sides; default: that of the first input.
    Others    as in `run`.

    Raises Inexpressible (a ValueError that names every call that no op says), UsageError and NoMachine.
    """
    program = program_of(function, inputs)
    where = device or (inputs[0].device.type if inputs else "cpu")
    told = run(program, backend=backend, device=where, settings=settings, isolated=isolated)
    return replace(told, detail=" ".join([told.detail, *(f"({line})" for line in program.comment)]))


def program_of(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Program:
    """The program of one call function(*inputs), whose torch calls become nodes. Raises Inexpressible, also where an
    output, a gradient or a write of the program is not, bit by bit, the function's.

    function  of tensors, or a torch.nn.Module (`backfuzz ops` lists what can be said). Where no input requires grad,
              every floating one does, except those that the function writes to.
    inputs    of any shape, dtype and stride. Of those with more than 65536 elements, and of a module's parameters with
              more than 64, type and layout are kept and the values are drawn; the program's comment says so.
    """
    found = transcribe(function, inputs)
    leaves = [
        _with_values(leaf, inputs[i]) if i < len(inputs) and leaf.name in found.drawn else leaf
        for i, leaf in enumerate(found.program.leaves)
    ]
    drawn = [leaf.name for leaf in leaves if leaf.name in found.drawn and leaf.values.name != "data"]
    comment = (f"{', '.join(drawn)}: drawn values, not yours",) if drawn else ()
    return replace(found.program, leaves=tuple(leaves), comment=(*comment, *found.made_inside))


def _with_values(leaf: Leaf, tensor: torch.Tensor) -> Leaf:
    """The leaf with the values of its tensor, where these are not too many."""
    if leaf.base is not None or tensor.numel() > _MOST_VALUES or tensor.is_conj():
        return leaf
    return replace(leaf, values=as_data(tensor.detach().cpu()), seed=0)


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
        f"outputs and {report.gradients} gradient(s); an error would show in {report.detectable} of "
        f"{report.elements} elements of gradients"
    )
    return Verdict(Signature("", report.verdict, "", ""), detail)
