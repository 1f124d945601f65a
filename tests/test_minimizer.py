"""The minimizer's contract, mostly by coin flips: a fault without any structure shows what the driver itself does."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzer.infer import IllTyped, check_cotangents, infer
from fuzzer.interpret import record
from fuzzer.program import Cotangent, Leaf, Node, Output, Program, Recipe, Region, Route, canonical, contiguous
from fuzzer.text import parse, show
from fuzzer.verdict import Signature
from minimizer.order import cost
from minimizer.passes import REDUCERS
from minimizer.reduce import Reduction, reduce
from minimizer.rewrite import Types, prune, restride, retype
from minimizer.same import CLEAR, DETERMINISTIC, FLAKY, Answer, Sameness, Shown, checker, follows, margin, sameness

SHAPES = ((), (3,), (2, 3), (1, 5), (4, 1, 3))
UNARY = ("relu", "exp", "sigmoid")


@st.composite
def programs(draw: Callable) -> Program:
    """Small well-typed programs: unary ops, sums and additions of equal shapes, with layouts, values and settings."""
    leaves, body, shapes = [], [], {}
    for i in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(SHAPES))
        gap = draw(st.integers(1, 2))
        stride = tuple(s * gap for s in contiguous(shape))
        values = Recipe(draw(st.sampled_from(("normal", "ties", "integers"))))
        dtype = draw(st.sampled_from(("f32", "f64")))
        leaves.append(Leaf(f"x{i}", dtype, shape, stride, draw(st.integers(0, 2)), values=values, seed=i))
        shapes[f"x{i}"] = (dtype, shape)
    for i in range(draw(st.integers(1, 4))):
        a = draw(st.sampled_from(sorted(shapes)))
        alike = [b for b in sorted(shapes) if shapes[b] == shapes[a]]
        op = draw(st.sampled_from((*UNARY, "sum", "add")))
        args = (a, draw(st.sampled_from(alike))) if op == "add" else (a,)
        body.append(Node((f"v{i}",), op, args))
        shapes[f"v{i}"] = (shapes[a][0], ()) if op == "sum" else shapes[a]
    made = [f"v{i}" for i in range(len(body))]
    chosen = draw(st.lists(st.sampled_from(made), min_size=1, max_size=2, unique=True))
    outputs = [Output(v, Cotangent(shapes[v][0], shapes[v][1], contiguous(shapes[v][1]), seed=4)) for v in chosen]
    options = draw(st.sampled_from(((), (("dynamic", False),))))
    chosen_settings = draw(st.sampled_from(((), (("inductor.max_fusion_size", 4),))))
    return Program(tuple(leaves), tuple(body), tuple(outputs), Route("autograd", options), chosen_settings)


class Coin:
    """A fault that depends on nothing but a hash of the text; it remembers what it was asked."""

    def __init__(self, seed: int, share: int = 96):
        self.seed, self.share = seed, share
        self.asked: list[tuple[Program, Answer]] = []

    def flip(self, program: Program) -> Answer:
        byte = hashlib.sha256(f"{self.seed}\n{show(program)}".encode()).digest()[0]
        return Answer.SAME if byte < self.share else Answer.OTHER if byte >= 224 else Answer.NONE

    def __call__(self, batch: Sequence[Program]) -> Iterator[Answer]:
        for program in batch:  # lazily: what is not taken is not asked
            self.asked.append((program, self.flip(program)))
            yield self.asked[-1][1]


def run(program: Program, coin: Coin, **limits: object) -> Reduction:
    return reduce(program, coin, infer=infer, **limits)  # type: ignore[arg-type]


FEW = settings(max_examples=25, deadline=None)


@FEW
@given(programs(), st.integers(0, 99))
def test_the_result_is_the_last_candidate_that_was_accepted(program: Program, seed: int) -> None:
    coin = Coin(seed)
    found = run(program, coin)
    accepted = [p for p, answer in coin.asked if answer is Answer.SAME]
    assert found.program == (accepted[-1] if accepted else canonical(program))
    assert len(found.history) == len(accepted)
    assert found.queries == len(coin.asked)
    assert found.others == tuple(p for p, answer in coin.asked if answer is Answer.OTHER)


@FEW
@given(programs(), st.integers(0, 99))
def test_no_candidate_is_tried_twice(program: Program, seed: int) -> None:
    coin = Coin(seed)
    run(program, coin, workers=3)
    texts = [show(p) for p, _ in coin.asked]
    assert len(set(texts)) == len(texts)
    assert show(canonical(program)) not in texts


@FEW
@given(programs(), st.integers(0, 99))
def test_each_step_is_simpler_than_the_one_before(program: Program, seed: int) -> None:
    costs = [cost(canonical(program)), *(c for _, c in run(program, Coin(seed)).history)]
    assert all(after < before for before, after in itertools.pairwise(costs))


@FEW
@given(programs(), st.integers(0, 99))
def test_the_result_does_not_depend_on_the_number_of_workers(program: Program, seed: int) -> None:
    one, eight = run(program, Coin(seed), workers=1), run(program, Coin(seed), workers=8)
    assert (one.program, one.queries, one.history, one.why) == (eight.program, eight.queries, eight.history, eight.why)
    assert set(map(show, one.others)) <= set(map(show, eight.others))


@FEW
@given(programs(), st.integers(0, 99), st.integers(0, 12))
def test_a_budget_ends_the_search_at_the_same_place_for_any_number_of_workers(
    program: Program, seed: int, budget: int
) -> None:
    one, eight = (run(program, Coin(seed), workers=workers, budget=budget) for workers in (1, 8))
    assert one.queries <= budget
    assert (one.program, one.queries, one.why, one.minimal) == (eight.program, eight.queries, eight.why, eight.minimal)
    assert one.minimal == (one.why == "fixpoint")


@FEW
@given(programs(), st.integers(0, 99))
def test_every_candidate_is_canonical_well_typed_and_has_fitting_cotangents(program: Program, seed: int) -> None:
    coin = Coin(seed)
    run(program, coin, workers=4)
    for candidate, _ in coin.asked:
        check_cotangents(candidate, infer(candidate))
        assert parse(show(candidate)) == canonical(candidate) == candidate


@FEW
@given(programs(), st.integers(0, 99))
def test_a_minimal_result_has_no_simpler_neighbour_that_is_the_same_finding(program: Program, seed: int) -> None:
    coin = Coin(seed, share=40)
    found = run(program, coin)
    assert found.minimal
    again = run(found.program, coin)
    assert again.program == found.program
    assert not again.history


@FEW
@given(programs())
def test_reducers_only_ever_yield_programs(program: Program) -> None:
    types = Types(infer(program))
    for reducer in REDUCERS:
        assert all(isinstance(p, Program) for p in reducer(program, types))


def test_a_route_shrinks_to_the_default_one_option_after_the_other() -> None:
    text = (
        'program(1)\nroute("vjp", dynamic=True)\nx0 = leaf(f32[()])\nv0 = relu(x0)\nbackward(v0, cotangent(f32[()]))\n'
    )
    everything = reduce(parse(text), lambda batch: [Answer.SAME] * len(batch), infer=infer)
    assert everything.program.route == Route()
    static = reduce(
        parse(text), lambda batch: [Answer.SAME if p.route.name == "vjp" else Answer.NONE for p in batch], infer=infer
    )
    assert static.program.route == Route("vjp")


def test_parameters_go_with_the_route_that_has_them_or_before_it() -> None:
    text = (
        'program(1)\nroute("vjp")\nx0 = leaf(f32[3], parameter=True)\nv0 = relu(x0)\nbackward(v0, cotangent(f32[3]))\n'
    )
    everything = reduce(parse(text), lambda batch: [Answer.SAME] * len(batch), infer=infer)
    assert (everything.program.route, everything.program.leaves[0].parameter) == (Route(), False)
    only_vjp = [lambda p: p.route.name == "vjp", lambda p: p.leaves[0].parameter]
    for holds in only_vjp:
        found = reduce(parse(text), lambda b, h=holds: [Answer.SAME if h(p) else Answer.NONE for p in b], infer=infer)
        assert found.program.route == Route("vjp")
        assert found.program.leaves[0].parameter == holds(parse(text.replace('"vjp"', '"autograd"')))


def test_reducers_survive_lists_options_regions_and_recorded_values() -> None:
    text = """program(1)
route("vjp", dynamic=True)
x0 = leaf(f32[4, 6], values=data([1.0, 2.0]))
x1 = leaf_view(x0, f32[6], offset=6)
x2 = leaf(i64[4], values=below(6))
with autocast(dtype=bf16):
    v0 = cat([x0, x0, x0], dim=-1)
    v1 = index_put(v0, [None, x2], x1, size=(4, 18), p=0.25, flag=True)
v2, v3 = topk(v1, k=3, start=2, end=5)
v4 = add_(v2, x1)
backward(v4, cotangent(f32[4, 3], stride=(0, 1)))
returns(v3)
"""
    program = parse(text)
    t = program.leaves[0].type
    types = Types(dict.fromkeys(("x0", "x1", "x2", "v0", "v1", "v2", "v3", "v4"), t))
    proposals = [p for reducer in REDUCERS for p in reducer(program, types)]
    assert len(proposals) > 50
    assert any(not any(isinstance(s, Region) for s in p.body) and len(p.nodes) == 4 for p in proposals)


def test_a_program_that_is_ill_typed_itself_is_refused_with_the_reason() -> None:
    program = parse('program(1)\nroute("autograd")\nx0 = leaf(f32[2])\nv0 = nonsense(x0)\nreturns(v0)\n')
    with pytest.raises(IllTyped, match="nonsense"):
        run(program, Coin(0))


def test_a_deadline_ends_the_search_with_what_has_been_found() -> None:
    program = parse('program(1)\nroute("autograd")\nx0 = leaf(f32[2, 3])\nv0 = exp(x0)\nv1 = exp(v0)\nreturns(v1)\n')
    ticks = iter((False, True))
    found = run(program, Coin(0, share=256), expired=lambda: next(ticks))
    assert (found.why, found.minimal, found.queries) == ("deadline", False, 1)
    assert len(found.program.nodes) == 1


VALUES_MATTER = """program(1)
route("autograd")
x0 = leaf(f64[3], seed=1)
x1 = leaf(f64[3], seed=2)
v0 = sub(x0, x1)
v1 = exp(v0)
v2 = mul(v1, x1)
backward(v2, cotangent(f64[3]))
"""


def held(program: Program) -> dict[str, Recipe]:
    """What every value held, as a worker records it."""
    return record(program, numel=4096)


def test_what_a_value_held_takes_the_place_of_the_nodes_that_computed_it() -> None:
    """The fault needs the very numbers that sub computes: a fresh leaf in its place would not show it."""
    program = parse(VALUES_MATTER)
    wanted = held(program)["v0"].args

    def is_same(batch: Sequence[Program]) -> Iterator[Answer]:
        for p in batch:
            exps = [node for node in p.nodes if node.op == "exp"]
            there = exps and held(p)[exps[0].uses[0]].args == wanted
            yield Answer.SAME if there else Answer.NONE

    found = reduce(program, is_same, record=held).program
    assert [node.op for node in found.nodes] == ["exp"]
    assert found.leaves[0].values == Recipe("data", wanted)
    assert len(reduce(program, is_same).program.nodes) == 2, "without a record the numbers must be computed"


def test_pruning_keeps_an_in_place_op_that_writes_what_is_read_later() -> None:
    text = """program(1)
route("autograd")
x0 = leaf(f32[2])
x1 = leaf(f32[2])
v0 = exp(x0)
v1 = view(v0, size=(2,))
v2 = add_(v1, x1)
v3 = exp(x1)
v4 = relu(v0)
returns(v4)
"""
    assert [node.op for node in prune(parse(text)).nodes] == ["exp", "view", "add_", "relu"]
    unrelated = parse(text.replace("relu(v0)", "relu(v3)"))
    assert [node.op for node in prune(unrelated).nodes] == ["exp", "relu"]


def test_retyping_gives_a_cotangent_the_shape_of_its_output_and_keeps_a_stride_that_fits() -> None:
    text = """program(1)
route("autograd")
x0 = leaf(f64[2, 3])
v0 = exp(x0)
backward(v0, cotangent(f32[4, 6], stride=(1, 4)))
"""
    program = parse(text)
    fitting = retype(program, infer(program)).outputs[0].cotangent
    assert fitting == Cotangent("f64", (2, 3), (1, 2))
    assert restride((4, 6), (0, 1), (2, 3)) == (0, 1)
    assert restride((4, 6), (6, 1), (2, 3)) == (3, 1)


def test_simpler_values_come_before_attributes_and_a_node_before_everything() -> None:
    small = parse('program(1)\nroute("autograd")\nx0 = leaf(f32[2], values="ones")\nv0 = exp(x0)\nreturns(v0)\n')
    normal = replace(small, leaves=(replace(small.leaves[0], values=Recipe("normal")),))
    longer = replace(small, body=(*small.body, Node(("v1",), "exp", ("v0",))))
    configured = replace(normal, settings=(("inductor.max_fusion_size", 4),))
    assert cost(small) < cost(normal) < cost(configured) < cost(longer)


# ---------------------------------------------------------------- same.py

TARGET = Signature("gradients_agree", "wrong", "backward", "scattered")
STRANGER = Signature("gradients_agree", "raises", "backward", "RuntimeError")
SHOWN = {TARGET: 50.0}


def test_an_irregular_pattern_may_become_regular_and_never_the_reverse() -> None:
    regular = replace(TARGET, pattern="all-zero")
    assert follows(TARGET, regular)
    assert not follows(regular, TARGET)
    assert not follows(TARGET, replace(TARGET, pattern="nonfinite"))
    assert not follows(TARGET, replace(TARGET, direction="forward"))


def test_k_of_n_decides_as_soon_as_it_can() -> None:
    how = Sameness(2, 3)
    assert how.judge(TARGET, [SHOWN, SHOWN]) is Answer.SAME
    assert how.judge(TARGET, [SHOWN, {}]) is None
    assert how.judge(TARGET, [{}, {}]) is Answer.NONE
    assert how.judge(TARGET, [{STRANGER: math.inf}, {}]) is Answer.OTHER


def test_the_probabilities_beside_the_defaults_are_right() -> None:
    assert [round(FLAKY.accepts(rate), 3) for rate in (0.05, 0.1, 0.3, 0.5, 0.7)] == [0.012, 0.07, 0.617, 0.945, 0.998]
    assert DETERMINISTIC.accepts(1.0) == 1.0
    assert sameness(8, 8) == DETERMINISTIC
    assert sameness(5, 8) == FLAKY


def test_k_larger_than_n_is_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        Sameness(3, 2)


def test_a_checker_runs_again_only_what_is_undecided() -> None:
    a, b = (parse(f'program(1)\nroute("autograd")\nx0 = leaf(f32[{n}])\nreturns(x0)\n') for n in (1, 2))
    rounds: list[int] = []

    def show_target_for_a(batch: Sequence[Program]) -> list[Shown]:
        rounds.append(len(batch))
        return [SHOWN if p == a else {} for p in batch]

    assert list(checker(TARGET, show_target_for_a, Sameness(1, 3))([a, b])) == [Answer.SAME, Answer.NONE]
    assert rounds == [2, 1, 1]


def test_a_checker_answers_before_the_whole_batch_has_run() -> None:
    program = parse('program(1)\nroute("autograd")\nx0 = leaf(f32[1])\nreturns(x0)\n')

    def only_the_first_ends(batch: Sequence[Program]) -> Iterator[Shown]:
        yield SHOWN
        raise AssertionError("nobody asked for the second")

    assert next(iter(checker(TARGET, only_the_first_ends)([program, program]))) is Answer.SAME


def test_a_candidate_whose_error_sinks_towards_the_threshold_is_not_followed() -> None:
    assert margin(36.0) == 6.0  # the geometric mean of 36 thresholds and one
    assert margin(1e9) == margin(math.inf) == CLEAR
    assert margin(0.5) == 1.0  # never below the threshold itself
    faint, clear = ({TARGET: error} for error in (5.9, 6.1))
    assert DETERMINISTIC.judge(TARGET, [faint], least=margin(36.0)) is Answer.NONE
    assert DETERMINISTIC.judge(TARGET, [clear], least=margin(36.0)) is Answer.SAME


@pytest.mark.parametrize(("seed", "left"), [(465, 3), (732, 3), (3, 3), (999, 999)])
def test_a_leaf_that_needs_its_seed_keeps_the_smallest_that_will_do(seed: int, left: int) -> None:
    text = 'program(1)\nroute("autograd")\nx0 = leaf(f32[2])\nx1 = leaf(i64[2], values=below(2), seed={})\n'
    text += 'v0 = index_select(x0, x1, dim=0)\nbackward(v0, cotangent(f32[2], values="ones"))\n'
    showing = {seed} if seed == 999 else {3, 5, seed}  # one drawing in four, or hardly any

    def seeds(program: Program) -> set[int]:
        return {leaf.seed for leaf in program.leaves if leaf.dtype == "i64"}

    def ask(batch: Sequence[Program]) -> Iterator[Answer]:
        yield from (Answer.SAME if seeds(p) & showing else Answer.OTHER for p in batch)

    assert seeds(reduce(parse(text.format(seed)), ask, infer=infer).program) == {left}
