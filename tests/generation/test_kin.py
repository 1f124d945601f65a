"""The kin of a program: like ops in its place, in each dtype and by each route."""

from __future__ import annotations

import pytest

from fuzzer.generation.draft import Rejected
from fuzzer.generation.kin import Kin, alike, kin_of, make_kin
from fuzzer.language.ops import OPS
from fuzzer.language.program import FLOATS
from fuzzer.language.text import parse, show

UNFOLD = """program(1)
route("autograd")
x0 = leaf(f32[6], seed=1)
v0 = unfold(x0, dimension=0, size=2, step=1)
v1 = sum(v0, dim=(1,))
backward(v1, cotangent(f32[5], seed=2))
"""
SPLIT = """program(1)
route("autograd")
x0 = leaf(f32[6, 4], seed=1)
v0 = narrow(x0, dim=0, start=1, length=4)
v1 = exp(v0)
backward(v1, cotangent(f32[4, 4], seed=2))
"""
AMAX = """program(1)
route("autograd")
x0 = leaf(f32[6, 4], seed=1)
v0 = amax(x0, dim=(1,), keepdim=True)
v1 = mul(x0, v0)
backward(v1, cotangent(f32[6, 4], seed=2))
"""


def test_like_ops_are_of_the_family_or_of_one_that_goes_with_it() -> None:
    names = {spec.name for spec in alike(OPS["unfold"])}
    assert {"narrow", "expand", "split", "chunk", "slice"} & OPS.keys() <= names
    assert "unfold" not in names
    assert not {name for name in names if OPS[name].effects or OPS[name].random}
    assert {"amin", "scatter_reduce", "index_reduce"} <= {spec.name for spec in alike(OPS["amax"])}


def test_all_kin_of_a_program_are_listed_once_in_each_dtype_and_by_each_route() -> None:
    found = list(kin_of(UNFOLD))
    assert len(found) == len(set(found))
    narrow = [kin for kin in found if (kin.place, kin.op) == (0, "narrow")]
    assert {kin.dtype for kin in narrow} == {"", *FLOATS} - {"f32"}
    assert {"vjp", "accumulate"} & {kin.route for kin in narrow}
    assert all(not (kin.dtype and kin.route) for kin in narrow)


@pytest.mark.parametrize(
    ("text", "kin", "holds"),
    [
        (SPLIT, ("chunk",), "chunk(x0"),
        (AMAX, ("amin",), "amin(x0, dim=(1,), keepdim=True)"),
        (AMAX, ("amin", "f16"), "leaf(f16[6, 4]"),
        (AMAX, ("logsumexp", "", "vjp"), 'route("vjp")'),
    ],
)
def test_a_kin_keeps_the_pattern_and_takes_over_what_fits(text: str, kin: tuple[str, ...], holds: str) -> None:
    made = make_kin(Kin(text, 0, *kin))
    assert holds in show(made)
    assert [node.op for node in made.nodes][1:] == [node.op for node in parse(text).nodes][1:]
    assert made == make_kin(Kin(text, 0, *kin))


def test_an_elementwise_function_is_replaced_where_it_stands_alone() -> None:
    assert {kin.place for kin in kin_of(SPLIT)} == {0}
    alone = SPLIT.replace("v0 = narrow(x0, dim=0, start=1, length=4)\nv1 = exp(v0)", "v1 = exp(x0)")
    assert {kin.op for kin in kin_of(alone)} > {"sin", "log"}


def test_many_kin_of_a_view_run_in_eager() -> None:
    found = {kin.op: kin for kin in kin_of(SPLIT) if kin.place == 0 and not (kin.dtype or kin.route)}
    made, refused = [], []
    for kin in found.values():
        try:
            made.append(make_kin(kin))
        except Rejected as error:
            refused.append(str(error))
    assert len(made) > len(found) / 2
    assert all(" in place of narrow: " in why and "none was tried" not in why for why in refused)
    assert refused, "some op does not fit, and says why"


def test_where_regions_stand_none_is_made() -> None:
    text = SPLIT.replace("v1 = exp(v0)", "with checkpoint():\n    v1 = exp(v0)")
    with pytest.raises(Rejected, match="regions"):
        make_kin(Kin(text, 0, "chunk"))
