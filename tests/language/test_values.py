"""Value recipes: the same bits everywhere, in their declared range, for every dtype."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fuzzer.language.program import COMPLEX, DIFFERENTIABLE, DTYPES, FLOATS, Recipe
from fuzzer.language.values import (
    DTYPE_NAMES,
    GENERAL,
    RECIPES,
    RECIPES_WITH_ARGUMENTS,
    SPECIAL,
    TORCH_DTYPES,
    UnknownRecipe,
    expression,
    fill,
    neighbours,
)

SHAPE = (7, 300)
ARGUMENTS = {
    "below": (7,),
    "between": (-2, 5),
    "permutation": (300,),
    "arange": (),
    "data": (1.5, -0.0, 3.25),
    "around": (0.7, -4.0),
    "overflow": (),
    "ends": (-1.0, 1.0),
    "near": (2000,),
}
NEWER = ("tenths", "few_tenths", "ends", "near")
ALL = [Recipe(name) for name in RECIPES] + [Recipe(name, args) for name, args in ARGUMENTS.items()]


def shape_of(recipe: Recipe) -> tuple[int, ...]:
    return (3,) if recipe.name == "data" else SHAPE


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8 if tensor.dim() else tensor.dtype).numpy().tobytes()


def digest(dtypes: Sequence[str], recipes: Sequence[Recipe]) -> str:
    """One hash over these recipes in every one of these dtypes that they suit."""
    told = hashlib.sha256()
    for recipe in recipes:
        for dtype in dtypes:
            if dtype in DIFFERENTIABLE or recipe.name in ("below", "between", "coins", "integers", "near"):
                twice = recipe.name == "data" and dtype in COMPLEX  # its parts in turn
                given = replace(recipe, args=recipe.args * 2) if twice else recipe
                told.update(bits(fill(given, 11, dtype, shape_of(recipe))))
    return told.hexdigest()[:16]


def test_every_recipe_has_been_listed_here() -> None:
    assert {recipe.name for recipe in ALL} == set(RECIPES) | set(RECIPES_WITH_ARGUMENTS)
    assert set(GENERAL) | set(SPECIAL) <= set(RECIPES)
    assert {v: k for k, v in TORCH_DTYPES.items()} == DTYPE_NAMES
    assert set(TORCH_DTYPES) == set(DTYPES)


def test_the_bits_are_the_same_on_every_torch_and_machine() -> None:
    # a change of this number changes what every stored program means
    usual = [recipe for recipe in ALL if recipe.name not in (*SPECIAL, *NEWER)]
    assert digest([dtype for dtype in DTYPES if dtype not in COMPLEX], usual) == "8a1eaf6426af15c1"
    assert digest(COMPLEX, usual) == "b25680ac80690874"
    special = [recipe for recipe in ALL if recipe.name in SPECIAL]
    assert digest(FLOATS, special) == "c91d86ee65d21394"
    assert digest(COMPLEX, special) == "a1888c154b87bc65"
    newer = [recipe for recipe in ALL if recipe.name in NEWER]
    assert digest([dtype for dtype in DTYPES if dtype not in COMPLEX], newer) == "a0ae3841df25e92e"
    assert digest(COMPLEX, newer) == "9a6ce37279375d78"


@pytest.mark.parametrize("recipe", ALL, ids=lambda r: r.name)
def test_a_seed_fixes_the_bits_and_another_seed_changes_them(recipe: Recipe) -> None:
    dtype = "f32"
    first, other = (fill(recipe, seed, dtype, shape_of(recipe)) for seed in (5, 6))
    again = eval(expression(recipe, 5, dtype, shape_of(recipe)), {"torch": torch})
    assert again is not first
    assert bits(first) == bits(again)
    if recipe.name not in ("ones", "arange", "data"):
        assert bits(first) != bits(other)


def test_a_leaf_is_evaluated_once_and_zeros_of_two_signs_are_two_leaves() -> None:
    plus, minus = (fill(Recipe("data", (zero, 1.0)), 0, "f32", (2,)) for zero in (0.0, -0.0))
    assert bits(plus) != bits(minus)
    assert fill(Recipe("data", (0.0, 1.0)), 0, "f32", (2,)) is plus


# recipe: lowest and highest value, and what else holds of values drawn for a floating dtype
RANGES = {
    "normal": (-3, 3),
    "uniform": (0, 1),
    "positive": (0.0996, 4),
    "above_two": (2.0996, 6),
    "unit": (-0.9004, 0.9004),
    "probabilities": (0.0498, 0.953),
    "ties": (-0.5, 0.5),
    "zeros": (-3, 3),
    "signed_zeros": (-3, 3),
    "corners": (-6, 6),
    "integers": (-4, 4),
    "signs": (-1, 1),
    "large": (-3000, 3000),
    "tiny": (-0.0003001, 0.0003001),
    "separated": (-0.375, 8.375),
    "definite": (-0.375, 8.375),
    "nonnegative": (0, 4),
    "lone_zero": (-1, 1),
    "near_singular": (-0.012, 8.012),
    "around": (-4, 3),
    "tenths": (-10, 10),
    "few_tenths": (-2, 2),
    "ends": (-1, 1),
    "near": (-2000, 2000),
    "ones": (1, 1),
    "coins": (0, 1),
    "below": (0, 6),
    "between": (-2, 5),
    "permutation": (0, 299),
    "arange": (1, 2100),
    "data": (-0.0, 3.25),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("recipe", [r for r in ALL if r.name in RANGES], ids=lambda r: r.name)
def test_a_recipe_stays_in_its_range_and_nearly_fills_it(recipe: Recipe, dtype: str) -> None:
    low, high = RANGES[recipe.name]
    drawn = fill(recipe, 3, dtype, shape_of(recipe)).double()
    slack = torch.finfo(TORCH_DTYPES[dtype]).eps * max(abs(low), abs(high))
    assert bool(torch.isfinite(drawn).all())
    assert float(drawn.min()) >= low - slack
    assert float(drawn.max()) <= high + slack
    assert float(drawn.max() - drawn.min()) >= 0.8 * (high - low)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, math.inf), (1.0, math.inf), (-math.inf, math.inf)])
def test_ends_are_held_with_their_neighbours(low: float, high: float, dtype: str) -> None:
    drawn = set(fill(Recipe("ends", (low, high)), 3, dtype, SHAPE).double().flatten().tolist())
    finite = {end for end in (low, high) if math.isfinite(end)}
    assert {number for end in finite for number in neighbours(end, TORCH_DTYPES[dtype])} <= drawn
    top = torch.finfo(TORCH_DTYPES[dtype]).max
    assert (top in drawn, -top in drawn) == (math.isinf(high), math.isinf(low))
    assert sum(not low <= number <= high for number in drawn) == len(finite)
    assert sum(low < number < high for number in drawn) > 20


def test_integers_lie_near_one_and_tenths_have_whole_quotients_but_for_a_unit() -> None:
    near = fill(Recipe("near", (2**62,)), 3, "i64", SHAPE)
    assert set(near.abs().flatten().tolist()) == set(range(2**62 - 8, 2**62 + 1))
    a, b = (fill(Recipe(name), 3, "f32", SHAPE) for name in ("tenths", "few_tenths"))
    off = ((a / b).frac() == 0) & (torch.fmod(a, b) != 0)
    assert 0.02 < float(off.double().mean()) < 0.5


@pytest.mark.parametrize("dtype", FLOATS)
def test_subnormal_values_lie_below_the_smallest_normal_number_and_are_not_all_zero(dtype: str) -> None:
    drawn = fill(Recipe("subnormal"), 3, dtype, SHAPE)
    assert float(drawn.double().abs().max()) < torch.finfo(TORCH_DTYPES[dtype]).smallest_normal
    assert int((drawn.double() != 0).sum()) > drawn.numel() / 2


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_values_that_overflow_end_where_the_dtype_does(dtype: str) -> None:
    drawn = fill(Recipe("overflow"), 3, dtype, SHAPE)
    assert bool(drawn.isfinite().all())
    assert float(drawn.abs().max()) == torch.finfo(drawn.dtype).max
    for function in (torch.exp, torch.exp2, torch.square, lambda t: t + t):
        made = function(drawn[drawn > 4])
        assert bool(made.isinf().any())
        assert float(made[made.isfinite()].max()) > torch.finfo(drawn.dtype).max / 4


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_are_what_functions_have_rules_for(dtype: str) -> None:
    zeros, nonfinite, huge = (fill(Recipe(name), 3, dtype, SHAPE) for name in SPECIAL)
    minus = (zeros == 0) & zeros.signbit()
    assert 0.1 < share(minus) < 0.23
    assert 0.28 < share(zeros == 0) < 0.39
    assert all(share(has) > 0.05 for has in (nonfinite.isnan(), nonfinite.isposinf(), nonfinite.isneginf()))
    assert 0.65 < share(nonfinite.isfinite()) < 0.85
    assert bool(huge.isfinite().all())
    assert share(huge.square().isinf()) > 0.9


def test_an_almost_singular_matrix_has_one_small_singular_value() -> None:
    drawn = torch.linalg.svdvals(fill(Recipe("near_singular"), 3, "f64", (40, 6, 6)))
    assert bool(((drawn[:, -1] > 1 / 512) & (drawn[:, -1] < 1 / 32)).all())
    assert bool((drawn[:, -2] > 2.9).all())


def share(tensor: torch.Tensor) -> float:
    return float(tensor.double().mean())


def test_values_have_the_property_that_they_are_for() -> None:
    def drawn(name: str) -> torch.Tensor:
        return fill(Recipe(name), 9, "f64", SHAPE)

    assert len(drawn("ties").unique()) == 3
    assert int((drawn("lone_zero") == 0).sum()) == 1
    assert 0.28 < share(drawn("nonnegative") == 0) < 0.39
    assert 0.28 < share(drawn("zeros") == 0) < 0.39
    assert set(drawn("corners").unique().tolist()) == {0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 6, -6}
    assert torch.equal(drawn("integers"), drawn("integers").round())
    assert set(drawn("signs").unique().tolist()) == {-1.0, 1.0}
    assert abs(float(drawn("normal").mean())) < 0.1
    assert 0.9 < float(drawn("normal").var()) < 1.1
    assert len(drawn("normal").unique()) > 2000


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5)], ids=str)
def test_a_permutation_repeats_nothing_along_the_last_dimension(shape: tuple[int, ...]) -> None:
    drawn = fill(Recipe("permutation", (6,)), 2, "i64", shape)
    assert tuple(drawn.shape) == shape
    assert all(len(set(row.tolist())) == shape[-1] for row in drawn.reshape(-1, shape[-1]))
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < 6


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2)], ids=str)
@pytest.mark.parametrize("recipe", [r for r in ALL if r.name != "data"], ids=lambda r: r.name)
def test_any_recipe_fills_scalars_and_empty_tensors(recipe: Recipe, shape: tuple[int, ...]) -> None:
    assert tuple(fill(recipe, 1, "f32", shape).shape) == shape


def test_data_is_taken_to_the_last_bit() -> None:
    numbers = (0.1, 1e-300, float("inf"), -float("inf"), -0.0, 1 / 3)
    drawn = fill(Recipe("data", numbers), 0, "f64", (6,))
    assert drawn.tolist() == list(numbers)
    assert str(drawn[4].item()) == "-0.0"
    assert fill(Recipe("data", (float("nan"),)), 0, "f32", ()).isnan().item()
    assert fill(Recipe("data", (2**62 + 1, 3)), 0, "i64", (2,)).tolist() == [2**62 + 1, 3]


WRONG = [
    (Recipe("frob"), "no value recipe frob"),
    (Recipe("below"), "no value recipe below(0 arguments)"),
    (Recipe("normal", (1,)), "no value recipe normal(1 arguments)"),
    (Recipe("data", (1.0,)), "1 numbers for 4"),
    (Recipe("around"), "it takes finite numbers, one or more"),
    (Recipe("around", ("relu",)), "it takes finite numbers, one or more"),
    (Recipe("ends", (1.0, "relu")), "it takes two numbers, the lesser first"),
    (Recipe("ends", (1.0, 1.0)), "it takes two numbers, the lesser first"),
    (Recipe("near", (2**63,)), "it takes an integer from 8"),
]


@pytest.mark.parametrize(("recipe", "words"), WRONG)
def test_a_wrong_recipe_is_refused_by_name(recipe: Recipe, words: str) -> None:
    with pytest.raises(UnknownRecipe) as caught:
        fill(recipe, 0, "f32", (2, 2))
    assert words in str(caught.value)


def test_the_printed_source_needs_only_torch_and_gives_the_same_bits() -> None:
    cases = [(recipe, dtype) for recipe in ALL for dtype in FLOATS]
    code = "import torch, hashlib\nh = hashlib.sha256()\ndef take(t):\n"
    code += "    h.update(t.contiguous().view(torch.uint8).numpy().tobytes())\n"
    expected = hashlib.sha256()
    for recipe, dtype in cases:
        code += f"take({expression(recipe, 4, dtype, shape_of(recipe))})\n"
        expected.update(bits(fill(recipe, 4, dtype, shape_of(recipe))))
    code += "print(h.hexdigest())"
    told = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert told.stdout.strip() == expected.hexdigest(), told.stderr[-2000:]
