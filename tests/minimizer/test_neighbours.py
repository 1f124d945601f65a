"""Neighbours: each differs in what its axis says, types, and stands there once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fuzzer.language.infer import infer
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from minimizer.neighbours import AXES, Axis, attribute, dtype, layout, neighbours, numbers, route, setting, size

SLICED = """program(1)
route("autograd")
x0 = leaf(f32[3])
x1 = leaf(f32[1], requires_grad=False, seed=1)
v0 = slice_scatter(x0, x1, end=1)
v1 = sum(v0)
backward(v1, cotangent(f32[()], seed=2))
"""
POOLED = """program(1)
settings({"inductor.max_fusion_size": 4})
route("autograd")
x0 = leaf(f16[1, 2, 4, 4])
v0 = avg_pool2d(x0, kernel_size=3, stride=2, ceil_mode=True)
backward(v0, cotangent(f16[1, 2, 2, 2]))
"""


def along(axis: Axis, text: str) -> dict[str, Program]:
    return {neighbour.value: neighbour.program for neighbour in neighbours(parse(text), (axis,))}


@pytest.mark.parametrize("text", [SLICED, POOLED], ids=["scatter", "pool"])
def test_all_neighbours_type_and_each_stands_there_once(text: str) -> None:
    found = list(neighbours(parse(text)))
    texts = [show(neighbour.program) for neighbour in found]
    assert len({*texts, text}) == len(texts) + 1
    assert {neighbour.axis for neighbour in found} == {axis.__name__ for axis in AXES}
    for neighbour in found:
        infer(neighbour.program)


def test_the_numbers_of_a_program_are_its_sizes_and_attributes_those_left_out_too() -> None:
    assert numbers(parse(SLICED)) == {"x0.shape[0]": 3, "x1.shape[0]": 1, "start": 0, "end": 1, "step": 1}
    twice = SLICED.replace("v1 = sum(v0)", "v1 = slice_scatter(v0, x1, end=1)").replace("f32[()]", "f32[3]")
    assert {"v0.end", "v1.end"} <= numbers(parse(twice)).keys()
    told = numbers(parse(POOLED.replace("kernel_size=3", "kernel_size=(3, 2)")))
    assert (told["kernel_size[0]"], told["kernel_size[1]"], told["stride"]) == (3, 2, 2)


def test_the_dtype_is_that_of_all_floating_leaves_and_cotangents() -> None:
    found = along(dtype, SLICED)
    assert list(found) == ["f64", "bf16", "f16"]
    assert show(found["f64"]).count("f64[") == 3


def test_a_size_takes_along_what_depends_on_it() -> None:
    found = along(size, SLICED)
    assert "leaf(f32[6])" in show(found["x0.shape[0]=6"])
    assert "end=2" in show(found["x1.shape[0]=2, end=2"])


def test_of_the_proposals_for_a_size_only_what_eager_runs_is_a_neighbour() -> None:
    asked: list[Sequence[Program]] = []

    def runs(batch: Sequence[Program]) -> list[bool]:
        asked.append(batch)
        return ["leaf(f32[6])" in show(program) and "end=1)" in show(program) for program in batch]

    found = list(neighbours(parse(SLICED), (size,), runs))
    assert [neighbour.value for neighbour in found] == ["x0.shape[0]=6"]
    assert max(map(len, asked)) > 2


def test_integers_move_together_where_alone_they_do_not_fit() -> None:
    def runs(batch: Sequence[Program]) -> list[bool]:
        return [numbers(p)["end"] - numbers(p)["start"] == 1 and numbers(p)["step"] == 1 for p in batch]

    found = [neighbour.value for neighbour in neighbours(parse(SLICED), (attribute,), runs)]
    assert "start=1, end=2" in found
    middle = SLICED.replace("end=1)", "start=1, end=2)")
    found = [neighbour.value for neighbour in neighbours(parse(middle), (attribute,), runs)]
    assert {"start=2, end=3", "start=0, end=1"} <= set(found)
    assert along(attribute, POOLED).keys() >= {"ceil_mode=False", "count_include_pad=False", "stride=3"}


def test_layouts_are_laid_on_every_leaf_that_can_have_them() -> None:
    found = along(layout, POOLED)
    strides = {name: program.leaves[0].stride for name, program in found.items() if program.leaves[0].stride}
    assert strides == {
        "transposed": (32, 16, 1, 4),
        "channels last": (32, 1, 8, 2),
        "every second element": (64, 32, 8, 2),
        "expanded": (16, 0, 4, 1),
        "with an offset": (32, 16, 4, 1),
    }
    assert found["with an offset"].leaves[0].offset == 1
    assert "contiguous" in along(layout, POOLED.replace("4, 4])", "4, 4], stride=(32, 1, 8, 2))", 1))


def test_routes_are_all_others_and_dynamic_sizes_come_and_go() -> None:
    found = along(route, SLICED)
    assert {"vjp", "aoti", "compiled_autograd", "dynamic sizes", "checkpoint"} <= found.keys()
    assert "autograd" not in found
    assert "with checkpoint():" in show(found["checkpoint"])
    back = along(route, SLICED.replace('"autograd"', '"autograd", dynamic=True'))["static sizes"]
    assert show(back) == SLICED


def test_a_programs_own_settings_go_one_by_one_and_standard_ones_come() -> None:
    found = along(setting, POOLED)
    assert found["inductor.max_fusion_size at its default"].settings == ()
    assert dict(found["inductor.pattern_matcher=False"].settings)["inductor.max_fusion_size"] == 4
