"""A function's torch calls, cut into programs of at most a dozen ops with the values that they met.

Here a call that no op says is a place to cut: its results become leaves. So do the results of a piece that a later one
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fuzzer.language.fidelity import untouched
from fuzzer.language.infer import IllTyped, infer, type_of
from fuzzer.language.ops import OPS
from fuzzer.language.program import (
    Cotangent,
    Leaf,
    Output,
    Program,
    ProgramError,
    Statement,
    canonical,
    contiguous,
    outer_reads,
    walk,
)
from fuzzer.language.settings import SAME_DRAWS
from fuzzer.language.transcribe import Inexpressible, Transcript, recipe_of

MOST_NODES = 12


def pieces(function: Callable[..., Any], inputs: Sequence[torch.Tensor], most: int = MOST_NODES) -> list[Program]:
    """Programs of one call function(*inputs), in its order; every floating input requires a gradient. Its tensors and
    random generators are afterwards as they were. Raises Inexpressible where no piece has a gradient, and whatever the
    function raises."""
    with untouched() as memory:
        transcript = Transcript(memory, cuts=set())
        given = [t.detach().requires_grad_(t.is_floating_point() or t.is_complex()) for t in inputs]
        for tensor in given:
            transcript.name(tensor)
        with torch.enable_grad(), memory, transcript:
            function(*given)
        found = list(_cut(transcript, most))
    if not found:
        raise Inexpressible(transcript.missing or ["a function without a differentiable result"])
    return found


def _cut(transcript: Transcript, most: int) -> Iterator[Program]:
    """Programs of the transcript's statements, cut where a call is no node, and at so many nodes; those that have a
    type and a gradient."""
    part: list[Statement] = []
    for place, statement in enumerate(transcript.body):
        long = sum(1 for _ in walk((*part, statement))) > most
        if part and (long or place in (transcript.cuts or ())):
            yield from _program(transcript, tuple(part))
            part = []
        part.append(statement)
    yield from _program(transcript, tuple(part))


def _program(transcript: Transcript, body: tuple[Statement, ...]) -> Iterator[Program]:
    """The program of these statements, if it is one: what they read from outside are its leaves, and results that none
    of them reads its outputs."""
    read = {name for node in walk(body) for name in node.uses}
    results = [name for node in walk(body) for name in node.outs if name not in read]
    settings = (SAME_DRAWS,) if any(OPS[node.op].random for node in walk(body)) else ()
    tensors = transcript.tensors
    try:
        leaves = tuple(_leaf(name, tensors[name], seed) for seed, name in enumerate(outer_reads(body), 1))
        outputs = tuple(Output(name, _cotangent(tensors[name], seed)) for seed, name in
                        enumerate(results, len(leaves) + 1))  # fmt: skip
        program = canonical(Program(leaves, body, outputs, settings=settings))
        infer(program)
    except (IllTyped, ProgramError):  # no program holds such a dtype; it reads what was overwritten, or writes a leaf
        return
    if any(output.cotangent for output in outputs):
        yield program


def _leaf(name: str, tensor: torch.Tensor, seed: int) -> Leaf:
    """A leaf of a tensor's type and layout, and with its values if they are few."""
    t = type_of(tensor)
    values, exact = recipe_of(tensor)
    return Leaf(name, t.dtype, t.shape, t.stride, tensor.storage_offset(), tensor.requires_grad, values,
                0 if exact else seed, conj=tensor.is_conj())  # fmt: skip


def _cotangent(tensor: torch.Tensor, seed: int) -> Cotangent | None:
    t = type_of(tensor)
    return Cotangent(t.dtype, t.shape, contiguous(t.shape), seed=seed) if tensor.requires_grad else None
