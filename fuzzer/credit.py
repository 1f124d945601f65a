"""What choices brought: new features and CPU seconds of each, and a bandit that chooses by them.

A choice is a generator knob's value, a settings profile, a mutator. Ops of programs are credited too, but chosen by
nobody.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

FLOOR = 0.1  # of the choices are made blindly, so that none is starved and one that comes to life is seen
HALF_LIFE = 500  # choices; what was new at first is soon known, so rates of long ago say little
ENOUGH = 20  # tries, after which it is told that a choice brought nothing


@dataclass
class Credit:
    """What one choice brought.

    tries      candidates that were made with it, of which so many were refused, and so many compiled.
    new        features that no program showed before, of those that were compiled.
    seconds    CPU: what drawing and the reference side took, and for a candidate that was compiled all the rest.
    recent_new, recent_seconds   the same, those of long ago counting less.
    """

    tries: int = 0
    refused: int = 0
    compiled: int = 0
    new: int = 0
    seconds: float = 0.0
    recent_new: float = 0.0
    recent_seconds: float = 0.0

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


Credits = dict[str, Credit]


def always_refused(credits: Mapping[str, Credit]) -> list[str]:
    """Those that never made a program, after enough tries."""
    return [name for name, c in credits.items() if c.tries >= ENOUGH and c.refused == c.tries]


def never_new(credits: Mapping[str, Credit]) -> list[str]:
    """Those that brought nothing, after enough compiles."""
    return [name for name, c in credits.items() if c.compiled >= ENOUGH and not c.new]


class Bandit:
    """Chooses by new features per CPU second: discounted Thompson sampling (Raj and Kalyani 2017).

    What a choice brings is taken for a compound Poisson process in CPU time: discoveries come at some rate, each with
    several features. In units of the mean size of a discovery, weighted by size (the ratio of variance to mean of such
    a process), counts are as spread as a Poisson's, whose rate given n in t seconds is Gamma(n + 1, t + 1 / pooled
    rate). A rate is drawn from each choice's Gamma and the largest wins; a choice of which nothing is known, or nothing
    recent, is taken to be as good as the average, and as uncertain as one discovery.
    """

    def __init__(self, names: Iterable[str], rng: random.Random):
        self.credits: Credits = {name: Credit() for name in names}
        self.squares = 0.0  # of the sizes of discoveries, the recent ones
        self.rng = rng

    def choose(self) -> str:
        new = sum(c.recent_new for c in self.credits.values())
        if not new or self.rng.random() < FLOOR:
            return self.rng.choice(list(self.credits))
        size = self.squares / new
        average = size * sum(c.recent_seconds for c in self.credits.values()) / new  # seconds for a discovery
        drawn = {
            name: self.rng.gammavariate(1 + c.recent_new / size, 1 / (average + c.recent_seconds))
            for name, c in self.credits.items()
        }
        return max(drawn, key=drawn.__getitem__)

    def learn(self, name: str, outcome: Outcome) -> None:
        """Credit a choice with what came of it; all that was known before counts a little less."""
        for credit in self.credits.values():
            credit.recent_new *= FADED
            credit.recent_seconds *= FADED
        self.squares = self.squares * FADED + outcome.new**2
        credit = self.credits[name]
        credit.add(outcome)
        credit.recent_new += outcome.new
        credit.recent_seconds += outcome.seconds

    def state(self) -> dict[str, Any]:
        """Plain values, for `restore`."""
        return {"squares": self.squares, "credits": written(self.credits)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another one of the same choices knew; choices that are no more are left out."""
        self.squares = state["squares"]
        self.credits |= {name: c for name, c in read(state["credits"]).items() if name in self.credits}


FADED = 0.5 ** (1 / HALF_LIFE)


def written(credits: Mapping[str, Credit]) -> dict[str, dict[str, Any]]:
    """Plain values, rounded."""
    return {name: {k: round(v, 4) for k, v in asdict(credit).items()} for name, credit in credits.items()}


def read(rows: Mapping[str, Mapping[str, Any]]) -> Credits:
    """What was `written`."""
    return {name: Credit(**row) for name, row in rows.items()}
