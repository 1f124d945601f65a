"""Triggers in reductions, positions of extrema and scans."""

from __future__ import annotations

from benches.triggers.kinds import Trigger, holds_ties, holds_zero, numbers
from benches.triggers.shapes import product, reduced
from benches.triggers.sketch import RESHAPERS, TRANSPOSERS, Sketch
from fuzzer.language.program import Node

_POSITIONS = ("argmax", "argmin")
_FOLDS = ("mean", "sum", "var", "std", "amax", "amin", "logsumexp", "prod")
_VARIANCES = ("var", "std", "var_mean", "std_mean")
_UNBIASED = ("var_unbiased", "std_unbiased", "var_mean_unbiased", "std_mean_unbiased")
_EXTREMA = ("amin", "amax", "min", "max", "min_all", "max_all", "argmin", "argmax", "aminmax")
_LARGEST_SQUARE, _SMALLEST_SQUARE = 1e19, 1e-19  # what float32 can square
_SPLIT_SCAN = 8192
_VECTOR = 8


def _over_all(s: Sketch) -> list[Node]:
    """The argmax and argmin that look at all elements."""
    return [node for node in s.of(*_POSITIONS) if s.attr(node, "dim") is None]


def position_in_a_transposed_value(s: Sketch) -> bool:
    """argmax over all elements of a transposed computed value."""
    return any(
        s.made_by(node.uses[0], TRANSPOSERS)
        and s.order_in_memory(node.uses[0]) == "permuted"
        and s.storage(node.uses[0]) not in s.leaves
        for node in _over_all(s)
    )


def position_among_folded_rows(s: Sketch) -> bool:
    """argmax over all elements of a reduction along the last dimension of a permuted value."""
    for node in _over_all(s):
        fold = s.made_by(node.uses[0], _FOLDS)
        shape = s.shape(fold.uses[0]) if fold else None
        if fold is None or shape is None or len(shape) < 3:
            continue
        dims = s.attr(fold, "dim") or ()
        last = any(d % len(shape) == len(shape) - 1 for d in dims) and len(dims) < len(shape) - 1
        if last and s.order_in_memory(fold.uses[0]) == "permuted":
            return True
    return False


def position_among_pooled(s: Sketch) -> bool:
    """argmax over all elements of what an adaptive average pool made of a permuted value."""
    for node in _over_all(s):
        pool = s.made_by(node.uses[0], ("adaptive_avg_pool1d", "adaptive_avg_pool2d"))
        if pool is not None and s.order_in_memory(pool.uses[0]) == "permuted":
            return True
    return False


def position_in_a_sum_of_two_orders(s: Sketch) -> bool:
    """An extremum and its place along a dimension of an elementwise result whose operands lie in different orders."""
    for node in s.of("max", "min", *_POSITIONS):
        made = s.made_by(node.uses[0], ("add", "sub", "mul", "div", "maximum", "minimum", "add_", "sub_", "mul_"))
        if made is None or s.attr(node, "dim") is None:
            continue
        shapes = [s.shape(name) for name in made.uses[:2]]
        square = len(shapes) == 2 and shapes[0] == shapes[1] and shapes[0] and len(shapes[0]) == 2
        if square and min(shapes[0] or ()) >= _VECTOR:
            orders = {s.order_in_memory(name) for name in made.uses[:2]}
            if orders == {"plain", "permuted"}:
                return True
    return False


def quantile_of_ties(s: Sketch) -> bool:
    """A quantile of values among which some are equal."""
    return any(holds_ties(s.recipe(node.uses[0])) for node in s.of("quantile", "nanquantile"))


def variance_beyond_float32(s: Sketch) -> bool:
    """A variance of float32 numbers whose squares float32 cannot hold."""
    for node in s.of(*_VARIANCES, *_UNBIASED):
        recipe = s.recipe(node.uses[0])
        if recipe is None or s.dtype(node.uses[0]) != "f32":
            continue
        sizes = [abs(n) for n in numbers(recipe) if n] if recipe.name == "data" else []
        if recipe.name in ("subnormal", "overflow", "huge") or (sizes and max(sizes) < _SMALLEST_SQUARE):
            return True
        if sizes and max(sizes) > _LARGEST_SQUARE:
            return True
    return False


def correction_beyond_the_count(s: Sketch) -> bool:
    """A variance whose correction exceeds the number of elements."""
    for node in s.of(*_VARIANCES):
        shape = s.shape(node.uses[0])
        if shape is not None and s.attr(node, "correction", 1) > reduced(shape, s.attr(node, "dim")):
            return True
    return False


def _scanned(s: Sketch, node: Node) -> int:
    """How many elements a scan runs along; 0 where that cannot be said."""
    return s.size(node.uses[0], s.attr(node, "dim")) or 0


def product_over_zeros(s: Sketch) -> bool:
    """cumprod of values among which some are zero."""
    return any(
        _scanned(s, node) > 1 and holds_zero(s.recipe(node.uses[0])) and s.tracked(node.uses[0])
        for node in s.of("cumprod", "cumprod_")
    )


def long_product(s: Sketch) -> bool:
    """cumprod along more elements than one block scans."""
    return any(_scanned(s, node) > _SPLIT_SCAN and s.tracked(node.uses[0]) for node in s.of("cumprod", "cumprod_"))


def extremum_of_bytes(s: Sketch) -> bool:
    """An extremum of at least a vector of 8-bit integers."""
    for node in s.of(*_EXTREMA):
        shape = s.shape(node.uses[0])
        if s.dtype(node.uses[0]) in ("i8", "u8") and shape is not None and reduced(shape, s.attr(node, "dim")) >= 16:
            return True
    return False


def extremum_of_truths(s: Sketch) -> bool:
    """max or min along a dimension of bools."""
    return any(s.dtype(node.uses[0]) == "bool" for node in s.of("max", "min"))


def place_of_the_least_truth(s: Sketch) -> bool:
    """min along a dimension of bools, and its place is read."""
    return any(s.dtype(node.uses[0]) == "bool" and node.outs[1] in s.readers for node in s.of("min"))


def position_as_a_number(s: Sketch) -> bool:
    """A position of an extremum, made floating."""
    return any(s.made_by(node.uses[0], (*_POSITIONS, "argsort")) is not None for node in s.of("to", "float", "double"))


def least_of_short_integers(s: Sketch) -> bool:
    """An extremum of computed int16 numbers or bytes."""
    return any(
        s.dtype(node.uses[0]) in ("i16", "i8", "u8") and node.uses[0] not in s.leaves
        for node in s.of("min_all", "max_all", "amin", "amax", "min", "max")
    )


def _padded(s: Sketch, name: str) -> bool:
    return any(node.op in ("pad", "constant_pad_nd") for node in s.ancestors(name))


def product_with_its_own_permutation(s: Sketch) -> bool:
    """A matrix product that is a sum (one column), of a padded value and its padded permutation."""
    for node in s.of("matmul", "bmm"):
        left, right = node.uses[:2]
        if s.size(right, -1) != 1 or not (_padded(s, left) and _padded(s, right)):
            continue
        made = [{n.outs[0] for n in s.ancestors(name)} for name in (left, right)]
        permuted = [any(n.op in TRANSPOSERS for n in s.ancestors(name)) for name in (left, right)]
        if permuted[0] != permuted[1] and made[0] & made[1]:
            return True
    return False


def sum_of_long_odd_rows(s: Sketch) -> bool:
    """A sum along the rows that flattening made of a pooled value: rows of over 1024 elements, no multiple of 32."""
    pools = ("adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d")
    for node in s.of("sum"):
        rows = s.shape(node.uses[0])
        flat = s.made_by(node.uses[0], RESHAPERS)
        if flat is None or rows is None or len(rows) != 2 or not s.made_by(flat.uses[0], pools):
            continue
        if rows[0] > 1 and product(rows[1:]) > 1024 and rows[1] % 32:
            return True
    return False


TABLE: dict[int, Trigger] = {
    183082: position_in_a_transposed_value,
    193661: position_among_folded_rows,
    193492: position_among_pooled,
    178964: position_in_a_sum_of_two_orders,
    185543: quantile_of_ties,
    197089: variance_beyond_float32,
    113167: correction_beyond_the_count,
    174016: product_over_zeros,
    183250: long_product,
    191499: extremum_of_bytes,
    143568: extremum_of_truths,
    184893: place_of_the_least_truth,
    97127: position_as_a_number,
    96487: least_of_short_integers,
    196681: product_with_its_own_permutation,
    179931: sum_of_long_odd_rows,
}
