"""Histories of memory: views of one value, and reads and writes through them in any order."""

from __future__ import annotations

import functools
import random
from collections import Counter

import pytest

from fuzzer.generation.draft import Draft
from fuzzer.generation.history import draw_history
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import Program, between, walk, writes
from fuzzer.language.routes import route_of
from fuzzer.language.text import parse, show
from tests.drawn import drawn
from tests.language.ops.test_inplace import storages

GROUPS = {family: list(specs) for family, specs in ops_by_family().items()}


def history(seed: int, limits: Limits = Limits()) -> Draft:  # noqa: B008  (a frozen value)
    draft = Draft(random.Random(seed), limits, "f32")
    draw_history(draft, GROUPS)
    return draft


@functools.cache
def sample() -> list[Draft]:
    """Histories that were drawn, of 150."""
    found = [draft for seed in range(150) if any(map(writes, (draft := history(seed)).nodes))]
    assert len(found) >= 110
    return found


def views_of_one_memory(draft: Draft) -> int:
    memories = Counter(draft.memory(name) for name in draft.types)
    return max(memories.values())


def test_a_history_has_views_of_one_value_and_writes_through_them() -> None:
    for draft in sample():
        assert views_of_one_memory(draft) >= 2
        assert len(draft.nodes) <= Limits().max_nodes
    assert sum(sum(map(bool, map(writes, draft.nodes))) >= 2 for draft in sample()) >= 10


def test_a_view_is_read_that_was_made_before_a_write() -> None:
    found = 0
    for draft in sample():
        for at, node in enumerate(draft.nodes):
            target = writes(node)
            before = {out for n in draft.nodes[:at] for out in n.outs}
            later = {name for n in draft.nodes[at + 1 :] for name in n.uses}
            found += any(n != target and target and draft.memory(n) == draft.memory(target) for n in before & later)
    assert found >= 10


def test_some_of_the_views_overlap_and_some_do_not() -> None:
    seen = Counter[bool]()
    for draft in sample():
        views = [n.outs[0] for n in draft.nodes if OPS[n.op].family == "view"]
        together = [(a, b) for a in views for b in views if a < b and draft.memory(a) == draft.memory(b)]
        seen.update(draft.overlap(a, b) for a, b in together)
    assert min(seen[True], seen[False]) >= 5, seen


def test_some_elements_are_read_changed_and_written_back_at_the_same_positions() -> None:
    found = 0
    for draft in sample():
        reads = [n for n in draft.nodes if n.op in ("index", "index_select")]
        found += any(writes(n) == r.uses[0] and n.args[1:2] == r.args[1:2] for r in reads for n in draft.nodes)
    assert found >= 5


def test_some_views_are_two_parts_of_one_value() -> None:
    found = 0
    for draft in sample():
        views = Counter((n.op, n.uses[0]) for n in draft.nodes if OPS[n.op].family == "view")
        found += max(views.values(), default=0) > 1
    assert found >= 3


def test_where_no_op_views_or_no_node_is_left_nothing_is_drawn() -> None:
    assert history(1, Limits(max_nodes=2)).nodes == []
    draft = Draft(random.Random(1), Limits(), "f32")
    draw_history(draft, {family: specs for family, specs in GROUPS.items() if family != "view"})
    assert (draft.leaves, draft.nodes) == ([], [])


def several_writes(p: Program) -> bool:
    """Whether one storage is written twice or more."""
    where = storages(p)
    return max(Counter(where[t] for node in p.nodes if (t := writes(node))).values(), default=0) >= 2


def test_some_programs_write_one_memory_more_than_once() -> None:
    programs = drawn([f"history/{n}" for n in range(40)], histories=1.0)
    assert sum(map(several_writes, programs)) >= 4


@pytest.mark.slow
def test_some_programs_write_to_memory_between_forward_and_backward() -> None:
    """Leaves and outputs, some of them through a view; some of what eager saved, which its backward then refuses."""
    programs = [p for p in drawn([f"between/{n}" for n in range(350)]) if between(p)]
    assert len(programs) >= 4
    late = [tuple(walk(region.body)) for p in programs if (region := between(p))]
    assert all(writes(nodes[-1]) for nodes in late)
    assert 0 < sum(len(nodes) == 2 for nodes in late) < len(late)
    assert 0 < sum(nodes[0].uses[0].startswith("x") for nodes in late) < len(late)
    for p in programs:
        route_of(p)
        assert parse(show(p)) == p


def test_nothing_comes_between_the_directions_of_one_graph() -> None:
    programs = drawn([f"between/{n}" for n in range(100)], routes=("vjp",))
    assert not any(map(between, programs))
