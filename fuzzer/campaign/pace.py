"""How fast a campaign is now, and when it found something new: what its totals alone do not tell."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from fuzzer.campaign.totals import Totals

# "Now": a worker of inductor has a batch of 32 programs at once, and tells of all of them when it ends, which takes it
# half a minute to a minute.
NOW_SECONDS = 120.0
_APART_SECONDS = 1.0  # between two moments that are kept
CODE = "code"  # the stage of programs that were built


@dataclass(frozen=True)
class Moment:
    """What had run by then, by stage, in seconds since exploring began."""

    seconds: float
    programs: Mapping[str, int]


class Pace:
    """Looks at a campaign's totals now and then.

    last_new   when the last new fault came, in seconds since exploring began; None where there is none yet.
    """

    def __init__(self) -> None:
        self.moments: deque[Moment] = deque([Moment(0.0, {})])
        self.last_new: float | None = None
        self.new = 0

    def look(self, seconds: float, totals: Totals) -> None:
        """Note how it is so many seconds after exploring began."""
        if (new := totals.new.total()) > self.new:
            self.new, self.last_new = new, seconds
        if seconds - self.moments[-1].seconds < _APART_SECONDS and len(self.moments) > 1:
            return
        self.moments.append(Moment(seconds, by_stage(totals)))
        while len(self.moments) > 2 and seconds - self.moments[1].seconds >= NOW_SECONDS:
            self.moments.popleft()

    def now(self) -> dict[str, float]:
        """Programs a second by stage, of late; of each stage at which programs ran by then."""
        first, last = self.moments[0], self.moments[-1]
        seconds = last.seconds - first.seconds
        return {s: (n - first.programs.get(s, 0)) / seconds if seconds else 0.0 for s, n in last.programs.items()}


def by_stage(totals: Totals) -> dict[str, int]:
    """How many programs ran at each stage: those that were judged at one and not built, and those that were built."""
    staged = dict(Counter(totals.stages))
    return staged | {CODE: max(0, totals.programs - sum(staged.values()))}
