"""Growing: what is more natural, what each step proposes, and that only what shows the fault is followed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given

from fuzzer.language.infer import infer
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from minimizer.natural import STEPS, Growth, grow, unnatural
from minimizer.rewrite import Types
from tests.minimizer.programs import FEW, programs

RELU = """program(1)
route("autograd")
x0 = leaf(f32[2, 3], values="ones")
v0 = relu(x0)
backward(v0, cotangent(f32[2, 3], values="ones"))
"""
EXPANDED = """program(1)
route("autograd")
x0 = leaf(f32[()], values="tiny")
v0 = neg(x0)
v1 = expand_as(v0, x0)
v2 = square_(v1)
backward(v0, cotangent(f32[()], values="ones"))
"""


def grown(text: str, holds: Callable[[Program], float | None], error: float = 1.0, budget: int = 20) -> Growth:
    return grow(parse(text), error, holds, budget=budget)


def leaf(program: Program) -> str:
    return show(program).splitlines()[2].partition(" = ")[2]


@pytest.mark.parametrize(
    ("natural", "than"),
    [
        (RELU.replace(', values="ones"', ""), RELU),
        (RELU, RELU.replace('route("', 'settings({"inductor.max_fusion_size": 4})\nroute("')),
        (RELU, RELU.replace("route(", "route(").replace('"autograd"', '"vjp"')),
        (RELU, RELU.replace("f32", "f16")),
        (RELU, RELU.replace("2, 3]", "1, 1]")),
        (RELU, RELU.replace("3],", "3], stride=(1, 2),", 1)),
        (RELU.replace("3],", "3], stride=(1, 2),", 1), RELU.replace("3],", "3], stride=(7, 2),", 1)),
        (RELU.replace('"ones"', '"tiny"'), RELU),
    ],
    ids=["values", "settings", "route", "dtype", "sizes", "layout", "views", "drawn"],
)
def test_what_a_person_would_rather_write_is_more_natural(natural: str, than: str) -> None:
    assert unnatural(parse(natural), 1.0) < unnatural(parse(than), 1.0)


def test_an_error_that_shows_outweighs_how_a_program_looks() -> None:
    plain, odd = parse(RELU.replace(', values="ones"', "")), parse(RELU.replace("f32", "f16"))
    assert unnatural(odd, math.inf) < unnatural(plain, 0.0)
    assert unnatural(plain, 0.9) < unnatural(plain, 0.1) < unnatural(plain, 1e-6)


def test_ones_become_random_where_the_fault_allows_it() -> None:
    everywhere = grown(RELU, lambda p: 1.0)
    assert (leaf(everywhere.program), everywhere.queries) == ("leaf(f32[3, 3])", 2)
    of_ones = grown(RELU, lambda p: 1.0 if p.leaves[0].values.name == "ones" else None)
    cotangent = of_ones.program.outputs[0].cotangent
    assert cotangent is not None
    assert (leaf(of_ones.program), cotangent.values.name) == ('leaf(f32[3, 3], values="ones")', "normal")
    assert of_ones.history == ("normal_values", "usual_sizes")


def test_a_write_through_a_view_is_shown_with_values_that_it_loses() -> None:
    def shows(program: Program) -> float | None:
        return math.inf if math.inf in program.leaves[0].values.args else 0.0

    found = grown(EXPANDED, shows, error=0.0)
    assert leaf(found.program) == "leaf(f32[3], values=data([100000000.0, inf, 1.0]))"
    assert found.program.nodes[-1].op == "fill_"
    assert found.history[0] == "loud_values"


def test_an_odd_layout_is_made_by_views_of_the_leaf_or_in_the_program() -> None:
    odd = RELU.replace("[2, 3]", "[8, 4]").replace("4],", "4], stride=(1, 1),", 1)

    def overlaps(program: Program) -> float | None:
        return 1.0 if infer(program)[program.nodes[-1].uses[0]].stride == (1, 1) else None

    found = grown(odd, overlaps).program
    assert (leaf(found), found.nodes[0].op, len(found.nodes)) == ("leaf(f32[11])", "unfold", 2)
    odd = RELU.replace("[2, 3]", "[1, 3, 1, 3, 1]").replace("1],", "1], stride=(2, 1, 1, 3, 2),", 1)
    inside = grown(odd, lambda p: 1.0 if p.leaves[0].stride[1:] in ((1, 1, 3, 2), (1, 9, 3, 1), (1, 3, 1)) else None)
    assert (inside.program.leaves[0].shape, inside.program.leaves[0].stride) == ((1, 3, 3, 1), (3, 1, 3, 1))


def test_a_leaf_is_as_small_as_is_read_at_a_look() -> None:
    chunked = """program(1)
route("autograd")
x0 = leaf(f32[64, 4], stride=(1, 1), values="ones")
v0, v1, v2, v3, v4 = chunk(x0, chunks=5)
backward(v0, cotangent(f32[13, 4], values="ones"))
"""
    found = grown(chunked, lambda p: 1.0 if infer(p)[p.outputs[0].value].shape[0] > 1 else None)
    assert "few_elements" in found.history
    assert leaf(found.program) == "leaf(f32[13])"  # ten windows of four: chunks of two
    assert found.program.nodes[0].op == "unfold"


def test_dimensions_that_nothing_needs_go() -> None:
    deep = RELU.replace("[2, 3]", "[2, 3, 2]")
    assert leaf(grown(deep, lambda p: 1.0).program) == "leaf(f32[3, 3])"


def test_what_was_needed_for_the_minimal_program_is_tried_again_once_it_has_grown() -> None:
    text = RELU.replace("f32", "f64").replace('route("', 'settings({"inductor.max_fusion_size": 4})\nroute("')
    assert not grown(text, lambda p: None).history
    found = grown(text, lambda p: 1.0)
    assert found.program == parse(
        RELU.replace(', values="ones"', "").replace("2, 3", "3, 3").replace("3]))", "3], seed=1))")
    )


def test_other_numbers_are_tried_until_the_error_is_seen_at_a_glance() -> None:
    found = grown(RELU, lambda p: 0.9 if p.leaves[0].seed == 20 else 0.001)
    assert (found.history[-1], found.program.leaves[0].seed, found.error) == ("other_numbers", 20, 0.9)
    assert "other_numbers" not in grown(RELU, lambda p: 0.9).history


def test_small_sizes_become_three() -> None:
    found = grown(RELU.replace("[2, 3]", "[1, 2]"), lambda p: 1.0)
    assert leaf(found.program) == "leaf(f32[3, 3])"
    scalar = grown(RELU.replace("[2, 3]", "[()]"), lambda p: 1.0)
    assert leaf(scalar.program) == "leaf(f32[3])"


def test_no_more_programs_are_asked_than_the_budget_and_none_when_the_time_is_up() -> None:
    assert grown(RELU, lambda p: None, budget=2).queries == 2
    assert grow(parse(RELU), 1.0, lambda p: 1.0, expired=lambda: True).queries == 0


def test_a_program_that_shows_less_is_not_followed() -> None:
    found = grown(RELU, lambda p: 0.0)
    assert (found.history, found.error) == ((), 1.0)


@FEW
@given(programs())
def test_steps_only_ever_yield_programs(program: Program) -> None:
    types = Types(infer(program))
    for step in STEPS:
        assert all(isinstance(p, Program) for p in step(program, types))
