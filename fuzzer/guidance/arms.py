"""The kinds of guidance, and the source of a campaign's candidates: knobs and mutators chosen by bandits, parents by
energy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fuzzer.coverage.features import LINES, TRACE_FAMILIES
from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.generation.knobs import Knobs, choices
from fuzzer.guidance.bandit import (
    Bandit,
    CandidateOutcome,
    Reward,
    Rewards,
    always_refused,
    decode_rewards,
    encode_rewards,
    never_new,
)
from fuzzer.guidance.candidates import CANDIDATES, CandidateSpec, Choice
from fuzzer.guidance.cost import CostModel
from fuzzer.guidance.mutate import MUTATOR_NAMES as MUTATORS
from fuzzer.guidance.names import CODE
from fuzzer.guidance.parents import CountingCorpus
from fuzzer.language.ops import OPS
from fuzzer.workers.messages import Report


@dataclass(frozen=True)
class Guidance:
    """By what a campaign is guided; each level can be switched by itself.

    candidates  drawings of a program: that whose trace is rarest is compiled (tier 0).
    credits     families of features: generator knobs, settings profiles and mutators are chosen by what they brought of
                these per CPU second. With none, knobs stay as they are and mutators are chosen blindly.
    mutation    the largest share of candidates that are mutants of kept programs.
    priced      candidates compete by novelty per CPU second that they are expected to take (`CostModel`).
    code        programs are those of their numbers, all are judged at a stage, and those are built of which the code
                would be rarest (`ByCode`). Nothing of the above then.
    """

    candidates: int = CANDIDATES
    credits: tuple[str, ...] = ()
    mutation: float = 0.0
    priced: bool = False
    code: bool = False


# What is compared (docs/guidance.md); each has what stands before it and one level more, but for the last two.
ARMS: dict[str, Guidance] = {
    "trace": Guidance(),
    "compile": Guidance(credits=(*TRACE_FAMILIES, *COMPILED_FAMILIES)),
    "lines": Guidance(credits=(*TRACE_FAMILIES, *COMPILED_FAMILIES, *LINES)),
    "mutation": Guidance(credits=(*TRACE_FAMILIES, *COMPILED_FAMILIES, *LINES), mutation=0.5),
    "price": Guidance(priced=True),
    CODE: Guidance(candidates=1, code=True),
}
KNOWN_WINDOW = 64  # programs over which it is averaged how much of what fresh ones show was known
_MOST_NAMED = 6
_FRESH = "fresh"
_DONOR_CANDIDATES = 3  # kept programs, the smallest of which is a donor: what is spliced shall stay small


class CandidateSource:
    """Makes specs of candidates, and learns what came of them.

    A mutant shares most of its trace with its parent, so it brings less than a fresh program of the same novelty. So
    where both compete, novelty is weighted by what fresh programs and those of each mutator brought per unit of it.

    names: of the ops that are drawn from; none means all.
    """

    def __init__(
        self,
        guidance: Guidance,
        corpus: CountingCorpus,
        rng: random.Random,
        dtypes: tuple[str, ...],
        names: tuple[str, ...] = (),
    ):
        self.guidance, self.corpus, self.rng = guidance, corpus, rng
        families = dict.fromkeys(OPS[name].family for name in names or OPS)
        self.values = {knob: {str(v): v for v in values} for knob, values in choices(dtypes, tuple(families)).items()}
        self.bandits = {knob: Bandit(values, rng) for knob, values in self.values.items()}
        self.bandits["mutator"] = Bandit(MUTATORS, rng)
        self.promise = Bandit((_FRESH, *MUTATORS), rng)  # whose exposure is novelty
        self.ops: Rewards = {}
        self.cost = CostModel()
        self.known = 0.0  # the share of what fresh programs show that others showed before

    def next_specs(self) -> tuple[CandidateSpec, ...]:
        """A spec for each candidate of a program."""
        made = [self._mutant() if self._mutates() else self._fresh() for _ in range(self.guidance.candidates)]
        if self.guidance.priced:
            made = [replace(spec, cost=self.cost.coefficients()) for spec in made]
        if not any(spec.parent for spec in made):
            return tuple(made)
        weights = self.promise.rates()
        return tuple(replace(spec, weight=round(weights[spec.mutator or _FRESH], 6)) for spec in made)

    def _mutates(self) -> bool:
        """Whether a candidate shall be a mutant: as fresh programs show less that is new, more of them are."""
        share = self.guidance.mutation * self.known
        return bool(share and self.corpus.kept) and self.rng.random() < share

    def _fresh(self) -> CandidateSpec:
        if not self.guidance.credits:
            return CandidateSpec()
        return CandidateSpec(
            Knobs(**{knob: values[self.bandits[knob].choose()] for knob, values in self.values.items()})
        )

    def _mutant(self) -> CandidateSpec:
        mutator = self.bandits["mutator"].choose() if self.guidance.credits else self.rng.choice(MUTATORS)
        parent, donor = self.corpus.parent(self.rng), min(self.rng.choices(self.corpus.kept, k=_DONOR_CANDIDATES))
        return CandidateSpec(mutator=mutator, parent=self.corpus.text(parent), donor=self.corpus.text(donor))

    # ------------------------------------------------------------ learning

    def learn(self, specs: tuple[CandidateSpec, ...], report: Report, new: Mapping[str, int]) -> None:
        """Credit everything that had to do with a program's candidates. new: features, by family."""
        counted = self.guidance.credits or tuple(new)
        brought = sum(new.get(family, 0) for family in counted)
        rated = [family for family in counted if family not in LINES]  # of lines a program tells what is new alone
        shown = sum(len(report.features.get(family, ())) for family in rated)
        if shown and not specs[report.candidate].parent:
            self.known += (1 - sum(new.get(family, 0) for family in rated) / shown - self.known) / KNOWN_WINDOW
        if report.features:
            size = sum(len(report.features.get(family, ())) for family in TRACE_FAMILIES)
            self.cost.learn(size, report.seconds.get("cpu", 0.0))
        if self.guidance.mutation and report.features and isinstance(report, Choice) and report.scores:
            novelty = CandidateOutcome(report.scores[report.candidate] or 0.0, compiled=True, new=brought)
            self.promise.learn(specs[report.candidate].mutator or _FRESH, novelty)
        for spec, ops, outcome in _outcomes(specs, report, brought):
            for name in ops:
                self.ops.setdefault(name, Reward()).add(outcome)
            if spec.parent:
                self.bandits["mutator"].learn(spec.mutator, outcome)
            else:
                for knob in self.values:
                    self.bandits[knob].learn(str(getattr(spec.knobs, knob)), outcome)

    def unproductive(self) -> str:
        """Ops and mutators that are always refused, or never brought anything, for the campaign's line."""
        entries = self.ops | self.bandits["mutator"].rewards
        told = (("always refused", always_refused(entries)), ("nothing new from", never_new(entries)))
        return "".join(f", {what}: {_few(names)}" for what, names in told if names)

    def table(self) -> dict[str, Any]:
        """The rewards of everything that was tried, by kind and name, as plain values of `Reward`."""
        kinds = {kind: bandit.rewards for kind, bandit in self.bandits.items()} | {"op": self.ops}
        return {kind: encode_rewards({k: c for k, c in credits.items() if c.tries}) for kind, credits in kinds.items()}

    def state(self) -> dict[str, Any]:
        """Plain values, for `restore`."""
        bandits = {name: bandit.state() for name, bandit in self.bandits.items()}
        return {
            "known": self.known,
            "bandits": bandits,
            "promise": self.promise.state(),
            "ops": encode_rewards(self.ops),
            "price": self.cost.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with what was known."""
        self.known, self.ops = state["known"], decode_rewards(state["ops"])
        self.promise.restore(state["promise"])
        self.cost.restore(state["price"])
        for name in self.bandits.keys() & state["bandits"].keys():
            self.bandits[name].restore(state["bandits"][name])


def _outcomes(
    specs: tuple[CandidateSpec, ...], report: Report, brought: int
) -> Iterator[tuple[CandidateSpec, tuple[str, ...], CandidateOutcome]]:
    """What came of each candidate. What the program took beyond its candidates is charged to the one compiled."""
    if not isinstance(report, Choice):  # the worker died, and told of none
        return
    rest = report.seconds.get("cpu", 0.0) - sum(tried.seconds for tried in report.stats)
    for n, (spec, tried) in enumerate(zip(specs, report.stats, strict=False)):
        outcome = CandidateOutcome(tried.seconds, tried.refused)
        if n == report.candidate and not tried.refused:
            seconds = tried.seconds + max(rest, 0.0)
            outcome = CandidateOutcome(seconds, bool(report.rejected), bool(report.features), brought)
        yield spec, tried.ops, outcome


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return " ".join(names[:_MOST_NAMED]) + more
