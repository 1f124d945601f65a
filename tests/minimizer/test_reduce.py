"""The minimizer's contract, mostly by coin flips: a fault without any structure shows what the driver itself does."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzer.language.infer import IllTyped, check_cotangents, infer
from fuzzer.language.interpret import value_recipes
from fuzzer.language.program import Program, Recipe, TensorType, canonical
from fuzzer.language.text import parse, show
from minimizer.order import cost
from minimizer.reduce import Reduction, reduce
from minimizer.same import Answer
from tests.minimizer.programs import FEW, programs


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


@functools.cache
def types_or_reason(program: Program) -> dict[str, TensorType] | IllTyped:
    try:
        return infer(program)
    except IllTyped as error:
        return error


def inferred(program: Program) -> dict[str, TensorType]:
    """`infer`, which asks torch once for each of the many candidates that come again and again."""
    found = types_or_reason(program)
    if isinstance(found, IllTyped):
        raise found
    return found


def run(program: Program, coin: Coin, **limits: object) -> Reduction:
    return reduce(program, coin, infer=inferred, **limits)  # type: ignore[arg-type]


@FEW
@given(programs(), st.integers(0, 99))
def test_each_step_is_simpler_and_the_result_is_the_last_candidate_that_was_accepted(
    program: Program, seed: int
) -> None:
    coin = Coin(seed)
    found = run(program, coin)
    accepted = [p for p, answer in coin.asked if answer is Answer.SAME]
    assert found.program == (accepted[-1] if accepted else canonical(program))
    assert len(found.history) == len(accepted)
    assert found.queries == len(coin.asked)
    assert found.others == tuple(p for p, answer in coin.asked if answer is Answer.OTHER)
    costs = [cost(canonical(program)), *(c for _, c in found.history)]
    assert all(after < before for before, after in itertools.pairwise(costs))


@FEW
@given(programs(), st.integers(0, 99))
def test_every_candidate_is_tried_once_canonical_and_well_typed_and_has_fitting_cotangents(
    program: Program, seed: int
) -> None:
    coin = Coin(seed)
    run(program, coin, workers=3)
    texts = [show(p) for p, _ in coin.asked]
    assert len(set(texts)) == len(texts)
    assert show(canonical(program)) not in texts
    for (candidate, _), text in zip(coin.asked, texts, strict=True):
        check_cotangents(candidate, infer(candidate))
        assert parse(text) == canonical(candidate) == candidate


@pytest.mark.slow
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
def test_a_minimal_result_has_no_simpler_neighbour_that_is_the_same_finding(program: Program, seed: int) -> None:
    coin = Coin(seed, share=40)
    found = run(program, coin)
    assert found.minimal
    again = run(found.program, coin)
    assert again.program == found.program
    assert not again.history


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
    return value_recipes(program, numel=4096)


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


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        # eager makes rrelu's result of an overlapping input contiguous, the meta kernel does not, and no view fits
        ("v0 = rrelu_training(x0, training=True)\nv1 = view_as(v0, x1)", "v1 = view_as(...): Cannot view a tensor"),
        ("v1 = nonsense(x0)", "no op 'nonsense'"),
    ],
)
def test_a_program_without_types_stays_as_it_is_and_says_why(statements: str, why: str) -> None:
    program = parse(
        'program(1)\nsettings({"inductor.fallback_random": True})\nroute("autograd")\n'
        "x0 = leaf(f32[5, 3, 2], stride=(1, 2, 1))\nx1 = leaf(f32[5, 1, 2, 3])\n"
        f"{statements}\nbackward(v1, cotangent(f32[5, 1, 2, 3]))\n"
    )
    found = reduce(program, lambda batch: pytest.fail("nothing is asked"))
    assert (found.program, found.queries, found.minimal) == (program, 0, False)
    assert found.why.startswith("no types: ")
    assert why in found.why
