"""Values that meet again: which may, and in what."""

from __future__ import annotations

import random
from dataclasses import replace

from fuzzer.generation.add import add_node
from fuzzer.generation.draft import Draft
from fuzzer.generation.rejoin import joining, meeting
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import Program
from tests.drawn import drawn

GROUPS = {family: list(specs) for family, specs in ops_by_family().items()}


def drafted(*ops: str) -> Draft:
    """Nodes of these ops in a row, each on the result of the one before."""
    draft = Draft(random.Random(3), Limits(), "f32")
    for op in ops:
        draft.anchor = draft.nodes[-1].outs[0] if draft.nodes else ""
        assert add_node(draft, OPS[op])
    draft.anchor = ""
    return draft


def test_a_value_meets_what_was_made_of_it() -> None:
    draft = drafted("tanh", "sin")
    pair = meeting(draft)
    assert pair is not None
    assert "v1" in pair
    assert set(pair) <= {"x0", "v0", "v1"}


def test_nothing_meets_before_something_was_made() -> None:
    assert meeting(Draft(random.Random(1), Limits(), "f32")) is None


def test_values_of_other_origin_do_not_meet() -> None:
    draft = drafted("tanh")
    draft.nodes.clear()  # as if the result were another leaf's
    draft.leaves.append(replace(draft.leaves[0], name="v0"))
    assert meeting(draft) is None


def test_what_they_meet_in_takes_two_values() -> None:
    rng = random.Random(2)
    found = [joining(rng, GROUPS, alike) for alike in (False, True) for _ in range(200)]
    assert all(spec is not None and (len(spec.operands) > 1 or spec.operands[0].count) for spec in found)
    assert {"add", "where", "maximum", "cat"} <= {spec.name for spec in found if spec is not None}


def rejoined(p: Program) -> bool:
    """Whether a node reads two values of which one depends on the other."""
    sources: dict[str, set[str]] = {leaf.name: {leaf.name} for leaf in p.leaves}
    for node in p.nodes:
        found = set[str]().union(*(sources[name] for name in node.uses))
        sources.update({out: {out, *found} for out in node.outs})
    return any(a != b and a in sources[b] for node in p.nodes for a in node.uses for b in node.uses)


def test_values_meet_again_in_one_program_of_twelve() -> None:
    programs = drawn([f"rejoin/{n}" for n in range(60)])
    assert sum(map(rejoined, programs)) >= len(programs) / 12
