"""Replay a trace in float64, exactly or perturbed: one flat float64 buffer for each storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from fuzzer.language.private import negated
from fuzzer.rounding.arithmetic import decides, promoted, promotes
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.perturb import laid_like
from fuzzer.rounding.scalars import eager_reading, round_to
from fuzzer.rounding.trace import Ref, Step, Trace, is_rounded, mapped, once, tensors_in, widened
from fuzzer.rounding.unmodelled import unmodelled


class Perturbation(Protocol):
    """The changes that a replay may make to the numbers around a step (see `perturb`)."""

    def initial(self, flat: torch.Tensor) -> torch.Tensor: ...

    def scalar(self, value: float, dtype: torch.dtype) -> float: ...

    def inputs(self, number: int, step: Step, args: Any, kwargs: Any) -> tuple[Any, Any]: ...

    def results(
        self, number: int, step: Step, args: Any, refs: Sequence[Ref], values: list[torch.Tensor]
    ) -> list[torch.Tensor]: ...


class Unreplayable(ValueError):
    """A trace that cannot be replayed in float64; the message names the op and why."""


HERE = torch.device("cpu")


def _paired(refs: Any, values: Any) -> Iterator[tuple[Ref, torch.Tensor]]:
    """Refs with the tensors in the same places; a kernel may return more or fewer than requested (mkldnn)."""
    if isinstance(refs, Ref):
        if isinstance(values, torch.Tensor):
            yield refs, values
    elif isinstance(refs, list | tuple):
        for ref, value in zip(refs, values, strict=True):
            yield from _paired(ref, value)


@once
def scalar_precision(step: Step) -> torch.dtype | None:
    """The dtype in which the kernel reads scalar operands; None where it keeps them in double."""
    if kernel(step).scalars_in_double:
        return None
    return next((ref.dtype.to_real() for ref in (*step.inputs, *step.results) if is_rounded(ref)), None)


@once
def spelt_out(step: Step) -> tuple[Any, ...]:
    """The step's arguments, with the value that its kernel used for those that mean something else in float64."""
    rule = kernel(step).spelt_out
    return step.args if rule is None else rule(step, scalar_precision(step))


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
        for _ in self.walk():
            pass
        return self

    def walk(self) -> Iterator[tuple[int, Step]]:
        """Evaluate one step after the other; yields each, with its number, once its results are there. Raises
        Unreplayable."""
        written = {ref.storage for step in self.trace.steps for ref in step.writes}
        for number in written & set(self.buffers):
            self.buffers[number] = self.buffers[number].clone()
        for number, step in enumerate(self.trace.steps):
            try:
                with torch.no_grad():
                    self.step(number, step)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                raise Unreplayable(f"{step.op}: {str(error).splitlines()[0]}") from None
            yield number, step

    def replace(self, ref: Ref, value: torch.Tensor) -> None:
        """Let all later steps read this value, of the dtype and shape of `value(ref)`, in place of the tensor's own."""
        self.buffers[ref.storage] = self.buffers[ref.storage].clone()
        self.value(ref).copy_(value)

    def value(self, ref: Ref) -> torch.Tensor:
        """The tensor of a Ref: float64 where eager had a float, else eager's dtype."""
        if ref.storage in self.odd:
            return self.odd[ref.storage]
        return read_as(ref, self._held(ref))

    def _held(self, ref: Ref) -> torch.Tensor:
        return torch.as_strided(seen_as(self.buffers[ref.storage], ref.dtype), ref.shape, ref.stride, ref.offset)

    def step(self, number: int, step: Step) -> None:
        row = kernel(step)
        if step.recorded:
            self.buffers.update({s: flat.clone() for s, flat in step.recorded.items()})
            if row.masked is not None:
                self._masked(number, step, *row.masked(step))
            return
        precision = scalar_precision(step)
        args, kwargs = mapped((spelt_out(step), step.kwargs), lambda leaf: self._argument(step, leaf, precision))
        if promotes(step):
            args = promoted(step, args)
        if self.perturbation is not None:
            args, kwargs = self.perturbation.inputs(number, step, args, kwargs)
        given = args, kwargs
        if step.writes and row.cancels is not None:  # the call overwrites operands on which its error depends
            given = mapped(given, lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf)
        out = self._called(step, args, kwargs)
        pairs = [(ref, self.value(ref)) for ref in step.writes]
        pairs += [(ref, value) for ref, value in _paired(step.returned, out) if ref.storage not in step.written]
        refs, values = [ref for ref, _ in pairs], [value for _, value in pairs]
        if not step.written:  # functions of integers and factories without a dtype return the default one
            values = [value.double() if value.dtype == torch.float32 else value for value in values]
        if row.uninitialised:
            values = [value.zero_() for value in values]  # so that no replay depends on old contents of memory
        changed = values
        if self.perturbation is not None:
            changed = self.perturbation.results(number, step, given, refs, values)
        for ref, value, moved in zip(refs, values, changed, strict=True):
            if ref.storage not in step.written:
                self._store(ref, moved)
            elif moved is not value:
                value.copy_(moved)

    def _called(self, step: Step, args: Any, kwargs: Any) -> Any:
        """What the kernel returns. One that the model does not know runs in eager's dtypes if it refuses float64."""
        rule = kernel(step).mended
        if rule is not None:
            return rule(step, args, kwargs)
        if kernel(step).on_its_grid:
            return self._called_as_in_eager(step, args, kwargs)
        if not unmodelled(step):
            return step.op(*args, **kwargs)
        before = [self.value(ref).clone() for ref in step.writes]
        try:
            out = step.op(*args, **kwargs)
        except Exception:  # a library may raise any
            for ref, value in zip(step.writes, before, strict=True):  # it may have written before it refused
                self.value(ref).copy_(value)
            out = self._called_as_in_eager(step, args, kwargs)
        return mapped(out, lambda leaf: widened(leaf) if isinstance(leaf, torch.Tensor) else leaf)

    def _called_as_in_eager(self, step: Step, args: Any, kwargs: Any) -> Any:
        """The same call on operands narrowed to eager's dtypes, with eager's scalars; the numbers that it writes are
        wide again in their buffers. Raises RuntimeError."""
        wide = iter(tensors_in((args, kwargs)))
        written: list[tuple[Ref, torch.Tensor]] = []

        def narrow(leaf: Any) -> Any:
            if not isinstance(leaf, Ref):
                return self.device if isinstance(leaf, torch.device) else leaf
            value = next(wide)
            own = laid_like(value.to(leaf.dtype), value) if is_rounded(leaf) else value
            if leaf in step.writes:
                written.append((leaf, own))
            return own

        own_args, own_kwargs = mapped((step.args, step.kwargs), narrow)
        try:
            with torch.enable_grad():  # oneDNN's layers keep no workspace for a backward without
                out = step.op(*own_args, **own_kwargs)
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        for ref, value in written:
            self.value(ref).copy_(value)
        return out

    def _masked(self, number: int, step: Step, drawn: Ref, scale: float) -> None:
        """Store the result of a kernel that draws and multiplies at once, from its operand and the recorded draw."""
        refs = [ref for ref in step.outs if ref.dtype.is_floating_point][:1]
        if self.perturbation is not None and drawn.dtype.is_floating_point:
            # no mask but a number in a range: lower + uniform * (upper - lower), rounded; 1 where nothing was drawn
            noise = self.value(drawn)
            moved = self.perturbation.results(number, step, (step.args, step.kwargs), [drawn], [noise])[0]
            noise.copy_(torch.where(noise == 1, noise, moved))
        values = [self.value(step.args[0]) * self.value(drawn) * scale]
        if self.perturbation is not None:
            values = self.perturbation.results(number, step, (step.args, step.kwargs), refs, values)
        self.buffers[refs[0].storage] = self.buffers[refs[0].storage].clone()
        self.value(refs[0]).copy_(values[0])

    def _store(self, ref: Ref, value: torch.Tensor) -> None:
        value = widened(value)  # a factory without a dtype returns the default one
        value = read_as(ref, value).resolve_conj().resolve_neg()  # both are their own inverse
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

    def _argument(self, step: Step, leaf: Any, dtype: torch.dtype | None) -> Any:
        if isinstance(leaf, Ref):
            return self.value(leaf)
        if isinstance(leaf, torch.device):
            return self.device
        if isinstance(leaf, torch.dtype) and leaf.is_floating_point:
            return torch.float64
        if isinstance(leaf, torch.dtype) and leaf.is_complex:
            return torch.complex128
        if isinstance(leaf, float) and dtype not in (None, torch.float64):
            return self._scalar(step, leaf, dtype)
        return leaf

    def _scalar(self, step: Step, value: float, dtype: torch.dtype) -> float:
        """A scalar as the kernel reads it: in the precision in which it computes; as eager does where it decides a
        jump."""
        own = eager_reading(step, value, dtype, self.trace.devices) if decides(step) else None
        if own is not None:
            return round_to(value, own)
        return round_to(value, torch.float32) if self.perturbation is None else self.perturbation.scalar(value, dtype)


def read_as(ref: Ref, held: torch.Tensor) -> torch.Tensor:
    """The contents of a storage as a Ref reads them: conjugated, negated."""
    found = held.conj() if ref.conj else held
    return negated(found) if ref.neg else found


def seen_as(flat: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A flat buffer as its complex numbers, or as their real and imaginary parts in turn, for a Ref of this dtype."""
    if dtype.is_complex and not flat.dtype.is_complex:
        return torch.view_as_complex(flat[: flat.numel() // 2 * 2].reshape(-1, 2))
    if dtype.is_floating_point and flat.dtype.is_complex:
        return torch.view_as_real(flat).flatten()
    return flat
