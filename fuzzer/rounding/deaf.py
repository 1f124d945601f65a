"""Deaf elements: those whose floor is infinite or larger than half of the value, and the steps that make them deaf.

The replicas of the first look and the reference are evaluated side by side, step by step. Elements of a step's result
that are deaf are noted and then *mended*: all replicas go on with the reference's values. So the operands of every step
are clear, and the elements noted are those that it makes deaf itself. Such a step is the cause of a deaf element of an
output or gradient that is still deaf if all other steps' elements are mended and only its own are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from fuzzer.language.values import real_parts
from fuzzer.rounding.arithmetic import accumulates, is_exact
from fuzzer.rounding.floors import FIRST_LOOK, Model, Spread, drowned, still
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.trace import Ref, Step, is_rounded

# The causes of deafness, the first that holds.
DECIDES = "a decision that rounding may flip"
NOT_FINITE = "finite in one legal rounding and not in another"
UNDERFLOWS = "so small that a factor of it may underflow"
CANCELS = "a sum that cancels"
ZERO = "zero, and small beside its rounding"
AMPLIFIED = "a function that is steep or rounds coarsely here"
TOGETHER = "several steps together"


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

    kernel    its name (`Step.name`), TOGETHER where no step does it alone;  backward  whether autograd called it in a
              backward.
    cause     DECIDES, NOT_FINITE, UNDERFLOWS, CANCELS, ZERO, AMPLIFIED or TOGETHER.
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
class _Maker:
    """A step that makes elements of its own results deaf: by result, which ones, and the reference's values."""

    step: Step
    exact: bool
    causes: Counter[str] = field(default_factory=Counter)
    mended: list[tuple[Ref, torch.Tensor, torch.Tensor]] = field(default_factory=list)

    @property
    def cause(self) -> str:
        return self.causes.most_common(1)[0][0]


def deafening(model: Model, shown: Spread) -> list[Deafening]:
    """The kernels that make elements of the model's targets deaf, those of most elements first.

    shown: the spread of the first look. An element that several steps make deaf, each alone, counts for the earliest.
    Raises Unreplayable.
    """
    _, _, factor = FIRST_LOOK
    left = [deaf(r, shown.floor(i, factor)) for i, r in enumerate(model.reference)]
    if not any(bool(mask.any()) for mask in left):
        return []
    makers, found = _makers(model), Counter[tuple[str, bool, str, bool]]()
    for number, maker in makers.items():
        alone = _targets(model, {other: m for other, m in makers.items() if other != number})
        hit = [left[i] & deaf(r, alone.floor(i, factor)) for i, r in enumerate(model.reference)]
        left = [mask & ~its for mask, its in zip(left, hit, strict=True)]
        key = (maker.step.name, maker.step.backward, maker.cause, maker.exact)
        found[key] += sum(int(its.sum()) for its in hit)
        if not any(bool(mask.any()) for mask in left):
            break
    found["", False, TOGETHER, False] += sum(int(mask.sum()) for mask in left)
    return [Deafening(*key, n) for key, n in found.most_common() if n]


def _replicas(model: Model) -> list[Replay]:
    """The replays of the first look, not run yet."""
    replicas, scale, _ = FIRST_LOOK
    rounders = [model.rounder(seed, False, scale) for seed in range(replicas)]
    return [Replay(model.trace, rounder, model.device) for rounder in rounders]  # type: ignore[arg-type]


def _makers(model: Model) -> dict[int, _Maker]:
    """The steps that make elements of their results deaf, by number, in order."""
    exact, *replicas = replays = [Replay(model.trace, None, model.device), *_replicas(model)]
    found: dict[int, _Maker] = {}
    moved: set[int] = set()  # storages with an element that rounding moves
    for (number, step), *_ in zip(*(replay.walk() for replay in replays), strict=True):
        given = moved.isdisjoint(ref.storage for ref in step.inputs)
        maker = _Maker(step, given)
        for ref, r, spread in _shown(step, exact, replicas):
            floor = spread.floor(0, FIRST_LOOK[2])
            if bool((floor > 0).any()):
                moved.add(ref.storage)
            mask = deaf(r, floor)
            if not bool(mask.any()):
                continue
            maker.causes.update(_causes(step, ref, r, spread.unstable[0], floor, mask))
            maker.mended.append((ref, mask, r))
        if maker.mended:
            found[number] = maker
            for replay in replicas:
                _mend(replay, maker)
    return found


def _shown(step: Step, exact: Replay, replicas: list[Replay]) -> Iterator[tuple[Ref, torch.Tensor, Spread]]:
    """The results of a step that were just evaluated: their values in the reference, in parts, and their spread."""
    for ref in step.results:
        if any(ref.storage in replay.odd or ref.storage not in replay.buffers for replay in (exact, *replicas)):
            continue  # a workspace, or a result that was not asked for
        r = real_parts(exact.value(ref)).clone()
        spread = still([r], [ref])
        for replay in replicas:
            spread.add([real_parts(replay.value(ref))])
        yield ref, r, spread


def _mend(replay: Replay, maker: _Maker) -> None:
    """Let the replay go on with the reference's values of the elements that this step makes deaf."""
    for ref, mask, r in maker.mended:
        value = torch.where(mask, r, real_parts(replay.value(ref)))
        replay.replace(ref, torch.view_as_complex(value.contiguous()) if ref.dtype.is_complex else value)


def _targets(model: Model, mended: dict[int, _Maker]) -> Spread:
    """The spread of the targets in the first look, where these steps' elements are mended."""
    shown = still(model.reference, model.targets)
    for replay in _replicas(model):
        for number, _ in replay.walk():
            if number in mended:
                _mend(replay, mended[number])
        shown.add([real_parts(replay.value(ref)) for ref in model.targets])
    return shown


def _causes(
    step: Step, ref: Ref, r: torch.Tensor, unstable: torch.Tensor, floor: torch.Tensor, mask: torch.Tensor
) -> Counter[str]:
    """The number of deaf elements of a result by cause."""
    row, found = kernel(step), Counter[str]()
    if not is_rounded(ref) or is_exact(step):
        return Counter({DECIDES: int(mask.sum())})
    real = ref.dtype.to_real()
    sums = row.contracts or row.cancels is not None or accumulates(step)
    holds = {
        NOT_FINITE: unstable,
        UNDERFLOWS: floor <= max(drowned(real), torch.finfo(real).smallest_normal),
        CANCELS: torch.full_like(mask, sums),
        ZERO: r == 0,
        AMPLIFIED: torch.full_like(mask, True),
    }
    for cause, where in holds.items():
        found[cause] = int((mask & where).sum())
        mask = mask & ~where
    return found
