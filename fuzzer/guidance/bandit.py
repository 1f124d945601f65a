"""What choices brought: new features and CPU seconds of each, and a bandit that chooses by them.

A choice is a generator knob's value, a settings profile, a mutator. Ops of programs are credited too, but chosen by
nobody.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

EXPLORATION = 0.1  # of the choices are made blindly, so that none is starved and one that comes to life is seen
_HALF_LIFE = 2000  # choices, after which what came of one counts half: what a choice can bring is used up some day
_WINDOW = 32  # programs by which it is told what a program brings and costs nowadays
MIN_TRIES = 20  # tries, after which it is told that a choice brought nothing


@dataclass
class Reward:
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

    def add(self, outcome: CandidateOutcome) -> None:
        self.tries += 1
        self.refused += outcome.refused
        self.compiled += outcome.compiled
        self.new += outcome.new
        self.seconds += outcome.seconds


@dataclass(frozen=True)
class CandidateOutcome:
    """What came of one candidate: refused, passed over (neither), or compiled, with so many new features."""

    seconds: float
    refused: bool = False
    compiled: bool = False
    new: int = 0


@dataclass
class MovingAverage:
    """A mean over what came lately: the last MEMORY values, or as many as there were."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float) -> None:
        """Let one more value count."""
        faded = 1 - 1 / _WINDOW
        self.total, self.weight = self.total * faded + value, self.weight * faded + 1

    def relative(self, value: float) -> float:
        """A value in units of the mean: of one that counts, at most MEMORY. Before there is a mean, as it is."""
        return value * self.weight / self.total if self.total else value


Rewards = dict[str, Reward]


def always_refused(credits: Mapping[str, Reward]) -> list[str]:
    """Those that never made a program, after enough tries."""
    return [name for name, c in credits.items() if c.tries >= MIN_TRIES and c.refused == c.tries]


def never_new(credits: Mapping[str, Reward]) -> list[str]:
    """Those that brought nothing, after enough compiles."""
    return [name for name, c in credits.items() if c.compiled >= MIN_TRIES and not c.new]


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

    def __init__(self, names: Iterable[str], rng: random.Random, half_life: float = _HALF_LIFE):
        self.rewards: Rewards = {name: Reward() for name in names}
        self.squares = 0.0  # of the worth of discoveries, the recent ones
        self.gain, self.cost = MovingAverage(), MovingAverage()  # features and seconds of programs that were compiled
        self.rng, self.faded = rng, 0.5 ** (1 / half_life)

    def choose(self) -> str:
        if not self.squares or self.rng.random() < EXPLORATION:
            return self.rng.choice(list(self.rewards))
        drawn = self.rates()
        return max(drawn, key=drawn.__getitem__)

    def rates(self) -> dict[str, float]:
        """For each choice a rate that fits what is known of it, drawn; equal ones where nothing is known of any."""
        worth = sum(c.worth for c in self.rewards.values())
        if not worth:
            return dict.fromkeys(self.rewards, 1.0)
        size = self.squares / worth
        average = size * sum(c.spent for c in self.rewards.values()) / worth  # time for a discovery
        return {
            name: self.rng.gammavariate(1 + c.worth / size, 1 / (average + c.spent)) for name, c in self.rewards.items()
        }

    def learn(self, name: str, outcome: CandidateOutcome) -> None:
        """Credit a choice with what came of it; all that was known before counts a little less."""
        for credit in self.rewards.values():
            credit.worth *= self.faded
            credit.spent *= self.faded
        if outcome.compiled:
            self.gain.add(outcome.new)
            self.cost.add(outcome.seconds)
        worth = self.gain.relative(outcome.new)
        self.squares = self.squares * self.faded + worth**2
        credit = self.rewards[name]
        credit.add(outcome)
        credit.worth += worth
        credit.spent += self.cost.relative(outcome.seconds)

    def state(self) -> dict[str, Any]:
        """Plain values, for `restore`."""
        usual = {"gain": vars(self.gain), "cost": vars(self.cost)}
        return {"squares": self.squares, **usual, "credits": encode_rewards(self.rewards)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another one of the same choices knew; choices that are no more are left out."""
        self.squares, self.gain, self.cost = (
            state["squares"],
            MovingAverage(**state["gain"]),
            MovingAverage(**state["cost"]),
        )
        self.rewards |= {name: c for name, c in decode_rewards(state["credits"]).items() if name in self.rewards}


def encode_rewards(credits: Mapping[str, Reward]) -> dict[str, dict[str, Any]]:
    """Plain values, rounded."""
    return {name: {k: round(v, 4) for k, v in vars(credit).items()} for name, credit in credits.items()}


def decode_rewards(rows: Mapping[str, Mapping[str, Any]]) -> Rewards:
    """What was `encode_rewards`."""
    return {name: Reward(**row) for name, row in rows.items()}
