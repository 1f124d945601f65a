"""The reducers of sizes: which leaves and attributes follow when a size, a dimension or the order of two goes."""

from __future__ import annotations

import functools

from fuzzer.language.infer import IllTyped, infer
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from minimizer.resize import _scopes, _targets, drop_dim, shrink_dim, swap_dims
from minimizer.rewrite import Types

HEAD = 'program(1)\nroute("autograd")\n'
SLICED = parse(
    HEAD + "x0 = leaf(f32[4, 12], seed=1)\nx1 = leaf(f32[4, 6], seed=2)\n"
    "v0 = slice_scatter(x0, x1, dim=1, start=3, end=9)\nv1 = sum(v0, dim=1)\nreturns(v1)\n"
)


@functools.cache
def has_types(program: Program) -> bool:
    try:
        infer(program)
    except IllTyped:
        return False
    return True


def typed(reducer: object, program: Program) -> list[Program]:
    """What a reducer proposes that has types: the gate that every proposal must pass."""
    found = list(filter(has_types, reducer(program, Types(infer(program)))))  # type: ignore[operator]
    assert found
    return found


def shapes(program: Program) -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in program.leaves]


def test_a_size_shrinks_in_all_leaves_and_the_slice_follows() -> None:
    made = typed(shrink_dim, SLICED)
    slices = {(*shapes(p), *(dict(p.nodes[0].attrs)[name] for name in ("start", "end"))) for p in made}
    assert ((4, 12), (4, 1), 3, 4) in slices, "the slice shorter, and what is written to it with it"
    assert ((4, 12), (4, 3), 6, 9) in slices, "from either end"
    assert [(1, 1), (1, 1)] in map(shapes, made), "everything at once"
    assert {rows for (rows, _), *_ in slices} == {1, 2, 3, 4}


def test_targets_are_smaller_and_close_in_on_a_threshold() -> None:
    assert _targets(100) == (1, 2, 3, 4, 50, 75, 88, 99)
    assert _targets(2) == (1,)
    assert _targets(1) == ()


def test_a_size_is_changed_everywhere_at_one_place_or_alone_and_the_largest_first() -> None:
    found = list(_scopes(SLICED))
    assert [size for size, _ in found] == sorted((size for size, _ in found), reverse=True)
    assert (4, [("x0", 0), ("x1", 0)]) in found
    assert (4, [("x1", 0)]) in found
    assert (12, [("x0", 1)]) in found


def test_a_dimension_goes_from_all_leaves_and_those_beyond_it_are_counted_anew() -> None:
    made = typed(drop_dim, SLICED)
    assert any(shapes(program) == [(12,), (6,)] and dict(program.nodes[0].attrs)["dim"] in (0, -1) for program in made)


def test_two_dimensions_change_places_in_leaves_and_attributes() -> None:
    exchanged = [p for p in typed(swap_dims, SLICED) if shapes(p) == [(12, 4), (6, 4)]]
    assert exchanged
    for program in exchanged:
        assert [dict(node.attrs)["dim"] for node in program.nodes] == [0, 0]
        assert infer(program)["v1"].shape == (4,)
