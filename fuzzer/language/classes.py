"""Classes of operands' layouts and of attributes' values, which cells name and wishes request."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fuzzer.language.ops.spec import (
    BEYOND,
    LARGE,
    LEAST_LARGE,
    REQUIRED,
    UNHELD,
    UNHELD_NUMBERS,
    Attribute,
    Bound,
    Draw,
    Limits,
    Operand,
    OpSpec,
)
from fuzzer.language.program import (
    DIFFERENTIABLE,
    Attributes,
    Dtype,
    Shape,
    TensorType,
    Value,
    contiguous,
    extent,
    writable,
)

# Of a layout: the order of its elements in memory, one of ORDERS; also AT_OFFSET, where the storage offset is not 0,
# and SIZE_ONE, where some dimension has one element, whose stride means nothing.
SCALAR, CONTIGUOUS, PERMUTED, CHANNELS_LAST = "0-dim", "contiguous", "permuted", "channels last"
BROADCAST, OVERLAPPING, GAPS, EMPTY = "broadcast", "overlapping", "gaps", "empty"
ORDERS = (SCALAR, CONTIGUOUS, PERMUTED, CHANNELS_LAST, BROADCAST, OVERLAPPING, GAPS)
AT_OFFSET, SIZE_ONE = "at offset", "size 1"
LAYOUTS = (*ORDERS, AT_OFFSET, SIZE_ONE)

DEFAULT, OTHER = "default", "other"
LOWEST, HIGHEST, INSIDE = "lowest", "highest", "inside"
FIRST, LAST, INNER, NEGATIVE, ONLY = "first", "last", "inner", "negative", "only"


def layout_classes(shape: Shape, stride: Shape, offset: int = 0) -> frozenset[str]:
    """The classes of a layout: one of ORDERS (or EMPTY), and those that may be added to it."""
    found = {_order(shape, stride)}
    if offset:
        found.add(AT_OFFSET)
    if 1 in shape:
        found.add(SIZE_ONE)
    return frozenset(found)


def _order(shape: Shape, stride: Shape) -> str:
    if not shape:
        return SCALAR
    if 0 in shape:
        return EMPTY
    real = [(size, step) for size, step in zip(shape, stride, strict=True) if size > 1]
    sizes, steps = tuple(size for size, _ in real), tuple(step for _, step in real)
    if 0 in steps:
        return BROADCAST
    if steps == contiguous(sizes):
        return CONTIGUOUS
    if not writable(TensorType("f32", sizes, steps)):
        return OVERLAPPING
    if extent(sizes, steps) != TensorType("f32", sizes, steps).numel:
        return GAPS
    return CHANNELS_LAST if len(shape) in (4, 5) and stride == channels_last(shape) else PERMUTED


def channels_last(shape: Shape) -> Shape:
    """Strides of a dense tensor whose second dimension is innermost."""
    order = [0, *range(2, len(shape)), 1]
    steps = contiguous(tuple(shape[i] for i in order))
    return tuple(steps[order.index(i)] for i in range(len(shape)))


# ---------------------------------------------------------------- attributes


def draw_of(spec: OpSpec, operands: Sequence[object], attrs: Attributes) -> Draw:
    """The Draw for the rules of an op's row, for a node with operands of these types and these attributes."""
    given = dict(attrs)
    filled = {a.name: given.get(a.name, a.default) for a in spec.attributes}
    lacking = [None] * (len(spec.operands) - len(operands))
    known = {name: value for name, value in filled.items() if value is not REQUIRED}
    return Draw(random.Random(0), Limits(), [*operands, *lacking], known)


def attribute_class(attribute: Attribute, value: Value, d: Draw) -> str:
    """The class of an attribute's value, for a node with the operands and attributes of `d`.

    DEFAULT for the default. A choice, a flag and a dtype are classes of their own. An integer of the row is at one end
    of its range, INSIDE or BEYOND; a real at one of its corners, of a further class of its row, or INSIDE; a dimension
    is named by its place; other numbers are compared with 0, 1 and the sizes of the first operand.
    """
    if type(value) is type(attribute.default) and value == attribute.default:
        return DEFAULT
    if attribute.options or isinstance(value, bool | str | None):
        return str(value)
    if isinstance(value, Dtype):
        return value.name
    try:
        if attribute.kind in ("dim", "dims"):
            return _place(value, d.x.rank if attribute.bounds is None else _ends(attribute.bounds, d)[1] + 1)
        if attribute.bounds is not None and isinstance(value, int):
            return _in_range(value, attribute.bounds, d)
        if attribute.kind == "real":
            return f"corner {value}" if value in (attribute.corners or ()) else _beside_corners(attribute, value)
        return _beside_sizes(value, d.x.shape)
    except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return OTHER  # a rule of the row that does not apply to this node


def _beside_corners(attribute: Attribute, value: Value) -> str:
    """The class of a real that is no corner."""
    if UNHELD in attribute.classes and value in UNHELD_NUMBERS:
        return UNHELD
    return LARGE if LARGE in attribute.classes and abs(float(value)) >= LEAST_LARGE else INSIDE  # type: ignore[arg-type]


def _in_range(value: int, bounds: tuple[Bound, Bound], d: Draw) -> str:
    low, high = _ends(bounds, d)
    if value == low:
        return LOWEST
    if value == high:
        return HIGHEST
    return INSIDE if low < value < high else BEYOND


def _ends(bounds: tuple[Bound, Bound], d: Draw) -> tuple[int, int]:
    low, high = (bound(d) if callable(bound) else bound for bound in bounds)
    return low, high


def _place(value: Value, rank: int) -> str:
    """The place of a dimension among so many; for several dimensions, their number."""
    if isinstance(value, tuple):
        return "all" if len(value) == rank > 1 else ("one" if len(value) == 1 else f"{min(len(value), 3)}")
    if not isinstance(value, int):
        return OTHER
    if value < 0:
        return NEGATIVE
    if rank <= 1:
        return ONLY
    return FIRST if value == 0 else LAST if value == rank - 1 else INNER


def _beside_sizes(value: Value, shape: Shape) -> str:
    """How a number, or every one of several, compares with 0, 1 and the sizes of a tensor."""
    if isinstance(value, tuple):
        found = {_beside_sizes(item, shape) for item in value}
        return found.pop() if len(found) == 1 else "none" if not found else "mixed"
    if not isinstance(value, int | float):
        return str(value)
    if value in (0, 1):
        return str(int(value))
    if value < 0:
        return NEGATIVE
    return "a size" if value in shape else INSIDE if value < max(shape, default=0) else BEYOND


# ---------------------------------------------------------------- possible classes


def main_operand(spec: OpSpec) -> int:
    """The place of an op's main operand: the first that may have several dtypes, else the first."""
    several = (i for i, operand in enumerate(spec.operands) if isinstance(operand.dtypes, tuple) and operand.dtypes[1:])
    return next(several, 0)


def possible_dtypes(spec: OpSpec, limits: Limits) -> tuple[str, ...]:
    """The dtypes that the main operand may have: those of the row; floating ones only within the limits."""
    dtypes = spec.operands[main_operand(spec)].dtypes
    if not isinstance(dtypes, tuple):
        return limits.dtypes
    return tuple(t for t in dtypes if t not in DIFFERENTIABLE or t in limits.dtypes)


# Sample types of each layout, of a few ranks: if an operand's row refuses all samples, the layout is impossible.
_SAMPLES: dict[str, tuple[tuple[Shape, Shape], ...]] = {
    SCALAR: (((), ()),),
    CONTIGUOUS: tuple((shape, contiguous(shape)) for shape in ((6,), (6, 6), (4, 6, 6), (4, 4, 6, 6), (2, 4, 6, 6, 6))),
    PERMUTED: (((6, 6), (1, 6)), ((4, 6, 6), (36, 1, 6)), ((4, 4, 6, 6), (144, 36, 1, 6)),
               ((2, 4, 6, 6, 6), (864, 216, 36, 1, 6))),
    CHANNELS_LAST: tuple((shape, channels_last(shape)) for shape in ((4, 4, 6, 6), (2, 4, 6, 6, 6))),
    BROADCAST: (((6,), (0,)), ((6, 6), (0, 1)), ((4, 6, 6), (0, 6, 1)), ((4, 4, 6, 6), (0, 36, 6, 1)),
                ((2, 4, 6, 6, 6), (0, 216, 36, 6, 1))),
    OVERLAPPING: (((6, 6), (2, 1)), ((4, 6, 6), (36, 2, 1)), ((4, 4, 6, 6), (144, 36, 2, 1)),
                  ((2, 4, 6, 6, 6), (864, 216, 36, 2, 1))),
    GAPS: (((6,), (2,)), ((6, 6), (12, 2)), ((4, 6, 6), (72, 12, 2)), ((4, 4, 6, 6), (288, 72, 12, 2)),
           ((2, 4, 6, 6, 6), (1728, 432, 72, 12, 2))),
    SIZE_ONE: (((1,), (1,)), ((1, 6), (6, 1)), ((6, 1), (1, 1)), ((1, 6, 6), (36, 6, 1)),
               ((1, 4, 6, 6), (144, 36, 6, 1)), ((4, 1, 6, 6), (36, 36, 6, 1)),
               ((1, 4, 6, 6, 6), (864, 216, 36, 6, 1))),
}  # fmt: skip
_SAMPLES[AT_OFFSET] = _SAMPLES[CONTIGUOUS]  # types have no offset: it is refused wherever this layout is


def possible_layouts(operand: Operand) -> tuple[str, ...] | None:
    """The layout classes that the row allows an operand; None where its shape follows from others, so that only a draw
    can tell. Indices are dense."""
    if operand.recipe is not None:
        return (CONTIGUOUS,)
    if operand.shape is not None:
        return None
    dtype = operand.dtypes[0] if isinstance(operand.dtypes, tuple) else "f32"
    found = [kind for kind in LAYOUTS if any(_admits(operand, TensorType(dtype, *t)) for t in _SAMPLES[kind])]
    return tuple(found) or None  # of particular sizes, which no sample has


def _admits(operand: Operand, t: TensorType) -> bool:
    return operand.rank[0] <= t.rank <= operand.rank[1] and (operand.accepts is None or operand.accepts(t))


def possible_classes(attribute: Attribute, spec: OpSpec) -> tuple[str, ...] | None:
    """The classes in which the attribute's row draws values; None where only a draw can tell."""
    default = attribute.default
    if attribute.options:
        return tuple(dict.fromkeys(DEFAULT if _is(o, default) else str(o) for o in attribute.options))
    if attribute.corners is not None:
        return (*(DEFAULT if _is(c, default) else f"corner {c}" for c in attribute.corners), INSIDE, *attribute.classes)
    if attribute.bounds is None:
        return None
    if attribute.kind == "dim":
        return _place_classes(spec.operands[0].rank, default)
    classes = _range_classes(attribute.bounds, default)
    return None if classes is None else (*classes, *attribute.classes)


def _is(a: Value, b: object) -> bool:
    return type(a) is type(b) and a == b


def _range_classes(bounds: tuple[Bound, Bound], default: object) -> tuple[str, ...] | None:
    low, high = bounds
    if not (isinstance(low, int) and isinstance(high, int)):
        return None if default is not REQUIRED else (LOWEST, HIGHEST)
    named = {low: LOWEST, high: HIGHEST} | ({} if high - low < 2 else {low + 1: INSIDE})
    inside = high - low > 2 or default != low + 1
    found = [DEFAULT if _is(value, default) else name for value, name in named.items()]
    return tuple(dict.fromkeys([*found, *([INSIDE] if high - low >= 2 and inside else [])]))


def _place_classes(rank: tuple[int, int], default: object) -> tuple[str, ...]:
    """Of a dimension of a tensor of these ranks; DEFAULT replaces the default's own place."""
    highest = rank[1]
    found = [NEGATIVE] * (highest > 0) + [FIRST, LAST] * (highest > 1) + [INNER] * (highest > 2)
    found += [ONLY] * (rank[0] <= 1 and default != 0)
    if default == 0:
        found = [name for name in found if name != FIRST]
    return tuple([DEFAULT] * (default is not REQUIRED and default is not None) + found)
