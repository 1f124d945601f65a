"""A trial's gradients compared with directional derivatives of its forward.

The forward's own values determine the derivative (`rounding.derivative`); neither side's backward is used. Each side
must agree with the derivative to within legal rounding. At a tie or a kink every value between the one-sided
derivatives and the derivatives nearby is legal, eager's own convention included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fuzzer.judgement.comparison import TensorVerdict, looks, spread
from fuzzer.judgement.trial import Trial
from fuzzer.language.ops import OPS
from fuzzer.language.program import Region, statements
from fuzzer.language.regions import region_spec
from fuzzer.language.routes import ROUTES
from fuzzer.language.values import real_parts
from fuzzer.rounding.arithmetic import divides_by_frequency
from fuzzer.rounding.derivative import Direction, Forward, Limit, direction, moved, read
from fuzzer.rounding.floors import FACTOR, FIRST_LOOK
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.trace import Ref, is_rounded, mapped

# A derivative must be known to this part of the difference between the sides. At a kink it decides a sum over several
# elements only if all legal values lie as close together.
SHARP = 0.25
# Points nearby, as parts of each element's size: a smooth derivative changes 256 times less over the smaller distance.
_NEAR, _NEARER, _POINTS = 2.0**-20, 2.0**-28, 4
_AGAIN = 2  # random directions of a leaf, each of which must contradict its gradient


@dataclass(frozen=True)
class DirectionalCheck:
    """The derivative along one direction, and each side's derivative by its gradients.

    low, high        the derivative, or the ends of the legal interval at a kink.
    error            their possible error, legal rounding of a gradient included.
    eager, compiled  the inner product of each side's gradients with the direction.
    """

    where: str
    alone: bool  # the direction moves one element
    low: float
    high: float
    error: float
    eager: float
    compiled: float
    kink: bool
    confirmed: bool  # forward-mode AD gives the same derivative

    @property
    def gap(self) -> float:
        """The difference between the sides, or of one side from the legal interval."""
        beyond = [max(self.low - value, value - self.high) for value in (self.eager, self.compiled)]
        gap = max(abs(self.eager - self.compiled), *beyond)
        return gap if math.isfinite(gap) else math.inf

    @property
    def decides(self) -> bool:
        known = self.error <= SHARP * self.gap
        return known and (not self.kink or self.alone or self.high - self.low <= SHARP * self.gap)

    def contradicts(self, value: float) -> bool:
        return not self.low - self.error <= value <= self.high + self.error  # True of NaN

    def __str__(self) -> str:
        return f"{self.ruling}; {self.values}"

    @property
    def ruling(self) -> str:
        """The derivative, in words."""
        if self.kink:
            legal = f"{self.where}, a kink or tie, anything from {self.low:.9g} to {self.high:.9g} is legal"
            return f"{legal} (to {self.error:.1g})"
        how = "central differences in float64" + (" and forward-mode AD" if self.confirmed else "")
        return f"{self.where} {how} give {self.low:.9g} (to {self.error:.1g})"

    @property
    def values(self) -> str:
        return f"eager has {self.eager:.9g}, compiled {self.compiled:.9g}"


class GradientCheck:
    """The gradients of one trial compared with directional derivatives. Raises Unreplayable where its trace has no
    replay.

    look   its floors give the size of legal rounding; by default the last look.
    """

    def __init__(self, trial: Trial, look: tuple[int, float, float] | None = None):
        self.trial, self.model = trial, trial.model
        self.trace = self.model.trace
        self.times = ROUTES[trial.program.route.name].times
        seeded = [o.value for o in trial.program.outputs if o.cotangent is not None]
        pairs = [(trial.targets[name], self.trace.given[f"c{i}"]) for i, name in enumerate(seeded)]
        self.forward = Forward(self.trace, pairs, self.model.device)
        floors = spread(trial, look or looks(trial)[-1]).floors(FACTOR)
        self.floors = dict(zip(trial.targets, floors, strict=True))
        self.leaves = {leaf.name: self.trace.given[leaf.name] for leaf in trial.program.leaves}

    def check_direction(self, where: str, along: Direction, alone: bool) -> DirectionalCheck:
        """One direction; `where` describes it, `alone`: it moves one element. Raises Undecided and Unreplayable."""
        slope = self.forward.slope(along)
        self._differentiable_by(along)
        eager = self._sum(along, self.trial.named(self.trial.reference))
        compiled = self._sum(along, self.trial.named(self.trial.subject))
        unit = 1.0
        if alone:
            unit = sum(float(read(self.trace, along, ref).abs().sum()) for ref in self._touched(along).values())
        one_sided = [slope.left, slope.right]
        sizes = [
            abs(v) for v in (*(limit.value * self.times for limit in one_sided), eager, compiled) if math.isfinite(v)
        ]
        if not max(limit.error * self.times for limit in one_sided) <= SHARP * max(sizes, default=0.0):
            raise Undecided(f"{where} the differences settle on no derivative")
        best = slope.best if slope.smooth else Limit(0.0, slope.left.error + slope.right.error)
        error = best.error * self.times + self._rounding(along)
        ends = [best.value] if slope.smooth else [slope.left.value, slope.right.value]
        legal = [value * self.times for value in ends]
        around, jumps = self._around(along, abs(eager - compiled) or abs(eager - best.value * self.times))
        if jumps:
            legal += around
        low, high = min(legal) / unit, max(legal) / unit
        return DirectionalCheck(
            where,
            alone,
            low,
            high,
            error / unit,
            eager / unit,
            compiled / unit,
            not slope.smooth or jumps,
            slope.confirmed,
        )

    def agrees_at_a_glance(self, along: Direction) -> bool:
        """Whether eager's gradients agree with three central differences along a direction. Raises Undecided."""
        self._differentiable_by(along)
        limit = self.forward.glance(along)
        eager = self._sum(along, self.trial.named(self.trial.reference))
        return abs(eager - limit.value * self.times) <= limit.error * self.times + self._rounding(along)

    def drowned(self, along: Direction) -> float:
        """The most that underflow within a backward may lose along the direction."""
        kept = {name: torch.finfo(ref.dtype) for name, ref in self._touched(along).items()}
        sizes = {name: float(read(self.trace, along, self.leaves[name]).abs().sum()) for name in kept}
        return sum(size * kept[name].tiny / kept[name].eps for name, size in sizes.items())

    def constants(self, along: Direction) -> float:
        """The effect of rounded constants along the direction. A backward's formula has constants in its dtype, each
        half a unit off, where the forward has them in float64; so a product with a constant is off though it rounds
        nothing."""
        steps = [step for step in self.trace.steps if any(map(is_rounded, step.outs))]
        eps = max((torch.finfo(ref.dtype).eps for step in steps for ref in step.outs if is_rounded(ref)), default=0.0)
        total = 0.0
        for name, ref in self._touched(along).items():
            gradient = self.trial.named(self.trial.reference)[f"{name}.grad"]
            if gradient is not None:
                d = read(self.trace, along, ref)
                total += float((real_parts(gradient.detach()).to(d.device, torch.float64) * d).abs().sum())
        return total * len(steps) * eps / 2

    def _touched(self, along: Direction) -> dict[str, Ref]:
        """The leaves that this direction moves."""
        return {
            name: ref
            for name, ref in self.leaves.items()
            if ref.storage in along and bool(read(self.trace, along, ref).any())
        }

    def _differentiable_by(self, along: Direction) -> None:
        fixed = [leaf.name for leaf in self.trial.program.leaves if not leaf.requires_grad]
        for name in self._touched(along):
            if name in fixed:
                raise Undecided(f"{name} shares its memory with what differs and has no gradient")

    def _sum(self, along: Direction, named: dict[str, torch.Tensor | None]) -> float:
        """A side's derivative along the direction, from its gradients."""
        total = 0.0
        for name, ref in self._touched(along).items():
            gradient = named[f"{name}.grad"]
            if gradient is not None:
                d = read(self.trace, along, ref)
                wide = real_parts(gradient.detach()).to(d.device, torch.float64)
                total += float(torch.where(d == 0, 0.0, wide * d).sum())
        return total

    def _rounding(self, along: Direction) -> float:
        """The size of legal rounding of the gradients along the direction."""
        total = 0.0
        for name, ref in self._touched(along).items():
            if f"{name}.grad" in self.floors:
                d = read(self.trace, along, ref)
                total += float(torch.where(d == 0, 0.0, self.floors[f"{name}.grad"] * d.abs()).sum())
        return total

    def _around(self, along: Direction, gap: float) -> tuple[list[float], bool]:
        """The derivative by eager's own formulas in float64, here and at points nearby, and whether it jumps here."""
        here = self._formulas(along, {}, 0.0)
        generator = torch.Generator(self.model.device).manual_seed(0)
        found: list[float] = []
        for _ in range(_POINTS):
            anywhere = self._anywhere(generator)
            for sign in (1, -1):
                near, nearer = (self._formulas(along, anywhere, sign * size) for size in (_NEAR, _NEARER))
                settles = abs(nearer - here) <= max(abs(near - here) / 16, SHARP * gap / 16)
                if not settles and not (math.isnan(nearer) and math.isnan(here)):
                    found.append(nearer)
        if found and not all(map(math.isfinite, (here, *found))):
            raise Undecided(
                f"eager's formulas give {here:.9g} here and {found[0]:.9g} nearby: no derivative is bounded"
            )
        return [here, *found], bool(found)

    def kinks(self, judged: TensorVerdict) -> torch.Tensor:
        """Where a gradient by eager's own formulas jumps, between here and points nearby, by as much as the sides
        differ."""
        anywhere = self._anywhere(torch.Generator(self.model.device).manual_seed(0))
        apart = torch.nan_to_num(judged.compiled - judged.eager, nan=torch.inf).abs()
        jumps = torch.zeros_like(judged.mask)
        for step in (_NEARER, -_NEARER):
            there = real_parts(self._gradients(anywhere, step)[judged.name])
            settles = (there - judged.reference).abs() <= SHARP * apart
            jumps |= ~(settles | (there.isnan() & judged.reference.isnan()))
        return jumps

    def _formulas(self, along: Direction, to: Direction, step: float) -> float:
        named = self._gradients(to, step)
        return self._sum(along, {f"{name}.grad": named.get(f"{name}.grad") for name in self.leaves})

    def _gradients(self, to: Direction, step: float) -> dict[str, torch.Tensor]:
        """The gradients by eager's own formulas in float64, one step along a direction."""
        replay = Replay(moved(self.trace, to, step), device=self.model.device).run()
        return {name: replay.value(ref) for name, ref in self.trial.targets.items() if name.endswith(".grad")}

    def _anywhere(self, generator: torch.Generator) -> Direction:
        """A direction that moves every element of every leaf by a random part of its size."""
        found: dict[int, torch.Tensor] = {}
        for ref in self.leaves.values():
            if is_rounded(ref):
                signs = direction(self.trace, ref, torch.ones(ref.shape, device=self.model.device))[ref.storage]
                found[ref.storage] = signs * torch.rand(signs.shape, generator=generator, device=signs.device)
        return found


class Undecided(ValueError):
    """The derivative does not decide which side is wrong; the message says why."""


def whole(parts: torch.Tensor, ref: Ref) -> torch.Tensor:
    """The tensor of a leaf from its parts: complex where these stand along a last dimension."""
    return torch.view_as_complex(parts.contiguous()) if ref.dtype.is_complex else parts


# ---------------------------------------------------------------- eager under test


def own_rule(trial: Trial) -> str:
    """Why a program's gradients may differ from derivatives, or are not checked; "" where they must be derivatives.
    Raises Unreplayable."""
    assert trial.trace is not None
    for step in trial.trace.steps:
        if kernel(step).unsorted:
            return f"{step.name} returns its values in no order"
        if step.recorded:
            return f"{step.name} draws random numbers"
        if divides_by_frequency(step):
            return "scale_grad_by_freq divides gradients"
    for statement in statements(trial.program.body):
        if isinstance(statement, Region):
            if region_spec(statement).tells:
                return f"region {statement.kind} tells autograd a gradient"
        elif OPS[statement.op].tells:
            return f"{statement.op} tells autograd a gradient"
        elif dict(statement.attrs).get("padding_idx") is not None:
            return "the row of padding_idx has no gradient"
    return _written_twice(trial)


def _written_twice(trial: Trial) -> str:
    """The kernel of which one write replaces another, in words; "" where there is none. torch defines neither which
    write stays nor the gradients of those that are lost (documentation of scatter_ and index_put_). Raises
    Unreplayable."""
    assert trial.trace is not None
    if not any(kernel(step).times_written for step in trial.trace.steps):
        return ""
    replay = Replay(trial.model.trace, device=trial.model.device)
    for _, step in replay.walk():
        if (times := kernel(step).times_written) is None:
            continue
        args, kwargs = mapped(
            (step.args, step.kwargs), lambda leaf: replay.value(leaf) if isinstance(leaf, Ref) else leaf
        )
        written = times(*args, **kwargs)
        if written is not None and bool((written.abs() > 1).any()):
            return f"{step.name} writes to one place more than once"
    return ""


def contradiction(trial: Trial) -> tuple[str, DirectionalCheck] | None:
    """The first leaf whose gradient in eager is no derivative of the forward, with the check that contradicts it; None
    where there is no such leaf, or nothing can be decided. Raises Unreplayable."""
    leaves = [leaf.name for leaf in trial.program.leaves if leaf.requires_grad and not leaf.conj]
    leaves = [name for name in leaves if trial.reference.gradients.get(name) is not None]
    if not leaves or own_rule(trial):
        return None
    alone = trial.with_subject(trial.reference)
    check = GradientCheck(alone, FIRST_LOOK)
    leaves = [name for name in leaves if not check.leaves[name].dtype.is_complex and check.leaves[name].numel]
    generator = torch.Generator().manual_seed(0)
    try:
        together: Direction = {}
        for name in leaves:
            together = {**together, **_random(check, name, generator)}
        if not leaves or check.agrees_at_a_glance(together):
            return None
    except Undecided:
        return None
    sharp = GradientCheck(alone)
    return next((found for name in leaves if (found := _contradicted(sharp, name, generator)) is not None), None)


def _random(check: GradientCheck, name: str, generator: torch.Generator) -> Direction:
    """A direction that moves every element of a leaf up or down at random."""
    ref = check.leaves[name]
    signs = torch.rand(ref.shape, generator=generator, dtype=torch.float64) - 0.5
    return direction(check.trace, ref, signs.to(check.model.device))


def _contradicted(check: GradientCheck, name: str, generator: torch.Generator) -> tuple[str, DirectionalCheck] | None:
    """The check that contradicts a leaf's gradient along each random direction, at no kink and by more than
    underflow."""
    found: list[DirectionalCheck] = []
    for _ in range(_AGAIN):
        along = _random(check, name, generator)
        try:
            made = check.check_direction(f"along random signs of {name}", along, False)
        except Undecided:
            return None
        lost = check.drowned(along) + check.constants(along)
        certain = made.decides and made.confirmed and not made.kink and made.gap > lost
        certain = certain and math.isfinite(made.eager) and math.isfinite(made.error)
        if not certain or not made.contradicts(made.eager):
            return None
        found.append(made)
    return name, found[0]
