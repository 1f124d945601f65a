"""The generator: limits, variety, few rejections, and nothing but its arguments decides."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from fuzzer.generation.draft import Rejected
from fuzzer.generation.generate import CLOSING, generate, without_dead_nodes
from fuzzer.language.infer import infer
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import (
    FLOATS,
    INTEGERS,
    Cotangent,
    Program,
    between,
    contiguous,
    extent,
    is_tracked,
    writes,
)
from fuzzer.language.routes import ROUTES
from fuzzer.language.text import parse, show
from fuzzer.language.values import GENERAL, RECIPES, SPECIAL
from tests.drawn import drawn

DRAWN = 550
TEST_SEEDS = [f"test/{number}" for number in range(100)]
# Every recipe that several ops ask for or that the generator draws by itself.
ASKED = Counter(name for s in OPS.values() for name in {name for o in s.operands for name in o.values})
EVERY_RECIPE = {*GENERAL, *SPECIAL} | {"coins", "below"} | {name for name, ops in ASKED.items() if ops >= 4}


def draws(count: int, **given: object) -> Iterator[Program | str]:
    for number in range(count):
        try:
            yield generate(random.Random(f"test/{number}"), **given)  # type: ignore[arg-type]
        except Rejected as error:
            yield str(error)


@functools.cache
def sample() -> tuple[list[Program], list[str]]:
    """What so many draws give: programs, and why the others were rejected."""
    found = list(draws(DRAWN, routes=("autograd", "vjp")))
    programs, rejected = [p for p in found if isinstance(p, Program)], [p for p in found if isinstance(p, str)]
    assert len(programs) >= 0.9 * DRAWN, Counter(rejected)
    return programs, rejected


def share(holds) -> float:  # type: ignore[no-untyped-def]
    programs = sample()[0]
    return sum(map(holds, programs)) / len(programs)


def test_at_most_three_draws_in_a_hundred_are_rejected() -> None:
    rejected = sample()[1]
    assert len(rejected) <= 0.03 * DRAWN, Counter(rejected)


def test_every_family_and_most_ops_appear() -> None:
    used = Counter(node.op for p in sample()[0] for node in p.nodes if node.op not in CLOSING)
    assert {OPS[name].family for name in used} == set(ops_by_family()) - {
        "complex"
    }  # which is drawn where it is asked for
    assert len(used) > 0.6 * len(OPS)
    assert max(used.values()) < 0.05 * sum(used.values())


MEETING = ("binary", "ternary")  # the families in which values meet again, besides


def test_each_family_is_about_as_likely_as_any_other() -> None:
    # a result without a gradient is often no output, and its node pruned
    nodes = [node for p in sample()[0] for node in p.nodes if node.op not in CLOSING]
    used = Counter(OPS[node.op].family for node in nodes if OPS[node.op].differentiable)
    used = Counter({family: count for family, count in used.items() if family not in MEETING})
    assert max(used.values()) < 5 * min(used.values()), used


def test_all_value_recipes_appear() -> None:
    used = {leaf.values.name for p in sample()[0] for leaf in p.leaves}
    lacking = (EVERY_RECIPE & set(RECIPES)) - used
    asking = {n: s for n, s in OPS.items() if not lacking.isdisjoint(name for o in s.operands for name in o.values)}
    programs = draws(200, ops=asking) if lacking else []
    assert lacking <= {leaf.values.name for p in programs if isinstance(p, Program) for leaf in p.leaves}
    seeds = {c.values.name for p in sample()[0] for c in cotangents(p)}
    assert {"normal", "ones", "integers", "zeros"} <= seeds


def reads(p: Program) -> Counter[str]:
    return Counter(name for node in p.nodes for name in node.uses)


def unused(p: Program) -> bool:
    bases = {leaf.base for leaf in p.leaves}
    return any(leaf.name not in reads(p) and leaf.name not in bases for leaf in p.leaves)


def broadcast(p: Program) -> bool:
    return any(s == 0 < n - 1 for leaf in p.leaves for s, n in zip(leaf.stride, leaf.shape, strict=True))


def cotangents(p: Program) -> list[Cotangent]:
    return [o.cotangent for o in p.outputs if o.cotangent is not None]


def positions(p: Program) -> set[str]:
    """Results that say where something stands."""
    placing = {"argmax", "argmin", "argsort"}
    second = {"max", "min", "median", "nanmedian", "mode", "kthvalue", "sort", "topk", "cummax", "cummin"}
    found = {node.outs[0] for node in p.nodes if node.op in placing}
    return found | {node.outs[1] for node in p.nodes if node.op in second and len(node.outs) > 1}


THREADS = {"inductor.cpp.threads", "inductor.cpp.min_chunk_size"}
# What must appear, the test for it, and the least share of programs that must show it.
VARIETY = [
    ("a value used twice, so that gradients accumulate", lambda p: any(n > 1 for n in reads(p).values()), 0.25),
    ("several outputs", lambda p: len(p.outputs) > 1, 0.25),
    ("an output without a gradient", lambda p: any(o.cotangent is None for o in p.outputs), 0.03),
    ("an inner value returned", lambda p: any(o.value in reads(p) for o in p.outputs), 0.03),
    ("a view of a leaf", lambda p: any(leaf.base for leaf in p.leaves), 0.05),
    ("an unused leaf", unused, 0.02),
    ("size 0", lambda p: any(0 in leaf.shape for leaf in p.leaves), 0.005),
    ("size 1", lambda p: any(1 in leaf.shape for leaf in p.leaves), 0.2),
    ("a scalar", lambda p: any(leaf.shape == () for leaf in p.leaves), 0.05),
    ("a broadcast leaf", broadcast, 0.03),
    ("a permuted leaf", lambda p: any(list(x.stride) != sorted(x.stride, reverse=True) for x in p.leaves), 0.1),
    ("an offset", lambda p: any(leaf.offset for leaf in p.leaves), 0.1),
    ("a cotangent of its own layout", lambda p: any(c.stride != contiguous(c.shape) for c in cotangents(p)), 0.1),
    ("a leaf without gradient", lambda p: any(x.type.is_float and not x.requires_grad for x in p.leaves), 0.1),
    ("settings", lambda p: bool(p.settings), 0.3),
    ("no settings but threads", lambda p: {name for name, _ in p.settings} <= THREADS, 0.3),
    ("two threads or more", lambda p: dict(p.settings).get("inductor.cpp.threads", 1) >= 2, 0.4),
    ("integers that no op asks for", lambda p: any(x.dtype in ("i8", "i16", "i32", "u8") for x in p.leaves), 0.01),
    ("positions returned", lambda p: any(o.value in positions(p) for o in p.outputs), 0.01),
    ("an infinity or NaN among the leaves", lambda p: any(x.values.name == "nonfinite" for x in p.leaves), 0.01),
    ("a constant", lambda p: any(OPS[node.op].family == "constant" for node in p.nodes), 0.05),
    ("a long leaf", lambda p: any(x.type.numel > 4096 for x in p.leaves), 0.01),
    ("the vjp route", lambda p: p.route.name == "vjp", 0.25),  # drawn in 0.3
    ("the autograd route", lambda p: p.route.name == "autograd", 0.3),
    ("a long program", lambda p: len(p.nodes) >= 5, 0.1),
    *[(dtype, lambda p, dtype=dtype: any(x.dtype == dtype for x in p.leaves), 0.1) for dtype in FLOATS],
]


@pytest.mark.parametrize(("holds", "least"), [v[1:] for v in VARIETY], ids=[v[0] for v in VARIETY])
def test_programs_show_variety(holds, least: float) -> None:  # type: ignore[no-untyped-def]
    assert share(holds) >= least


@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(max_nodes=1, dtypes=("bf16",), long=1),
        Limits(max_nodes=3, max_numel=100, dtypes=("f64", "f16"), long=1),
        Limits(max_size=5, max_rank=2, max_numel=20, long=1),
    ],
    ids=str,
)
def test_limits_are_kept(limits: Limits) -> None:
    for p in drawn(TEST_SEEDS[:40], limits=limits):
        assert 1 <= len(p.nodes) <= limits.max_nodes
        for leaf in p.leaves:
            assert leaf.type.numel <= limits.max_numel * limits.long
            assert leaf.dtype not in FLOATS or leaf.dtype in limits.dtypes


def test_size_and_rank_limits_hold_for_ops_that_take_any_shape() -> None:
    ops = {name: OPS[name] for name in ("exp", "add", "sum", "relu", "amax")}
    for p in draws(60, ops=ops, limits=Limits(max_size=5, max_rank=2, long=1)):
        assert isinstance(p, Program)
        assert all(size <= 5 for leaf in p.leaves for size in leaf.shape)
        assert all(leaf.type.rank <= 2 for leaf in p.leaves)


def test_only_the_given_ops_are_drawn() -> None:
    ops = {name: OPS[name] for name in ("exp", "cumsum")}
    used = {node.op for p in drawn(TEST_SEEDS[:20], ops=ops) for node in p.nodes}
    assert used == set(ops)


def test_fixed_settings_stand_in_every_program_over_what_is_drawn() -> None:
    fixed = (("inductor.max_fusion_size", 3),)
    programs = drawn(TEST_SEEDS[:40], fixed=fixed)
    assert all(dict(p.settings)["inductor.max_fusion_size"] == 3 for p in programs)
    assert any(len(p.settings) > 1 for p in programs)


def test_every_program_is_typed_parses_back_and_differentiates_something() -> None:
    for p in sample()[0][::10]:  # to infer types takes longer than to draw
        assert parse(show(p)) == p
        assert any(o.cotangent for o in p.outputs)
        infer(p)


def test_views_lie_within_the_storage_of_their_base() -> None:
    views = 0
    for p in sample()[0]:
        leaves = {leaf.name: leaf for leaf in p.leaves}
        for leaf in p.leaves:
            if leaf.base is not None:
                base = leaves[leaf.base]
                assert extent(leaf.shape, leaf.stride, leaf.offset) <= extent(base.shape, base.stride, base.offset)
                views += 1
    assert views >= 50


def test_pruning_drops_what_no_output_needs_and_keeps_one_unused_leaf() -> None:
    p = parse(
        'program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nx1 = leaf(f32[4])\nx2 = leaf(f32[4])\nx3 = leaf(f32[4])\n'
        "v0 = exp(x0)\nv1 = exp(x1)\nv2 = sin(v0)\nbackward(v2, cotangent(f32[4]))\n"
    )
    kept = without_dead_nodes(p)
    assert [node.outs for node in kept.nodes] == [("v0",), ("v2",)]
    assert [leaf.name for leaf in kept.leaves] == ["x0", "x1"]


@pytest.mark.parametrize(("makes", "tells"), [("argmax", "take"), ("frac", "copysign")])
def test_some_positions_and_signs_of_zeros_decide_a_number(makes: str, tells: str) -> None:
    ops = {name: OPS[name] for name in ("sin", makes, tells)}
    told = 0
    for p in drawn([f"told/{n}" for n in range(120)], ops, least=0.5):
        made = {out for n in p.nodes if n.op == makes for out in n.outs}
        told += any(n.op == tells and n.uses[1] in made for n in p.nodes)
    assert told >= 5


@pytest.mark.parametrize(("share", "least", "most"), [(1.0, 0.4, 1.0), (0.0, 0.0, 0.2)])
def test_a_position_is_told_in_values_that_lie_out_of_order(
    share: float, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four reported faults count the elements of such a value in the order in which they lie."""
    monkeypatch.setattr("fuzzer.generation.generate._LOCATED", share)
    ops, transposed, located = {name: OPS[name] for name in ("sin", "mT", "argmax", "take")}, 0, 0
    for p in drawn([f"located/{n}" for n in range(80)], ops, least=0.5):
        maker = {out: n for n in p.nodes for out in n.outs}
        transposed += any(n.op == "mT" for n in p.nodes)
        told = [maker[n.uses[1]] for n in p.nodes if n.op == "take" and n.uses[1] in maker]
        located += any(n.uses[0] in maker and maker[n.uses[0]].op == "mT" for n in told)
    assert transposed >= 20
    assert least <= located / transposed <= most


def test_a_zero_without_a_sign_is_told_where_it_comes_from_a_minus_zero() -> None:
    """Eager's frac of -0 is 0: that compiled code makes it -0 shows in a copied sign alone."""
    ops, told = {name: OPS[name] for name in ("frac", "copysign")}, 0
    for p in drawn([f"sign/{n}" for n in range(120)], ops, least=0.5):
        signed = {leaf.name for leaf in p.leaves if leaf.values.name == "signed_zeros"}
        made = {out for n in p.nodes if n.op == "frac" and n.uses[0] in signed for out in n.outs}
        told += any(n.op == "copysign" and n.uses[1] in made for n in p.nodes)
    assert told >= 3


def test_the_random_state_of_torch_is_left_alone() -> None:
    before = torch.get_rng_state()
    drawn(TEST_SEEDS[:30], ops={k: v for k, v in OPS.items() if v.family in ("pointwise", "reduction", "scatter")})
    assert torch.equal(before, torch.get_rng_state())


def test_half_of_the_programs_without_a_gradient_write_inputs_or_return_views_of_them() -> None:
    programs = drawn([f"forward/{n}" for n in range(60)], gradient=False, routes=tuple(ROUTES))
    assert not any(map(is_tracked, programs))
    assert not any(output.cotangent for program in programs for output in program.outputs)
    assert {program.route.name for program in programs} == {"autograd", "vjp", "aoti"}
    written = [program for program in programs if any(map(writes, program.nodes))]
    assert 0.4 <= len(written) / len(programs) <= 0.7
    assert sum(between(program) is not None for program in written) >= 5
    assert sum(any(leaf.base for leaf in program.leaves) for program in written) >= 1
    integers = [p for p in programs if any(t.dtype in INTEGERS for t in map(infer(p).get, p.result_names) if t)]
    assert len(integers) >= 5
