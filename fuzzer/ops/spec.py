"""What an op's table entry may say.

An entry is one `OpSpec`: a name, the torch callable it stands for, and its parameters in the order in which they are
drawn. A parameter is an `Operand` (a tensor) or an `Attribute` (anything else). Each may look at what was drawn before
it through a `Draw`, so an entry is valid by construction: `slice_scatter` draws its tensor, then dim, start and end,
then a source of exactly the shape of that slice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuzzer.program import FLOATS, INTEGERS, Recipe, Shape, TensorType, Value

REQUIRED: Any = object()  # the default of an attribute that must be written


@dataclass(frozen=True)
class Limits:
    """Bounds on what is drawn. Sizes are log-uniform in 0..max_size; no leaf has more than max_numel elements."""

    max_nodes: int = 6
    max_size: int = 64
    max_numel: int = 4096
    max_rank: int = 5
    dtypes: tuple[str, ...] = FLOATS


@dataclass
class Draw:
    """What a parameter may look at: the randomness, the limits and what was drawn before it."""

    rng: random.Random
    limits: Limits
    operands: list[Any] = field(default_factory=list)  # TensorType, tuple of TensorType, or None, in operand order
    attrs: dict[str, Value] = field(default_factory=dict)

    @property
    def x(self) -> TensorType:
        """The first operand (the first of the list, for an op that takes a list)."""
        first = self.operands[0]
        return first[0] if isinstance(first, tuple) else first

    def size(self, low: int = 1, high: int | None = None) -> int:
        """A size, log-uniform in low..high (high defaults to limits.max_size)."""
        return log_uniform(self.rng, low, self.limits.max_size if high is None else high)

    def dim(self) -> int:
        """The drawn attribute `dim` as a non-negative index into the first operand."""
        return int(self.attrs["dim"]) % max(self.x.rank, 1)  # type: ignore[arg-type]


def log_uniform(rng: random.Random, low: int, high: int) -> int:
    """An integer in low..high (inclusive), log-uniform; low may be 0, which then has the weight of 1."""
    if high <= low:
        return low
    if low == 0:
        return 0 if rng.random() < 0.05 else log_uniform(rng, 1, high)
    return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))


# ---------------------------------------------------------------- operands

SAME = "same"  # an operand's dtype: that of the first operand


@dataclass(frozen=True)
class Operand:
    """A tensor parameter.

    name      for people and for `ops --json`.
    dtypes    dtypes it may have, or SAME.
    rank      lowest and highest rank, where `shape` does not decide.
    shape     the exact shape it must have; None: any shape that `accepts` admits.
    accepts   a test on the type of a candidate (a stored value or a drawn shape).
    fresh     the shape of a new leaf, where log-uniform sizes of a drawn rank would be refused too often.
    values    recipes that suit a new leaf, by name (drawn among with the general ones).
    recipe    the recipe that it must have (index operands): then it is always a leaf.
    count     lowest and highest number of tensors, for an operand that is a list.
    absent    probability that an optional operand is left out.
    keyword   torch's name for it, where it cannot be passed by position.
    """

    name: str = "x"
    dtypes: tuple[str, ...] | str = FLOATS
    rank: tuple[int, int] = (0, 5)
    shape: Callable[[Draw], Shape] | None = None
    accepts: Callable[[TensorType], bool] | None = None
    fresh: Callable[[Draw], Shape] | None = None
    values: tuple[str, ...] = ()
    recipe: Callable[[Draw], Recipe] | None = None
    count: tuple[int, int] | None = None
    absent: float = 0.0
    keyword: str | None = None

    def admits(self, d: Draw, t: TensorType, shape: Shape | None) -> bool:
        """Whether a value of type t may stand here; `shape` is the exact shape drawn for this place, if any."""
        dtypes = (d.x.dtype,) if self.dtypes == SAME else self.dtypes
        if t.dtype not in dtypes or (shape is not None and t.shape != shape):
            return False
        in_rank = shape is not None or self.rank[0] <= t.rank <= self.rank[1]
        return in_rank and (self.accepts is None or self.accepts(t))


INDEX = ("i64",)
INTS = INTEGERS
BOOL = ("bool",)
ANY = FLOATS + INTEGERS + BOOL


# ---------------------------------------------------------------- attributes


@dataclass(frozen=True)
class Attribute:
    """A parameter that is no tensor: how to draw it, its default (absent from the text), and its kind for people."""

    name: str
    kind: str
    draw: Callable[[Draw], Value]
    default: Any = REQUIRED


def flag(name: str, default: Any = REQUIRED) -> Attribute:
    """True or False."""
    return Attribute(name, "flag", lambda d: d.rng.random() < 0.5, default)


def choice(name: str, *options: Value, default: Any = REQUIRED) -> Attribute:
    """One of a few values, each as likely."""
    return Attribute(name, "choice", lambda d: d.rng.choice(options), default)


def integer(
    name: str, low: int | Callable[[Draw], int], high: int | Callable[[Draw], int], default: Any = REQUIRED
) -> Attribute:
    """An integer in low..high, both inclusive; bounds may look at the Draw. Where high < low it is low."""

    def draw(d: Draw) -> Value:
        lowest, highest = (bound(d) if callable(bound) else bound for bound in (low, high))
        if highest <= lowest:
            return lowest
        # corners first: the ends of a range are where kernels go wrong
        return d.rng.choice((lowest, highest)) if d.rng.random() < 0.3 else d.rng.randint(lowest, highest)

    return Attribute(name, "integer", draw, default)


def real(name: str, low: float, high: float, corners: tuple[float, ...] = (), default: Any = REQUIRED) -> Attribute:
    """A float in low..high, rounded to two decimals; one of the corners in half of the draws, where there are any."""

    def draw(d: Draw) -> Value:
        if corners and d.rng.random() < 0.5:
            return d.rng.choice(corners)
        return round(d.rng.uniform(low, high), 2)

    return Attribute(name, "real", draw, default)


def dim(name: str = "dim", default: Any = REQUIRED, extra: int = 0) -> Attribute:
    """A dimension of the first operand, negative in a third of the draws; `extra` = 1 for ops that add a dimension."""

    def draw(d: Draw) -> Value:
        rank = d.x.rank + extra
        chosen = d.rng.randrange(max(rank, 1))
        return chosen - max(rank, 1) if d.rng.random() < 1 / 3 else chosen

    return Attribute(name, "dim", draw, default)


def dims(name: str = "dim", default: Any = REQUIRED, least: int = 1) -> Attribute:
    """A tuple of at least `least` distinct dimensions of the first operand."""

    def draw(d: Draw) -> Value:
        return tuple(sorted(d.rng.sample(range(d.x.rank), d.rng.randint(min(least, d.x.rank), d.x.rank))))

    return Attribute(name, "dims", draw, default)


def computed(name: str, kind: str, draw: Callable[[Draw], Value], default: Any = REQUIRED) -> Attribute:
    """An attribute with its own rule, e.g. a target shape."""
    return Attribute(name, kind, draw, default)


# ---------------------------------------------------------------- the entry


@dataclass(frozen=True)
class OpSpec:
    """One op.

    name            as it stands in a .prog text; ends in an underscore where the op writes in place.
    family          one word; the generator draws the family first, then the op, each as likely.
    source          the torch callable as a person writes it, e.g. "torch.slice_scatter"; called with the operands by
                    position (or by `Operand.keyword`), attributes by name.
    params          operands and attributes in the order in which they are drawn.
    results         number of results, or a rule for it.
    differentiable  whether a gradient flows from a floating result to some operand.
    effects         "" or "writes the first operand" for in-place ops.
    """

    name: str
    family: str
    source: str
    params: tuple[Operand | Attribute, ...]
    results: int | Callable[[Draw], int] = 1
    differentiable: bool = True
    effects: str = ""

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(p for p in self.params if isinstance(p, Operand))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(p for p in self.params if isinstance(p, Attribute))
