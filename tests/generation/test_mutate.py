"""Mutants are other programs that run in eager, the same for the same seed; each mutator changes what it says."""

from __future__ import annotations

import contextlib
import functools
import random

import pytest
import torch

from fuzzer.generation.draft import Rejected
from fuzzer.generation.dry_run import dry_gradients
from fuzzer.generation.mutate import (
    AROUND,
    BY_NAME,
    HAVOC,
    MUTATORS,
    Material,
    Mutator,
    mutate,
    precede,
    wrap_in_region,
)
from fuzzer.generation.redraft import is_useful, try_mutator
from fuzzer.language.infer import infer
from fuzzer.language.program import Program, Region, is_tracked, statements
from fuzzer.language.text import parse, show
from tests.drawn import drawn

HEAD = 'program(1)\nroute("autograd")\n'
CHAIN = parse(
    HEAD
    + "x0 = leaf(f32[4, 6], seed=1)\nx1 = leaf(f32[4, 6], seed=2)\nx2 = leaf(f32[6], requires_grad=False, seed=3)\n"
    "v0 = mul(x0, x1)\nv1 = softmax(v0, dim=1)\nv2 = add(v1, x2)\n"
    "backward(v2, cotangent(f32[4, 6], seed=4))\n"
)


@functools.cache
def parents() -> list[Program]:
    return drawn([f"mutate {i}" for i in range(12)], routes=("autograd", "vjp"), least=10 / 12)[:10]


def mutants(mutator: Mutator, program: Program, tries: int = 40) -> list[Program]:
    """What a mutator makes of a program, where it makes another."""
    found = []
    for i in range(tries):
        rng = random.Random(i)
        with contextlib.suppress(Rejected):
            mutant = try_mutator(lambda: mutator(program, rng, Material(parents()[i % 10])), rng, "cpu")  # noqa: B023  (called at once)
            found += [mutant] if mutant != program else []
    return found


@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda m: m.__name__)
def test_every_mutator_makes_other_programs_that_have_a_text_and_a_gradient_in_eager(mutator: Mutator) -> None:
    made = [mutant for program in parents() for mutant in mutants(mutator, program, 2)]
    assert len(made) >= 2, f"{len(made)} of {2 * len(parents())}"
    for mutant in made:
        assert parse(show(mutant)) == mutant
        gradients = dry_gradients(mutant)
        assert gradients is not None
        assert any(g is not None and bool((g != 0).any()) for g in gradients.values())


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("swap_operand", lambda a, b: [n.op for n in a.nodes] == [n.op for n in b.nodes]),
        ("insert_node", lambda a, b: len(b.nodes) == len(a.nodes) + 1),
        ("delete_node", lambda a, b: len(b.nodes) < len(a.nodes)),
        ("replace_node", lambda a, b: len(b.nodes) == len(a.nodes) and b.nodes != a.nodes),
        ("splice", lambda a, b: len(b.nodes) > len(a.nodes)),
        ("fan_out", lambda a, b: len(b.outputs) > len(a.outputs)),
        ("append_reduction", lambda a, b: len(b.nodes) == len(a.nodes) + 1 and b.nodes[:3] == a.nodes),
        ("wrap_in_view", lambda a, b: len(b.nodes) == len(a.nodes) + 1),
        ("wrap_in_region", lambda a, b: any(isinstance(s, Region) for s in b.body)),
        (
            "precede",
            lambda a, b: len(b.nodes) == len(a.nodes) + 1 and [n.op for n in b.nodes[1:]] == [n.op for n in a.nodes],
        ),
        ("follow", lambda a, b: len(b.nodes) == len(a.nodes) + 1 and b.nodes[:3] == a.nodes),
        ("weigh", lambda a, b: b.nodes[:3] == a.nodes and [n.op for n in b.nodes[-2:]] == ["to", "mul"]),
        ("redraw_attribute", lambda a, b: [n.attrs for n in b.nodes] != [n.attrs for n in a.nodes]),
        ("resize", lambda a, b: [x.shape for x in b.leaves] != [x.shape for x in a.leaves]),
        ("recast_leaves", lambda a, b: {x.dtype for x in b.leaves} != {"f32"}),
        (
            "restride_leaf",
            lambda a, b: [x.type for x in b.leaves] != [x.type for x in a.leaves] or any(x.offset for x in b.leaves),
        ),
        ("refill_leaf", lambda a, b: [(x.values, x.seed) for x in b.leaves] != [(x.values, x.seed) for x in a.leaves]),
        ("toggle_requires_grad", lambda a, b: sum(x.requires_grad for x in b.leaves) != 2),
        ("redraw_cotangent", lambda a, b: b.outputs[0].cotangent != a.outputs[0].cotangent and b.leaves == a.leaves),
        ("reroute", lambda a, b: b.route != a.route),
        ("change_setting", lambda a, b: b.settings != () and b.nodes == a.nodes),
    ],
)
def test_a_mutator_changes_what_it_is_named_for(name: str, differs: object) -> None:
    made = mutants(BY_NAME[name], CHAIN)
    assert made
    assert all(differs(CHAIN, mutant) for mutant in made)  # type: ignore[operator]


def test_every_mutator_is_tested_by_its_name() -> None:
    [marks] = [m for m in test_a_mutator_changes_what_it_is_named_for.pytestmark if m.name == "parametrize"]  # type: ignore[attr-defined]
    assert {name for name, _ in marks.args[1]} == set(BY_NAME)


def test_an_attribute_whose_rule_does_not_take_a_persons_other_attributes_is_left_as_it_is() -> None:
    """torch takes one dim or several; the table's rule for the lengths counts several."""
    text = """program(1)
route("autograd")
x0 = leaf(f32[4, 6], seed=1)
v0 = fftn(x0, s=(4,), dim=(1,))
backward(v0, cotangent(f32[4, 6, 2], seed=4))
"""
    program = parse(text.replace("(1,)", "1"))
    for seed in range(20):
        with contextlib.suppress(Rejected):
            made = BY_NAME["redraw_attribute"](program, random.Random(seed), Material(program))
            assert dict(made.nodes[0].attrs).get("s") in ((4,), None)


def test_numbers_that_a_leaf_lists_are_cut_or_repeated_where_it_is_resized() -> None:
    text = """program(1)
route("autograd")
x0 = leaf(f32[2, 3], values=data([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
v0 = exp(x0)
backward(v0, cotangent(f32[2, 3], seed=4))
"""
    made = mutants(BY_NAME["resize"], parse(text))
    assert {leaf.shape for mutant in made for leaf in mutant.leaves} >= {(5, 3), (2, 7)}
    for (leaf,) in (mutant.leaves for mutant in made):
        rows, columns = leaf.shape
        assert leaf.values.args == tuple(1.0 + 3 * (i % 2) + j % 3 for i in range(rows) for j in range(columns))


def test_a_swapped_operand_fits_where_it_stands() -> None:
    made = mutants(BY_NAME["swap_operand"], CHAIN)
    assert len(made) >= 25
    for mutant in made:
        assert infer(mutant)["v2"].shape == (4, 6)


def test_cotangents_follow_their_outputs() -> None:
    made = mutants(BY_NAME["resize"], CHAIN)
    assert len(made) >= 30
    for mutant in made:
        types = infer(mutant)
        assert all(o.cotangent is None or o.cotangent.shape == types[o.value].shape for o in mutant.outputs)


def test_the_same_seed_makes_the_same_mutant() -> None:
    state = torch.random.get_rng_state()
    first, second = (mutate(CHAIN, random.Random(5), Material(parents()[0])) for _ in range(2))
    assert first == second
    assert first != CHAIN
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_mutator_is_chosen_by_its_name() -> None:
    for seed in range(5):
        mutant = mutate(CHAIN, random.Random(seed), Material(CHAIN), by="reroute")
        assert mutant.route != CHAIN.route
        assert mutant.nodes == CHAIN.nodes


def test_new_nodes_are_named_as_nothing_that_they_read() -> None:
    """Of a drawn program whose unread results were dropped: the names that are left have gaps."""
    gaps = parse(
        HEAD + "x0 = leaf(f64[32, 14, 9], seed=1)\nx2 = leaf(f64[9, 2], seed=2)\nv0 = neg(x0)\nv2 = mT(v0)\n"
        "v3 = matmul(v0, x2)\nbackward(v2, cotangent(f64[32, 9, 14], seed=3))\n"
        "backward(v3, cotangent(f64[32, 14, 2], seed=4))\n"
    )
    for by in ("insert_node", "fan_out"):
        for seed in range(60):
            mutant = mutate(gaps, random.Random(seed), Material(gaps), by=by)
            assert len(mutant.nodes) > 3


def test_havoc_changes_more_than_one_thing() -> None:
    def parts(p: Program) -> list[object]:
        return [p.leaves, p.body, p.outputs, p.route, p.settings]

    made = [mutate(CHAIN, random.Random(seed), Material(parents()[0]), by=HAVOC) for seed in range(8)]
    differing = [sum(a != b for a, b in zip(parts(CHAIN), parts(mutant), strict=True)) for mutant in made]
    assert sum(differing) / len(differing) > 2


def test_around_a_program_its_ops_stay_in_their_order_and_one_to_three_things_change() -> None:
    made = [mutate(CHAIN, random.Random(seed), Material(CHAIN), by=AROUND) for seed in range(40)]
    assert len(set(map(show, made))) > 35
    for mutant in made:
        ops = iter(node.op for node in mutant.nodes)
        assert all(node.op in ops for node in CHAIN.nodes), [node.op for node in mutant.nodes]
        assert len(mutant.nodes) <= len(CHAIN.nodes) + 5
    for part in ("leaves", "nodes", "outputs", "route", "settings"):
        assert any(getattr(mutant, part) == getattr(CHAIN, part) for mutant in made), part
        assert any(getattr(mutant, part) != getattr(CHAIN, part) for mutant in made), part


def test_a_region_is_added_to_those_that_are_there_or_takes_the_place_of_one() -> None:
    text = HEAD + "x0 = leaf(f64[3], seed=1)\nwith hook(scale=2.0):\n    v0 = atan(x0)\nv1 = sin(v0)\n"
    parent = parse(text + "backward(v1, cotangent(f64[3], seed=4))\n")
    kinds = [[s.kind for s in statements(m.body) if isinstance(s, Region)] for m in mutants(wrap_in_region, parent)]
    assert any("hook" in held and len(held) > 1 for held in kinds)
    assert any("hook" not in held for held in kinds)


def test_a_leaf_without_a_gradient_is_preceded_too() -> None:
    text = (
        HEAD
        + "x0 = leaf(i16[2], values=data([3, 5]))\nx1 = leaf(f64[()], seed=2)\nv0 = min_all(x0)\nv1 = mul(v0, x1)\n"
    )
    made = mutants(precede, parse(text + "backward(v1, cotangent(f64[()], seed=4))\n"))
    assert {m.nodes[0].uses[0] for m in made} == {"x0", "x1"}


def test_an_op_often_stands_beside_itself() -> None:
    parent = parse(HEAD + "x0 = leaf(f64[3], seed=1)\nv0 = atan(x0)\nbackward(v0, cotangent(f64[3], seed=4))\n")
    for by in ("precede", "follow", "fan_out"):
        made = [mutate(parent, random.Random(seed), Material(parent), by=by) for seed in range(40)]
        assert 10 <= sum([node.op for node in mutant.nodes] == ["atan", "atan"] for mutant in made) < 36, by


def test_a_position_that_nothing_read_is_a_factor_of_what_has_a_gradient() -> None:
    parent = parse(
        HEAD + "x0 = leaf(f32[4, 6], seed=1)\nv0, v1 = max(x0, dim=1)\nreturns(v1)\n"
        "backward(v0, cotangent(f32[4], seed=4))\n"
    )
    made = mutants(BY_NAME["weigh"], parent)
    casts = [node for mutant in made for node in mutant.nodes if node.op == "to"]
    assert sum("v1" in node.uses for node in casts) > len(made) // 4
    ops = {node.op for mutant in made for node in mutant.nodes}
    assert "argmax" in ops
    assert ops & {"eq", "ne", "lt", "le", "gt", "ge", "gt_scalar", "le_scalar"}


def test_results_that_the_parent_leaves_unread_stay_so() -> None:
    parent = parse(
        HEAD + "x0 = leaf(f32[4, 6], requires_grad=False, seed=1)\nx1 = leaf(f32[2, 6], seed=2)\n"
        "v0 = slice_scatter(x0, x1, dim=0, end=3, start=1)\nv1 = zero_(x0)\nv2 = square(v0)\n"
        "backward(v2, cotangent(f32[4, 6], seed=4))\n"
    )
    mutant = mutate(parent, random.Random(2), Material(parent), by="redraw_cotangent")
    assert [output.value for output in mutant.outputs] == ["v2"]
    assert mutant.nodes == parent.nodes


def test_what_nothing_can_change_is_rejected() -> None:
    bare = parse(HEAD + "x0 = leaf(f64[2], seed=1)\nv0 = neg(x0)\nbackward(v0, cotangent(f64[2], seed=4))\n")
    with pytest.raises(Rejected, match="swap_operand made no other program"):
        mutate(bare, random.Random(0), Material(bare), by="swap_operand")


def test_a_leaf_that_cannot_be_filled_in_its_new_shape_is_refused() -> None:
    text = (
        HEAD
        + "x0 = leaf(f32[4, 3], seed=1)\nx1 = leaf(i64[4, 3], requires_grad=False, values=permutation(3), seed=2)\n"
        "v0 = gather(x0, x1, dim=1)\nbackward(v0, cotangent(f32[4, 3], seed=4))\n"
    )
    program = parse(text)
    made = mutants(BY_NAME["resize"], program)
    assert len(made) >= 13
    for mutant in made:
        (index,) = [leaf for leaf in mutant.leaves if leaf.name == "x1"]
        assert index.shape[1] <= 3, "three numbers fill no more"


def test_mutants_of_a_program_without_a_gradient_have_none_or_gain_one_and_no_other_loses_its_own() -> None:
    parent = parse("""program(1)
route("autograd")
x0 = leaf(f32[3, 4], requires_grad=False, seed=1)
x1 = leaf(i64[3, 4], values="integers", seed=2)
v0 = sin(x0)
v1 = add(x1, x1)
v2 = neg_(v0)
returns(v1)
returns(v2)
""")
    for by in ("insert_node", "restride_leaf", "recast_leaves", "resize"):
        assert not is_tracked(mutate(parent, random.Random(by), Material(parent), by=by))
    kept = parse("""program(1)
route("autograd")
x0 = leaf(f32[3], seed=1)
v0 = sin(x0)
backward(v0, cotangent(f32[3]))
""")
    with pytest.raises(Rejected):
        mutate(kept, random.Random(0), Material(kept), by="toggle_requires_grad")


def test_a_parent_without_a_gradient_has_such_mutants_and_others_have_none() -> None:
    text = """program(1)
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
v0 = {op}(x0)
backward(v0, cotangent(f32[3, 4], seed=2))
"""
    step, smooth = (parse(text.format(op=op)) for op in ("sign", "exp"))
    made = [mutate(step, random.Random(seed), Material(step), by=AROUND) for seed in range(12)]
    assert any(is_useful(dry_gradients(mutant) or {}) is False for mutant in made)
    assert all(
        is_useful(dry_gradients(mutate(smooth, random.Random(seed), Material(smooth), by=AROUND)) or {})
        for seed in range(12)
    )
