"""The corpus of a campaign that chooses: how often each feature was shown, and which kept program to mutate."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

from fuzzer.campaign.corpus import Corpus
from fuzzer.coverage.features import LINES
from fuzzer.coverage.frontier import KeptProgram
from fuzzer.coverage.structure import LOOPS
from fuzzer.guidance.novelty import FeatureCounts
from fuzzer.language.errors import UsageError
from fuzzer.workers.messages import Report

SEEN_FILE, SHOWN_FILE, BUILT_FILE = "seen", "shown", "built"
_GOALS = 16  # features, the rarest of which is the goal of a mutation


class CountingCorpus(Corpus):
    """A corpus with counts, which lie beside its programs.

    seen    how many programs showed each feature of a trace.
    shown   the same of all features but lines, with how often each was a goal.
    goals   the features that a kept program shows, in order, but lines: who else shows one is not known.
    """

    def __init__(self, folder: Path, place: dict[str, str]):
        self.seen, self.shown, self.goals = FeatureCounts(), FeatureCounts(), array("Q")
        super().__init__(folder, place)

    def learn(self, report: Report) -> Counter[str]:
        self.seen.add(report.features)
        self.shown.count(n for family, found in report.features.items() if family not in LINES for n in found)
        return super().learn(report)

    def enter(self, kept: KeptProgram) -> None:
        shown = (n for family, numbers in kept.features.items() if family not in LINES for n in numbers.tolist())
        self.goals.extend(number for number in shown if number not in self.frontier.best)
        super().enter(kept)

    def parent(self, rng: random.Random) -> KeptProgram:
        """A kept program by energy: the best one for a rare feature. Needs one kept program.

        The feature is the rarest of some; that it was a goal counts as one more program that showed it, so that goals
        from which nothing comes give way.
        """
        goals = (rng.choice(self.goals) for _ in range(_GOALS))
        goal = min(goals, key=self.shown.__getitem__)
        self.shown.count([goal])
        return self.frontier.best[goal]

    def save(self, state: dict[str, Any]) -> None:
        for name, table in ((SEEN_FILE, self.seen), (SHOWN_FILE, self.shown)):
            self.write(name, table.packed())
        super().save(state)

    def state(self) -> dict[str, Any]:
        try:
            self.seen, self.shown = (
                FeatureCounts((self.folder / name).read_bytes()) for name in (SEEN_FILE, SHOWN_FILE)
            )
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.folder} cannot be resumed: {error!r}; fuzz without --resume begins anew") from None
        return super().state()


class BuiltCorpus(Corpus):
    """A corpus that counts, beside its programs, how many programs that were built showed each feature of loops."""

    def __init__(self, folder: Path, place: dict[str, str]):
        self.built = FeatureCounts()
        super().__init__(folder, place)

    def learn(self, report: Report) -> Counter[str]:
        if not report.stage:
            self.built.count(report.features.get(LOOPS, ()))
        return super().learn(report)

    def save(self, state: dict[str, Any]) -> None:
        self.write(BUILT_FILE, self.built.packed())
        super().save(state)

    def state(self) -> dict[str, Any]:
        try:
            self.built = FeatureCounts((self.folder / BUILT_FILE).read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.folder} cannot be resumed: {error!r}; fuzz without --resume begins anew") from None
        return super().state()
