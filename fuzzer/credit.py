"""What choices brought: new features and CPU seconds of each, and a bandit that chooses by them.

A choice is a generator knob's value, a settings profile, a mutator. Ops of programs are credited too, but chosen by
nobody.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

FLOOR = 0.1  # of the choices are made blindly, so that none is starved and one that comes to life is seen
HALF_LIFE = 2000  # choices, after which what came of one counts half: what a choice can bring is used up some day
MEMORY = 32  # programs by which it is told what a program brings and costs nowadays
ENOUGH = 20  # tries, after which it is told that a choice brought nothing


@dataclass
class Credit:
    """What one choice brought.

    tries      candidates that were made with it, of which so many were refused, and so many compiled.
    new        features that no program showed before, of those that were compiled.
    seconds    CPU: what drawing and the reference side took, and for a candidate that was compiled all the rest.
    worth, spent   new and seconds in units of what programs brought and cost at the time; those of long ago count less.
    """

    tries: int = 0
    refused: int = 0
    compiled: int = 0
    new: int = 0
    seconds: float = 0.0
    worth: float = 0.0
    spent: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.tries += 1
        self.refused += outcome.refused
        self.compiled += outcome.compiled
        self.new += outcome.new
        self.seconds += outcome.seconds


@dataclass(frozen=True)
class Outcome:
    """What came of one candidate: refused, passed over (neither), or compiled, with so many new features."""

    seconds: float
    refused: bool = False
    compiled: bool = False
    new: int = 0


@dataclass
class Usual:
    """A mean over what came lately: the last MEMORY values, or as many as there were."""

    total: float = 0.0
    weight: float = 0.0

    def take(self, value: float) -> None:
        """Let one more value count."""
        faded = 1 - 1 / MEMORY
        self.total, self.weight = self.total * faded + value, self.weight * faded + 1

    def of(self, value: float) -> float:
        """A value in units of the mean: of one that counts, at most MEMORY. Before there is a mean, as it is."""
        return value * self.weight / self.total if self.total else value


Credits = dict[str, Credit]


def always_refused(credits: Mapping[str, Credit]) -> list[str]:
    """Those that never made a program, after enough tries."""
    return [name for name, c in credits.items() if c.tries >= ENOUGH and c.refused == c.tries]


def never_new(credits: Mapping[str, Credit]) -> list[str]:
    """Those that brought nothing, after enough compiles."""
    return [name for name, c in credits.items() if c.compiled >= ENOUGH and not c.new]


class Bandit:
    """Chooses by new features per CPU second: discounted Thompson sampling (Raj and Kalyani 2017).

    All choices bring less and less, and a worker's first programs cost more, so gains and seconds are counted in units
    of what programs bring and cost at the time. What a choice brings is taken for a compound Poisson process in CPU
    time: discoveries come at some rate, each of some worth. In units of the mean worth of a discovery, weighted by
    worth (the ratio of variance to mean of such a process), counts are as spread as a Poisson's, whose rate given n
    in time t is Gamma(n + 1, t + 1 / pooled rate). A rate is drawn from each choice's Gamma and the largest wins. A
    choice of which nothing is known, or nothing recent, is so taken to be as good as the average, and as uncertain as
    one discovery.

    half_life   choices, after which what came of one counts half.
    """

    def __init__(self, names: Iterable[str], rng: random.Random, half_life: float = HALF_LIFE):
        self.credits: Credits = {name: Credit() for name in names}
        self.squares = 0.0  # of the worth of discoveries, the recent ones
        self.gain, self.cost = Usual(), Usual()  # features and seconds of programs that were compiled
        self.rng, self.faded = rng, 0.5 ** (1 / half_life)

    def choose(self) -> str:
        if not self.squares or self.rng.random() < FLOOR:
            return self.rng.choice(list(self.credits))
        drawn = self.rates()
        return max(drawn, key=drawn.__getitem__)

    def rates(self) -> dict[str, float]:
        """For each choice a rate that fits what is known of it, drawn; equal ones where nothing is known of any."""
        worth = sum(c.worth for c in self.credits.values())
        if not worth:
            return dict.fromkeys(self.credits, 1.0)
        size = self.squares / worth
        average = size * sum(c.spent for c in self.credits.values()) / worth  # time for a discovery
        return {
            name: self.rng.gammavariate(1 + c.worth / size, 1 / (average + c.spent)) for name, c in self.credits.items()
        }

    def learn(self, name: str, outcome: Outcome) -> None:
        """Credit a choice with what came of it; all that was known before counts a little less."""
        for credit in self.credits.values():
            credit.worth *= self.faded
            credit.spent *= self.faded
        if outcome.compiled:
            self.gain.take(outcome.new)
            self.cost.take(outcome.seconds)
        worth = self.gain.of(outcome.new)
        self.squares = self.squares * self.faded + worth**2
        credit = self.credits[name]
        credit.add(outcome)
        credit.worth += worth
        credit.spent += self.cost.of(outcome.seconds)

    def state(self) -> dict[str, Any]:
        """Plain values, for `restore`."""
        usual = {"gain": vars(self.gain), "cost": vars(self.cost)}
        return {"squares": self.squares, **usual, "credits": written(self.credits)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another one of the same choices knew; choices that are no more are left out."""
        self.squares, self.gain, self.cost = state["squares"], Usual(**state["gain"]), Usual(**state["cost"])
        self.credits |= {name: c for name, c in read(state["credits"]).items() if name in self.credits}


def written(credits: Mapping[str, Credit]) -> dict[str, dict[str, Any]]:
    """Plain values, rounded."""
    return {name: {k: round(v, 4) for k, v in vars(credit).items()} for name, credit in credits.items()}


def read(rows: Mapping[str, Mapping[str, Any]]) -> Credits:
    """What was `written`."""
    return {name: Credit(**row) for name, row in rows.items()}
