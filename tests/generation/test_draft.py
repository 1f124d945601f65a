"""A program while it is drawn."""

from __future__ import annotations

import random

import pytest

from fuzzer.generation.draft import Draft
from fuzzer.generation.nodes import run_node
from fuzzer.language.interpret import materialise
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import Leaf, Node


@pytest.mark.parametrize(("op", "may"), [("chunk", True), ("unsafe_chunk", False)])
def test_memory_of_which_a_view_is_denied_is_not_written(op: str, may: bool) -> None:
    draft = Draft(random.Random(1), Limits(), "f32")
    draft.leaves = [Leaf("x0", "f32", (4, 3), (3, 1), requires_grad=False)]
    draft.env = dict(materialise(draft.leaves))
    draft.types = {"x0": draft.leaves[0].type}
    for node in (Node(("v0",), "exp", ("x0",)), Node(("v1", "v2"), op, ("v0",), (("chunks", 2),))):
        run_node(draft, node, OPS[node.op])
    assert draft.may_write("x0")
    assert [draft.may_write(name) for name in ("v0", "v1", "v2")] == [may] * 3
