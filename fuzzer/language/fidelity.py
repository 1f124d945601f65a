"""Whether a program computes what a function computes, bit by bit; and the function's own tensors left as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzer.language.function import tree_leaves
from fuzzer.language.private import memory_of, without_overrides
from fuzzer.language.randomness import random_state, set_random_state
from fuzzer.language.values import DTYPE_NAMES


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in order."""
    return [leaf for _, leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


class Memory(TorchDispatchMode):
    """Sees every operation on tensors, in a jit callee too.

    before  by `memory_of`: the storages from before that an operation took, each with a copy of its contents then.
    made    by `memory_of`: the storages that operations made; kept, so that no other takes such a number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.made: dict[int, torch.UntypedStorage] = {}
        self._free: list[torch.Tensor] = []  # tensors from before without a history

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with without_overrides():
            for tensor in tensors_in([*args, *(kwargs or {}).values()]):
                self.note(tensor)
            result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            if tensor.layout == torch.strided and memory_of(tensor) not in self.before:
                self.made[memory_of(tensor)] = tensor.untyped_storage()
        return result

    def note(self, tensor: torch.Tensor) -> None:
        """Copy the contents of a tensor from before that was not seen yet."""
        if tensor.layout == torch.strided and (key := memory_of(tensor)) not in self.before.keys() | self.made.keys():
            storage = tensor.untyped_storage()
            self.before[key] = (storage, storage.clone())
            self._free += [tensor] if tensor.grad_fn is None else []

    def changed(self) -> set[int]:
        """The storages from before that hold something else now."""
        return {key for key, (now, then) in self.before.items() if not torch.equal(whole(now), whole(then))}

    def restore(self) -> None:
        """Put back what the tensors from before held, and that they had no history."""
        for now, then in self.before.values():
            if now.nbytes() != then.nbytes():
                now.resize_(then.nbytes())
            now.copy_(then)
        for tensor in self._free:
            if tensor.grad_fn is not None:
                tensor.detach_()


def whole(storage: torch.UntypedStorage, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """All that a storage holds."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage)


@contextlib.contextmanager
def untouched() -> Iterator[Memory]:
    """Afterwards tensors from before that the Memory saw hold what they held, and random generators give what they
    would have given."""
    memory, drawn = Memory(), random_state()
    try:
        yield memory
    finally:
        memory.restore()
        set_random_state(drawn)


def copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same contents in new memory, with the same strides and offsets; tensors that share memory share it."""
    storages = {memory_of(t): t.untyped_storage() for t in tensors}
    copied = {key: storage.clone() for key, storage in storages.items()}
    return [placed(t, copied[memory_of(t)]) for t in tensors]


def placed(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """A tensor of the same type, strides and offset that reads this storage."""
    new = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    new = new.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return new.conj() if tensor.is_conj() else new


# ---------------------------------------------------------------- the comparison


@dataclass(frozen=True)
class Result:
    """A tensor as it was at one moment."""

    type: tuple[Any, ...]  # dtype, sizes, strides, whether it requires a gradient
    bits: torch.Tensor


def _result(tensor: torch.Tensor) -> Result:
    kept = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach().flatten())
    return Result((tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad), kept.view(torch.uint8))


Results = dict[str, Result | None]


def observe(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    wanted: Mapping[str, torch.Tensor],
    held: Mapping[str, torch.Tensor],
    cotangents: Sequence[torch.Tensor],
) -> Results:
    """What function(*inputs) gives: its outputs, the gradients of the wanted tensors for these cotangents (None: there
    is none), and what the held ones hold afterwards.

    An output that is returned twice counts once. Whatever the function or its backward raises comes through.
    """
    with torch.enable_grad():
        outputs = list({id(t): t for t in tensors_in(function(*inputs))}.values())
    found: Results = {f"output {i}": _result(t) for i, t in enumerate(outputs)}
    afterwards = {f"what {name} holds afterwards": _result(tensor) for name, tensor in held.items()}
    seeded = [t for t in outputs if t.requires_grad]
    if wanted and len(seeded) == len(cotangents):
        grads = torch.autograd.grad(seeded, list(wanted.values()), cotangents, allow_unused=True)
        given = zip(wanted, grads, strict=True)
        found |= {f"the gradient of {name}": None if g is None else _result(g) for name, g in given}
    return found | afterwards


def first_difference(own: Results, said: Results) -> str:
    """The first result of the function that a transcript gives otherwise, in words; "" where all are the same."""
    for name in dict.fromkeys([*own, *said]):
        mine, other = own.get(name), said.get(name)
        if mine is None or other is None:
            if mine is not other:
                return f"{name}: {_words(mine)}, in the transcript {_words(other)}"
        elif mine.type != other.type:
            return f"{name}: {_words(mine)}, in the transcript {_words(other)}"
        elif not torch.equal(mine.bits, other.bits):
            size = mine.type[0].itemsize
            parts = (mine.bits != other.bits).reshape(-1, size).any(1)
            return f"{name}: {int(parts.sum())} of {len(parts)} elements differ from the transcript's"
    return ""


def _words(result: Result | None) -> str:
    if result is None:
        return "none"
    dtype, shape, stride, grad = result.type
    return f"{DTYPE_NAMES.get(dtype, dtype)}{list(shape)} of strides {stride}{' with a gradient' * grad}"
