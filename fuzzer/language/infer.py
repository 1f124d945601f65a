"""The types of a program, found by torch: it runs on fake tensors, which have a dtype, sizes and strides and no
data."""

from __future__ import annotations

import random
import warnings
from typing import Any

import torch

from fuzzer.language.errors import UnknownOp, UsageError
from fuzzer.language.interpret import apply, materialise, run_each
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import REQUIRED, Draw, Limits
from fuzzer.language.private import fake_mode, lacks_forward_mode, needs_memory, real_mode
from fuzzer.language.program import Node, Program, Region, TensorType, extent, walk
from fuzzer.language.regions import UnknownRegion
from fuzzer.language.settings import SAME_DRAWS
from fuzzer.language.values import DTYPE_NAMES, TORCH_DTYPES, UnknownRecipe, fill, range_of

_MOST_ELEMENTS = 2**20  # of a node's operands together, up to which they may run on real tensors


class IllTyped(UsageError):
    """A program that torch refuses; the message names the node and gives torch's own reason."""


def type_of(tensor: torch.Tensor) -> TensorType:
    """dtype, sizes and strides of a tensor. Raises IllTyped for a dtype that programs cannot hold."""
    if tensor.dtype not in DTYPE_NAMES:
        raise IllTyped(f"a value of dtype {tensor.dtype}, which programs cannot hold")
    return TensorType(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape), tuple(tensor.stride()))


def infer(program: Program) -> dict[str, TensorType]:
    """The type of every name of the program. Raises IllTyped where torch refuses a node.

    Cotangents are not checked: `check_cotangents` does that. Under autocast the types are those of the CPU; where
    CUDA's autocast gives an output another dtype, autograd casts its cotangent.
    """
    check_draws(program)
    try:
        types = _infer_from_fakes(program)
    except IllTyped as error:
        small = sum(leaf.type.numel for leaf in program.leaves) <= _MOST_ELEMENTS
        if not (lacks_forward_mode(error) and small):
            raise
        types = _infer_from_values(program)
    check_within(program, types)
    return types


def _infer_from_fakes(program: Program) -> dict[str, TensorType]:
    types: dict[str, TensorType] = {}
    room: dict[str, int] = {}  # elements of each leaf's storage; fake tensors do not check it
    with fake_mode(), torch.no_grad(), warnings.catch_warnings(action="ignore"):
        env: dict[str, Any] = {}
        for leaf in program.leaves:
            reach = extent(leaf.shape, leaf.stride, leaf.offset)
            room[leaf.name] = reach if leaf.base is None else room[leaf.base]
            if reach > room[leaf.name]:
                raise IllTyped(f"{leaf.name}: it needs {reach} elements, but its storage has {room[leaf.name]}")
            base = torch.empty(reach, dtype=TORCH_DTYPES[leaf.dtype]) if leaf.base is None else env[leaf.base]
            try:
                env[leaf.name] = torch.as_strided(base, leaf.shape, leaf.stride, leaf.offset)
            except (RuntimeError, TypeError) as error:
                raise IllTyped(f"{leaf.name}: {error}") from None
            env[leaf.name] = env[leaf.name].conj() if leaf.conj else env[leaf.name]
            types[leaf.name] = leaf.type
        _type_body(program, env, types)
    return types


def _infer_from_values(program: Program) -> dict[str, TensorType]:
    """The types from a run on real tensors, with leaves as the program fills them."""
    types = {leaf.name: leaf.type for leaf in program.leaves}
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        _type_body(program, dict(materialise(program.leaves)), types)
    return types


def _type_body(program: Program, env: dict[str, Any], types: dict[str, TensorType]) -> None:
    """Add the types of the results that the program computes from these leaves. Raises IllTyped."""
    try:
        run_each(program, env, lambda node: _type_node(node, env, types))
    except (UnknownRegion, IllTyped) as error:
        raise IllTyped(str(error)) from None
    except Exception as error:  # a region that torch refuses
        raise IllTyped(f"a region: {_reason(error)}") from None
    types |= {name: type_of(env[name]) for name in _region_results(program)}


def _region_results(program: Program) -> list[str]:
    """The names bound in regions, which may have another type outside."""
    regions = (s for s in program.body if isinstance(s, Region))
    return [name for region in regions for node in walk(region.body) for name in node.outs]


def _reason(error: Exception) -> str:
    """An error's message in one line."""
    told = str(error).strip()
    return told.splitlines()[0] if told else type(error).__name__


def _type_node(node: Node, env: dict[str, Any], types: dict[str, TensorType]) -> None:
    _check_required(node)
    try:
        apply(node, env)
    except UnknownOp as error:
        raise IllTyped(str(error)) from None
    except Exception as error:  # torch raises nearly every type of exception here; each means that it refuses
        if not (needs_memory(error) and _apply_to_ones(node, env, types)):
            raise IllTyped(f"{', '.join(node.outs)} = {node.op}(...): {_reason(error)}") from None
    for name in node.outs:
        types[name] = type_of(env[name])


def _apply_to_ones(node: Node, env: dict[str, Any], types: dict[str, TensorType]) -> bool:
    """Run a node on tensors of ones with its operands' types; bind fake tensors of its results' types. Returns whether
    it ran."""
    sizes = {name: extent(types[name].shape, types[name].stride) for name in node.uses if name in types}
    if len(sizes) < len(set(node.uses)) or sum(sizes.values()) > _MOST_ELEMENTS:
        return False
    with real_mode():
        real: dict[str, Any] = {}
        for name, size in sizes.items():
            ones = torch.ones(size, dtype=TORCH_DTYPES[types[name].dtype])
            real[name] = ones.as_strided(types[name].shape, types[name].stride)
        try:
            apply(node, real)
        except Exception:  # the node is ill-typed
            return False
    for name in node.outs:
        found = real[name]
        env[name] = torch.empty_strided(found.shape, found.stride(), dtype=found.dtype)
    return True


def check_draws(program: Program) -> None:
    """Raise IllTyped where a program with a random op lacks the setting under which both sides draw the same."""
    drawing = [node.op for node in program.nodes if node.op in OPS and OPS[node.op].random]
    if drawing and SAME_DRAWS not in program.settings:
        raise IllTyped(f"{drawing[0]} draws random numbers: the program needs the setting {SAME_DRAWS[0]}")


def _check_required(node: Node) -> None:
    """Raise IllTyped where an attribute without a default is not given (torch guesses some of them)."""
    given = {name for name, _ in node.attrs}
    for attribute in OPS[node.op].attributes if node.op in OPS else ():
        if attribute.default is REQUIRED and attribute.name not in given:
            raise IllTyped(f"{', '.join(node.outs)} = {node.op}(...): {attribute.name}=... is missing")


def check_within(program: Program, types: dict[str, TensorType]) -> None:
    """Raise IllTyped where a leaf holds values that its reader neither accepts nor checks (`Operand.within`)."""
    leaves = {leaf.name: leaf for leaf in program.leaves}
    for node in program.nodes:
        if node.op not in OPS:
            continue
        for operand, name in zip(OPS[node.op].operands, node.args, strict=False):
            leaf = leaves.get(name) if isinstance(name, str) else None
            if not operand.within or operand.recipe is None or leaf is None or leaf.base is not None:
                continue
            known = [types[arg] if isinstance(arg, str) else None for arg in node.args]
            low, high = range_of(operand.recipe(Draw(random.Random(0), Limits(), known, dict(node.attrs))))
            try:
                held = fill(leaf.values, leaf.seed, leaf.dtype, leaf.shape)
            except UnknownRecipe as error:
                raise IllTyped(f"{leaf.name}: {error}") from None
            greatest = torch.tensor(high, dtype=torch.float64).to(held.dtype)  # rounded like the drawn values
            if beyond := held[(held < low) | (held > greatest)].tolist():
                raise IllTyped(f"{leaf.name}: {node.op} takes values from {low} to {high}, not {beyond[0]}")


def check_cotangents(program: Program, types: dict[str, TensorType]) -> None:
    """Raise IllTyped where a cotangent does not have the shape and dtype of its output."""
    for output in program.outputs:
        c, t = output.cotangent, types[output.value]
        if c is not None and (c.dtype, c.shape) != (t.dtype, t.shape):
            declared, real = f"{c.dtype}{list(c.shape)}", f"{t.dtype}{list(t.shape)}"
            raise IllTyped(f"the cotangent of {output.value} is {declared}, the value {real}")
