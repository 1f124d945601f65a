"""Ops that write in place: what is drawn, what a write does to the values that share its memory, and what is judged."""

from __future__ import annotations

import functools
import random

import pytest
import torch

from fuzzer.generation.add import add_node
from fuzzer.generation.draft import Draft
from fuzzer.judgement.oracles import detectable, verdicts
from fuzzer.judgement.trial import Place, Subject, Trial
from fuzzer.language.infer import infer
from fuzzer.language.interpret import apply, materialise
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.ops.spec import WRITES, Limits
from fuzzer.language.program import Leaf, Node, Program, between, needed_by_outputs, writes, written_leaves
from fuzzer.language.text import ParseError, parse, show
from fuzzer.trial.pipeline import run_both
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from minimizer.passes import REDUCERS, isolate_node, out_of_place
from minimizer.rewrite import Types
from tests.drawn import drawn

FAMILIES = ("inplace", "view", "binary", "pointwise", "reduction", "scatter")
HEAD = 'program(1)\nroute("autograd")\n'
THROUGH_A_VIEW = (
    HEAD
    + """x0 = leaf(f32[3, 4], seed=1)
x1 = leaf(f32[3], seed=2)
v0 = mul_scalar(x0, other=2.0)
v1 = select(v0, dim=1, index=2)
v2 = copy_(v1, x1)
v3 = sum(v0, dim=(0,))
backward(v3, cotangent(f32[4], seed=3))
"""
)
INTO_A_LEAF = (
    HEAD
    + """x0 = leaf(f32[3, 4], stride=(1, 3), requires_grad=False, seed=1)
x1 = leaf(f32[4], seed=2)
v0 = add_(x0, x1)
backward(v0, cotangent(f32[3, 4], seed=3))
"""
)


@functools.cache
def sample() -> list[Program]:
    """Programs that write in place, of 120 draws from a few families."""
    known = {name: spec for name, spec in OPS.items() if spec.family in FAMILIES}
    found = drawn([f"inplace/{number}" for number in range(120)], known, routes=("autograd", "vjp"))
    writing = [p for p in found if any(map(writes, p.nodes)) and not between(p)]
    assert len(writing) > 0.15 * 120
    return writing


def storages(program: Program) -> dict[str, int]:
    """The storage of each value, by running the program."""
    env: dict[str, torch.Tensor] = dict(materialise(program.leaves))
    for node in program.nodes:
        apply(node, env)
    return {name: t.untyped_storage()._cdata for name, t in env.items() if isinstance(t, torch.Tensor)}


def test_entries_say_that_they_write_and_end_in_an_underscore() -> None:
    for spec in OPS.values():
        assert (spec.effects == WRITES) == spec.name.endswith("_") == (spec.family == "inplace"), spec.name
    assert len(ops_by_family()["inplace"]) >= 60


def test_some_programs_write_in_place_through_views_and_into_leaves() -> None:
    views = leaves = read_later = 0
    for p in sample():
        where = storages(p)
        for node in p.nodes:
            target = writes(node)
            if target is None:
                continue
            leaves += any(leaf.name == target for leaf in p.leaves)
            others = [n for n in where if where[n] == where[target] and n not in (target, *node.outs)]
            views += bool(others)
            later = p.nodes[p.nodes.index(node) + 1 :]
            used = {name for other in later for name in other.uses} | {o.value for o in p.outputs}
            read_later += not used.isdisjoint(others)
    assert min(views, read_later) >= 5
    assert leaves >= 5


def test_what_is_drawn_runs_in_eager_forward_and_backward() -> None:
    eager = Subject("eager", "cpu")
    for p in sample()[::3]:
        assert parse(show(p)) == p
        infer(p)
        made = run_both(p, Task(place=Place(eager, eager)), Journal(None))  # raises where eager refuses
        assert verdicts(made) == []


def test_no_leaf_that_requires_grad_and_no_shared_one_is_written() -> None:
    for p in sample():
        where = storages(p)
        for target in (target for node in p.nodes if (target := writes(node)) is not None):
            here = [leaf for leaf in p.leaves if where[leaf.name] == where[target]]
            assert len(here) < 2
            assert not any(leaf.requires_grad for leaf in here)
            assert not here or p.route.name != "vjp"


def test_the_name_that_was_written_is_dead_and_its_views_are_not() -> None:
    with pytest.raises(ParseError, match="v1 was overwritten"):
        parse(THROUGH_A_VIEW.replace("sum(v0", "sum(v1"))
    assert parse(THROUGH_A_VIEW).nodes[-1].uses == ("v0",)


def test_a_write_is_needed_by_what_reads_its_memory_later() -> None:
    p = parse(THROUGH_A_VIEW)
    assert needed_by_outputs(p)[0] == {("v0",), ("v1",), ("v2",), ("v3",)}
    assert written_leaves(p) == []
    assert written_leaves(parse(INTO_A_LEAF)) == ["x0"]


def test_an_undone_write_gives_the_memory_its_values_back() -> None:
    draft = Draft(random.Random(1), Limits(), "f32")
    draft.leaves = [Leaf("x0", "f32", (3, 4), (4, 1), requires_grad=False)]
    draft.env = dict(materialise(draft.leaves))
    draft.types = {"x0": draft.leaves[0].type}
    before = draft.env["x0"].clone()
    mark = draft.mark()
    draft.anchor = "x0"
    assert add_node(draft, OPS["exp_"])
    assert not torch.equal(draft.env["x0"], before)
    assert draft.dead == {"x0"}
    draft.undo(mark)
    assert torch.equal(draft.env["x0"], before)
    assert (draft.dead, draft.nodes) == (set(), [])


def altered(text: str, name: str) -> Trial:
    """The program's eager run beside itself, one tensor of the second run off by one."""
    eager = Subject("eager", "cpu")
    made = run_both(parse(text), Task(place=Place(eager, eager)), Journal(None))
    made.subject.written = {k: t + 1 if k == name else t for k, t in made.subject.written.items()}
    return made


def test_what_a_written_leaf_holds_in_the_end_is_judged_as_an_output() -> None:
    assert verdicts(altered(INTO_A_LEAF, "")) == []
    [told] = verdicts(altered(INTO_A_LEAF, "x0"))
    assert str(told.signature) == "outputs_agree/wrong/forward/other"
    assert told.detail.startswith("x0[")


def test_a_write_into_a_leaf_is_legal_where_the_reference_writes_too_or_may_write_what_it_holds() -> None:
    """celu_ of a number so small that it stays as it is writes nothing that can be seen, or zero."""
    legal, made = altered(INTO_A_LEAF, ""), altered(INTO_A_LEAF, "x0")
    assert list(made.reference.touched) == list(made.subject.touched) == ["x0"]
    made.reference.touched = legal.reference.touched = {}
    assert verdicts(legal) == []
    assert str(verdicts(made)[0].signature) == "inputs_untouched/wrong/forward/leaf"


def test_the_minimizer_takes_writes_apart_and_keeps_them_legal() -> None:
    p = parse(THROUGH_A_VIEW)
    assert out_of_place in REDUCERS
    [plain] = out_of_place(parse(INTO_A_LEAF), Types(infer(parse(INTO_A_LEAF))))
    assert [node.op for node in plain.nodes] == ["add"]
    alone = [q for q in isolate_node(p, Types(infer(p))) if [n.op for n in q.nodes] == ["copy_"]]
    assert alone
    for q in alone:
        target = writes(q.nodes[0])
        assert [leaf.requires_grad for leaf in q.leaves if leaf.name == target] == [False]


COMPILED = {
    "a view": THROUGH_A_VIEW,
    "a leaf": INTO_A_LEAF,
    "twice": THROUGH_A_VIEW.replace("v3 = sum(v0", "v4 = relu_(v0)\nv3 = sum(v4"),
    "scattered": HEAD
    + """x0 = leaf(f32[5, 4], seed=1)
x1 = leaf(i64[3], values=permutation(5), seed=4)
x2 = leaf(f32[3, 4], seed=2)
v0 = mul_scalar(x0, other=0.5)
v1 = index_add_(v0, x1, x2, dim=0)
v2 = sum(v1, dim=(0,))
backward(v2, cotangent(f32[4], seed=3))
""",
    "a vjp": THROUGH_A_VIEW.replace('"autograd"', '"vjp"'),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED)
def test_compiled_writes_agree_with_eager_and_a_wrong_gradient_would_show(case: str) -> None:
    made = run_both(parse(COMPILED[case]), Task(), Journal(None))
    assert verdicts(made) == []
    assert detectable(made)[0] > 0


def test_nodes_that_write_are_told_by_their_name() -> None:
    assert writes(Node(("v1",), "add_", ("v0", "x0"))) == "v0"
    assert writes(Node(("v1",), "add", ("v0", "x0"))) is None
