"""Types by asking torch: the program runs on fake tensors, which have a dtype, sizes and strides and no data."""

from __future__ import annotations

from typing import Any

import torch

from fuzzer.interpret import UnknownOp, apply
from fuzzer.private import fake_mode
from fuzzer.program import Program, TensorType, extent
from fuzzer.values import NAMES, TORCH_DTYPES


class IllTyped(ValueError):
    """A program that torch refuses; the message names the node and gives torch's own reason."""


def type_of(tensor: torch.Tensor) -> TensorType:
    """dtype, sizes and strides of a tensor. Raises IllTyped for a dtype that programs cannot hold."""
    if tensor.dtype not in NAMES:
        raise IllTyped(f"a value of dtype {tensor.dtype}, which programs cannot hold")
    return TensorType(NAMES[tensor.dtype], tuple(tensor.shape), tuple(tensor.stride()))


def infer(program: Program) -> dict[str, TensorType]:
    """The type of every name of the program. Raises IllTyped where torch refuses a node.

    Cotangents are not looked at: `check_cotangents` does that.
    """
    types: dict[str, TensorType] = {}
    with fake_mode(), torch.no_grad():
        env: dict[str, Any] = {}
        for leaf in program.leaves:
            flat = torch.empty(extent(leaf.shape, leaf.stride, leaf.offset), dtype=TORCH_DTYPES[leaf.dtype])
            base = flat if leaf.base is None else env[leaf.base]
            try:
                env[leaf.name] = torch.as_strided(base, leaf.shape, leaf.stride, leaf.offset)
            except (RuntimeError, TypeError) as error:
                raise IllTyped(f"{leaf.name}: {error}") from None
            types[leaf.name] = leaf.type
        for node in program.nodes:
            try:
                apply(node, env)
            except UnknownOp as error:
                raise IllTyped(str(error)) from None
            except Exception as error:  # torch raises nearly every type here; it is the answer to our question
                reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                raise IllTyped(f"{', '.join(node.outs)} = {node.op}(...): {reason}") from None
            for name in node.outs:
                types[name] = type_of(env[name])
    return types


def check_cotangents(program: Program, types: dict[str, TensorType]) -> None:
    """Raise IllTyped where a cotangent has not the shape and dtype of its output."""
    for output in program.outputs:
        c, t = output.cotangent, types[output.value]
        if c is not None and (c.dtype, c.shape) != (t.dtype, t.shape):
            raise IllTyped(f"the cotangent of {output.value} is {c.dtype}{list(c.shape)}, the value {t.dtype}{list(t.shape)}")
