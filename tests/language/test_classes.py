"""Classes of layouts and of attributes' values, and which of them the table of ops says there can be."""

from __future__ import annotations

import pytest

from fuzzer.language.classes import (
    AT_OFFSET,
    BROADCAST,
    CHANNELS_LAST,
    CONTIGUOUS,
    DEFAULT,
    EMPTY,
    GAPS,
    HIGHEST,
    INSIDE,
    LAYOUTS,
    LOWEST,
    OVERLAPPING,
    PERMUTED,
    SCALAR,
    SIZE_ONE,
    attribute_class,
    channels_last,
    draw_of,
    layout_classes,
    main_operand,
    possible_classes,
    possible_dtypes,
    possible_layouts,
)
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import FLOATS, Dtype, Shape, TensorType, Value, contiguous


@pytest.mark.parametrize(
    ("shape", "stride", "offset", "found"),
    [
        ((), (), 0, {SCALAR}),
        ((), (), 2, {SCALAR, AT_OFFSET}),
        ((4, 3), (3, 1), 0, {CONTIGUOUS}),
        ((4, 3), (1, 4), 0, {PERMUTED}),
        ((4, 3), (6, 2), 0, {GAPS}),
        ((4, 3), (0, 1), 0, {BROADCAST}),
        ((4, 3), (1, 1), 0, {OVERLAPPING}),
        ((0, 3), (3, 1), 0, {EMPTY}),
        ((1, 3), (7, 1), 5, {CONTIGUOUS, SIZE_ONE, AT_OFFSET}),
        ((2, 3, 4, 5), channels_last((2, 3, 4, 5)), 0, {CHANNELS_LAST}),
        ((2, 3, 4, 5), (60, 1, 3, 12), 0, {PERMUTED}),
        ((2, 3, 2, 4, 5), channels_last((2, 3, 2, 4, 5)), 0, {CHANNELS_LAST}),
    ],
)
def test_a_layout_has_one_order_and_remarks(shape: Shape, stride: Shape, offset: int, found: set[str]) -> None:
    assert layout_classes(shape, stride, offset) == found


@pytest.mark.parametrize(
    ("op", "shape", "name", "value", "found"),
    [
        ("softmax", (4, 3, 5), "dim", 0, "first"),
        ("softmax", (4, 3, 5), "dim", 1, "inner"),
        ("softmax", (4, 3, 5), "dim", 2, "last"),
        ("softmax", (4, 3, 5), "dim", -1, "negative"),
        ("softmax", (4,), "dim", 0, "only"),
        ("softmax", (4,), "dtype", None, DEFAULT),
        ("softmax", (4,), "dtype", Dtype("f64"), "f64"),
        ("layer_norm", (4, 3), "eps", 1e-5, DEFAULT),
        ("layer_norm", (4, 3), "eps", 0.1, "0.1"),
        ("layer_norm", (4, 3), "normalized_shape", (3,), "a size"),
        ("leaky_relu", (4,), "negative_slope", 0.01, DEFAULT),
        ("leaky_relu", (4,), "negative_slope", 0.37, INSIDE),
        ("mul_scalar", (4,), "other", 1.7, "unheld"),
        ("mul_scalar", (4,), "other", 65504.0, "large"),
        ("mul_scalar", (4,), "other", -(2**31), "large"),
        ("mul_scalar", (4,), "other", 1.25, INSIDE),
        ("fractional_max_pool2d", (1, 2, 8, 8), "kernel_size", (0, 0), "0"),
        ("narrow", (4, 3), "start", 0, LOWEST),
        ("avg_pool2d", (1, 2, 8, 8), "kernel_size", 8, "a size"),
        ("avg_pool2d", (1, 2, 8, 8), "kernel_size", (1, 3), "mixed"),
        ("avg_pool2d", (1, 2, 8, 8), "kernel_size", 9, "beyond"),
        ("avg_pool2d", (1, 2, 8, 8), "ceil_mode", True, "True"),
    ],
)
def test_an_attributes_value_is_held_against_its_row_and_the_operand(
    op: str, shape: Shape, name: str, value: Value, found: str
) -> None:
    spec = OPS[op]
    (attribute,) = [a for a in spec.attributes if a.name == name]
    d = draw_of(spec, [TensorType("f32", shape, contiguous(shape))], (("dim", 0), (name, value)))
    assert attribute_class(attribute, value, d) == found


def test_a_rule_that_does_not_hold_for_a_node_gives_no_error() -> None:
    spec = OPS["narrow"]
    (attribute,) = [a for a in spec.attributes if a.name == "length"]
    assert attribute_class(attribute, 3, draw_of(spec, [], ())) == "other"


def test_dtypes_are_those_of_the_row_within_the_limits() -> None:
    assert possible_dtypes(OPS["exp"], Limits()) == FLOATS
    assert possible_dtypes(OPS["exp"], Limits(dtypes=("f16",))) == ("f16",)
    assert possible_dtypes(OPS["logical_not"], Limits()) == ("bool",)
    assert main_operand(OPS["embedding"]) in range(len(OPS["embedding"].operands))


def test_layouts_are_those_that_the_row_does_not_refuse_and_unknown_where_shapes_follow() -> None:
    assert possible_layouts(OPS["exp"].operands[0]) == LAYOUTS
    conv, weight = OPS["conv2d"].operands[:2]
    assert SCALAR not in (possible_layouts(conv) or ())
    assert possible_layouts(weight) is None
    assert possible_layouts(OPS["gather"].operands[1]) == (CONTIGUOUS,)
    assert set(possible_layouts(OPS["exp_"].operands[0]) or ()).isdisjoint({BROADCAST, OVERLAPPING})


def test_classes_of_attributes_are_those_that_the_row_draws_and_unknown_where_it_has_its_own_rule() -> None:
    def classes(op: str, name: str) -> tuple[str, ...] | None:
        (attribute,) = [a for a in OPS[op].attributes if a.name == name]
        return possible_classes(attribute, OPS[op])

    assert classes("layer_norm", "eps") == (DEFAULT, "0.001", "0.1")
    assert classes("layer_norm", "normalized_shape") is None
    assert classes("remainder_scalar", "other")[-3:] == (INSIDE, "unheld", "large")
    assert classes("avg_pool2d", "ceil_mode") == (DEFAULT, "True")
    assert set(classes("softmax", "dim") or ()) == {"negative", "first", "last", "inner", "only"}
    assert set(classes("narrow", "start") or ()) == {LOWEST, HIGHEST}
