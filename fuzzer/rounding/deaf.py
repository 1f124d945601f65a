"""Deaf elements: those whose floor is infinite or larger than half of the value, and the steps that make them deaf.

The replicas of the first look and the reference are evaluated side by side, step by step. Elements of a step's result
that are deaf are noted and then *mended*: all replicas go on with the reference's values. So the operands of every step
are clear, and the elements noted are those that it makes deaf itself. Such a step is the cause of a deaf element of an
output or gradient that is deaf, too, in an exact replay with nothing but the noted values in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from fuzzer.language.values import real_parts
from fuzzer.rounding.arithmetic import accumulates, is_exact
from fuzzer.rounding.floors import FIRST_LOOK, Model, Spread, drowned, still
from fuzzer.rounding.kernels import UNNAMED, kernel
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.trace import Ref, Step, is_rounded

# The causes of deafness, the first that holds.
NOT_FINITE = "finite in one legal rounding and not in another"
UNDERFLOWS = "so small that a factor of it may underflow"
DECIDES = "a decision that rounding may change"
CANCELS = "cancellation"
ZERO = "zero, and small beside its rounding"
AMPLIFIED = "a function that is steep or rounds coarsely here"
TOGETHER = "several steps together"

LEAF = "leaf"  # in place of a kernel
_REPLICAS, _SCALE, _FACTOR = FIRST_LOOK


def deaf(reference: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """Where a floor is infinite, or more than half of the value's size.

    A zero has no size: it is deaf if its floor is more than half of the largest finite number of its tensor.
    """
    size = reference.double().abs().nan_to_num(0, 0, 0)
    if not size.numel():
        return torch.zeros_like(size, dtype=torch.bool)
    size = torch.where(size == 0, size.max(), size)
    return torch.isinf(floor) | torch.isfinite(reference) & (floor > size / 2)


@dataclass(frozen=True)
class Deafening:
    """A kernel that makes elements of a program's outputs and gradients deaf.

    kernel    its name (`Step.name`); LEAF where it is nothing but a leaf's subnormal numbers, which may be flushed to
              zero; "" where no step does it alone.
    backward  whether autograd called it in a backward.
    cause     NOT_FINITE, UNDERFLOWS, DECIDES, CANCELS, ZERO, AMPLIFIED or TOGETHER.
    exact     whether nothing before it rounds its operands: then the kernel's own row makes deaf.
    elements  of outputs and gradients.
    """

    kernel: str
    backward: bool
    cause: str
    exact: bool
    elements: int

    def __str__(self) -> str:
        if self.cause == TOGETHER:
            return f"{self.elements} elements: {self.cause}"
        operands = "; its operands are exact" if self.exact else ""
        return f"{self.elements} elements: {'backward ' * self.backward}{self.kernel}, {self.cause}{operands}"


@dataclass
class _Made:
    """The deaf elements of one tensor that a step makes: a mask, the reference's values and those of each replica."""

    ref: Ref
    mask: torch.Tensor
    reference: torch.Tensor
    replicas: list[torch.Tensor]

    def put(self, replay: Replay, value: torch.Tensor) -> None:
        """Let the replay go on with these values at the deaf elements."""
        value = torch.where(self.mask, value, real_parts(replay.value(self.ref)))
        replay.replace(self.ref, torch.view_as_complex(value.contiguous()) if self.ref.dtype.is_complex else value)


@dataclass
class _Maker:
    """A step that makes elements of its own results deaf; `step` is None for the leaves, which may be flushed."""

    step: Step | None
    exact: bool
    causes: Counter[str] = field(default_factory=Counter)
    made: list[_Made] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, bool, str, bool]:
        """Kernel, backward, cause and exact of its Deafening."""
        name, backward = (LEAF, False) if self.step is None else (self.step.name, self.step.backward)
        return name, backward, self.causes.most_common(1)[0][0], self.exact


def deafening(model: Model, shown: Spread) -> list[Deafening]:
    """The kernels that make elements of the model's targets deaf, those of most elements first.

    shown: the spread of the first look. An element that several steps make deaf, each alone, counts for the earliest.
    Raises Unreplayable.
    """
    left = [deaf(r, shown.floor(i, _FACTOR)) for i, r in enumerate(model.reference)]
    found = Counter[tuple[str, bool, str, bool]]()
    for number, maker in _makers(model).items() if any(bool(mask.any()) for mask in left) else ():
        alone = _alone(model, number, maker)
        hit = [left[i] & deaf(r, alone.floor(i, _FACTOR)) for i, r in enumerate(model.reference)]
        left = [mask & ~its for mask, its in zip(left, hit, strict=True)]
        found[maker.key] += sum(int(its.sum()) for its in hit)
        if not any(bool(mask.any()) for mask in left):
            break
    found["", False, TOGETHER, False] += sum(int(mask.sum()) for mask in left)
    return [Deafening(*key, n) for key, n in found.most_common() if n]


def _alone(model: Model, number: int, maker: _Maker) -> Spread:
    """The spread of the targets if nothing but this step's deaf elements is what the replicas have."""
    shown = still(model.reference, model.targets)
    for at in range(_REPLICAS):
        replay = Replay(model.trace, None, model.device)
        for reached in _numbers(replay):
            if reached == number:
                for made in maker.made:
                    made.put(replay, made.replicas[at])
        shown.add([real_parts(replay.value(ref)) for ref in model.targets])
    return shown


def _makers(model: Model) -> dict[int, _Maker]:
    """The steps that make elements of their results deaf, by number, in order; the leaves as number -1."""
    rounders = [model.rounder(seed, False, _SCALE) for seed in range(_REPLICAS)]
    exact = Replay(model.trace, None, model.device)
    replicas = [Replay(model.trace, rounder, model.device) for rounder in rounders]  # type: ignore[arg-type]
    found: dict[int, _Maker] = {}
    moved: set[int] = set()  # storages with an element that rounding moves
    for number, *_ in zip(*(map(_numbers, (exact, *replicas))), strict=True):
        step = model.trace.steps[number] if number >= 0 else None
        refs = _leaves(model) if step is None else step.results
        maker = _Maker(step, step is None or moved.isdisjoint(ref.storage for ref in step.inputs))
        for ref in refs:
            if any(ref.storage in replay.odd or ref.storage not in replay.buffers for replay in (exact, *replicas)):
                continue  # a workspace, or a result that was not asked for
            r, values = real_parts(exact.value(ref)).clone(), [real_parts(replay.value(ref)) for replay in replicas]
            spread = still([r], [ref])
            for value in values:
                spread.add([value])
            floor = spread.floor(0, _FACTOR)
            if bool((floor > 0).any()):
                moved.add(ref.storage)
            mask = deaf(r, floor)
            if bool(mask.any()):
                maker.causes.update(_causes(step, ref, r, spread.unstable[0], floor, mask))
                maker.made.append(_Made(ref, mask, r, [value.clone() for value in values]))
        if maker.made:
            found[number] = maker
        for made in maker.made:
            for replay in replicas:
                made.put(replay, made.reference)
    return found


def _numbers(replay: Replay) -> Iterator[int]:
    """-1 before the replay has begun, then the number of each step once it is evaluated."""
    yield -1
    for number, _ in replay.walk():
        yield number


def _leaves(model: Model) -> list[Ref]:
    """The storages that no step made, each as one flat tensor."""
    return [Ref(at, flat.dtype, (flat.numel(),), (1,), 0) for at, flat in model.trace.initial.items()]


def _causes(
    step: Step | None, ref: Ref, r: torch.Tensor, unstable: torch.Tensor, floor: torch.Tensor, mask: torch.Tensor
) -> Counter[str]:
    """The number of deaf elements of a result by cause."""
    if not is_rounded(ref):
        return Counter({DECIDES: int(mask.sum())})
    real, found = ref.dtype.to_real(), Counter[str]()
    row = UNNAMED if step is None else kernel(step)
    sums = row.contracts or row.cancels is not None or (step is not None and accumulates(step))
    holds = {
        NOT_FINITE: unstable,
        UNDERFLOWS: floor <= max(drowned(real), torch.finfo(real).smallest_normal),
        DECIDES: torch.full_like(mask, step is None or is_exact(step)),
        CANCELS: torch.full_like(mask, sums),
        ZERO: r == 0,
        AMPLIFIED: torch.full_like(mask, True),
    }
    for cause, where in holds.items():
        found[cause] = int((mask & where).sum())
        mask = mask & ~where
    return found
