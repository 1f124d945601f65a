"""Record eager's ATen operations once, forward and backward; replay them in float64, exactly or perturbed.

A recording speaks of storages, not of tensor objects: autograd hands saved tensors out as new objects over the same
storage, and in-place writes and views must meet in the replay as they met in eager. So a tensor is a `Ref` (storage
number and geometry), a view costs nothing (its geometry is in the Ref), and the replay keeps one flat float64 buffer
a storage.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzer.private import in_backward, negated


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
    """One ATen call: what went in and was returned (Refs in place of tensors), and which arguments it wrote to.

    recorded: outputs of random ops, to be replayed as drawn (flat float64 buffers by storage number).
    backward: autograd called it, on its way back.
    autocast: the dtype that autocast casts to, where it was on: kernels may call products that it casts.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    returned: Any
    writes: tuple[Ref, ...]
    recorded: dict[int, torch.Tensor] = field(default_factory=dict)
    backward: bool = False
    autocast: torch.dtype | None = None

    @functools.cached_property
    def name(self) -> str:
        """The op's name without namespace, overload or the in-place underscore, e.g. `add`."""
        name = self.op._schema.name.split("::")[1]
        return name[:-1] if name.endswith("_") and not name.endswith("__") else name

    @functools.cached_property
    def outs(self) -> tuple[Ref, ...]:
        return tuple(refs_in(self.returned))

    @functools.cached_property
    def results(self) -> tuple[Ref, ...]:
        """Where the op put numbers: what it wrote to, and what it returned beside that."""
        return (*self.writes, *(ref for ref in self.outs if ref.storage not in self.written))

    @functools.cached_property
    def written(self) -> frozenset[int]:
        """The storages that the op wrote to."""
        return frozenset(ref.storage for ref in self.writes)

    @functools.cached_property
    def precision(self) -> torch.dtype | None:
        """The dtype in which kernels read scalar operands; None where they are kept in double."""
        if "upsample" in self.name:  # scale factors are
            return None
        return next((ref.dtype.to_real() for ref in (*self.inputs, *self.results) if is_rounded(ref)), None)

    @functools.cached_property
    def inputs(self) -> tuple[Ref, ...]:
        return tuple(refs_in((self.args, self.kwargs)))


Told = TypeVar("Told")


def once(function: Callable[[Step], Told]) -> Callable[[Step], Told]:
    """The same function of a step, computed once for each: a step never changes, and every replica asks again."""
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
        return tuple([mapped(item, change) for item in tree])  # through a list: quicker than a generator
    if isinstance(tree, list):
        return [mapped(item, change) for item in tree]
    if isinstance(tree, dict):
        return {key: mapped(item, change) for key, item in tree.items()}
    return change(tree)


@dataclass
class Trace:
    """A recording: the steps in order, the contents of every storage that no step made, and the steps' storages.

    roles: what the program calls a storage that was there before (`leaf`, `cotangent`).
    given: the tensors that were there before, by name: leaves (`x0`) and cotangents (`c0`).
    """

    steps: list[Step] = field(default_factory=list)
    initial: dict[int, torch.Tensor] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    given: dict[str, Ref] = field(default_factory=dict)

    def on(self, device: str) -> Trace:
        """The same recording with its contents on this device."""

        flats = [self.initial, *(step.recorded for step in self.steps)]
        moved = iter(moved_to(device, [flat for held in flats for flat in held.values()]))
        initial, *recorded = [dict(zip(held, moved, strict=False)) for held in flats]
        steps = [replace(s, recorded=r) if r else s for s, r in zip(self.steps, recorded, strict=True)]
        return replace(self, steps=steps, initial=initial)

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


class Recorder(TorchDispatchMode):
    """Records every ATen call made under it. `with recorder: run eager`, then `recorder.trace`."""

    def __init__(self) -> None:
        super().__init__()
        self.trace = Trace()
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # a storage's address is its name only while it lives
        self._autocast = Autocast()

    def __enter__(self) -> Self:
        self._autocast.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._autocast.__exit__(*error)

    def given(self, role: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Record tensors that are there before the first step, by name."""
        refs = {name: self.ref(tensor) for name, tensor in tensors.items()}
        self.trace.given |= refs
        self.trace.roles |= {ref.storage: role for ref in refs.values()}

    def ref(self, tensor: torch.Tensor, known: bool = False) -> Ref:
        """The Ref of a tensor; a storage not met before is copied as it is now, unless a step just made it."""
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

    def _tree(self, tree: Any, known: bool = False) -> Any:
        return mapped(tree, lambda leaf: self.ref(leaf, known) if isinstance(leaf, torch.Tensor) else leaf)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given, named = self._tree(tuple(args)), self._tree(kwargs)
        with self._autocast.inside(func, args):
            out = func(*args, **kwargs)
        before = len(self._alive)
        returned = self._tree(out, known=True)
        outs = tuple(refs_in(returned))
        writes = tuple(
            ref
            for argument, value in (_bound(func, given, named) if func._schema.is_mutable else ())
            if argument.alias_info is not None and argument.alias_info.is_write
            for ref in refs_in(value)
        )
        if not writes and outs and all(ref.storage < before for ref in outs):
            return out  # a view: its geometry is in the Refs that use it
        recorded: dict[int, torch.Tensor] = {}
        if torch.Tag.nondeterministic_seeded in func.tags and not _draws_nothing(func, given, named):
            made = {ref.storage for ref in (*outs, *writes)}
            recorded = {
                self.ref(t).storage: self._wide(t) for t in tensors_in((out, args)) if self.ref(t).storage in made
            }
        step = Step(func, given, named, returned, writes, recorded, in_backward(), self._autocast.dtype)
        self.trace.steps.append(step)
        return out

    def _wide(self, tensor: torch.Tensor) -> torch.Tensor:
        flat = _flat(tensor, tensor.untyped_storage().nbytes() // tensor.element_size()).clone()
        return widened(flat)


def _flat(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """What the tensor's storage holds, whatever way the tensor reads it."""
    held = tensor.detach().conj() if tensor.is_conj() else tensor.detach()
    held = negated(held) if held.is_neg() else held
    return torch.as_strided(held, (elements,), (1,), 0)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Every tensor in nested lists, tuples and dicts, in the order of `refs_in`."""
    found: list[torch.Tensor] = []
    mapped(tree, lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None)
    return found


def moved_to(device: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors on another device, with one wait for all of them: on a GPU that many processes share each wait may
    cost a turn of all others."""
    moved = [tensor.to(device, non_blocking=True) for tensor in tensors]
    for waited in {tensor.device for tensor in tensors if tensor.is_cuda}:
        torch.cuda.synchronize(waited)
    return moved


# Kernels that call matrix products, which autocast casts inside them too.
CALLING_PRODUCTS = frozenset(("affine_grid_generator", "_trilinear"))


class Autocast(TorchFunctionMode):
    """The dtype that autocast casts to during each call, None where it is off; below, dispatch modes hide it."""

    dtype: torch.dtype | None = None

    def inside(self, func: Any, args: Any) -> contextlib.AbstractContextManager[Any]:
        """For a kernel below that calls products: on again where it is on, so that its result has eager's own dtype."""
        if self.dtype is None or func._schema.name.removeprefix("aten::") not in CALLING_PRODUCTS:
            return contextlib.nullcontext()
        return torch.autocast(tensors_in(args)[0].device.type, dtype=self.dtype)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device = next((leaf.device.type for leaf in tensors_in(args)), "cpu")
        before = self.dtype
        self.dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.dtype = before


def _draws_nothing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an op that is tagged as random is deterministic as called: rrelu outside training (its default)."""
    if "rrelu" not in func._schema.name:
        return False
    return not any(argument.name == "training" and value is True for argument, value in _bound(func, args, kwargs))


def _dropped(step: Step) -> tuple[Ref, float]:
    """native_dropout's mask and 1 / (1 - p)."""
    chance = step.args[1]
    return step.outs[1], 1 / (1 - chance) if chance < 1 else 0.0


# Random kernels whose result also depends on an operand: from a step, what was drawn and the factor beside it.
MASKED: dict[str, Callable[[Step], tuple[Ref, float]]] = {
    "native_dropout": _dropped,
    "rrelu_with_noise": lambda step: (step.args[1], 1.0),  # the noise is 1 where the operand is positive
    "rrelu_with_noise_functional": lambda step: (step.outs[1], 1.0),
}


def _paired(refs: Any, values: Any) -> Iterator[tuple[Ref, torch.Tensor]]:
    """Refs with the tensors in the same places; a kernel may return more or fewer than it was asked for (mkldnn)."""
    if isinstance(refs, Ref):
        if isinstance(values, torch.Tensor):
            yield refs, values
    elif isinstance(refs, list | tuple):
        for ref, value in zip(refs, values, strict=True):
            yield from _paired(ref, value)


def _bound(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The schema's arguments with what was given for them."""
    found = []
    for i, argument in enumerate(func._schema.arguments):
        if i < len(args) and not argument.kwarg_only:
            found.append((argument, args[i]))
        elif argument.name in kwargs:
            found.append((argument, kwargs[argument.name]))
    return found


class Perturbation(Protocol):
    """What a replay may do to the numbers around a step (see `rounding`)."""

    def initial(self, flat: torch.Tensor) -> torch.Tensor: ...

    def scalar(self, value: float, dtype: torch.dtype) -> float: ...

    def inputs(self, number: int, step: Step, args: Any, kwargs: Any) -> tuple[Any, Any]: ...

    def results(
        self, number: int, step: Step, args: Any, refs: Sequence[Ref], values: list[torch.Tensor]
    ) -> list[torch.Tensor]: ...


class Unreplayable(ValueError):
    """A trace that cannot be replayed in float64; the message names the op and why."""


HERE = torch.device("cpu")


def _called(op: Any, args: Any, kwargs: Any) -> Any:
    return op(*args, **kwargs)


def _scaled_by_frequency(op: Any, args: Any, kwargs: Any) -> Any:
    """embedding_bag's gradient, each row by 1 / how often its index occurs. The CPU's kernel takes another index' count
    (pytorch #190063, up to 2.13 at least), CUDA's does not. args: as in the schema, all of them given by autograd."""
    rows, scaled, mode = args[6:9]
    if not scaled or mode == 2:  # of a maximum neither kernel scales
        return op(*args, **kwargs)
    counts = torch.bincount(args[1].flatten(), minlength=rows).clamp_min(1)
    return op(*args[:7], False, *args[8:], **kwargs) / counts[:, None]


# Operations that the CPU, where traces are replayed, computes wrong: what is computed instead.
MENDED: dict[str, Callable[[Any, Any, Any], Any]] = {"_embedding_bag_backward": _scaled_by_frequency}


# Kernels that take for None an epsilon of the precision that they compute in: where it stands.
EPSILON_AT = {"_fused_rms_norm": 3}


@once
def spelt_out(step: Step) -> tuple[Any, ...]:
    """The step's arguments with the epsilon that its kernel took for None; in float64 it would take a smaller one."""
    at = EPSILON_AT.get(step.name)
    if at is None or step.args[at] is not None:
        return step.args
    computed = torch.float64 if step.precision == torch.float64 else torch.float32
    return (*step.args[:at], torch.finfo(computed).eps, *step.args[at + 1 :])


class Replay:
    """One float64 evaluation of a trace. After `run`, `value(ref)` gives any tensor of the trace."""

    def __init__(self, trace: Trace, perturbation: Perturbation | None = None, device: torch.device = HERE):
        self.trace, self.device = trace, device
        self.perturbation = perturbation
        self.odd: dict[int, torch.Tensor] = {}
        start = widened if perturbation is None else perturbation.initial
        self.buffers = {number: start(flat) for number, flat in trace.initial.items()}

    def run(self) -> Replay:
        """Evaluate every step. Raises Unreplayable."""
        written = {ref.storage for step in self.trace.steps for ref in step.writes}
        for number in written & set(self.buffers):
            self.buffers[number] = self.buffers[number].clone()
        with torch.no_grad():
            for number, step in enumerate(self.trace.steps):
                try:
                    self.step(number, step)
                except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                    raise Unreplayable(f"{step.op}: {str(error).splitlines()[0]}") from None
        return self

    def value(self, ref: Ref) -> torch.Tensor:
        """The tensor of a Ref: float64 where eager had a float, else eager's dtype."""
        if ref.storage in self.odd:
            return self.odd[ref.storage]
        return read_as(ref, self._held(ref))

    def _held(self, ref: Ref) -> torch.Tensor:
        return torch.as_strided(seen_as(self.buffers[ref.storage], ref.dtype), ref.shape, ref.stride, ref.offset)

    def step(self, number: int, step: Step) -> None:
        if step.recorded:
            self.buffers.update({s: flat.clone() for s, flat in step.recorded.items()})
            if step.name in MASKED:
                self._masked(number, step)
            return
        args, kwargs = mapped((spelt_out(step), step.kwargs), lambda leaf: self._argument(leaf, step.precision))
        if step.name == "_softmax" or step.name == "_log_softmax":
            args = (*args[:2], False)
        if self.perturbation is not None:
            args, kwargs = self.perturbation.inputs(number, step, args, kwargs)
        out = MENDED.get(step.name, _called)(step.op, args, kwargs)
        pairs = [(ref, self.value(ref)) for ref in step.writes]
        pairs += [(ref, value) for ref, value in _paired(step.returned, out) if ref.storage not in step.written]
        refs, values = [ref for ref, _ in pairs], [value for _, value in pairs]
        if not step.written:  # functions of integers and factories that were given no dtype make the default one
            values = [value.double() if value.dtype == torch.float32 else value for value in values]
        if "empty" in step.name:
            values = [value.zero_() for value in values]  # so that no replay depends on what memory held
        changed = values
        if self.perturbation is not None:
            changed = self.perturbation.results(number, step, (args, kwargs), refs, values)
        for ref, value, moved in zip(refs, values, changed, strict=True):
            if ref.storage not in step.written:
                self._store(ref, moved)
            elif moved is not value:
                value.copy_(moved)

    def _masked(self, number: int, step: Step) -> None:
        """The result of a kernel that draws and multiplies at once, from its operand and what it drew."""
        drawn, scale = MASKED[step.name](step)
        refs = [ref for ref in step.outs if ref.dtype.is_floating_point][:1]
        if self.perturbation is not None and drawn.dtype.is_floating_point:
            # not a mask but a number in a range: lower + uniform * (upper - lower), rounded; 1 where nothing was drawn
            noise = self.value(drawn)
            moved = self.perturbation.results(number, step, (step.args, step.kwargs), [drawn], [noise])[0]
            noise.copy_(torch.where(noise == 1, noise, moved))
        values = [self.value(step.args[0]) * self.value(drawn) * scale]
        if self.perturbation is not None:
            values = self.perturbation.results(number, step, (step.args, step.kwargs), refs, values)
        self.buffers[refs[0].storage] = self.buffers[refs[0].storage].clone()
        self.value(refs[0]).copy_(values[0])

    def _store(self, ref: Ref, value: torch.Tensor) -> None:
        value = widened(value)  # a factory that was given no dtype makes the default one
        value = read_as(ref, value).resolve_conj().resolve_neg()  # both undo themselves
        if tuple(value.shape) != ref.shape:
            # workspaces (cudnn's reserve, embedding_bag's offsets) depend on the dtype: kept as the replay made them
            if ref.dtype.is_floating_point and value.dtype.is_floating_point and ref.numel and value.numel():
                raise ValueError(f"replay gave {tuple(value.shape)}, eager {ref.shape}")
            self.odd[ref.storage] = value
            return
        elements = self.trace.sizes[ref.storage]
        same = tuple(value.stride()) == ref.stride and value.storage_offset() == ref.offset == 0
        if same and value.untyped_storage().nbytes() == elements * value.element_size():
            self.buffers[ref.storage] = torch.as_strided(value, (elements,), (1,), 0)
            return
        if ref.storage not in self.buffers or self.buffers[ref.storage].dtype != value.dtype:
            self.buffers[ref.storage] = torch.zeros(elements, dtype=value.dtype, device=value.device)
        self._held(ref).copy_(value)

    def _argument(self, leaf: Any, dtype: torch.dtype | None) -> Any:
        if isinstance(leaf, Ref):
            return self.value(leaf)
        if isinstance(leaf, torch.device):
            return self.device
        if isinstance(leaf, torch.dtype) and leaf.is_floating_point:
            return torch.float64
        if isinstance(leaf, torch.dtype) and leaf.is_complex:
            return torch.complex128
        if isinstance(leaf, float) and dtype not in (None, torch.float64):
            # kernels read scalars in the precision that they compute in
            return round_to(leaf, torch.float32) if self.perturbation is None else self.perturbation.scalar(leaf, dtype)
        return leaf


def read_as(ref: Ref, held: torch.Tensor) -> torch.Tensor:
    """What a storage holds as a Ref reads it: conjugated, negated."""
    found = held.conj() if ref.conj else held
    return negated(found) if ref.neg else found


def round_to(value: float, dtype: torch.dtype) -> float:
    """The nearest number of a dtype."""
    return float(torch.tensor(value, dtype=torch.float64).to(dtype))


def widened(flat: torch.Tensor) -> torch.Tensor:
    """float64 where it was floating, complex128 where it was complex."""
    if flat.dtype.is_complex:
        return flat.to(torch.complex128)
    return flat.double() if flat.dtype.is_floating_point else flat


def seen_as(flat: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A flat buffer as its complex numbers, or as their real and imaginary parts in turn, for a Ref of this dtype."""
    if dtype.is_complex and not flat.dtype.is_complex:
        return torch.view_as_complex(flat[: flat.numel() // 2 * 2].reshape(-1, 2))
    if dtype.is_floating_point and flat.dtype.is_complex:
        return torch.view_as_real(flat).flatten()
    return flat
