"""The Program: each invariant, and what is derived without torch (checked against torch)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fuzzer.language.program import (
    Cotangent,
    Leaf,
    Node,
    Output,
    Program,
    ProgramError,
    Region,
    TensorType,
    canonical,
    contiguous,
    extent,
    gaining_leaves,
    rename,
    unwrap,
    walk,
    writable,
)

X = Leaf("x0", "f32", (4,), (1,))
RELU = Node(("v0",), "relu", ("x0",))
C = Cotangent("f32", (4,), (1,))

# What is wrong; leaves, body, outputs; the words of the error; the part it is in and the statement's number there.
BROKEN = [
    ("a leaf bound twice", (X, X), (), (), "leaf: x0 is bound twice", ("leaves", 1)),
    ("a result bound twice", (X,), (RELU, RELU), (), "v0 is bound twice", ("nodes", 1)),
    ("one node binding a name twice", (X,), (Node(("v0", "v0"), "topk", ("x0",)),), (), "bound twice", ("nodes", 0)),
    ("a result with a leaf's name", (X,), (Node(("x0",), "relu", ("x0",)),), (), "bound twice", ("nodes", 0)),
    ("a name used before it is bound", (X,), (Node(("v0",), "relu", ("v1",)),), (), "v1 is used before", ("nodes", 0)),
    ("a node reading itself", (X,), (Node(("v0",), "relu", ("v0",)),), (), "v0 is used before", ("nodes", 0)),
    ("a list with an unbound name", (X,), (Node(("v0",), "cat", (("x0", "x1"),)),), (), "x1 is used", ("nodes", 0)),
    ("a node without results", (X,), (Node((), "relu", ("x0",)),), (), "at least one result", ("nodes", 0)),
    ("a name that is none", (replace(X, name="0x"),), (), (), "'0x' is not a name", ("leaves", 0)),
    (
        "a value read after an in-place op took it",
        (X,),
        (RELU, Node(("v1",), "add_", ("v0", "x0")), Node(("v2",), "relu", ("v0",))),
        (),
        "v0 was overwritten by an in-place op",
        ("nodes", 2),
    ),
    (
        "an in-place op's operand returned",
        (X,),
        (RELU, Node(("v1",), "add_", ("v0", "x0"))),
        (Output("v0"),),
        "is dead",
        ("outputs", 0),
    ),
    ("an output of nothing", (X,), (), (Output("v7"),), "v7 is used before", ("outputs", 0)),
    ("an output twice", (X,), (RELU,), (Output("v0", C), Output("v0")), "v0 is returned twice", ("outputs", 1)),
    ("a view of a later leaf", (replace(X, base="x1"), replace(X, name="x1")), (), (), "x1 is used", ("leaves", 0)),
    ("a view of itself", (replace(X, base="x0"),), (), (), "x0 is used before", ("leaves", 0)),
    ("a view of other dtype", (X, Leaf("x1", "f64", (2,), (1,), base="x0")), (), (), "not f64", ("leaves", 1)),
    ("an unknown dtype", (replace(X, dtype="f8"),), (), (), "unknown dtype 'f8'", ("leaves", 0)),
    ("a stride of another rank", (replace(X, stride=(1, 1)),), (), (), "differ in rank", ("leaves", 0)),
    ("a negative size", (replace(X, shape=(-4,)),), (), (), "negative", ("leaves", 0)),
    ("a negative stride", (replace(X, stride=(-1,)),), (), (), "negative", ("leaves", 0)),
    ("a negative offset", (replace(X, offset=-1),), (), (), "negative", ("leaves", 0)),
    ("an integer leaf that requires grad", (Leaf("x0", "i64", (4,), (1,)),), (), (), "require grad", ("leaves", 0)),
    ("a cotangent's geometry", (X,), (RELU,), (Output("v0", replace(C, stride=())),), "of v0", ("outputs", 0)),
    (
        "a name bound twice inside a region",
        (X,),
        (RELU, Region("autocast", (), (Region("checkpoint", (), (RELU,)),))),
        (),
        "v0 is bound twice",
        ("nodes", 1),
    ),
]


@pytest.mark.parametrize(
    ("leaves", "body", "outputs", "words", "where"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN]
)
def test_a_program_with_a_broken_invariant_cannot_be_made(leaves, body, outputs, words, where) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProgramError) as caught:
        Program(leaves, body, outputs)
    assert words in str(caught.value)
    assert (caught.value.part, caught.value.number) == where


def test_a_replaced_part_is_checked_again() -> None:
    program = Program((X,), (RELU,), (Output("v0", C),))
    with pytest.raises(ProgramError):
        replace(program, leaves=())


SHAPES = [(), (0,), (1,), (5,), (2, 3), (3, 0, 2), (1, 4, 1), (2, 3, 4, 5)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_contiguous_strides_are_those_of_torch(shape: tuple[int, ...]) -> None:
    assert contiguous(shape) == torch.empty(shape).stride()


GEOMETRIES = [
    ((), (), 0),
    ((), (), 7),
    ((0, 3), (3, 1), 4),
    ((2, 3), (3, 1), 0),
    ((2, 3), (1, 2), 1),
    ((4, 5), (0, 1), 2),
    ((3, 3), (2, 1), 0),
    ((1, 1), (100, 100), 0),
]


@pytest.mark.parametrize(("shape", "stride", "offset"), GEOMETRIES)
def test_the_extent_is_the_smallest_storage_that_torch_accepts(
    shape: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> None:
    needed = extent(shape, stride, offset)
    torch.as_strided(torch.empty(needed), shape, stride, offset)
    if 0 not in shape:
        with pytest.raises(RuntimeError, match="out of bounds"):
            torch.as_strided(torch.empty(needed - 1), shape, stride, offset)


def test_nodes_of_regions_are_walked_in_the_order_of_execution() -> None:
    inner = Region("checkpoint", (), (Node(("v1",), "exp", ("v0",)),))
    body = (RELU, Region("autocast", (), (inner, Node(("v2",), "sin", ("v1",)))), Node(("v3",), "cos", ("v2",)))
    assert [node.op for node in walk(body)] == ["relu", "exp", "sin", "cos"]
    assert Program((X,), body, (Output("v3"),)).nodes == tuple(walk(body))


def test_a_node_says_what_it_reads_in_order_and_with_repetitions() -> None:
    assert Node(("v0",), "index_put", ("x0", ("x1", None, "x1"), None, "x2")).uses == ("x0", "x1", "x1", "x2")


def test_renaming_reaches_every_place_where_a_name_stands() -> None:
    view = Leaf("b", "f32", (2,), (1,), base="a")
    region = Region("autocast", (), (Node(("d",), "index_put", ("c", ("a", None), None)),))
    program = Program(
        (replace(X, name="a"), view), (Node(("c",), "relu", ("b",)), region), (Output("d", C),), comment=("hm",)
    )
    assert "ab" in "".join(leaf.name for leaf in program.leaves)
    renamed = rename(program, {"a": "x0", "b": "x1", "c": "v0", "d": "v1"}.__getitem__)
    assert renamed.leaves[1].base == "x0"
    assert renamed.nodes[1].args == ("v0", ("x0", None), None)
    assert renamed.outputs[0].value == "v1"
    assert canonical(program) == replace(renamed, comment=())


def test_a_type_knows_its_rank_and_its_number_of_elements() -> None:
    t = TensorType("bf16", (2, 0, 3), (1, 1, 1))
    assert (t.rank, t.numel, t.is_float) == (3, 0, True)
    assert TensorType("i8", (), ()).numel == 1
    assert not TensorType("bool", (), ()).is_float


@pytest.mark.parametrize(
    ("stride", "may"), [((4, 1), True), ((1, 3), True), ((0, 1), False), ((1, 1), False), ((9, 2), True)]
)
def test_only_memory_without_overlaps_is_writable(stride: tuple[int, int], may: bool) -> None:
    assert writable(TensorType("f32", (3, 4), stride)) is may


def test_the_regions_of_one_kind_are_unwrapped_at_any_depth() -> None:
    inner = Region("vmap", (), (RELU,), ("x0",))
    outer = Region("hook", (("scale", 2.0),), (inner,))
    assert unwrap((outer,), "hook") == (inner,)
    assert unwrap((outer,), "vmap") == (replace(outer, body=(RELU,)),)
    assert unwrap((outer, RELU), "cond") == (outer, RELU)


def test_a_leaf_gains_a_gradient_by_a_write_of_one_also_through_a_view() -> None:
    without = replace(X, name="x1", requires_grad=False)
    view, write = Node(("v0",), "view", ("x1",)), Node(("v1",), "mul_", ("v0", "x0"))
    gaining = Program((X, without), (view, write), (Output("v1", C),))
    assert gaining_leaves(gaining) == {"x1"}
    plain = replace(gaining, body=(view, replace(write, args=("v0", "x1"))))
    assert gaining_leaves(plain) == set()
