"""What candidates are made of: by credit, by energy, more mutants as fresh programs show less that is new."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.generation.knobs import USUAL, Knobs
from fuzzer.guidance.arms import ARMS, KNOWN_WINDOW, CandidateSource, Guidance
from fuzzer.guidance.bandit import MIN_TRIES
from fuzzer.guidance.candidates import CandidateSpec, CandidateStats, Choice
from fuzzer.guidance.mutate import MUTATOR_NAMES
from fuzzer.guidance.parents import CountingCorpus
from fuzzer.language.program import FLOATS
from fuzzer.workers.messages import Report

TEXT = """program(1)
route("autograd")
x0 = leaf(f32[4], seed={})
v0 = exp(x0)
backward(v0, cotangent(f32[4]))
"""
BOTH = Guidance(credits=("operand", "node"), mutation=0.5)


@pytest.fixture
def corpus(tmp_path: Path) -> CountingCorpus:
    return CountingCorpus(tmp_path / "corpus", {}).start()


def specs(guidance: Guidance, corpus: CountingCorpus, seed: int = 0) -> CandidateSource:
    return CandidateSource(guidance, corpus, random.Random(seed), FLOATS)


def shown(*numbers: int, seed: int = 0, cpu: float = 2.0, candidate: int = 0, tried: int = 2) -> Choice:
    features = {"operand": frozenset(numbers), "line": frozenset(range(100))}
    each = tuple(CandidateStats(0.1, (name,)) for name in ("exp", "neg", "sin", "cos")[:tried])
    return Choice(TEXT.format(seed), features=features, seconds={"cpu": cpu}, candidate=candidate, stats=each)


def test_each_arm_has_what_stands_before_it_and_one_level_more() -> None:
    assert next(iter(ARMS.values())) == Guidance()
    chain = [guidance for guidance in ARMS.values() if not (guidance.priced or guidance.code)]
    assert len(chain) == len(ARMS) - 2
    for before, after in itertools.pairwise(chain):
        assert before.candidates <= after.candidates
        assert set(before.credits) <= set(after.credits)
        assert before.mutation <= after.mutation


def test_without_credits_candidates_are_drawn_as_ever(corpus: CountingCorpus) -> None:
    assert specs(ARMS["trace"], corpus).next_specs() == (CandidateSpec(),) * 4


def test_the_price_of_a_candidate_follows_what_programs_of_its_size_took(corpus: CountingCorpus) -> None:
    made = specs(ARMS["price"], corpus)
    assert [spec.cost for spec in made.next_specs()] == [(1.0, 0.0)] * 4
    for size in range(10, 210, 10):
        made.learn((CandidateSpec(),) * 2, shown(*range(size), cpu=1 + 0.01 * size), {"operand": 1})
    assert [spec.cost for spec in made.next_specs()] == [pytest.approx((1.0, 0.01))] * 4
    other = specs(ARMS["price"], corpus)
    other.restore(made.state())
    assert other.next_specs() == made.next_specs()
    assert specs(ARMS["trace"], corpus).next_specs()[0].cost == (1.0, 0.0)


def test_with_credits_every_knob_is_turned_to_every_value(corpus: CountingCorpus) -> None:
    made = specs(ARMS["compile"], corpus)
    seen = [spec.knobs for _ in range(300) for spec in made.next_specs()]
    for knob, values in made.values.items():
        assert {str(getattr(one, knob)) for one in seen} == set(values)
    assert "loss" in made.values["family"]


def test_what_is_chosen_depends_on_the_seed_and_what_was_learned(corpus: CountingCorpus) -> None:
    one, same, other = (specs(ARMS["compile"], corpus, seed) for seed in (1, 1, 2))
    assert [one.next_specs() for _ in range(5)] == [same.next_specs() for _ in range(5)]
    assert one.next_specs() != other.next_specs()


def test_the_compiled_candidate_gets_what_was_new_and_pays_for_the_compile(corpus: CountingCorpus) -> None:
    made = specs(BOTH, corpus)
    pair = (CandidateSpec(Knobs(nodes=0.0)), CandidateSpec(Knobs(nodes=3.0)))
    made.learn(pair, shown(1, 2, candidate=1), {"operand": 2, "line": 7})
    loser, winner = (made.bandits["nodes"].rewards[name] for name in ("0.0", "3.0"))
    assert (loser.tries, loser.compiled, loser.new, loser.seconds) == (1, 0, 0, 0.1)
    assert (winner.tries, winner.compiled, winner.new) == (1, 1, 2), "lines give no credit here"
    assert winner.seconds == pytest.approx(1.9)
    assert (made.ops["neg"].new, made.ops["exp"].new) == (2, 0)
    assert made.bandits["family"].rewards[""].tries == 2


def test_what_was_refused_is_counted_and_costs_its_time(corpus: CountingCorpus) -> None:
    made, spec = specs(BOTH, corpus), CandidateSpec(mutator="resize", parent="p", donor="p")
    refused = Choice("", rejected="no", seconds={"cpu": 0.2}, stats=(CandidateStats(0.1, ("exp",), True),) * 2)
    for _ in range(MIN_TRIES):
        made.learn((spec, CandidateSpec()), refused, {})
    credit = made.bandits["mutator"].rewards["resize"]
    assert (credit.tries, credit.refused, credit.compiled) == (MIN_TRIES, MIN_TRIES, 0)
    assert credit.seconds == pytest.approx(0.1 * MIN_TRIES)
    assert made.unproductive() == ", always refused: exp resize"
    later = Choice(
        "text", rejected="the trace cannot be replayed", seconds={"cpu": 1.0}, stats=(CandidateStats(0.1, ("neg",)),)
    )
    made.learn((CandidateSpec(),), later, {})
    assert (made.ops["neg"].refused, made.ops["neg"].compiled) == (1, 0)
    made.learn((CandidateSpec(),) * 4, Report("text"), {})  # its worker died
    assert made.ops["neg"].tries == 1


def test_who_brings_nothing_is_named(corpus: CountingCorpus) -> None:
    made = specs(BOTH, corpus)
    for n in range(MIN_TRIES):
        made.learn((CandidateSpec(),), shown(1, tried=1), {"operand": int(n == 0)})
    assert made.unproductive() == ""
    for _ in range(MIN_TRIES):
        made.learn(
            (CandidateSpec(),),
            Choice("t", features={"operand": frozenset([1])}, stats=(CandidateStats(0.1, ("tan",)),)),
            {},
        )
    assert made.unproductive() == ", nothing new from: tan"
    assert made.table()["op"]["exp"]["new"] == 1
    assert "tan" in made.table()["op"]


def test_mutants_come_as_fresh_programs_show_less_that_is_new(corpus: CountingCorpus) -> None:
    made = specs(BOTH, corpus)
    corpus.learn(shown(1, 2, seed=5))
    assert not any(spec.parent for _ in range(50) for spec in made.next_specs()), "nothing is known to dry up"
    for _ in range(6 * KNOWN_WINDOW):
        made.learn((CandidateSpec(),), shown(*range(10), tried=1), {"operand": 1})
    assert made.known == pytest.approx(0.9, abs=0.01)
    many = [spec for _ in range(200) for spec in made.next_specs()]
    mutants = [spec for spec in many if spec.parent]
    assert 0.38 < len(mutants) / len(many) < 0.52, "known times the largest share"
    assert {spec.mutator for spec in mutants} == set(MUTATOR_NAMES)
    assert {spec.parent for spec in mutants} == {spec.donor for spec in mutants} == {TEXT.format(5)}
    assert all(spec.knobs == USUAL for spec in mutants)
    for _ in range(6 * KNOWN_WINDOW):
        made.learn((mutants[0],), shown(*range(10), tried=1), {"operand": 10})
    assert made.known == pytest.approx(0.9, abs=0.01), "only fresh programs tell"
    for _ in range(6 * KNOWN_WINDOW):
        made.learn((CandidateSpec(),), shown(*range(10), tried=1), {"operand": 10})
    assert made.known < 0.01


def test_novelty_is_weighted_by_what_it_brought(corpus: CountingCorpus) -> None:
    made = specs(Guidance(credits=("operand",), mutation=1.0), corpus)
    corpus.learn(shown(1, 2))
    assert {spec.weight for _ in range(20) for spec in made.next_specs()} == {1.0}
    mutants = [CandidateSpec(mutator=name, parent="p", donor="p") for name in MUTATOR_NAMES]
    for n in range(300):
        spec = mutants[n % len(MUTATOR_NAMES)] if n % 2 else CandidateSpec()
        report = replace(shown(*range(100), tried=1), scores=(50.0,))
        brought = 100 if not spec.parent else 40 if spec.mutator == "splice" else 4
        made.learn((spec,), report, {"operand": brought})
    made.known = 0.5
    found: dict[str, list[float]] = {}
    for spec in (spec for _ in range(300) for spec in made.next_specs()):
        kind = spec.mutator if spec.mutator in ("", "splice") else "others"
        found.setdefault(kind, []).append(spec.weight)
    mean = {name: statistics.mean(weights) for name, weights in found.items()}
    assert mean[""] > 1.2 * mean["splice"] > 2.0 * mean["others"], "drawn, with a prior: none is out for good"


def test_mutators_that_bring_more_are_chosen_more(corpus: CountingCorpus) -> None:
    made = specs(Guidance(credits=("operand",), mutation=1.0), corpus)
    corpus.learn(shown(1, 2))
    made.known = 1.0
    for _ in range(400):
        one = made.next_specs()[:1]
        made.learn(one, shown(*range(10), tried=1), {"operand": 9 if one[0].mutator == "splice" else 0})
    chosen = [spec.mutator for _ in range(50) for spec in made.next_specs()]
    assert chosen.count("splice") > 0.6 * len(chosen)


def test_it_goes_on_with_what_it_knew(corpus: CountingCorpus) -> None:
    made, later = (specs(BOTH, corpus, seed) for seed in (1, 2))
    for n in range(50):
        made.learn(made.next_specs(), shown(n, tried=4), {"operand": n % 3})
    state = json.loads(json.dumps(made.state()))
    del state["bandits"]["reuse"]
    later.restore(state)
    assert not any(credit.tries for credit in later.bandits["reuse"].rewards.values()), "a knob that is new begins"
    later.restore(json.loads(json.dumps(made.state())))
    assert later.table() == made.table()
    assert later.known == made.known
