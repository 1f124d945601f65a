"""A function's difference brought home: to the smallest module that shows it, and to a program if one says the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from fuzzer.judgement.verdict import follows
from fuzzer.language.function import RESULT, rebuilt, tree_leaves
from fuzzer.language.private import module_calls_watched
from fuzzer.language.program import Leaf, Program
from fuzzer.language.text import show
from fuzzer.language.transcribe import transcribe
from fuzzer.language.values import as_data
from fuzzer.trial.calls import Call, Uncheckable
from fuzzer.trial.observe import observe
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task

_MOST_VALUES = 1 << 16  # elements of an input whose values are kept: about a MiB of text

Judge = Callable[[Call], Report]


@dataclass
class Met:
    """The first call of a module: its arguments as they came, and the cotangents of its results by name.

    returned  whether that call has returned.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    returned: bool = False
    cotangents: dict[str, torch.Tensor] = field(default_factory=dict)


def smallest_module(call: Call, task: Task, report: Report, judge: Judge) -> tuple[str, Call, Report]:
    """The smallest module that gives the report's class when it runs alone, by name, with its call and its Report;
    the name is "" where no module inside does. `judge` gives the Report of a call; each costs a compile."""
    met = calls_met(call, task)
    name, found, told = "", call, report
    modules = {f"{root}.{path}".strip("."): m for root, top in call.modules.items() for path, m in top.named_modules()}
    inside = {name: module for name, module in modules.items() if module in met and module is not call.function}
    while True:
        for child in _next_inside(name, inside):
            alone = _call_alone(inside[child], met[inside[child]], call)
            try:
                seen = judge(alone)
            except Uncheckable:
                continue
            if seen.verdict == report.verdict:
                name, found, told = child, alone, seen
                break
        else:
            return name, found, told


def _next_inside(name: str, inside: dict[str, torch.nn.Module]) -> Iterator[str]:
    """The modules inside this one with no other that was called between, in the order of their calls."""
    within = [other for other in inside if other != name and (not name or other.startswith(f"{name}."))]
    return (one for one in within if not any(one.startswith(f"{other}.") for other in within))


def _call_alone(module: torch.nn.Module, met: Met, call: Call) -> Call:
    return Call(module, met.args, met.kwargs, call.settings, cotangents=met.cotangents)


def calls_met(call: Call, task: Task) -> dict[torch.nn.Module, Met]:
    """The first call of each module in eager, in the order of the calls, of a call that has run before."""
    found: dict[torch.nn.Module, Met] = {}

    def before(module: torch.nn.Module, args: Any) -> None:
        if module not in found:
            found[module] = Met(rebuilt(args, _own))

    def after(module: torch.nn.Module, args: Any, kwargs: Any, returned: Any) -> None:
        met = found[module]
        if met.returned:
            return
        met.returned, met.kwargs = True, rebuilt(kwargs, _own)
        for name, leaf in tree_leaves(returned, RESULT):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(partial(_keep, met.cotangents, name))

    with module_calls_watched(before, after):
        observe(call, task.place.reference, lambda phase: None)
    call.around.restore(gradients=True)
    return found


def _keep(kept: dict[str, torch.Tensor], name: str, gradient: torch.Tensor) -> None:
    """Keep the first cotangent of a result."""
    kept.setdefault(name, gradient.detach().clone())


def _own(leaf: Any) -> Any:
    """A copy of a tensor that requires a gradient as it did, and has a history where it had one."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    own = leaf.detach().clone().requires_grad_(leaf.requires_grad)
    with torch.enable_grad():
        return own if leaf.grad_fn is None else own.clone()


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


def program_of_call(call: Call) -> Program:
    """The program of a call, with the values of its inputs. Raises Inexpressible."""
    tensors = list(call.inputs.values())

    def function(*given: torch.Tensor) -> Any:
        places = {id(tensor): new for tensor, new in zip(tensors, given, strict=True)}

        def change(leaf: Any) -> Any:
            return places.get(id(leaf), leaf)

        return call.function(*rebuilt(call.args, change), **rebuilt(call.kwargs, change))

    return program_of(function, tensors)


def shown_by_program(call: Call, report: Report, task: Task, log: Journal) -> str:
    """The text of the call's program where that shows the report's worst signature too; "" where none does."""
    try:
        program = replace(program_of_call(call), settings=call.settings)
        told = report_program(program, task, log)
    except Exception:  # whatever keeps a function from being written down: the verdict stands without a program
        return ""
    finally:
        call.around.restore(gradients=True)
    wanted = report.verdicts[0].signature
    return show(program) if any(follows(wanted, verdict.signature) for verdict in told.verdicts) else ""
