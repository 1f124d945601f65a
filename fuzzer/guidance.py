"""By what a campaign is guided, and what its candidates are made of: knobs and mutators chosen by credit, parents by
energy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fuzzer.corpus import Corpus
from fuzzer.credit import Bandit, Credit, Credits, Outcome, always_refused, never_new, read, written
from fuzzer.execution.guide import CANDIDATES, Offer
from fuzzer.execution.messages import Report
from fuzzer.features import FAMILIES as TRACED
from fuzzer.features import LINES
from fuzzer.knobs import Knobs, turns
from fuzzer.mutate import NAMES as MUTATORS
from fuzzer.ops import OPS
from fuzzer.price import Price
from fuzzer.structure import FAMILIES as COMPILED


@dataclass(frozen=True)
class Guidance:
    """By what a campaign is guided; each level can be switched by itself.

    candidates  drawings of a program: that whose trace is rarest is compiled (tier 0). One: its number decides.
    credits     families of features: generator knobs, settings profiles and mutators are chosen by what they brought of
                these per CPU second. With none, knobs stay as they are and mutators are chosen blindly.
    mutation    the largest share of candidates that are mutants of kept programs.
    priced      candidates compete by novelty for the CPU seconds that they are expected to take (`Price`).
    """

    candidates: int = CANDIDATES
    credits: tuple[str, ...] = ()
    mutation: float = 0.0
    priced: bool = False


# What is compared (docs/guidance.md); each has what stands before it and one level more, but for the last.
ARMS: dict[str, Guidance] = {
    "blind": Guidance(candidates=1),
    "trace": Guidance(),
    "compile": Guidance(credits=(*TRACED, *COMPILED)),
    "lines": Guidance(credits=(*TRACED, *COMPILED, *LINES)),
    "mutation": Guidance(credits=(*TRACED, *COMPILED, *LINES), mutation=0.5),
    "price": Guidance(priced=True),
}
SHIPPED = "blind"  # measured: docs/guidance.md
MEMORY = 64  # programs over which it is averaged how much of what fresh ones show was known
MOST_NAMED = 6
FRESH = "fresh"
SMALL = 3  # kept programs, the smallest of which is a donor: what is spliced shall stay small


class Offers:
    """Makes offers of candidates, and learns what came of them.

    A mutant shares most of its trace with its parent, so it brings less than a fresh program of the same novelty. So
    where both compete, novelty is weighted by what fresh programs and those of each mutator brought per unit of it.

    names: of the ops that are drawn from; none means all.
    """

    def __init__(
        self,
        guidance: Guidance,
        corpus: Corpus,
        rng: random.Random,
        dtypes: tuple[str, ...],
        names: tuple[str, ...] = (),
    ):
        self.guidance, self.corpus, self.rng = guidance, corpus, rng
        families = dict.fromkeys(OPS[name].family for name in names or OPS)
        self.values = {knob: {str(v): v for v in values} for knob, values in turns(dtypes, tuple(families)).items()}
        self.bandits = {knob: Bandit(values, rng) for knob, values in self.values.items()}
        self.bandits["mutator"] = Bandit(MUTATORS, rng)
        self.promise = Bandit((FRESH, *MUTATORS), rng)  # whose exposure is novelty
        self.ops: Credits = {}
        self.price = Price()
        self.known = 0.0  # the share of what fresh programs show that others showed before

    def made(self) -> tuple[Offer, ...]:
        """An offer for each candidate of a program."""
        made = [self._mutant() if self._mutates() else self._fresh() for _ in range(self.guidance.candidates)]
        if self.guidance.priced:
            made = [replace(offer, price=self.price.line()) for offer in made]
        if not any(offer.parent for offer in made):
            return tuple(made)
        weights = self.promise.rates()
        return tuple(replace(offer, weight=round(weights[offer.mutator or FRESH], 6)) for offer in made)

    def _mutates(self) -> bool:
        """Whether a candidate shall be a mutant: as fresh programs show less that is new, more of them are."""
        share = self.guidance.mutation * self.known
        return bool(share and self.corpus.kept) and self.rng.random() < share

    def _fresh(self) -> Offer:
        if not self.guidance.credits:
            return Offer()
        return Offer(Knobs(**{knob: values[self.bandits[knob].choose()] for knob, values in self.values.items()}))

    def _mutant(self) -> Offer:
        mutator = self.bandits["mutator"].choose() if self.guidance.credits else self.rng.choice(MUTATORS)
        parent, donor = self.corpus.parent(self.rng), min(self.rng.choices(self.corpus.kept, k=SMALL))
        return Offer(mutator=mutator, parent=self.corpus.text(parent), donor=self.corpus.text(donor))

    # ------------------------------------------------------------ learning

    def learn(self, offers: tuple[Offer, ...], report: Report, new: Mapping[str, int]) -> None:
        """Credit everything that had to do with a program's candidates. new: features, by family."""
        counted = self.guidance.credits or tuple(new)
        brought = sum(new.get(family, 0) for family in counted)
        rated = [family for family in counted if family not in LINES]  # of lines a program tells what is new alone
        shown = sum(len(report.features.get(family, ())) for family in rated)
        if shown and not offers[report.candidate].parent:
            self.known += (1 - sum(new.get(family, 0) for family in rated) / shown - self.known) / MEMORY
        if report.features:
            size = sum(len(report.features.get(family, ())) for family in TRACED)
            self.price.learn(size, report.seconds.get("cpu", 0.0))
        if self.guidance.mutation and report.features and report.scores:
            novelty = Outcome(report.scores[report.candidate] or 0.0, compiled=True, new=brought)
            self.promise.learn(offers[report.candidate].mutator or FRESH, novelty)
        for offer, ops, outcome in _outcomes(offers, report, brought):
            for name in ops:
                self.ops.setdefault(name, Credit()).add(outcome)
            if offer.parent:
                self.bandits["mutator"].learn(offer.mutator, outcome)
            else:
                for knob in self.values:
                    self.bandits[knob].learn(str(getattr(offer.knobs, knob)), outcome)

    def unearned(self) -> str:
        """Ops and mutators that are always refused, or never brought anything, for the campaign's line."""
        entries = self.ops | self.bandits["mutator"].credits
        told = (("always refused", always_refused(entries)), ("nothing new from", never_new(entries)))
        return "".join(f", {what}: {_few(names)}" for what, names in told if names)

    def table(self) -> dict[str, Any]:
        """What everything brought, by kind and name, as `Credit`."""
        kinds = {kind: bandit.credits for kind, bandit in self.bandits.items()} | {"op": self.ops}
        return {kind: written({k: c for k, c in credits.items() if c.tries}) for kind, credits in kinds.items()}

    def state(self) -> dict[str, Any]:
        """Plain values, for `restore`."""
        bandits = {name: bandit.state() for name, bandit in self.bandits.items()}
        return {
            "known": self.known,
            "bandits": bandits,
            "promise": self.promise.state(),
            "ops": written(self.ops),
            "price": self.price.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with what was known."""
        self.known, self.ops = state["known"], read(state["ops"])
        self.promise.restore(state["promise"])
        self.price.restore(state["price"])
        for name in self.bandits.keys() & state["bandits"].keys():
            self.bandits[name].restore(state["bandits"][name])


def _outcomes(
    offers: tuple[Offer, ...], report: Report, brought: int
) -> Iterator[tuple[Offer, tuple[str, ...], Outcome]]:
    """What came of each candidate. What the program took beyond its candidates is charged to the one compiled."""
    rest = report.seconds.get("cpu", 0.0) - sum(tried.seconds for tried in report.tried)
    for n, (offer, tried) in enumerate(zip(offers, report.tried, strict=False)):  # a worker that died told of none
        outcome = Outcome(tried.seconds, tried.refused)
        if n == report.candidate and not tried.refused:
            seconds = tried.seconds + max(rest, 0.0)
            outcome = Outcome(seconds, bool(report.rejected), bool(report.features), brought)
        yield offer, tried.ops, outcome


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return " ".join(names[:MOST_NAMED]) + more
