"""Recipes for leaves' values. A recipe is one entry: a torch expression over `u`, random integers in 0..2**24.

The expression is the single definition: `fill` evaluates it, reproducers print it (`expression`). Only random integers,
exact scalings and one final cast are used, because those give the same bits on every machine and torch release;
torch.randn does not (its vectorised path rounds differently per CPU).

A complex tensor's real and imaginary parts are drawn one after the other from the same generator by the same recipe;
`data` holds them alternating.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fuzzer.language.errors import UsageError
from fuzzer.language.program import Recipe, Shape, Value

TORCH_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "c128": torch.complex128,
    "c64": torch.complex64,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}

# name: (purpose, expression). u has shape (3, *shape); N is the symmetric three-fold sum, close to normal
# with variance 1 (three uniforms in -1..1, each of variance 1/3).
_N = "(u.sum(0) - 3 * 2**23).double() / 2**23"
# On the diagonal of a matrix: 2, 3, 4, ...
_STEPS = "(torch.eye(*u.shape[-2:]).double() * torch.arange(2, u.shape[-1] + 2) if u.dim() > 2 else 2.0)"
_SYMMETRIC = "(n + n.mT if n.dim() > 1 and n.shape[-1] == n.shape[-2] else n)"
# The first of these steps scaled to 1/64, the others unchanged.
_SMALL = "(1 - (torch.arange(u.shape[-1]) == 0) * (127 / 128) if u.dim() > 2 else 1.0)"
_HUGE = "(2.0**12 if DTYPE is torch.float16 else 2.0**768 if DTYPE is torch.float64 else 2.0**96)"
RECIPES: dict[str, tuple[str, str]] = {
    "normal": ("close to a standard normal", f"{_N}"),
    "uniform": ("uniform in 0..1", "u[0].double() / 2**24"),
    "positive": ("uniform in 0.1..4", "0.1 + 3.9 * (u[0].double() / 2**24)"),
    "above_two": ("uniform in 2.1..6", "2.1 + 3.9 * (u[0].double() / 2**24)"),
    "unit": ("uniform in -0.9..0.9", "1.8 * (u[0].double() / 2**24) - 0.9"),
    "probabilities": ("uniform in 0.05..0.95", "0.05 + 0.9 * (u[0].double() / 2**24)"),
    "ties": ("few distinct values, so that maxima tie", "(u[0] % 3 - 1).double() * 0.5"),
    "zeros": ("normal, a third of it exactly zero", f"({_N}) * (u[0] % 3 != 0)"),
    "corners": (
        "where functions change their rule",
        "torch.tensor([0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 6, -6]).double()[u[0] % 11]",
    ),
    "integers": ("integers in -4..4", "(u[0] % 9 - 4).double()"),
    "signs": ("-1 or 1", "(u[0] % 2 * 2 - 1).double()"),
    # Quotients of these are integers in decimal, and but for one unit in binary: 1 / 0.1, 0.6 / 0.2.
    "tenths": ("multiples of 0.1 in -10..10", "(u[0] % 201 - 100).double() / 10"),
    "few_tenths": ("0.1, 0.2, ... 2.0, of either sign", "(u[0] % 20 + 1) * (u[1] % 2 * 2 - 1).double() / 10"),
    "nonnegative": ("uniform in 0..4, a third of it exactly zero", "4 * (u[0].double() / 2**24) * (u[1] % 3 != 0)"),
    "lone_zero": (
        "-1 or 1, one element exactly zero",
        "(u[0] % 2 * 2 - 1) * (torch.arange(u[0].numel()).reshape(u[0].shape) != u[1].sum() % max(u[0].numel(), 1))",
    ),
    "large": ("normal times 1000", f"1000 * ({_N})"),
    "tiny": ("normal times 0.0001", f"({_N}) / 10000"),
    "signed_zeros": (
        "normal, a third of it zero, of either sign",
        f"torch.where(u[0] % 3 == 0, (u[1] % 2 * 2 - 1) * 0.0, {_N})",
    ),
    "nonfinite": (
        "normal, a quarter of it infinite or not a number",
        f"torch.where(u[0] % 4 == 0, torch.tensor([float('inf'), -float('inf'), float('nan')])[u[1] % 3], {_N})",
    ),
    "huge": ("normal times what the dtype holds and its square is beyond", f"({_N}) * {_HUGE}"),
    "subnormal": ("below the smallest normal number", f"({_N}) / 8 * torch.finfo(DTYPE).smallest_normal"),
    "separated": ("matrices with singular values near 2, 3, 4, ...", f"({_N}) / 8 + {_STEPS}"),
    "definite": (
        "symmetric matrices with eigenvalues near 2, 3, 4, ...",
        f"(lambda n: {_SYMMETRIC} / 16 + {_STEPS})({_N})",
    ),
    "near_singular": (
        "symmetric matrices with eigenvalues near 1/64, 3, 4, 5, ...",
        f"(lambda n: {_SYMMETRIC} / 512 + {_STEPS} * {_SMALL})({_N})",
    ),
    "ones": ("all one", "torch.ones(u.shape[1:])"),
    "coins": ("0 or 1", "u[0] % 2"),
}


_DrawIntegers = Callable[[Shape], str]


@dataclass(frozen=True)
class RecipeWithArguments:
    """A recipe with arguments: how many it takes, and its expression.

    write   the expression from (arguments, shape, source of integers, dtype).
    """

    purpose: str
    arity: int | None
    write: Callable[[tuple[Value, ...], Shape, _DrawIntegers, torch.dtype], str]


def neighbours(number: float, dtype: torch.dtype) -> tuple[float, float, float]:
    """The number nearest to this one in the dtype, between its neighbours: first the one toward zero, then the one away
    from it.

    Next to zero the neighbours are the smallest normal numbers: subnormals may legally be flushed.
    """
    info = torch.finfo(dtype)
    nearest = float(torch.tensor(number, dtype=torch.float64).to(dtype))
    if nearest == 0:
        return -info.smallest_normal, nearest, info.smallest_normal
    fraction, exponent = math.frexp(nearest)
    unit = math.copysign(math.ldexp(info.eps, exponent - 1), nearest)
    return nearest - (unit / 2 if abs(fraction) == 0.5 else unit), nearest, nearest + unit


def _around(args: tuple[Value, ...], shape: Shape, draw: _DrawIntegers, dtype: torch.dtype) -> str:
    return _among([x for a in args for x in neighbours(float(a), dtype)], shape, draw)  # type: ignore[arg-type]


def _ends(args: tuple[Value, ...], shape: Shape, draw: _DrawIntegers, dtype: torch.dtype) -> str:
    """Half of the elements at an end of a domain, a unit beside it on either side, or a power of two of the way inside;
    at an infinite end the greatest numbers of the dtype. The others lie well inside."""
    low, high = (float(a) for a in args)  # type: ignore[arg-type]
    bounded, info = math.isfinite(high - low), torch.finfo(dtype)
    steps = [(high - low if bounded else 1.0) * 2.0**-k for k in (4, 10, 20, 40)]
    numbers: list[float] = []
    for end, inward in ((low, 1), (high, -1)):
        if math.isinf(end):
            numbers += neighbours(math.copysign(info.max, end), dtype)[:2]
        else:
            near = [end + inward * step for step in steps]
            numbers += [*neighbours(end, dtype), *(x for x in near if abs(x) >= info.smallest_normal)]
    first = low if math.isfinite(low) else high - 4 if math.isfinite(high) else -2.0
    span = high - low if bounded else 4.0
    inside = f"({first + span / 20} + {span * 0.9} * (u[2].double() / 2**24))"
    return _among(numbers, shape, draw, inside)


def _overflowing(args: tuple[Value, ...], shape: Shape, draw: _DrawIntegers, dtype: torch.dtype) -> str:
    """Numbers whose double, square, exp or exp2 is just inside the dtype's range, and just outside; and the end of the
    range."""
    top = torch.finfo(dtype).max
    logarithms = (round(log(top), 6) for log in (math.log, math.log2))  # libraries differ in the last digit
    edges = [x for edge in (top / 2, math.sqrt(top), *logarithms) for x in neighbours(edge, dtype)]
    return _among([sign * x for x in (*edges, top) for sign in (1, -1)], shape, draw)


def _among(numbers: Sequence[float], shape: Shape, draw: _DrawIntegers, others: str = _N) -> str:
    """Normal or other numbers, half of the elements replaced by some of these."""
    table = f"torch.tensor([{', '.join(map(_number, numbers))}], dtype=torch.float64)"
    chosen = f"torch.where(u[0] % 2 == 0, {others}, {table}[u[1] % {len(numbers)}])"
    return f"(lambda u: {chosen})({draw((3, *shape))})"


def _permutation(args: tuple[Value, ...], shape: Shape, draw: _DrawIntegers, dtype: torch.dtype) -> str:
    rows = (*shape[:-1], args[0])
    return f"{draw(rows)}.argsort(dim=-1, stable=True)[..., :{shape[-1] if shape else 1}].reshape({shape})"  # type: ignore[arg-type]


RECIPES_WITH_ARGUMENTS: dict[str, RecipeWithArguments] = {
    "below": RecipeWithArguments("integers in 0..n-1", 1, lambda a, s, draw, t: f"({draw(s)} % {int(a[0])})"),  # type: ignore[arg-type]
    "between": RecipeWithArguments(
        "integers in a..b",
        2,
        lambda a, s, draw, t: f"({draw(s)} % {int(a[1]) - int(a[0]) + 1} + {a[0]})",  # type: ignore[arg-type]
    ),
    "permutation": RecipeWithArguments(
        "the first of 0..n-1 in random order, along the last dimension", 1, _permutation
    ),
    "arange": RecipeWithArguments(
        "1, 2, 3, ... in row-major order", 0, lambda a, s, draw, t: f"torch.arange(1, 1 + {_numel(s)}).reshape({s})"
    ),
    "around": RecipeWithArguments("normal, half of it at one of the numbers given or at its neighbours", None, _around),
    "ends": RecipeWithArguments("inside a..b, half of it at the ends and at their neighbours", 2, _ends),
    "near": RecipeWithArguments(
        "integers n - 8..n, of either sign",
        1,
        lambda a, s, draw, t: f"(lambda u: ({a[0]} - u[0] % 9) * (u[1] % 2 * 2 - 1))({draw((2, *s))})",
    ),
    "overflow": RecipeWithArguments("normal, half of it where functions leave the dtype's range", 0, _overflowing),
    "data": RecipeWithArguments(
        "the numbers given", None, lambda a, s, draw, t: f"torch.tensor({list(a)!r}).reshape({s})"
    ),
}

GENERAL = ("normal", "ties", "zeros", "corners", "integers", "large", "tiny", "subnormal")
# Recipes whose arguments follow from an op's row, attributes and dtype: where the op changes its formula, at the ends
# of its domain, where integers leave a type.
AROUND, ENDS, NEAR = "around", "ends", "near"
# Of integers: 1, 2, 3, ... as a leaf, and the same counted in the graph, which is no recipe of a leaf.
ARANGE, POSITIONS = "arange", "positions"
# Values that no model computes with on purpose, and for which every function has a rule.
SPECIAL = ("signed_zeros", "nonfinite", "huge")


def range_of(recipe: Recipe) -> tuple[float, float]:
    """The least and greatest number that `below`, `between` or `uniform` can give. Raises ValueError for another."""
    if recipe.name == "between":
        return int(recipe.args[0]), int(recipe.args[1])  # type: ignore[arg-type]
    if recipe.name == "uniform":
        return 0.0, 1 - 2**-24
    if recipe.name != "below":
        raise ValueError(f"{recipe.name} has no range")
    return 0, int(recipe.args[0]) - 1  # type: ignore[arg-type]


class UnknownRecipe(UsageError):
    """A recipe that does not exist, or with the wrong number of arguments."""


def _numel(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _draw(generator: str) -> Callable[[Shape], str]:
    return lambda shape: f"torch.randint(0, 2**24, {tuple(shape)}, generator={generator})"


def expression(recipe: Recipe, seed: int, dtype: str, shape: Shape) -> str:
    """A torch-only expression for the tensor, contiguous on the CPU. Raises UnknownRecipe."""
    generator = f"torch.Generator().manual_seed({seed})"
    if not TORCH_DTYPES[dtype].is_complex:
        return _real(recipe, generator, dtype, shape)
    part = DTYPE_NAMES[TORCH_DTYPES[dtype].to_real()]
    if recipe.name == "data":
        return f"torch.complex(*{_real(recipe, generator, part, (*shape, 2))}.unbind(-1))"
    return f"torch.complex(*({_real(recipe, 'g', part, shape)} for g in [{generator}] * 2))"


def _real(recipe: Recipe, generator: str, dtype: str, shape: Shape) -> str:
    """The expression for a real tensor, or for one part of a complex tensor."""
    torch_dtype = str(TORCH_DTYPES[dtype])
    floating = TORCH_DTYPES[dtype] if TORCH_DTYPES[dtype].is_floating_point else torch.float32
    if recipe.name in RECIPES and not recipe.args:
        expression = RECIPES[recipe.name][1].replace("DTYPE", str(floating))
        drawn = _draw(generator)((3, *shape))
        return f"(lambda u: {expression})({drawn}).to({torch_dtype})"
    known = RECIPES_WITH_ARGUMENTS.get(recipe.name)
    if known is None or (known.arity is not None and len(recipe.args) != known.arity):
        names = ", ".join([*RECIPES, *RECIPES_WITH_ARGUMENTS])
        raise UnknownRecipe(f"no value recipe {recipe.name}({len(recipe.args)} arguments); known are {names}")
    if recipe.name == "below" and not (isinstance(recipe.args[0], int) and recipe.args[0] > 0):
        raise UnknownRecipe(f"below({recipe.args[0]}): there is no integer in 0..n-1 for an n under 1")
    if recipe.name == "between" and recipe.args[1] < recipe.args[0]:  # type: ignore[operator]
        raise UnknownRecipe(f"between{recipe.args}: there is no integer in a..b where b is less than a")
    if recipe.name == "around" and not all(
        isinstance(a, int | float) and math.isfinite(a) for a in recipe.args or [""]
    ):
        raise UnknownRecipe(f"around{recipe.args}: it takes finite numbers, one or more")
    if recipe.name == "ends":
        low, high = (a if isinstance(a, int | float) else math.nan for a in recipe.args)
        if not low < high:
            raise UnknownRecipe(f"ends{recipe.args}: it takes two numbers, the lesser first")
    if recipe.name == "near" and not (isinstance(recipe.args[0], int) and 8 <= recipe.args[0] < 2**63):
        raise UnknownRecipe(f"near({recipe.args[0]}): it takes an integer from 8 to the end of int64")
    if recipe.name == "data":
        if len(recipe.args) != _numel(shape):
            raise UnknownRecipe(f"data holds {len(recipe.args)} numbers for {_numel(shape)} elements of {shape}")
        # float64 first: torch.tensor of a list would round through float32
        kind = "torch.float64" if TORCH_DTYPES[dtype].is_floating_point else "torch.int64"
        numbers = ", ".join(map(_number, recipe.args))
        return f"torch.tensor([{numbers}], dtype={kind}).reshape({shape}).to({torch_dtype})"
    return f"{known.write(recipe.args, shape, _draw(generator), floating)}.to({torch_dtype})"


def _number(value: Value) -> str:
    text = repr(value)
    return f"float({text!r})" if text in ("inf", "-inf", "nan") else text


def as_data(tensor: torch.Tensor) -> Recipe:
    """The recipe that gives exactly a tensor's values."""
    return Recipe("data", tuple(real_parts(tensor).flatten().tolist()))


def real_parts(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or the real and imaginary parts of a complex one along a last dimension."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def fill(recipe: Recipe, seed: int, dtype: str, shape: Shape) -> torch.Tensor:
    """A contiguous CPU tensor of this dtype and shape, to be read only. Raises UnknownRecipe."""
    return _evaluated(expression(recipe, seed, dtype, shape))


# Cached, since a program's leaves are filled ten times while it is generated, run on both sides and judged. By the
# text, because recipes of 0.0 and -0.0 are equal.
@functools.lru_cache(maxsize=64)
def _evaluated(text: str) -> torch.Tensor:
    return eval(text, {"torch": torch})  # type: ignore[no-any-return]
