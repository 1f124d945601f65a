"""The form of an op's table entry.

An entry is one `OpSpec`: a name, its torch callable, and its parameters in the order in which they are drawn. A
parameter is an `Operand` (a tensor) or an `Attribute` (anything else). Its rules see earlier parameters through a
`Draw`, so an entry is valid by construction: `slice_scatter` draws its tensor, then dim, start and end, then a source
of exactly the shape of that slice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fuzzer.language.program import COMPLEX, FLOATS, INTEGERS, Dtype, Recipe, Shape, TensorType, Value, contiguous

REQUIRED: Any = object()  # the default of an attribute that must be written


@dataclass(frozen=True)
class Limits:
    """Bounds on leaves. Sizes are log-uniform in 0..max_size; no leaf has more than max_numel elements, except one long
    leaf in some programs, which may have `long` times as many."""

    max_nodes: int = 6
    max_size: int = 64
    max_numel: int = 4096
    max_rank: int = 5
    long: int = 16
    dtypes: tuple[str, ...] = FLOATS

    def real(self) -> Limits:
        """The limits of an op without complex operands."""
        return replace(self, dtypes=tuple(t for t in self.dtypes if t not in COMPLEX) or FLOATS)


@dataclass
class Draw:
    """The arguments of a parameter's rules: the random generator, the limits and the parameters drawn so far."""

    rng: random.Random
    limits: Limits
    operands: list[Any] = field(default_factory=list)  # TensorType, tuple of TensorType, or None, in operand order
    attrs: dict[str, Value] = field(default_factory=dict)
    tracked: bool = False  # whether an operand drawn so far requires grad

    @property
    def x(self) -> TensorType:
        """The first operand (the first of the list, for an op that takes a list)."""
        first = self.operands[0]
        return first[0] if isinstance(first, tuple) else first

    def size(self, low: int = 1, high: int | None = None) -> int:
        """A size, log-uniform in low..high, where high is at most limits.max_size."""
        most = self.limits.max_size
        return log_uniform(self.rng, low, most if high is None else min(high, max(most, low)))

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

Edges = Callable[[Draw], Sequence[Value] | Recipe] | None
Domain = tuple[float, float] | Callable[[Draw], tuple[float, float]] | None

SAME = "same"  # an operand's dtype: that of the first operand


@dataclass(frozen=True)
class Operand:
    """A tensor parameter.

    name      for people and for `ops --json`.
    dtypes    allowed dtypes, or SAME.
    rank      lowest and highest rank, where `shape` does not decide.
    shape     the exact shape it must have; None: any shape that `accepts` admits.
    accepts   a test on the type of a candidate (a stored value or a drawn shape).
    fresh     the shape of a new leaf, where log-uniform sizes of a drawn rank would be refused too often.
    values    recipes that suit a new leaf, by name (beside the general ones).
    edges     the numbers at which the op changes its formula, from its drawn attributes: most new leaves hold them,
              exactly and one unit beside, in their own dtype. Or a recipe, where the other operand decides.
    domain    the ends of its domain, from its drawn attributes where they decide: some new leaves hold numbers at the
              ends and beside them. Beyond an end the op is not a number, or has another formula.
    recipe    the recipe that it must have (index operands): then it is always a leaf.
    count     lowest and highest number of tensors, for an operand that is a list.
    absent    probability that an optional operand is left out.
    keyword   torch's name for it, where it cannot be passed by position.
    fixed     it never depends on a leaf that requires grad, because torch refuses one that does.
    within    with a recipe: numbers outside its range make the program ill-typed, because eager's kernels do not check
              them on every device, and read out of bounds or return undefined values.
    divisor   whether integers in it are never 0, by which torch refuses to divide.
    """

    name: str = "x"
    dtypes: tuple[str, ...] | str = FLOATS
    rank: tuple[int, int] = (0, 5)
    shape: Callable[[Draw], Shape] | None = None
    accepts: Callable[[TensorType], bool] | None = None
    fresh: Callable[[Draw], Shape] | None = None
    values: tuple[str, ...] = ()
    edges: Edges = None
    domain: Domain = None
    recipe: Callable[[Draw], Recipe] | None = None
    count: tuple[int, int] | None = None
    absent: float = 0.0
    keyword: str | None = None
    fixed: bool = False
    within: bool = False
    divisor: bool = False

    def admitted(self, d: Draw) -> tuple[str, ...]:
        """The allowed dtypes; for the first tensor of an op's list SAME means any in the limits."""
        if isinstance(self.dtypes, tuple):
            return self.dtypes
        return d.limits.dtypes if d.operands == [()] else (d.x.dtype,)

    def admits(self, d: Draw, t: TensorType, shape: Shape | None) -> bool:
        """Whether a value of type t may be this operand; `shape` is the exact shape drawn for it, if any."""
        dtypes = self.admitted(d)
        if t.dtype not in dtypes or (shape is not None and t.shape != shape):
            return False
        in_rank = shape is not None or self.rank[0] <= t.rank <= self.rank[1]
        return in_rank and (self.accepts is None or self.accepts(t))


INDEX = ("i64",)
INTS = INTEGERS
BOOL = ("bool",)
NUMBERS = FLOATS + INTEGERS
ANY = NUMBERS + BOOL
WIDE = ("f64", "f32")  # where the CPU has no half precision kernel


def at(*places: float | str) -> Callable[[Draw], Sequence[Value]]:
    """Edges: numbers, and attributes by name (those that are None add nothing)."""
    return lambda d: [d.attrs[place] if isinstance(place, str) else place for place in places]


# ---------------------------------------------------------------- attributes

Bound = int | Callable[[Draw], int]


@dataclass(frozen=True)
class Attribute:
    """A parameter that is no tensor: its rule, its default (absent from the text), and its kind for people.

    leads: torch takes it by position, before the operands.  options: those of a choice.  bounds: lowest and highest of
    an integer or dimension, each fixed or a rule.  corners: those of a real. An attribute with its own rule has none.
    classes: further classes of values that it draws, seldom unless a wish names them.
    """

    name: str
    kind: str
    draw: Callable[[Draw], Value]
    default: Any = REQUIRED
    leads: bool = False
    options: tuple[Value, ...] = ()
    bounds: tuple[Bound, Bound] | None = None
    corners: tuple[float, ...] | None = None
    classes: tuple[str, ...] = ()


def flag(name: str, default: Any = REQUIRED) -> Attribute:
    """True or False."""
    return Attribute(name, "flag", lambda d: d.rng.random() < 0.5, default, options=(False, True))


def choice(name: str, *options: Value, default: Any = REQUIRED) -> Attribute:
    """One of a few values, each as likely."""
    return Attribute(name, "choice", lambda d: d.rng.choice(options), default, options=options)


def integer(
    name: str, low: Bound, high: Bound, default: Any = REQUIRED, beyond: Callable[[Draw], int] | None = None
) -> Attribute:
    """An integer in low..high, both inclusive; bounds may look at the Draw. Where high < low it is low.

    beyond: a rule for one outside of them that torch takes, too.
    """

    def draw(d: Draw) -> Value:
        if beyond is not None and d.rng.random() < SELDOM:
            return beyond(d)
        lowest, highest = (bound(d) if callable(bound) else bound for bound in (low, high))
        if highest <= lowest:
            return lowest
        # the ends of a range are where kernels fail
        return d.rng.choice((lowest, highest)) if d.rng.random() < 0.3 else d.rng.randint(lowest, highest)

    return Attribute(name, "integer", draw, default, bounds=(low, high), classes=(BEYOND,) if beyond else ())


def real(name: str, low: float, high: float, corners: tuple[float, ...] = (), default: Any = REQUIRED) -> Attribute:
    """A float in low..high, rounded to two decimals; one of the corners in half of the draws, where there are any."""

    def draw(d: Draw) -> Value:
        if corners and d.rng.random() < 0.5:
            return d.rng.choice(corners)
        return round(d.rng.uniform(low, high), 2)

    return Attribute(name, "real", draw, default, corners=corners)


# Further classes of numbers. UNHELD: half precision rounds them. LARGE: at and beyond the end of float16, or near those
# of integer types. BEYOND: outside of a range.
UNHELD, LARGE, BEYOND, ZERO = "unheld", "large", "beyond", "0"
SELDOM = 0.1  # the share of draws that have one of an attribute's further classes
UNHELD_NUMBERS = (0.1, 1.7, 3.14, 1e-3)
LARGE_NUMBERS = (65504.0, 65520.0, 1e5)
LEAST_LARGE = 2**14
# By dtype the integers near which products and sums leave a type that code might use instead.
NEAR_ENDS = {"i64": (2**15, 2**31, 2**62), "i32": (2**15, 2**31 - 1), "i16": (2**15 - 1,)}


def number(name: str, low: float, high: float, corners: tuple[float, ...] = (), default: Any = REQUIRED) -> Attribute:
    """A number beside a tensor: a `real`; seldom, or in half of the draws with an integer tensor, UNHELD or LARGE."""
    usual = real(name, low, high, corners, default)

    def draw(d: Draw) -> Value:
        near = NEAR_ENDS.get(d.x.dtype)
        if d.rng.random() >= (0.5 if near else 2 * SELDOM):
            return usual.draw(d)
        if d.rng.random() < 0.5:
            return d.rng.choice(UNHELD_NUMBERS)
        return d.rng.choice((1, -1)) * d.rng.choice(near) if near else d.rng.choice(LARGE_NUMBERS)

    return replace(usual, draw=draw, classes=(UNHELD, LARGE))


def dim(name: str = "dim", default: Any = REQUIRED, extra: int = 0) -> Attribute:
    """A dimension of the first operand, negative in a third of the draws; `extra` = 1 for ops that add a dimension."""

    def draw(d: Draw) -> Value:
        rank = d.x.rank + extra
        chosen = d.rng.randrange(max(rank, 1))
        return chosen - max(rank, 1) if d.rng.random() < 1 / 3 else chosen

    return Attribute(name, "dim", draw, default, bounds=(0, lambda d: max(d.x.rank + extra, 1) - 1))


def dims(name: str = "dim", default: Any = REQUIRED, least: int = 1) -> Attribute:
    """A tuple of at least `least` distinct dimensions of the first operand."""

    def draw(d: Draw) -> Value:
        return tuple(sorted(d.rng.sample(range(d.x.rank), d.rng.randint(min(least, d.x.rank), d.x.rank))))

    return Attribute(name, "dims", draw, default)


def computed(
    name: str, kind: str, draw: Callable[[Draw], Value], default: Any = REQUIRED, classes: tuple[str, ...] = ()
) -> Attribute:
    """An attribute with its own rule, e.g. a target shape."""
    return Attribute(name, kind, draw, default, classes=classes)


# ---------------------------------------------------------------- the entry

FROM_SOURCE: tuple[str, ...] = ("from the source",)


WRITES = "writes the first operand"


@dataclass(frozen=True)
class OpSpec:
    """One op.

    name            in a .prog text; ends in an underscore where the op writes in place.
    family          one word; the generator draws the family first, then the op, each as likely.
    source          the torch callable as people write it, e.g. "torch.slice_scatter"; called with the operands by
                    position (or by `Operand.keyword`), attributes by name. Or a tensor's property: "torch.Tensor.mT".
    params          operands and attributes in the order in which they are drawn.
    then            torch callables applied to each result, one after another: torch.view_as_real for complex results.
    results         number of results, or a rule for it.
    differentiable  whether a gradient flows from a floating result to some operand.
    effects         "" or WRITES for in-place ops.
    entries         entries of torch's own database of ops (`op_db`) that it covers: those whose function, or an exact
                    alias of it, it calls. Left out: the one named like its source.
    since           the first torch release that has it, differentiable where the entry says so.
    random          whether it draws random numbers: then the program needs `fallback_random` (see `settings`).
    portable        whether it means the same on every device.
    tells           whether it gives autograd a gradient that need not be a derivative of its forward.
    public          the call by which people reach an internal source; "" where there is none, or the source is public.
    """

    name: str
    family: str
    source: str
    params: tuple[Operand | Attribute, ...]
    results: int | Callable[[Draw], int] = 1
    differentiable: bool = True
    effects: str = ""
    entries: tuple[str, ...] = FROM_SOURCE
    since: str = ""
    then: tuple[str, ...] = ()
    random: bool = False
    portable: bool = True
    tells: bool = False
    public: str = ""

    def __post_init__(self) -> None:
        if self.entries is FROM_SOURCE:
            name = self.source.removeprefix("torch.").removeprefix("Tensor.")
            object.__setattr__(self, "entries", (name,))

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(p for p in self.params if isinstance(p, Operand))

    @property
    def elementwise(self) -> bool:
        """Whether it is a function of one number, applied to each element."""
        return self.family in ("pointwise", "activation") and len(self.operands) == 1

    @property
    def takes_complex(self) -> bool:
        return any(not set(COMPLEX).isdisjoint(operand.dtypes) for operand in self.operands)

    def widened(self) -> OpSpec:
        """The same op with complex operands allowed wherever floating ones of every precision are."""

        def wide(p: Operand | Attribute) -> Operand | Attribute:
            if isinstance(p, Operand) and isinstance(p.dtypes, tuple) and set(WIDE) <= set(p.dtypes):
                return replace(p, dtypes=(*p.dtypes, *COMPLEX))
            return p

        return self if self.takes_complex else replace(self, params=tuple(map(wide, self.params)))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(p for p in self.params if isinstance(p, Attribute))


# ---------------------------------------------------------------- shape rules
# Rules that several tables share: a function of a Draw (or one that returns such) for a shape, or a test of a type.


def nonempty(t: TensorType) -> bool:
    """At least one element."""
    return t.numel > 0


def dense(t: TensorType) -> bool:
    """At least one element, row-major without gaps, as `view` and `as_strided` require."""
    return t.numel > 0 and t.stride == contiguous(t.shape)


def like(d: Draw) -> Shape:
    """The shape of the first operand."""
    return d.x.shape


def replaced(shape: Shape, at: int, *sizes: int) -> Shape:
    """The shape with dimension `at` (non-negative) replaced by `sizes`; without sizes it is dropped."""
    return (*shape[:at], *sizes, *shape[at + 1 :])


def result(d: Draw) -> Shape:
    """The shape to which the operands so far broadcast (lists and absent ones do not count)."""
    shapes = [t.shape for t in d.operands if isinstance(t, TensorType)]
    rank = max(map(len, shapes), default=0)
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return tuple(next((size for size in column if size != 1), 1) for column in columns)


def broadcast(d: Draw) -> Shape:
    """A shape that broadcasts with the operands drawn so far: equal, with sizes of 1, fewer or more dimensions.

    The result stays within limits.max_numel, unless the operands so far are larger already.
    """
    shape = list(result(d))
    if d.rng.random() < 0.4:
        return tuple(shape)
    room = d.limits.max_numel // max(math.prod(shape), 1)
    for i, size in enumerate(shape):
        if size == 1 and room > 1 and d.rng.random() < 0.5:
            shape[i] = d.size(1, min(room, d.limits.max_size))
            room //= shape[i]
        elif size != 1 and d.rng.random() < 0.3:
            shape[i] = 1
    if len(shape) < d.limits.max_rank and d.rng.random() < 0.15:
        shape.insert(0, d.size(1, max(1, min(room, 4))))
    return tuple(shape[d.rng.randint(0, len(shape)) if d.rng.random() < 0.3 else 0 :])


def expandable(d: Draw, target: Shape) -> Shape:
    """A shape that expands to `target`: sizes of 1 and missing leading dimensions, no new size."""
    shape = tuple(1 if d.rng.random() < 0.3 else size for size in target) if d.rng.random() < 0.4 else target
    return shape[d.rng.randint(0, len(shape)) :] if d.rng.random() < 0.2 else shape


_MANY_CHANNELS = 0.06


def images(spatial: int, least: int = 1, most: int = 16) -> Callable[[Draw], Shape]:
    """A fresh (batch, channels, *spatial) shape whose spatial sizes are least..most, within limits.max_numel."""

    def draw(d: Draw) -> Shape:
        room = d.limits.max_numel
        sizes = []
        for left in range(spatial - 1, -1, -1):
            high = min(most, d.limits.max_size, room // least**left)
            sizes.append(d.size(least, max(high, least)))
            room //= sizes[-1]
        many = room > 64 <= d.limits.max_size and d.rng.random() < _MANY_CHANNELS
        channels = d.rng.randint(65, min(room, 130)) if many else d.size(1, max(1, min(8, room)))
        return (d.size(1, max(1, min(4, room // channels))), channels, *sizes)

    return draw


def spatial_rank(spatial: int) -> tuple[int, int]:
    """Ranks of an image operand: without and with a batch dimension."""
    return spatial + 1, spatial + 2


def has_spatial(spatial: int, least: int = 1) -> Callable[[TensorType], bool]:
    """Nonempty, and at least `least` along each of the last `spatial` dimensions."""
    return lambda t: t.numel > 0 and t.rank > spatial and min(t.shape[-spatial:]) >= least


def scalar_or_tuple(values: list[int]) -> Value:
    """One int if all are equal (the form of defaults), else the tuple."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def per_dimension(value: Value, spatial: int) -> tuple[int, ...]:
    """The inverse of `scalar_or_tuple`: an int stands for every dimension."""
    return value if isinstance(value, tuple) else (value,) * spatial  # type: ignore[return-value]


def below_extent(d: Draw) -> Recipe:
    """Indices that are valid along `dim` of the first operand; may repeat."""
    return Recipe("below", (extent_of(d),))


def distinct_extent(d: Draw) -> Recipe:
    """Indices that are valid along `dim` of the first operand, distinct along the last dimension of the index."""
    return Recipe("permutation", (extent_of(d),))


def extent_of(d: Draw) -> int:
    """The size of the first operand along the drawn `dim`; a 0-dim tensor counts as size 1."""
    return d.x.shape[d.dim()] if d.x.rank else 1


def cast(name: str = "dtype") -> Attribute:
    """`dtype=`: mostly left at None, else one of the floating dtypes in the limits."""

    def draw(d: Draw) -> Value:
        return Dtype(d.rng.choice(d.limits.dtypes)) if d.rng.random() < 0.25 else None

    return Attribute(name, "dtype", draw, None)
