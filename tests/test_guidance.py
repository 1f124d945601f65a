"""What candidates are made of: by credit, by energy, more mutants as fresh programs show less that is new."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.corpus import Corpus
from fuzzer.credit import ENOUGH
from fuzzer.execution.guide import Offer
from fuzzer.execution.messages import Report, Tried
from fuzzer.guidance import ARMS, MEMORY, Guidance, Offers
from fuzzer.knobs import USUAL, Knobs
from fuzzer.mutate import NAMES
from fuzzer.program import FLOATS

TEXT = """program(1)
route("autograd")
x0 = leaf(f32[4], seed={})
v0 = exp(x0)
backward(v0, cotangent(f32[4]))
"""
BOTH = Guidance(credits=("operand", "node"), mutation=0.5)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "corpus", {}).start()


def offers(guidance: Guidance, corpus: Corpus, seed: int = 0) -> Offers:
    return Offers(guidance, corpus, random.Random(seed), FLOATS)


def shown(*numbers: int, seed: int = 0, cpu: float = 2.0, candidate: int = 0, tried: int = 2) -> Report:
    features = {"operand": frozenset(numbers), "line": frozenset(range(100))}
    each = tuple(Tried(0.1, (name,)) for name in ("exp", "neg", "sin", "cos")[:tried])
    return Report(TEXT.format(seed), features=features, seconds={"cpu": cpu}, candidate=candidate, tried=each)


def test_each_arm_has_what_stands_before_it_and_one_level_more() -> None:
    assert next(iter(ARMS.values())) == Guidance(candidates=1)
    chain = [guidance for guidance in ARMS.values() if not guidance.priced]
    assert len(chain) == len(ARMS) - 1
    for before, after in itertools.pairwise(chain):
        assert before.candidates <= after.candidates
        assert set(before.credits) <= set(after.credits)
        assert before.mutation <= after.mutation


def test_without_credits_candidates_are_drawn_as_ever(corpus: Corpus) -> None:
    assert offers(ARMS["trace"], corpus).made() == (Offer(),) * 4
    assert offers(ARMS["blind"], corpus).made() == (Offer(),)


def test_the_price_of_a_candidate_follows_what_programs_of_its_size_took(corpus: Corpus) -> None:
    made = offers(ARMS["price"], corpus)
    assert [offer.price for offer in made.made()] == [(1.0, 0.0)] * 4
    for size in range(10, 210, 10):
        made.learn((Offer(),) * 2, shown(*range(size), cpu=1 + 0.01 * size), {"operand": 1})
    assert [offer.price for offer in made.made()] == [pytest.approx((1.0, 0.01))] * 4
    other = offers(ARMS["price"], corpus)
    other.restore(made.state())
    assert other.made() == made.made()
    assert offers(ARMS["trace"], corpus).made()[0].price == (1.0, 0.0)


def test_with_credits_every_knob_is_turned_to_every_value(corpus: Corpus) -> None:
    made = offers(ARMS["compile"], corpus)
    seen = [offer.knobs for _ in range(300) for offer in made.made()]
    for knob, values in made.values.items():
        assert {str(getattr(one, knob)) for one in seen} == set(values)
    assert "loss" in made.values["family"]


def test_what_is_chosen_depends_on_the_seed_and_what_was_learned(corpus: Corpus) -> None:
    one, same, other = (offers(ARMS["compile"], corpus, seed) for seed in (1, 1, 2))
    assert [one.made() for _ in range(5)] == [same.made() for _ in range(5)]
    assert one.made() != other.made()


def test_the_compiled_candidate_gets_what_was_new_and_pays_for_the_compile(corpus: Corpus) -> None:
    made = offers(BOTH, corpus)
    pair = (Offer(Knobs(nodes=0.0)), Offer(Knobs(nodes=3.0)))
    made.learn(pair, shown(1, 2, candidate=1), {"operand": 2, "line": 7})
    loser, winner = (made.bandits["nodes"].credits[name] for name in ("0.0", "3.0"))
    assert (loser.tries, loser.compiled, loser.new, loser.seconds) == (1, 0, 0, 0.1)
    assert (winner.tries, winner.compiled, winner.new) == (1, 1, 2), "lines give no credit here"
    assert winner.seconds == pytest.approx(1.9)
    assert (made.ops["neg"].new, made.ops["exp"].new) == (2, 0)
    assert made.bandits["family"].credits[""].tries == 2


def test_what_was_refused_is_counted_and_costs_its_time(corpus: Corpus) -> None:
    made, offer = offers(BOTH, corpus), Offer(mutator="resize", parent="p", donor="p")
    refused = Report("", rejected="no", seconds={"cpu": 0.2}, tried=(Tried(0.1, ("exp",), True),) * 2)
    for _ in range(ENOUGH):
        made.learn((offer, Offer()), refused, {})
    credit = made.bandits["mutator"].credits["resize"]
    assert (credit.tries, credit.refused, credit.compiled) == (ENOUGH, ENOUGH, 0)
    assert credit.seconds == pytest.approx(0.1 * ENOUGH)
    assert made.unearned() == ", always refused: exp resize"
    later = Report("text", rejected="the trace cannot be replayed", seconds={"cpu": 1.0}, tried=(Tried(0.1, ("neg",)),))
    made.learn((Offer(),), later, {})
    assert (made.ops["neg"].refused, made.ops["neg"].compiled) == (1, 0)
    made.learn((Offer(),) * 4, Report("text"), {})  # its worker died
    assert made.ops["neg"].tries == 1


def test_who_brings_nothing_is_named(corpus: Corpus) -> None:
    made = offers(BOTH, corpus)
    for n in range(ENOUGH):
        made.learn((Offer(),), shown(1, tried=1), {"operand": int(n == 0)})
    assert made.unearned() == ""
    for _ in range(ENOUGH):
        made.learn((Offer(),), Report("t", features={"operand": frozenset([1])}, tried=(Tried(0.1, ("tan",)),)), {})
    assert made.unearned() == ", nothing new from: tan"
    assert made.table()["op"]["exp"]["new"] == 1
    assert "tan" in made.table()["op"]


def test_mutants_come_as_fresh_programs_show_less_that_is_new(corpus: Corpus) -> None:
    made = offers(BOTH, corpus)
    corpus.learn(shown(1, 2, seed=5))
    assert not any(offer.parent for _ in range(50) for offer in made.made()), "nothing is known to dry up"
    for _ in range(6 * MEMORY):
        made.learn((Offer(),), shown(*range(10), tried=1), {"operand": 1})
    assert made.known == pytest.approx(0.9, abs=0.01)
    many = [offer for _ in range(200) for offer in made.made()]
    mutants = [offer for offer in many if offer.parent]
    assert 0.38 < len(mutants) / len(many) < 0.52, "known times the largest share"
    assert {offer.mutator for offer in mutants} == set(NAMES)
    assert {offer.parent for offer in mutants} == {offer.donor for offer in mutants} == {TEXT.format(5)}
    assert all(offer.knobs == USUAL for offer in mutants)
    for _ in range(6 * MEMORY):
        made.learn((mutants[0],), shown(*range(10), tried=1), {"operand": 10})
    assert made.known == pytest.approx(0.9, abs=0.01), "only fresh programs tell"
    for _ in range(6 * MEMORY):
        made.learn((Offer(),), shown(*range(10), tried=1), {"operand": 10})
    assert made.known < 0.01


def test_novelty_is_weighted_by_what_it_brought(corpus: Corpus) -> None:
    made = offers(Guidance(credits=("operand",), mutation=1.0), corpus)
    corpus.learn(shown(1, 2))
    assert {offer.weight for _ in range(20) for offer in made.made()} == {1.0}
    mutants = [Offer(mutator=name, parent="p", donor="p") for name in NAMES]
    for n in range(300):
        offer = mutants[n % len(NAMES)] if n % 2 else Offer()
        report = replace(shown(*range(100), tried=1), scores=(50.0,))
        brought = 100 if not offer.parent else 40 if offer.mutator == "splice" else 4
        made.learn((offer,), report, {"operand": brought})
    made.known = 0.5
    found: dict[str, list[float]] = {}
    for offer in (offer for _ in range(300) for offer in made.made()):
        kind = offer.mutator if offer.mutator in ("", "splice") else "others"
        found.setdefault(kind, []).append(offer.weight)
    mean = {name: statistics.mean(weights) for name, weights in found.items()}
    assert mean[""] > 1.2 * mean["splice"] > 2.0 * mean["others"], "drawn, with a prior: none is out for good"


def test_mutators_that_bring_more_are_chosen_more(corpus: Corpus) -> None:
    made = offers(Guidance(credits=("operand",), mutation=1.0), corpus)
    corpus.learn(shown(1, 2))
    made.known = 1.0
    for _ in range(400):
        one = made.made()[:1]
        made.learn(one, shown(*range(10), tried=1), {"operand": 9 if one[0].mutator == "splice" else 0})
    chosen = [offer.mutator for _ in range(50) for offer in made.made()]
    assert chosen.count("splice") > 0.6 * len(chosen)


def test_it_goes_on_with_what_it_knew(corpus: Corpus) -> None:
    made, later = (offers(BOTH, corpus, seed) for seed in (1, 2))
    for n in range(50):
        made.learn(made.made(), shown(n, tried=4), {"operand": n % 3})
    state = json.loads(json.dumps(made.state()))
    del state["bandits"]["reuse"]
    later.restore(state)
    assert not any(credit.tries for credit in later.bandits["reuse"].credits.values()), "a knob that is new begins"
    later.restore(json.loads(json.dumps(made.state())))
    assert later.table() == made.table()
    assert later.known == made.known
