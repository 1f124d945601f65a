"""Writes that are added to a draft: what they may read and overwrite."""

from __future__ import annotations

import random

from fuzzer.generation.add import add_write
from fuzzer.generation.draft import Draft
from fuzzer.generation.nodes import run_node
from fuzzer.language.interpret import materialise
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import Leaf, Node, writes


def halves() -> Draft:
    """A value, and views of its halves."""
    draft = Draft(random.Random(1), Limits(), "f32")
    draft.leaves = [Leaf("x0", "f32", (6,), (1,))]
    draft.env = dict(materialise(draft.leaves))
    draft.types, draft.tracked = {"x0": draft.leaves[0].type}, {"x0"}
    run_node(draft, Node(("v0",), "exp", ("x0",)), OPS["exp"])
    for out, start in (("v1", 0), ("v2", 3)):
        half = (("dim", 0), ("start", start), ("length", 3))
        run_node(draft, Node((out,), "narrow", ("v0",), half), OPS["narrow"])
    return draft


def test_a_node_reads_what_lies_beside_the_elements_that_it_writes_where_that_is_asked_for() -> None:
    for asked, names in {False: {"x0"}, True: {"x0", "v2"}}.items():
        draft = halves()
        draft.target, draft.beside = "v1", asked
        assert {name for name, _ in draft.readable()} == names


def test_what_eager_needs_is_overwritten_only_where_that_is_asked_for() -> None:
    for asked in (False, True):
        draft = halves()
        draft.overwrites = asked
        draft.anchor = "v1"
        add_write(draft, OPS["neg_"])  # exp needs its result
        assert bool(writes(draft.nodes[-1])) == asked
