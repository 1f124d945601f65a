"""Record eager's ATen operations once, forward and backward."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzer.language.private import backward_is_running, in_memory, is_higher_order, negated
from fuzzer.rounding.kernels import named
from fuzzer.rounding.trace import Ref, Step, Trace, bound, mapped, name_of, refs_in, tensors_in, widened


class HigherOrder(NotImplementedError):
    """Code under a recorder calls a higher-order operator; the message names it."""


class Recorder(TorchDispatchMode):
    """Records every ATen call made under it. `with recorder: run eager`, then `recorder.trace`. A higher-order operator
    (cond, scan, flex_attention) raises HigherOrder: its inside shows only while it is compiled."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.trace = Trace()
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # an address names a storage only while the storage lives
        self._autocast = Autocast()

    def __enter__(self) -> Self:
        self._autocast.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._autocast.__exit__(*error)

    def given(self, role: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Record tensors that exist before the first step, by name."""
        refs = {name: self.ref(tensor) for name, tensor in tensors.items()}
        self.trace.given |= refs
        self.trace.roles |= {ref.storage: role for ref in refs.values()}

    def ref(self, tensor: torch.Tensor, known: bool = False) -> Ref:
        """The Ref of a tensor; a new storage is copied as it is now, unless a step just made it."""
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = len(self._alive)
            self._numbers[storage._cdata] = number
            self._alive.append(storage)
            elements = storage.nbytes() // tensor.element_size()
            self.trace.sizes[number] = elements
            if not known:
                self.trace.initial[number] = _flat(tensor, elements).clone()
        geometry = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
        return Ref(number, tensor.dtype, *geometry, tensor.is_conj(), tensor.is_neg())

    def outside(self, known: Collection[int]) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Storages that no step made, beside those of `known` addresses and given tensors: the number of each, the
        storage as a flat tensor, and a copy of its first contents."""
        given = {ref.storage for ref in self.trace.given.values()}
        for number, first in self.trace.initial.items():
            storage = self._alive[number]
            if number not in given and storage._cdata not in known:
                yield number, torch.empty(0, dtype=first.dtype, device=first.device).set_(storage), first

    def _tree(self, tree: Any, known: bool = False) -> Any:
        return mapped(tree, lambda leaf: self.ref(leaf, known) if isinstance(leaf, torch.Tensor) else leaf)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_higher_order(func):
            raise HigherOrder(f"it calls the higher-order operator {func}, whose inside cannot be recorded")
        if _holds_no_data((args, kwargs)):
            return func(*args, **kwargs)
        args, kwargs = mapped(
            (tuple(args), kwargs), lambda leaf: in_memory(leaf) if isinstance(leaf, torch.Tensor) else leaf
        )
        given, named = self._tree(tuple(args)), self._tree(kwargs)
        with self._autocast.inside(func, args):
            out = func(*args, **kwargs)
        if _holds_no_data(out):
            return out
        before = len(self._alive)
        returned = self._tree(out, known=True)
        outs = tuple(refs_in(returned))
        writes = _written(func, given, named)
        if not writes and outs and all(ref.storage < before for ref in outs):
            if func is torch.ops.aten.lift_fresh.default and not self._autocast.left:  # of torch.tensor(...)
                self.trace.roles[outs[0].storage] = "constant"
            return out  # a view: the Refs that use it hold its geometry
        recorded: dict[int, torch.Tensor] = {}
        if torch.Tag.nondeterministic_seeded in func.tags and not _draws_nothing(func, given, named):
            made = {ref.storage for ref in (*outs, *writes)}
            recorded = {
                self.ref(t).storage: self._wide(t) for t in tensors_in((out, args)) if self.ref(t).storage in made
            }
        step = Step(func, given, named, returned, writes, recorded, backward_is_running(), self._autocast.dtype)
        self.trace.steps.append(step)
        return out

    def _wide(self, tensor: torch.Tensor) -> torch.Tensor:
        flat = _flat(tensor, tensor.untyped_storage().nbytes() // tensor.element_size()).clone()
        return widened(flat)


def _holds_no_data(tree: Any) -> bool:
    """Whether a call has tensors without data: for zeros that it need not compute, torch calls ops on the meta
    device."""
    return any(tensor.is_meta for tensor in tensors_in(tree))


def _flat(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """The contents of the tensor's storage, however the tensor reads it."""
    held = tensor.detach().conj() if tensor.is_conj() else tensor.detach()
    held = negated(held) if held.is_neg() else held
    return torch.as_strided(held, (elements,), (1,), 0)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Ref, ...]:
    """The tensors that a call writes to: those that its schema says, and those that its kernel's row does."""
    unsaid = named(name_of(func)).writes
    if not func._schema.is_mutable and not unsaid:
        return ()
    given = bound(func, args, kwargs)
    training = all(value for argument, value in given if argument.name == "training")
    return tuple(
        ref
        for argument, value in given
        if (argument.alias_info is not None and argument.alias_info.is_write) or (training and argument.name in unsaid)
        for ref in refs_in(value)
    )


def _draws_nothing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an op that is tagged as random is deterministic as called."""
    rule = named(name_of(func)).draws_nothing
    return rule is not None and rule({argument.name: value for argument, value in bound(func, args, kwargs)})


_LEAVE = ("numpy", "__array__", "tolist", "__dlpack__")  # methods of a tensor that hand out its numbers


class Autocast(TorchFunctionMode):
    """The dtype to which autocast casts during each call, None where it is off; in a dispatch mode it is not
    visible. `left`: whether numbers have left torch, which does not dispatch that either."""

    dtype: torch.dtype | None = None
    left = False

    def inside(self, func: Any, args: Any) -> contextlib.AbstractContextManager[Any]:
        """For a kernel that calls products: autocast on again where it was on, so that the result has eager's own
        dtype."""
        if self.dtype is None or not named(name_of(func)).calls_products:
            return contextlib.nullcontext()
        return torch.autocast(tensors_in(args)[0].device.type, dtype=self.dtype)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device = next((leaf.device.type for leaf in tensors_in(args)), "cpu")
        before = self.dtype
        self.left = self.left or getattr(func, "__name__", "") in _LEAVE
        self.dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.dtype = before
