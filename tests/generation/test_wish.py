"""What is asked of a node: what the draw keeps of it, and what it asks for when that was in vain."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from fuzzer.generation.generate import generate
from fuzzer.generation.wish import AFTER, BESIDE, WISH_STEPS, Wish, can_lie
from fuzzer.language.classes import LAYOUTS, layout_classes
from fuzzer.language.ops.spec import BEYOND, LARGE, UNHELD, UNHELD_NUMBERS, ZERO
from fuzzer.language.program import Node, Program, Shape
from fuzzer.language.values import AROUND, ENDS, NEAR, POSITIONS
from tests.drawn import drawn

Holds = Callable[[Program, Node], bool]


def first_leaf(program: Program, node: Node, place: int) -> frozenset[str]:
    """The layout of the leaf that a node reads at this place; nothing where that is no leaf."""
    named = {leaf.name: leaf for leaf in program.leaves}
    leaf = named.get(node.uses[place]) if place < len(node.uses) else None
    return layout_classes(leaf.shape, leaf.stride, leaf.offset) if leaf else frozenset()


def share(wishes: tuple[Wish, ...], holds: Holds) -> float:
    """Of how many draws some node of the last wish's op holds."""
    programs = drawn([f"wish/{n}" for n in range(20)], wishes=wishes)
    return sum(any(n.op == wishes[-1].op and holds(p, n) for n in p.nodes) for p in programs) / len(programs)


@pytest.mark.parametrize("op", ["layer_norm", "conv2d", "index_put", "cholesky", "dropout"])
def test_a_program_holds_the_op_that_it_is_asked_for(op: str) -> None:
    assert share((Wish(op),), lambda p, n: True) >= 0.6


def test_positions_which_have_no_gradient_are_read_by_another_op() -> None:
    assert share((Wish("argmax"),), lambda p, n: True) >= 0.3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_operand_lies_as_it_is_asked_to(layout: str) -> None:
    assert share((Wish("neg", layout=layout),), lambda p, n: layout in first_leaf(p, n, 0)) >= 0.7


def test_another_operand_than_the_first_can_be_asked_for() -> None:
    wish = Wish("mul", operand=1, layout="broadcast")
    assert share((wish,), lambda p, n: "broadcast" in first_leaf(p, n, 1)) >= 0.5


def test_a_dtype_a_recipe_and_an_attribute_are_kept() -> None:
    wish = Wish("softmax", "f16", {"dim": "inner"}, values="ties")

    def holds(program: Program, node: Node) -> bool:
        leaf = next((leaf for leaf in program.leaves if leaf.name == node.uses[0]), None)
        dim = dict(node.attrs)["dim"]
        inner = isinstance(dim, int) and dim > 0
        return inner and leaf is not None and (leaf.dtype, leaf.values.name) == ("f16", "ties")

    assert share((wish,), holds) >= 0.6


@pytest.mark.parametrize(
    ("wish", "recipe", "least"),
    [
        (Wish("erfinv", "f64", values=ENDS), ENDS, 0.9),
        (Wish("mvlgamma", "f32", values=ENDS), ENDS, 0.8),
        (Wish("hardtanh", "bf16", values=AROUND), AROUND, 0.9),
        (Wish("remainder", "f32", values=AROUND), "few_tenths", 0.6),
        (Wish("floor_divide", "f16", values="tenths"), "few_tenths", 0.3),
        (Wish("mul", "i64", values=NEAR), NEAR, 0.5),
    ],
)
def test_numbers_lie_where_they_are_asked_to(wish: Wish, recipe: str, least: float) -> None:
    def holds(program: Program, node: Node) -> bool:
        return any(leaf.name in node.uses and leaf.values.name == recipe for leaf in program.leaves)

    assert share((wish,), holds) >= least


@pytest.mark.parametrize(
    ("wish", "holds"),
    [
        (Wish("remainder_scalar", "bf16", {"other": UNHELD}), lambda a: a["other"] in UNHELD_NUMBERS),
        (Wish("mul_scalar", "f16", {"other": LARGE}), lambda a: a["other"] >= 65504),
        (Wish("mul_scalar", "i64", {"other": LARGE}), lambda a: abs(a["other"]) >= 2**15),
        (Wish("fractional_max_pool2d", attributes={"kernel_size": ZERO}), lambda a: a["kernel_size"] == (0, 0)),
        (Wish("unfold", attributes={"size": BEYOND}), lambda a: a["size"] == 0),
        (Wish("dropout", attributes={"training": "False"}), lambda a: a.get("training") is False),
    ],
)
def test_numbers_and_sizes_are_of_the_class_that_they_are_asked_for(
    wish: Wish, holds: Callable[[dict[str, Any]], bool]
) -> None:
    assert share((wish,), lambda program, node: holds(dict(node.attrs))) >= 0.3


def test_positions_are_counted_in_the_graph() -> None:
    made = share((Wish("mul_scalar", "i64", values=POSITIONS),), lambda p, n: any(m.op == "cumsum" for m in p.nodes))
    assert made >= 0.3


@pytest.mark.parametrize("place", [0, 1])
def test_a_node_reads_the_result_of_the_node_before(place: int) -> None:
    wishes = (Wish("sin"), Wish("mul", link=AFTER, reads=place))

    def holds(program: Program, node: Node) -> bool:
        made = {out for n in program.nodes if n.op == "sin" for out in n.outs}
        return node.uses[place] in made

    assert share(wishes, holds) >= 0.6


def test_a_node_reads_what_the_node_before_read() -> None:
    wishes = (Wish("sin"), Wish("exp", link=BESIDE))

    def holds(program: Program, node: Node) -> bool:
        return any(n.op == "sin" and n.uses[0] == node.uses[0] for n in program.nodes)

    assert share(wishes, holds) >= 0.6


def test_what_cannot_be_kept_is_asked_for_no_longer() -> None:
    wish = Wish("mul", "f32", {"a": "b"}, 0, "permuted", "ties", AFTER, 1)
    steps = [wish.relaxed(step) for step in range(WISH_STEPS)]
    assert steps[0] == wish
    assert [bool(s.values) for s in steps] == [True, False, False, False, False]
    assert [bool(s.layout) for s in steps] == [True, True, False, False, False]
    assert [bool(s.link) for s in steps] == [True, True, True, False, False]
    assert steps[-1] == Wish("mul")


@pytest.mark.parametrize(
    ("shape", "layout", "can"),
    [
        ((), "0-dim", True),
        ((3,), "0-dim", False),
        ((3,), "permuted", False),
        ((3, 2), "permuted", True),
        ((1, 3), "size 1", True),
        ((3,), "broadcast", True),
        ((1,), "broadcast", False),
        ((2, 3, 4, 4), "channels last", True),
        ((2, 3, 4), "channels last", False),
        ((0, 3), "gaps", False),
        ((0, 3), "", True),
    ],
)
def test_a_shape_can_lie_in_some_ways(shape: Shape, layout: str, can: bool) -> None:
    assert can_lie(shape, layout) == can


def test_without_a_wish_nothing_is_drawn_otherwise() -> None:
    assert generate(random.Random("none")) == generate(random.Random("none"), wishes=())
