"""A program taken up again: what is drawn onto it, and what makes the result a program."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fuzzer.generation.draft import Rejected
from fuzzer.generation.redraft import append_node, draft_of, fresh_names, rename_apart, try_mutator
from fuzzer.language.infer import IllTyped, infer
from fuzzer.language.ops import OPS
from fuzzer.language.program import Node, Output, Program
from fuzzer.language.text import parse

HEAD = 'program(1)\nroute("autograd")\n'
CHAIN = parse(
    HEAD + "x0 = leaf(f32[4, 6], seed=1)\nx1 = leaf(f32[6], requires_grad=False, seed=2)\n"
    "v0 = exp(x0)\nv1 = add(v0, x1)\nbackward(v1, cotangent(f32[4, 6], seed=4))\n"
)


def test_what_runs_in_eager_is_announced_first() -> None:
    """A worker that dies in it leaves its text."""
    said: list[Program] = []
    node = append_node(draft_of(CHAIN, random.Random(1), announce=said.append), OPS["mul"], "v1")
    assert said[-1].nodes[-1] == node
    assert try_mutator(lambda: CHAIN, random.Random(1), "cpu", said.append) == said[-1]


def test_a_program_taken_up_holds_what_its_nodes_computed() -> None:
    whole, half = draft_of(CHAIN, random.Random(1)), draft_of(CHAIN, random.Random(1), 1)
    assert set(whole.types) == {"x0", "x1", "v0", "v1"}
    assert set(half.types) == {"x0", "x1", "v0"}
    assert whole.tracked == {"x0", "v0", "v1"}
    assert bool((whole.env["v1"] == whole.env["x0"].exp() + whole.env["x1"]).all())
    inside = parse(HEAD + "x0 = leaf(f32[4])\nwith checkpoint():\n    v0 = exp(x0)\nreturns(v0)\n")
    with pytest.raises(Rejected, match="regions"):
        draft_of(inside, random.Random(1))


def test_a_draft_grows_by_a_node_that_reads_what_it_was_told_to() -> None:
    draft = draft_of(CHAIN, random.Random(1))
    node = append_node(draft, OPS["mul"], "v1")
    assert "v1" in node.uses
    assert draft.nodes[-1] == node
    with pytest.raises(Rejected, match="logical_and does not take v1"):
        append_node(draft_of(CHAIN, random.Random(1)), OPS["logical_and"], "v1")


def test_a_donors_names_are_not_the_programs() -> None:
    donor = rename_apart(CHAIN, CHAIN)
    taken = {leaf.name for leaf in CHAIN.leaves} | {name for node in CHAIN.nodes for name in node.outs}
    assert not taken & ({leaf.name for leaf in donor.leaves} | {name for node in donor.nodes for name in node.outs})
    assert [node.op for node in donor.nodes] == ["exp", "add"]
    assert fresh_names(Node(("v0", "v1"), "topk", ("x0",)), CHAIN).outs == ("w0", "w1")


def repaired(program: Program) -> Program:
    return try_mutator(lambda: program, random.Random(1), "cpu")


def test_outputs_follow_their_types_and_what_nothing_reads_is_one() -> None:
    body = (*CHAIN.body, Node(("v2",), "sum", ("v1",), (("dim", 0),)), Node(("v3",), "sin", ("x0",)))
    found = repaired(replace(CHAIN, body=body, outputs=(Output("v2", CHAIN.outputs[0].cotangent),)))
    assert [output.value for output in found.outputs] == ["v2", "v3"]
    assert [output.cotangent.shape for output in found.outputs if output.cotangent] == [(6,), (4, 6)]


def test_what_draws_gets_the_setting_under_which_both_sides_draw_the_same() -> None:
    drop = Node(("v2",), "dropout", ("v1",), (("p", 0.5),))
    found = repaired(replace(CHAIN, body=(*CHAIN.body, drop), settings=(("inductor.max_fusion_size", 4),)))
    assert dict(found.settings) == {"inductor.fallback_random": True, "inductor.max_fusion_size": 4}
    assert infer(found)[found.outputs[-1].value].shape == (4, 6)


def test_what_lost_its_gradient_is_nothing_and_what_has_none_stays() -> None:
    fixed = replace(CHAIN, leaves=tuple(replace(leaf, requires_grad=False) for leaf in CHAIN.leaves))
    with pytest.raises(Rejected, match="eager has no gradient of it"):
        repaired(fixed)
    assert repaired(replace(fixed, outputs=(Output("v1"),))) == replace(fixed, outputs=(Output("v1"),))
    with pytest.raises(Rejected, match="eager has no gradient of it"):
        repaired(replace(CHAIN, body=(Node(("v1",), "floor", ("x0",)),)))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Rejected("not allowed"), "not allowed"),
        (IllTyped("v0: no"), "no types: v0: no"),
        (ValueError("no"), "no program: no"),
        (IndexError(), "nothing to choose from"),
    ],
)
def test_a_mutator_that_makes_nothing_is_refused_with_its_reason(error: Exception, said: str) -> None:
    def change() -> Program:
        raise error

    with pytest.raises(Rejected) as refused:
        try_mutator(change, random.Random(1), "cpu")
    assert str(refused.value) == said


def test_what_needs_no_repair_is_as_it_was() -> None:
    assert repaired(CHAIN) == CHAIN


def test_a_program_whose_values_do_not_fit_their_shape_is_not_taken_up() -> None:
    """As one whose sizes a mutator changed, before the next mutator drafts it."""
    text = HEAD + "x0 = leaf(f32[2])\nx1 = leaf(i64[16, 16], values=permutation(3))\nv0 = exp(x0)\nreturns(v0)\n"
    with pytest.raises(Rejected, match=r"leaves without values: .*invalid for input of size 48"):
        draft_of(parse(text), random.Random(1))


def test_a_program_that_eager_refuses_is_not_taken_up() -> None:
    """A statistic of batch_norm cannot require a gradient."""
    text = HEAD + (
        'x0 = leaf(f32[2, 3], seed=1)\nx1 = leaf(f32[3], values="positive")\nx2 = leaf(f32[3], values="positive")\n'
        "v0 = batch_norm(x0, x1, x2)\nbackward(v0, cotangent(f32[2, 3], seed=4))\n"
    )
    with pytest.raises(Rejected, match="eager refuses batch_norm: "):
        draft_of(parse(text), random.Random(1))
