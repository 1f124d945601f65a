"""Which side is wrong: the gradients of both are checked against directional derivatives.

Neither side's backward is asked. The forward's own values say what the derivative is (`derivative`), along directions
in which the two sides differ; each side must agree with it to within what legal rounding shows there. At a tie or a
kink the one-sided derivatives and the derivatives nearby span what is legal, eager's own convention included.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from fuzzer.judgement.comparison import TensorVerdict, judge_tensors, looks, outside_floor, spread, worst_element
from fuzzer.judgement.trial import Raised, Trial
from fuzzer.judgement.verdict import (
    BOTH,
    CHOICE,
    COMPILED,
    DIFFERS,
    EAGER,
    EAGER_DIES,
    EAGER_RAISES,
    NEITHER,
    RAISES,
    UNDECIDED,
    Finding,
    side_by_class,
)
from fuzzer.language.program import Region, statements
from fuzzer.language.regions import region_spec
from fuzzer.language.routes import ROUTES
from fuzzer.language.values import real_parts
from fuzzer.rounding.arithmetic import divides_by_frequency
from fuzzer.rounding.derivative import Direction, Forward, Limit, direction, moved, read
from fuzzer.rounding.floors import FACTOR
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.replay import Replay, Unreplayable
from fuzzer.rounding.trace import Ref, is_rounded

_MOST_TENSORS = 3  # of those that differ
_RANDOM_DIRECTIONS = 2  # in each of them, beside its worst element and the difference itself
# A derivative must be known to this part of what the sides differ by, and decides a sum over several elements at a kink
# only where all that is legal there lies as close together.
_SHARP = 0.25
# Points nearby, as parts of each element's size: a smooth derivative changes 256 times less over the smaller distance.
_NEAR, _NEARER, _POINTS = 2.0**-20, 2.0**-28, 4


@dataclass(frozen=True)
class DirectionalCheck:
    """The derivative along one direction, and what the gradients of each side make of it.

    low, high        the derivative, or the ends of what is legal at a kink.
    error            how far off they may be, legal rounding of a gradient included.
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
    confirmed: bool  # forward-mode AD says the same

    @property
    def gap(self) -> float:
        """What the sides differ by, or one of them from what is legal."""
        beyond = [max(self.low - value, value - self.high) for value in (self.eager, self.compiled)]
        gap = max(abs(self.eager - self.compiled), *beyond)
        return gap if math.isfinite(gap) else math.inf

    @property
    def decides(self) -> bool:
        known = self.error <= _SHARP * self.gap
        return known and (not self.kink or self.alone or self.high - self.low <= _SHARP * self.gap)

    def contradicts(self, value: float) -> bool:
        return not self.low - self.error <= value <= self.high + self.error  # True of NaN

    def __str__(self) -> str:
        if self.kink:
            legal = f"{self.where}, a kink or tie, anything from {self.low:.9g} to {self.high:.9g} is legal"
            return f"{legal} (to {self.error:.1g}); {self.values}"
        how = "central differences in float64" + (" and forward-mode AD" if self.confirmed else "")
        return f"{self.where} {how} give {self.low:.9g} (to {self.error:.1g}); {self.values}"

    @property
    def values(self) -> str:
        return f"eager has {self.eager:.9g}, compiled {self.compiled:.9g}"


class GradientCheck:
    """The gradients of one trial against directional derivatives. Raises Unreplayable where its trace has no replay."""

    def __init__(self, trial: Trial):
        self.trial, self.model = trial, trial.model
        self.trace = self.model.trace
        self.times = ROUTES[trial.program.route.name].times
        seeded = [o.value for o in trial.program.outputs if o.cotangent is not None]
        pairs = [(trial.targets[name], self.trace.given[f"c{i}"]) for i, name in enumerate(seeded)]
        self.forward = Forward(self.trace, pairs, self.model.device)
        floors = spread(trial, looks(trial)[-1]).floor(FACTOR)
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
        if not max(limit.error * self.times for limit in one_sided) <= _SHARP * max(sizes, default=0.0):
            raise Undecided(f"{where} the differences settle on no derivative")
        best = slope.best if slope.smooth else Limit(0.0, slope.left.error + slope.right.error)
        error = best.error * self.times + self._rounding(along)
        ends = [best.value] if slope.smooth else [slope.left.value, slope.right.value]
        legal = [value * self.times for value in ends]
        around, jumps = self._around(along, abs(eager - compiled))
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

    def _touched(self, along: Direction) -> dict[str, Ref]:
        """The leaves that a direction moves."""
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
        """What legal rounding of the gradients amounts to along the direction."""
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
                settles = abs(nearer - here) <= max(abs(near - here) / 16, _SHARP * gap / 16)
                if not settles and not (math.isnan(nearer) and math.isnan(here)):
                    found.append(nearer)
        if found and not all(map(math.isfinite, (here, *found))):
            raise Undecided(
                f"eager's formulas give {here:.9g} here and {found[0]:.9g} nearby: no derivative is bounded"
            )
        return [here, *found], bool(found)

    def kinks(self, judged: TensorVerdict) -> torch.Tensor:
        """Where a gradient by eager's own formulas jumps between here and points nearby, by what the sides differ."""
        anywhere = self._anywhere(torch.Generator(self.model.device).manual_seed(0))
        apart = torch.nan_to_num(judged.compiled - judged.eager, nan=torch.inf).abs()
        jumps = torch.zeros_like(judged.mask)
        for step in (_NEARER, -_NEARER):
            there = real_parts(self._gradients(anywhere, step)[judged.name])
            settles = (there - judged.reference).abs() <= _SHARP * apart
            jumps |= ~(settles | (there.isnan() & judged.reference.isnan()))
        return jumps

    def _formulas(self, along: Direction, to: Direction, step: float) -> float:
        named = self._gradients(to, step)
        return self._sum(along, {f"{name}.grad": named.get(f"{name}.grad") for name in self.leaves})

    def _gradients(self, to: Direction, step: float) -> dict[str, torch.Tensor]:
        """The gradients by eager's own formulas in float64, a step along a direction."""
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
    """Why a derivative does not say who is wrong."""


def _directions(check: GradientCheck, judged: TensorVerdict) -> Iterator[tuple[str, Direction, bool]]:
    """What to move in a leaf whose gradients differ: single elements, all by how they differ, all at random.

    The worst element comes first, then what is at no kink, so that a kink beside it hides nothing.
    """
    leaf = judged.name.removesuffix(".grad")
    ref = check.leaves[leaf]
    apart = torch.nan_to_num(judged.compiled - judged.eager, nan=1.0)
    plain = judged.mask & ~check.kinks(judged)

    def along(signs: torch.Tensor) -> Direction:
        return direction(check.trace, ref, _whole(signs, ref))

    for mask in [judged.mask, plain] if bool(plain.any()) else [judged.mask]:
        index = worst_element(replace(judged, mask=mask)).index
        one = torch.zeros_like(apart)
        one[index] = 1.0
        yield f"at {leaf}{list(index)}", along(one), True
    for mask in (plain, judged.mask):
        if int(mask.sum()) > 1:
            yield f"along what differs in {leaf}", along(apart * mask), False
    generator = torch.Generator(apart.device).manual_seed(0)
    for i in range(_RANDOM_DIRECTIONS if int(plain.sum()) > 1 else 0):
        signs = torch.rand(apart.shape, generator=generator, device=apart.device, dtype=torch.float64) - 0.5
        yield f"along random signs ({i}) of what differs in {leaf}", along(signs * plain), False


def _whole(parts: torch.Tensor, ref: Ref) -> torch.Tensor:
    """A leaf's own form of real and imaginary parts that stand along a last dimension."""
    return torch.view_as_complex(parts.contiguous()) if ref.dtype.is_complex else parts


def decide(trial: Trial, found: list[TensorVerdict]) -> str:
    """Who is wrong, and why: one of the constants above, a colon, the reason. Raises Unreplayable."""
    gradients = [j for j in found if j.name.endswith(".grad")]
    if all(j.verdict == "rounding-sensitive" for j in found):
        return f"{NEITHER}: both lie within legal rounding"
    if unsorted := next((step.name for step in trial.model.trace.steps if kernel(step).unsorted), ""):
        return f"{UNDECIDED}: {unsorted} returns its values in no order"
    told = [s for s in statements(trial.program.body) if isinstance(s, Region) and region_spec(s).tells]
    if not gradients or told:
        return _decide_by_eager(trial, found)
    if any(map(divides_by_frequency, trial.model.trace.steps)):
        return f"{UNDECIDED}: scale_grad_by_freq divides gradients, which are no derivatives then"
    check = GradientCheck(trial)
    checks: list[DirectionalCheck] = []
    reasons: list[str] = []
    for judged in gradients[:_MOST_TENSORS]:
        for where, along, alone in _directions(check, judged):
            try:
                checks.append(check.check_direction(where, along, alone))
            except Undecided as reason:
                reasons.append(str(reason))
    return combine(checks, reasons, _random_step(trial))


def combine(checks: list[DirectionalCheck], reasons: list[str], draws: str) -> str:
    """(side: reason) from all directional checks that decide; reasons say why others could not be made."""
    sharp = [t for t in checks if t.decides]
    eager, compiled = (
        [t for t in sharp if t.contradicts(value(t))] for value in (lambda t: t.eager, lambda t: t.compiled)
    )
    if not sharp:
        blunt = [f"{t}: too coarse to tell" for t in checks]
        return f"{UNDECIDED}: {(reasons + blunt + ['no derivative could be computed'])[0]}"
    if (eager or compiled) and draws:
        return f"{UNDECIDED}: {draws}, and another draw has another derivative; with eager's, {(eager or compiled)[0]}"
    if eager:
        both = [t for t in eager if t in compiled]
        return f"{BOTH if compiled else EAGER}: {(both or eager)[0]}"
    if compiled:
        return f"{COMPILED}: {compiled[0]}"
    if any(t.kink for t in sharp):
        return f"{CHOICE}: {next(t for t in sharp if t.kink)}"
    return f"{NEITHER}: {sharp[0]}"


def _random_step(trial: Trial) -> str:
    """The operation that draws random numbers, in words; "" where there is none."""
    assert trial.trace is not None
    return next((f"{step.name} draws random numbers" for step in trial.trace.steps if step.recorded), "")


def _decide_by_eager(trial: Trial, found: list[TensorVerdict]) -> str:
    """Of outputs, and of gradients that autograd was told: eager's own operations in float64 are all that there is to
    compare with."""
    worst = found[0]
    own = trial.targets[worst.name].dtype in (torch.float64, torch.complex128)
    if own and trial.place.reference.device == trial.model.device.type and worst.verdict != "eager-suspect":
        return f"{UNDECIDED}: {worst.name} is float64, and eager's own operations are all there is to compare with"
    c = worst_element(worst)
    off = [bool(outside_floor(side, worst.reference, worst.floor).any()) for side in (worst.eager, worst.compiled)]
    who = {(True, True): BOTH, (True, False): EAGER, (False, True): COMPILED}.get((off[0], off[1]), NEITHER)
    if who == COMPILED and (drawn := _random_step(trial)):
        return f"{UNDECIDED}: {drawn}, and another draw has another result"
    where = f"{c.name}{list(c.index)}"
    return (
        f"{who}: at {where} eager's operations in float64 give {c.float64:.9g} (to {c.floor:.1g}); eager has "
        f"{c.eager:.9g}, compiled {c.compiled:.9g}"
    )


def side_of(trial: Trial) -> str:
    """Which side of a trial that ran is wrong, and why."""
    try:
        with torch.no_grad():
            found = list(judge_tensors(trial, list(trial.targets)))
            return decide(trial, found) if found else "none: no tensor lies outside its floor"
    except Unreplayable as error:
        return f"{UNDECIDED}: the trace cannot be replayed: {error}"


# Where exceptions come from, by the innermost of torch's files on their traceback.
_COMPILERS = ("_inductor", "_dynamo", "_functorch", "fx", "_subclasses", "_decomp", "_refs", "_prims", "_meta",
              "_higher_order_ops", "_guards", "_library", "utils/_sympy")  # fmt: skip
_COMPILING = ("_dynamo/output_graph", "_inductor/graph", "_functorch/_aot_autograd/graph_c")  # not when code runs
_FILE = re.compile(r'File "([^"]+)", line \d+, in (\w+)')


def who_raised(raised: Raised) -> str:
    """Whose exception it is that the compiled side raised: the compiler's, that of the code it wrote, a kernel's."""
    files = _FILE.findall(raised.traceback)
    torchs = [(path.removeprefix("torch/"), name) for path, name in files if path.startswith("torch/")]
    path, name = torchs[-1] if torchs else ("", "")
    where = f" in torch/{path}, {name}" if path else ""
    if path.startswith(_COMPILERS):
        return f"{raised.kind}{where}: the compiler's own"
    if any(path.startswith(_COMPILING) for path, _ in torchs):
        return f"{raised.kind}{where}: met by the compiler while it traced"
    written = files and not files[-1][0].startswith(("torch/", "fuzzer/"))
    of = "the code that it wrote" if written else "a kernel that eager has too, given what eager does not give it"
    return f"{raised.kind}{where}: raised by {of}"


def told_side(finding: Finding, raised: str) -> str:
    """Which side it is where that is no question of numbers; raised: what `who_raised` says. "" where it is one."""
    side, said = side_by_class(finding.signature), finding.detail.partition("\n")[0]
    if side == RAISES:
        return f"{side}: {raised or said}; eager runs"
    if side in (EAGER_DIES, EAGER_RAISES):
        return f"{side}: {said}"
    if side == DIFFERS:
        return f"{side}: {said}; what eager does is the measure"
    return f"{side}: {said}; eager ends well" if side else ""
