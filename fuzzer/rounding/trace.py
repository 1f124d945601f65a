"""A trace: eager's ATen operations in the order in which they ran, forward and backward.

A trace refers to storages, not to tensor objects: autograd returns saved tensors as new objects over the same storage,
and in-place writes and views must affect each other in the replay as in eager. So a tensor is a `Ref` (storage number
and geometry), and a view costs nothing (its geometry is in the Ref).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from fuzzer.language.devices import synchronise


@dataclass(frozen=True)
class Ref:
    """A tensor in a trace: its storage's number, dtype, sizes, strides and offset (elements).

    conj: it reads its storage's complex numbers conjugated (a lazy conjugation is a view).  neg: negated (so is the
    imaginary part of a lazy conjugation).
    """

    storage: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conj: bool = False
    neg: bool = False

    @property
    def numel(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


@dataclass(frozen=True)
class Step:
    """One ATen call: its arguments and results (Refs in place of tensors), and which arguments it wrote to.

    recorded: outputs of random ops, to be replayed as drawn (flat float64 buffers by storage number).
    backward: autograd called it in a backward.
    autocast: the dtype to which autocast casts, where it was on: kernels may call products that it casts.
    narrow: whether the compiled side may keep its partial sums in the tensors' own dtype.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    returned: Any
    writes: tuple[Ref, ...]
    recorded: dict[int, torch.Tensor] = field(default_factory=dict)
    backward: bool = False
    autocast: torch.dtype | None = None
    narrow: bool = False

    @functools.cached_property
    def name(self) -> str:
        """The op's name (`name_of`)."""
        return name_of(self.op)

    @functools.cached_property
    def outs(self) -> tuple[Ref, ...]:
        return tuple(refs_in(self.returned))

    @functools.cached_property
    def results(self) -> tuple[Ref, ...]:
        """The tensors that the op filled: those it wrote to, and further ones it returned."""
        return (*self.writes, *(ref for ref in self.outs if ref.storage not in self.written))

    @functools.cached_property
    def written(self) -> frozenset[int]:
        """The storages that the op wrote to."""
        return frozenset(ref.storage for ref in self.writes)

    @functools.cached_property
    def inputs(self) -> tuple[Ref, ...]:
        return tuple(refs_in((self.args, self.kwargs)))


def full_name(op: Any) -> str:
    """An op's name with its namespace and without its overload, e.g. `aten.add_`."""
    name: str = op._schema.name
    return name.replace("::", ".")


def name_of(op: Any) -> str:
    """An ATen op's name without namespace, overload or the in-place underscore, e.g. `add`; the full name of any other
    op, whose kernel is another though its name be the same."""
    namespace, _, name = full_name(op).partition(".")
    if namespace != "aten":
        return full_name(op)
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


Told = TypeVar("Told")


def once(function: Callable[[Step], Told]) -> Callable[[Step], Told]:
    """The same function of a step, computed once for each: a step never changes, and every replica calls it again."""
    key = f"once {function.__qualname__}"

    @functools.wraps(function)
    def asked(step: Step) -> Told:
        known = step.__dict__
        if key not in known:
            known[key] = function(step)
        return known[key]  # type: ignore[no-any-return]

    return asked


def is_rounded(ref: Ref) -> bool:
    """Whether it holds floating or complex numbers."""
    return ref.dtype.is_floating_point or ref.dtype.is_complex


def refs_in(tree: Any) -> Iterator[Ref]:
    """Every Ref in nested lists, tuples and dicts."""
    if isinstance(tree, Ref):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from refs_in(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from refs_in(item)


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The nested structure with every leaf replaced by change(leaf)."""
    if isinstance(tree, tuple):
        return tuple([mapped(item, change) for item in tree])  # a list is quicker than a generator
    if isinstance(tree, list):
        return [mapped(item, change) for item in tree]
    if isinstance(tree, dict):
        return {key: mapped(item, change) for key, item in tree.items()}
    return change(tree)


@dataclass
class Trace:
    """A recording: the steps in order, the contents of every storage that no step made, and the steps' storages.

    roles: the kind of a storage that no step made: the program's `leaf` or `cotangent`, or `constant` of torch.tensor.
    given: the tensors that existed before, by name: leaves (`x0`) and cotangents (`c0`).
    devices: those of both sides, whose eager kernels show how they read scalars (`scalars`).
    """

    steps: list[Step] = field(default_factory=list)
    initial: dict[int, torch.Tensor] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    given: dict[str, Ref] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu",)

    def on(self, device: str) -> Trace:
        """The same recording with its contents on this device."""

        flats = [self.initial, *(step.recorded for step in self.steps)]
        moved = iter(moved_to(device, [flat for held in flats for flat in held.values()]))
        initial, *recorded = [dict(zip(held, moved, strict=False)) for held in flats]
        steps = [replace(s, recorded=r) if r else s for s, r in zip(self.steps, recorded, strict=True)]
        return replace(self, steps=steps, initial=initial)

    def digest(self) -> str:
        """A hash of all on which a replay depends: the steps and the contents that no step made."""
        found = hashlib.blake2b(repr(self.devices).encode())
        for step in self.steps:
            told = [getattr(step, part) for part in Step.__dataclass_fields__ if part != "recorded"]
            found.update(repr(told).encode())
        for held in (self.initial, *(step.recorded for step in self.steps)):
            for number, flat in held.items():
                found.update(f"{number} {flat.dtype}".encode())
                found.update(flat.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return found.hexdigest()

    def __str__(self) -> str:
        return "\n".join(show_step(step) for step in self.steps)


def show_step(step: Step) -> str:
    """One line a step: results with dtype, sizes and strides, then the call."""

    def show(leaf: Any) -> str:
        if isinstance(leaf, Ref):
            kind = str(leaf.dtype).removeprefix("torch.")
            return f"s{leaf.storage}:{kind}{list(leaf.shape)}/{list(leaf.stride)}"
        return repr(leaf)

    given = ", ".join(str(mapped(a, show)).replace("'", "") for a in step.args)
    named = "".join(f", {k}={mapped(v, show)}" for k, v in step.kwargs.items())
    return f"{', '.join(map(show, step.outs))} = {step.op._schema.name}({given}{named})"


def bound(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The schema's arguments with their values."""
    found = []
    for i, argument in enumerate(op._schema.arguments):
        if i < len(args) and not argument.kwarg_only:
            found.append((argument, args[i]))
        elif argument.name in kwargs:
            found.append((argument, kwargs[argument.name]))
    return found


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Every tensor in nested lists, tuples and dicts, in the order of `refs_in`."""
    found: list[torch.Tensor] = []
    mapped(tree, lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None)
    return found


def moved_to(device: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors on another device, with one wait for all of them: on a GPU shared by many processes each wait may
    cost a turn of all others."""
    moved = [tensor.to(device, non_blocking=True) for tensor in tensors]
    for waited in {tensor.device for tensor in tensors}:
        synchronise(waited)
    return moved


def widened(flat: torch.Tensor) -> torch.Tensor:
    """float64 where it was floating, complex128 where it was complex."""
    if flat.dtype.is_complex:
        return flat.to(torch.complex128)
    return flat.double() if flat.dtype.is_floating_point else flat
