"""Operations that the rounding model does not know, and the tensors that depend on them.

The model knows an ATen kernel that has a row (`kernels`), a view in place and the copy of a view. Any other operation
is replayed as compound, but nothing has tried whether the floors of its results hold: an operator of a library
(`torch.library.custom_op`), and an ATen kernel that no op of the tables calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from fuzzer.rounding.arithmetic import VIEWS
from fuzzer.rounding.kernels import UNNAMED, kernel
from fuzzer.rounding.trace import Ref, Step, Trace, full_name, is_rounded, mapped, once


@once
def unmodelled(step: Step) -> str:
    """The operation's full name, e.g. `aten._ctc_loss`, where the model does not know it; "" where it does.

    An operation that fills nothing rounded needs no model. Neither does one that draws random numbers and reads none:
    they are replayed as drawn.
    """
    if not any(map(is_rounded, step.results)) or kernel(step) is not UNNAMED or not VIEWS.isdisjoint(step.op.tags):
        return ""
    reads = any(is_rounded(ref) and ref not in step.writes for ref in step.inputs)
    return full_name(step.op) if reads or not step.recorded else ""


ITEM = "a number that left torch (item)"


def dependent(
    trace: Trace, refs: Mapping[str, Ref], unseen: Mapping[int, str] = MappingProxyType({})
) -> dict[str, tuple[str, ...]]:
    """The operations unknown to the model on which each of these tensors depends, in the order in which they ran.

    unseen  storages that something made which the recorder does not see, by number, each with a name for it.

    A Python number that is read from a floating tensor rounds as that tensor does, and the trace holds it as exact:
    each step behind it that takes such a number depends on it.
    """
    held = {storage: {name} for storage, name in unseen.items()}
    ran = dict.fromkeys(unseen.values())
    left = False
    for step in trace.steps:
        left = left or (step.op is torch.ops.aten._local_scalar_dense.default and any(map(is_rounded, step.inputs)))
        inputs = () if kernel(step).reads_geometry else step.inputs
        told = set().union(*(held.get(ref.storage, ()) for ref in inputs))
        for name in (unmodelled(step), ITEM if left and _takes_number(step) else ""):
            if name:
                told.add(name)
                ran[name] = None
        for ref in step.results:  # a write may leave other elements as they were
            held[ref.storage] = told | held.get(ref.storage, set()) if ref.storage in step.written else told
    return {name: tuple(op for op in ran if op in held.get(ref.storage, ())) for name, ref in refs.items()}


def _takes_number(step: Step) -> bool:
    """Whether a Python number that is not whole is among the arguments."""
    found: list[bool] = []
    mapped((step.args, step.kwargs), lambda leaf: found.append(isinstance(leaf, float) and not leaf.is_integer()))
    return any(found)
