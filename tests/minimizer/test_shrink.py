"""How well the minimizer shrinks: program, what the fault needs, the exact text that must be left, the queries it may
cost. No compile: the fault is a predicate on the program or on what its values hold, as strict as the real ones are.

Two small programs with faults of this file; then the big random ones of corpus/planted with those of `planted`.

Run `python -m tests.minimizer.test_shrink` for the table of queries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from benches.planted import PLANTED

from fuzzer.language.infer import IllTyped, infer
from fuzzer.language.interpret import materialise, to_function, value_recipes
from fuzzer.language.program import Node, Program, TensorType
from fuzzer.language.text import parse, show
from minimizer.reduce import Reduction, reduce
from minimizer.same import Answer
from tests.minimizer.left import LEFT

PROGRAMS = Path(__file__).parents[2] / "corpus" / "planted"
PLANTED_HERE = sorted(path.stem for path in PROGRAMS.glob("*.prog"))
Types = Mapping[str, TensorType]
Fault = Callable[[Program, Types], bool]


@functools.lru_cache(maxsize=4096)
def typed(program: Program) -> Types:
    """The types, kept: a candidate is asked for them by the search and by the fault."""
    return infer(program)


@functools.lru_cache(maxsize=4096)
def run_and_infer(program: Program) -> Types:
    """The types, once eager has run the program: fake tensors admit a source of slice_scatter that eager refuses."""
    types = typed(program)
    try:
        to_function(program)(*materialise(program.leaves).values())
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise IllTyped(str(error)) from None
    return types


RANDOM = """program(1)
settings({"inductor.epilogue_fusion": False, "inductor.max_fusion_size": 4})
route("autograd", dynamic=False)
x0 = leaf(f64[4, 13, 33], stride=(1, 4, 52), values="ties", seed=1)
x1 = leaf(f64[4, 6, 33], seed=2)
x2 = leaf(f64[33], seed=5)
v0 = sigmoid(x0)
v1 = mul(v0, x2)
v2 = slice_scatter(v1, x1, dim=1, start=3, end=9)
v3 = sum(v2, dim=1)
v4 = exp(v3)
v5 = relu(v4)
backward(v5, cotangent(f64[4, 33], seed=3))
backward(v0, cotangent(f64[4, 13, 33], values="ties", seed=4))
"""

CHAIN = """program(1)
settings({"inductor.max_fusion_size": 4})
route("vjp", dynamic=False)
x0 = leaf(bf16[8, 40], stride=(1, 16), offset=3, values="large", seed=1)
x1 = leaf(bf16[8, 40], seed=2)
x2 = leaf_view(x1, bf16[40], stride=(1,), offset=40)
v0 = add(x0, x1)
v1 = exp(v0)
v2 = sum(v1, dim=1, keepdim=True)
v3 = mul(v1, v2)
v4 = add(v3, x2)
v5 = relu(v4)
backward(v5, cotangent(bf16[8, 40], stride=(1, 8), seed=3))
returns(v3)
"""


def nodes(program: Program, op: str) -> list[Node]:
    return [node for node in program.nodes if node.op == op]


def slice_scatter_under_sum(p: Program, types: Types) -> bool:
    """The written part is smaller than the tensor, sum broadcasts the cotangent, and the tensor's gradient is asked."""
    asked = {leaf.name for leaf in p.leaves if leaf.requires_grad} | {n for node in p.nodes for n in node.outs}
    for node in nodes(p, "slice_scatter"):
        x, source = (types[name] for name in node.uses)
        read = [s for s in nodes(p, "sum") if node.outs[0] in s.uses and types[s.outs[0]].rank > 0]
        if read and node.uses[0] in asked and source.rank == x.rank and 0 < source.numel < x.numel:
            return True
    return False


def wrong_relu(p: Program, types: Types) -> bool:
    return bool(nodes(p, "relu"))


def wide_exp(p: Program, types: Types) -> bool:
    return any(types[n.outs[0]].rank and types[n.outs[0]].shape[-1] >= 17 for n in nodes(p, "exp"))


def relu_under_a_setting(p: Program, types: Types) -> bool:
    return wrong_relu(p, types) and ("inductor.max_fusion_size", 4) in p.settings


def half_add(p: Program, types: Types) -> bool:
    return any(types[n.outs[0]].dtype == "bf16" and types[n.outs[0]].numel > 1 for n in nodes(p, "add"))


def permuted_operand(p: Program, types: Types) -> bool:
    return any(types[n.uses[0]].stride != tuple(sorted(types[n.uses[0]].stride, reverse=True)) for n in nodes(p, "add"))


def diamond(p: Program, types: Types) -> bool:
    """A value is reduced and multiplied with its own reduction, differentiated."""
    return any(o.cotangent for o in p.outputs) and any(
        s.uses[0] in m.uses and s.outs[0] in m.uses and types[s.outs[0]].numel < types[s.uses[0]].numel
        for s in nodes(p, "sum")
        for m in nodes(p, "mul")
    )


def shared_storage(p: Program, types: Types) -> bool:
    return any(leaf.base is not None and leaf.offset > 0 for leaf in p.leaves) and bool(nodes(p, "add"))


def two_outputs(p: Program, types: Types) -> bool:
    made = {name for node in p.nodes for name in node.outs}
    return len(p.outputs) == 2 and {o.value for o in p.outputs} <= made and p.outputs[0].cotangent is not None


def vjp_with_a_strided_cotangent(p: Program, types: Types) -> bool:
    strides = [o.cotangent.stride for o in p.outputs if o.cotangent is not None]
    return p.route.name == "vjp" and any(len(s) == 2 and s[0] < s[1] for s in strides)


def large_values(p: Program, types: Types) -> bool:
    return any(leaf.values.name == "large" for leaf in p.leaves)


@dataclass(frozen=True)
class Row:
    start: str
    fault: Fault
    left: str
    queries: int


ROWS = [
    Row(
        RANDOM,
        slice_scatter_under_sum,
        """program(1)
route("autograd")
x0 = leaf(f32[2, 1], values="ones")
x1 = leaf(f32[1, 1], requires_grad=False, values="ones")
v0 = slice_scatter(x0, x1, start=1)
v1 = sum(v0, dim=0)
backward(v1, cotangent(f32[1], values="ones"))
""",
        40,
    ),
    Row(
        RANDOM,
        wrong_relu,
        """program(1)
route("autograd")
x0 = leaf(f32[()], values="ones")
v0 = relu(x0)
backward(v0, cotangent(f32[()], values="ones"))
""",
        5,
    ),
    Row(
        RANDOM,
        wide_exp,
        """program(1)
route("autograd")
x0 = leaf(f32[17], values="ones")
v0 = exp(x0)
backward(v0, cotangent(f32[17], values="ones"))
""",
        26,
    ),
    Row(
        RANDOM,
        relu_under_a_setting,
        """program(1)
settings({"inductor.max_fusion_size": 4})
route("autograd")
x0 = leaf(f32[()], values="ones")
v0 = relu(x0)
backward(v0, cotangent(f32[()], values="ones"))
""",
        11,
    ),
    Row(
        CHAIN,
        half_add,
        """program(1)
route("autograd")
x0 = leaf(bf16[2], values="ones")
x1 = leaf(f32[()], requires_grad=False, values="ones")
v0 = add(x0, x1)
backward(v0, cotangent(bf16[2], values="ones"))
""",
        31,
    ),
    Row(
        CHAIN,
        permuted_operand,
        """program(1)
route("autograd")
x0 = leaf(f32[2, 1], stride=(1, 2), values="ones")
v0 = add(x0, x0)
backward(v0, cotangent(f32[2, 1], values="ones"))
""",
        29,
    ),
    Row(
        CHAIN,
        diamond,
        """program(1)
route("autograd")
x0 = leaf(f32[2], values="ones")
v0 = sum(x0)
v1 = mul(x0, v0)
backward(v1, cotangent(f32[2], values="ones"))
""",
        47,
    ),
    Row(
        CHAIN,
        shared_storage,
        """program(1)
route("autograd")
x0 = leaf(f32[2], values="ones")
x1 = leaf_view(x0, f32[()], offset=1, requires_grad=False)
v0 = add(x0, x1)
backward(v0, cotangent(f32[2], values="ones"))
""",
        29,
    ),
    Row(
        CHAIN,
        two_outputs,
        """program(1)
route("autograd")
x0 = leaf(f32[()], values="ones")
v0 = neg(x0)
v1 = relu(x0)
backward(v1, cotangent(f32[()], values="ones"))
returns(v0)
""",
        43,
    ),
    Row(
        CHAIN,
        vjp_with_a_strided_cotangent,
        """program(1)
route("vjp")
x0 = leaf(f32[2, 1], values="ones")
v0 = relu(x0)
backward(v0, cotangent(f32[2, 1], stride=(1, 2), values="ones"))
""",
        22,
    ),
    Row(
        CHAIN,
        large_values,
        """program(1)
route("autograd")
x0 = leaf(f32[()], values="large")
v0 = neg(x0)
backward(v0, cotangent(f32[()], values="ones"))
""",
        25,
    ),
]


def shrink(start: Program, fault: Fault) -> Reduction:
    assert fault(start, typed(start)), "the program must have the fault to begin with"

    def is_same(programs: Sequence[Program]) -> Iterator[Answer]:
        return (Answer.SAME if fault(p, typed(p)) else Answer.NONE for p in programs)

    return reduce(start, is_same, infer=run_and_infer, record=value_recipes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault.__name__)
def test_what_is_left_is_what_the_fault_needs(row: Row) -> None:
    found = shrink(parse(row.start), row.fault)
    assert show(found.program) == row.left
    assert found.minimal
    assert found.queries <= row.queries, "the queries in the table are measured; fewer is better, more is a regression"


def big(name: str) -> Program:
    return parse((PROGRAMS / f"{name}.prog").read_text())


@pytest.mark.parametrize("name", PLANTED_HERE)
def test_what_is_left_of_a_big_random_program_is_what_the_fault_needs(name: str) -> None:
    queries, left = LEFT[name]
    found = shrink(big(name), PLANTED[name])
    assert show(found.program) == left
    assert found.minimal
    assert found.queries <= queries, "the queries in the table are measured; fewer is better, more is a regression"


def test_at_least_25_faults_are_planted_in_programs_of_20_to_40_nodes() -> None:
    assert sorted(LEFT) == PLANTED_HERE
    assert len(PLANTED_HERE) >= 25
    assert all(20 <= len(big(name).nodes) <= 40 for name in PLANTED_HERE)


def test_the_result_is_the_same_for_one_and_for_eight_workers() -> None:
    name = "value_read_twice"  # the longest search
    fault = PLANTED[name]

    def is_same(programs: Sequence[Program]) -> list[Answer]:
        return [Answer.SAME if fault(p, typed(p)) else Answer.NONE for p in programs]

    one, eight = (reduce(big(name), is_same, workers, infer=run_and_infer, record=value_recipes) for workers in (1, 8))
    assert (one.program, one.queries, one.history) == (eight.program, eight.queries, eight.history)


if __name__ == "__main__":
    cases = [(row.fault.__name__, parse(row.start), row.fault) for row in ROWS]
    for name, start, fault in cases + [(name, big(name), PLANTED[name]) for name in PLANTED_HERE]:
        found = shrink(start, fault)
        print(f"{name}: {len(start.nodes)} nodes, {found.queries} queries, {found.proof} of them the proof")
        print(show(found.program))
