"""A bound on rounding that owes nothing to the oracles: no replicas, no floors, no table of `fuzzer.rounding`.

It is a first-order worst case by adjoints (Linnainmaa 1976, "Taylor expansion of the accumulated rounding error";
Higham 2002, "Accuracy and Stability of Numerical Algorithms", chapters 3 and 26): the trace is evaluated once in
float64 with a zero `e` added wherever a number may round; one reverse sweep from a gradient element g gives w = dg/de
for all of them; and the error of g is at most

    sum of |w| * (largest |e| that the arithmetic allows there).

Signs are never allowed to cancel and nothing is random. What `e` may be:

* arithmetic and library functions: UNITS of the result, and the smallest normal number (flush to zero);
* sums of products (sums, matmul, convolution, pooling, scatters, scans): gamma_n = n u / (1 - n u) times the same
  operation on absolute values, n the number of terms (the operation on ones), u the accumulator's unit;
* every other kernel (softmax, normalisations, losses): gamma_n on each operand and on the result;
* complex results: gamma_16 of their modulus, those of Fourier transforms of the largest element (Higham 2002, chapter
  24), in both parts;
* moves, selections, comparisons: nothing. Sums and products of integers that no partial sum can round: nothing. So a
  program over integers whose operations are all of these has the bound 0.

The sum is doubled (for terms of second order, and because kernels split their work in ways no name shows). The bound
is then raised to SAMPLES_FACTOR times the largest deviation that legal evaluations of the program on the real kernels
show: eager as it is, and eager with every leaf that is not a round number moved by one unit. That catches cancellation
hidden inside kernels (gelu's tail) and elements where a discrete decision (argmax, relu, floor) is about to flip: their
bound becomes as large as the jump.

Where a selection (sort, topk, kthvalue, median) meets equal elements, its choice is free, as the signs of singular
vectors and eigenvectors are: there is no bound.

Not covered: a flip that none of the moved evaluations met (the bound is then too small, never too large; the share
flagged can only suffer); scalars read in different precisions; programs with an operation that torch cannot
differentiate, or whose trace cannot be replayed. Those have no bound (None) and are counted, not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fuzzer.language import interpret, routes
from fuzzer.language.program import Program
from fuzzer.rounding.replay import Replay, Unreplayable
from fuzzer.rounding.scalars import round_to
from fuzzer.rounding.trace import Ref, Step, Trace, mapped, widened


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOVES = _names(
    """
    clone copy cat stack gather index_select index take slice_scatter select_scatter diagonal_scatter as_strided_scatter
    scatter masked_fill where max min amax amin maximum minimum clamp clamp_min clamp_max relu threshold
    threshold_backward hardtanh hardtanh_backward neg abs sign floor ceil trunc round flip roll constant_pad_nd
    reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d
    sort topk kthvalue median cummax cummin
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full new_empty new_empty_strided fill zero
    empty empty_like empty_strided scalar_tensor max_pool1d max_pool2d_with_indices max_pool3d_with_indices
    adaptive_max_pool2d unfold embedding repeat masked_scatter tril triu upsample_nearest1d upsample_nearest2d
    select_backward slice_backward diagonal_backward value_selecting_reduction_backward index_fill index_copy lift_fresh
    """
)
_CHOOSING = _names("sort topk kthvalue median nanmedian")  # positions, which of equal elements is nobody's promise
_FACTORS = _names("_linalg_svd _linalg_eigh linalg_eig")  # torch's documentation: not unique, a sign or phase is free
_PRODUCTS = _names("add sub rsub mul")  # of two operands: exact where all are small integers
_FUNCTIONS = _PRODUCTS | _names(
    """
    div reciprocal sqrt rsqrt square exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh
    erf erfc sigmoid pow leaky_relu leaky_relu_backward _prelu_kernel _prelu_kernel_backward sigmoid_backward
    tanh_backward
    """
)
_SUMS = _names(
    """
    sum mean mm bmm addmm baddbmm mv addmv dot convolution convolution_backward cumsum scatter_add index_add index_put
    _index_put_impl embedding_dense_backward avg_pool1d avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward max_pool2d_with_indices_backward
    max_pool3d_with_indices_backward adaptive_max_pool2d_backward unfold_backward upsample_nearest1d_backward
    upsample_nearest2d_backward reflection_pad1d_backward reflection_pad2d_backward replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward im2col col2im
    """
)
# Accumulators that may keep the tensor's own dtype; all other sums over half precision accumulate in float32.
_NARROW = _names(
    """
    scatter_add index_add index_put _index_put_impl cumsum put embedding_dense_backward unfold_backward
    max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward col2im
    reflection_pad1d_backward reflection_pad2d_backward replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward upsample_nearest1d_backward upsample_nearest2d_backward
    """
)
_DIVIDING = _names(
    """
    mean avg_pool1d avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d
    _adaptive_avg_pool2d_backward
    """
)
# Units of one operation: half precision is float32 rounded once; others as CUDA, SLEEF and glibc document (2 ulp).
_UNITS = {torch.float64: 2.0, torch.float32: 2.0, torch.bfloat16: 0.5, torch.float16: 0.5}
_SECOND_ORDER = 2.0
# Five evaluations whose errors are spread over a range R show less than R / 4 in all five with probability 1/1024.
_SAMPLES, _SAMPLES_FACTOR = 4, 4.0


def _floats(tree: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    mapped(tree, lambda leaf: found.append(leaf) if _floating(leaf) else None)
    return found


def _floating(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point


def _integral(tensors: Sequence[torch.Tensor]) -> bool:
    return all(bool((t == t.round()).all()) for t in tensors)


def gamma(n: float, unit: float) -> float:
    """Higham's gamma_n; infinite where n u reaches 1 (nothing is known there)."""
    return n * unit / (1 - n * unit) if n * unit < 1 else math.inf


class Errors:
    """The perturbation that adds a zero wherever a number may round, and remembers how large it might have been."""

    def __init__(self) -> None:
        self.zeros: list[torch.Tensor] = []
        self.sizes: list[torch.Tensor] = []
        self.free = False  # whether a choice that is nobody's promise was met
        self.magnitudes: list[torch.Tensor] = []  # of the step's results if it is a sum: gamma_n op(|operands|)

    def error(self, value: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        """value + e with |e| <= size."""
        if not bool((size > 0).any() | size.isnan().any()):
            return value
        zero = torch.zeros_like(value, requires_grad=True)
        self.zeros.append(zero)
        self.sizes.append(size)
        return value + zero

    def initial(self, flat: torch.Tensor) -> torch.Tensor:
        """What no step made is exact, but for subnormals, which may be flushed (those of float16 are not)."""
        wide = widened(flat)
        if not flat.dtype.is_floating_point or flat.dtype == torch.float16:
            return wide
        return self.error(wide, torch.where(wide.abs() < torch.finfo(flat.dtype).smallest_normal, wide.abs(), 0.0))

    def scalar(self, value: float, dtype: torch.dtype) -> float:
        return round_to(value, torch.float32)

    def inputs(self, number: int, step: Step, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self.magnitudes = []
        self.free |= step.name in _FACTORS
        if step.name in _CHOOSING:
            self.free |= any(t.unique().numel() < t.numel() for t in _floats((args, kwargs)))
        if not any(ref.dtype.is_floating_point for ref in step.results):
            return args, kwargs
        if step.name in _SUMS:
            with torch.no_grad():
                self.magnitudes = self._sum(step, args, kwargs)
        elif step.name not in _MOVES | _FUNCTIONS:
            size = gamma(_reach(step), _accumulator(step))
            written = {ref.storage for ref in step.writes}
            return self._moved(args, step.args, size, written), self._moved(kwargs, step.kwargs, size, written)
        return args, kwargs

    def _moved(self, tree: Any, refs: Any, size: float, written: set[int]) -> Any:
        if isinstance(tree, list | tuple):
            moved = [self._moved(t, r, size, written) for t, r in zip(tree, refs, strict=False)]
            moved += tree[len(refs) :]
            return moved if isinstance(tree, list) else tuple(moved)
        if isinstance(tree, dict):
            return {k: self._moved(v, refs[k], size, written) for k, v in tree.items()}
        if _floating(tree) and isinstance(refs, Ref) and refs.storage not in written:
            return self.error(tree, tree.detach().abs() * size)
        return tree

    def _sum(self, step: Step, args: Any, kwargs: Any) -> list[torch.Tensor]:
        absolute = mapped((args, kwargs), lambda t: t.detach().abs() if _floating(t) else t)
        ones = mapped((args, kwargs), lambda t: torch.ones_like(t) if _floating(t) else t)
        sizes = _floats(step.op(*absolute[0], **absolute[1]))
        terms = max((float(t.max()) for t in _floats(step.op(*ones[0], **ones[1])) if t.numel()), default=1.0)
        if step.name in _DIVIDING:
            terms = max(terms, _reach(step))
        whole = step.name not in _DIVIDING and _integral(_floats([args, kwargs]))
        if whole and max((float(t.max()) for t in sizes if t.numel()), default=0.0) < 1 / _accumulator(step):
            return [torch.zeros_like(t) for t in sizes]
        return [t * gamma(terms + 1, _accumulator(step)) for t in sizes]

    def results(
        self, number: int, step: Step, args: Any, refs: Sequence[Ref], values: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        if step.name in _MOVES:
            return values
        changed = list(values)
        inner = 0.0 if step.name in _FUNCTIONS | _SUMS else gamma(_reach(step), _accumulator(step))
        given = _floats(args)
        for i, (ref, value) in enumerate(zip(refs, values, strict=True)):
            if ref.dtype.is_complex and value.numel():
                changed[i] = self._complex(step, ref, value)
            if not ref.dtype.is_floating_point or not value.numel():
                continue
            info, plain = torch.finfo(ref.dtype), value.detach()
            whole = step.name in _PRODUCTS | {"_to_copy"} or step.name in _SUMS - _DIVIDING
            held = bool((plain.abs() < 1 / info.eps).all()) and _integral([plain])
            narrowed = not any(torch.finfo(r.dtype).eps < info.eps for r in step.inputs if r.dtype.is_floating_point)
            if (whole and held and _integral(given)) or (step.name == "_to_copy" and narrowed):
                size = torch.zeros_like(plain)
            else:
                size = plain.abs() * (_UNITS[ref.dtype] * info.eps + inner)
                size = size + torch.where(plain == 0, 0.0, float(info.smallest_normal))
            if i < len(self.magnitudes) and self.magnitudes[i].shape == value.shape:
                size = size + self.magnitudes[i]
            elif step.name in _SUMS:
                size = torch.full_like(plain, math.inf)
            changed[i] = self.error(value, size)
        return changed

    def _complex(self, step: Step, ref: Ref, value: torch.Tensor) -> torch.Tensor:
        """Both parts are off by units of the modulus; of a transform by those of the largest element."""
        unit = float(torch.finfo(ref.dtype.to_real()).eps)
        size = value.detach().abs()[..., None].expand(*value.shape, 2)
        if step.name.startswith("_fft_"):
            size = torch.full_like(size, float(size.max()))
        return torch.view_as_complex(
            self.error(torch.view_as_real(value.resolve_conj()).clone(), size * gamma(16, unit))
        )


def _accumulator(step: Step) -> float:
    """Unit roundoff of the precision in which a kernel adds up."""
    dtypes = [ref.dtype for ref in (*step.inputs, *step.results) if ref.dtype.is_floating_point]
    eps = max((float(torch.finfo(d).eps) for d in dtypes), default=0.0)
    return (eps if step.name in _NARROW else min(eps, float(torch.finfo(torch.float32).eps))) / 2


def _reach(step: Step) -> float:
    """How many elements one result of an unlisted kernel may depend on, and a few operations besides."""
    given = max((ref.numel for ref in step.inputs if ref.dtype.is_floating_point), default=1)
    if torch.Tag.pointwise in step.op.tags or step.name.endswith(("gelu_backward", "elu_backward")):
        return 8.0
    least = min((r.numel for r in step.results if r.numel and r.dtype.is_floating_point), default=1)
    if "softmax" in step.name:
        least = given // max(max(ref.shape or (1,)) for ref in step.inputs)
    return given / max(least, 1) + 8


class Bounds:
    """Worst-case rounding of single gradient elements of one traced program. Raises Unreplayable."""

    def __init__(self, program: Program, trace: Trace, targets: dict[str, Ref], samples: int = _SAMPLES):
        self.errors = Errors()
        replay = Replay(trace, self.errors)
        written = {ref.storage for step in trace.steps for ref in step.writes}
        for number in written & set(replay.buffers):
            replay.buffers[number] = replay.buffers[number].clone()
        with torch.enable_grad():
            for number, step in enumerate(trace.steps):
                try:
                    replay.step(number, step)
                except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                    raise Unreplayable(f"{step.op}: {str(error).splitlines()[0]}") from None
            # a flat copy that autograd can be asked about
            self.values = {name: replay.value(ref) * 1.0 for name, ref in targets.items() if name.endswith(".grad")}
        self.reference = {name: value.detach() for name, value in self.values.items()}
        self.samples = [_sample(program, seed) for seed in range(samples + 1)] if self.errors.zeros else []

    def at(self, name: str, flat: int) -> float | None:
        """The bound of gradient `name` at this flat position; None where there is none."""
        if self.errors.free:
            return None
        with torch.enable_grad():
            g = self.values[name].flatten()[flat]
        if not bool(torch.isfinite(g)):
            return None
        total = 0.0
        if g.requires_grad:
            try:
                weights = torch.autograd.grad(g, self.errors.zeros, retain_graph=True, allow_unused=True)
            except (RuntimeError, NotImplementedError):
                return None
            for weight, size in zip(weights, self.errors.sizes, strict=True):
                if weight is not None:
                    parts = torch.where(weight == 0, 0.0, weight.abs() * size)
                    total += float(parts.sum())
        told = [s[name].flatten()[flat] for s in self.samples if s.get(name) is not None]
        seen = [abs(float(value) - float(g.detach())) for value in told]
        bound = max([_SECOND_ORDER * total, *(_SAMPLES_FACTOR * s for s in seen)])
        return bound if math.isfinite(bound) and not any(map(math.isnan, seen)) else None


def _sample(program: Program, seed: int) -> dict[str, Any]:
    """Gradients of one eager run on the CPU; with a seed above 0, of one whose leaves are moved by a unit."""
    plain = replace(program, settings=())
    spec, _ = routes.route_of(plain)
    leaves = interpret.materialise(plain.leaves)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for leaf in plain.leaves:
            if seed and leaf.base is None and leaves[leaf.name].dtype.is_floating_point:
                _move(leaves[leaf.name], generator)
    cotangents = interpret.cotangents(plain)
    with torch.enable_grad():
        results = spec.run(routes.Call(plain, interpret.to_function(plain), leaves, cotangents))
    return {f"{name}.grad": gradient for name, gradient in results.gradients.items()}


def _move(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Every number that is no multiple of 1/16, up or down by a unit, in place (a storage's every element once)."""
    flat = torch.as_strided(tensor, (tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
    signs = torch.randint(0, 2, flat.shape, generator=generator) * 2 - 1
    moved = flat * (1 + signs.to(flat.dtype) * torch.finfo(flat.dtype).eps)
    flat.copy_(torch.where(flat * 16 == (flat * 16).round(), flat, moved))
