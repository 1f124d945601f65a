"""What triggers share: their type, recipes by the values that they hold, where the sign of a zero can be seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from benches.triggers.sketch import Sketch
from fuzzer.language.program import Node, Recipe
from fuzzer.language.values import fill

Trigger = Callable[[Sketch], bool]

HALF = ("f16", "bf16")
_ZEROS = frozenset("zeros signed_zeros ties corners integers nonnegative lone_zero coins".split())
_REPEATED = frozenset("ties corners integers signs zeros signed_zeros nonfinite nonnegative ones coins".split())
_NEGATIVE = frozenset(
    "normal unit ties zeros signed_zeros nonfinite corners integers signs lone_zero large huge tiny overflow".split()
)
# Ops whose result is not a number for some negative operands.
_PARTIAL = frozenset("rsqrt sqrt log log2 log10 log1p acos asin atanh acosh logit lgamma xlogy xlog1py pow".split())
_ZERO = frozenset("zero_ zeros_like new_zeros".split())
_CONSTANT = _ZERO | frozenset("fill fill_ ones_like full_like new_ones new_full".split())
_ROUND_UP = frozenset("ceil round trunc".split())


def numbers(recipe: Recipe) -> list[float]:
    """The numbers that a recipe names."""
    return [float(a) for a in recipe.args if isinstance(a, int | float)]


def numbers_of(s: Sketch, name: str) -> torch.Tensor | None:
    """The numbers, in the leaf's order, of the leaf from which a value comes by ops that only move numbers."""
    leaf = s.leaves.get(s.source(name))
    if leaf is None or leaf.base is not None or leaf.type.is_complex:
        return None
    return fill(leaf.values, leaf.seed, leaf.dtype, leaf.shape)


def holds_zero(recipe: Recipe | None) -> bool:
    """Whether a leaf of this recipe has zeros among its elements."""
    if recipe is None:
        return False
    named = recipe.name in ("data", "around") and any(n == 0 for n in numbers(recipe))
    return named or recipe.name in _ZEROS or (recipe.name == "below")


def holds_ties(recipe: Recipe | None) -> bool:
    """Whether some elements of a leaf of this recipe are equal."""
    if recipe is None:
        return False
    given = numbers(recipe)
    return recipe.name in _REPEATED or (recipe.name == "data" and len(set(given)) < len(given))


def holds_negative(recipe: Recipe | None) -> bool:
    """Whether some elements of a leaf of this recipe are below zero."""
    if recipe is None:
        return False
    return recipe.name in _NEGATIVE or (recipe.name in ("data", "around") and any(n < 0 for n in numbers(recipe)))


def holds_minus_zero(recipe: Recipe | None) -> bool:
    """Whether a recipe names minus zero, or draws it."""
    if recipe is not None and recipe.name == "signed_zeros":
        return True
    return recipe is not None and any(n == 0 and math.copysign(1, n) < 0 for n in numbers(recipe))


def holds_nonfinite(recipe: Recipe | None) -> bool:
    """Whether a recipe names infinity or NaN, or draws them."""
    return recipe is not None and (recipe.name == "nonfinite" or not all(map(math.isfinite, numbers(recipe))))


def may_be_minus_zero(s: Sketch, name: str) -> bool:
    """Whether elements of a value may be minus zero."""
    if holds_minus_zero(s.recipe(name)):
        return True
    node = s.maker.get(s.source(name))
    if node is None:
        return False
    if node.op in _ROUND_UP:
        return holds_negative(s.recipe(node.uses[0]))
    return node.op in ("neg", "neg_") and holds_zero(s.recipe(node.uses[0]))


def may_be_nan(s: Sketch, name: str) -> bool:
    """Whether elements of a value may be NaN."""
    recipe = s.recipe(name) or Recipe("none")
    if recipe.name == "nonfinite" or any(math.isnan(n) for n in numbers(recipe)):
        return True
    node = s.maker.get(s.source(name))
    return node is not None and node.op in _PARTIAL and holds_negative(s.recipe(node.uses[0]))


def sees_sign(s: Sketch, name: str) -> bool:
    """Whether a node reads the value to which the sign of a zero makes a difference."""

    def sees(node: Node) -> bool:
        if node.op in ("reciprocal", "reciprocal_", "rdiv_scalar", "rsqrt", "rsqrt_", "atan2", "atan2_"):
            return True
        return node.op in ("copysign", "copysign_", "div", "div_") and name in node.uses[1:]

    return any(sees(node) for node in s.readers.get(name, ()))


def is_zero_constant(s: Sketch, name: str) -> bool:
    """Whether a value is the constant zero, of however many elements."""
    node = s.maker.get(s.source(name))
    if node is None:
        return False
    number = s.attr(node, "value", s.attr(node, "fill_value"))
    return node.op in _ZERO or (node.op in _CONSTANT and number == 0)


def is_constant(s: Sketch, name: str) -> bool:
    """Whether a value is one constant everywhere."""
    node = s.maker.get(s.source(name))
    return node is not None and node.op in _CONSTANT
