"""Whether a candidate is still the same finding.

A candidate that shows the finding's signature clearly is the SAME finding: the search continues from it. One that shows
only a different signature is an OTHER finding: it is recorded, not followed (that would be slippage). The rest, and
candidates with the right signature but too small an error, are NONE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from fuzzer.judgement.verdict import Signature, follows
from fuzzer.language.program import Program


class Answer(Enum):
    """The result of a candidate."""

    SAME = "same"
    OTHER = "other"
    NONE = "none"


# The result of one run of a candidate: the signature of each oracle's verdict and its error in thresholds (infinite
# where there is nothing to measure); empty where all agree.
Shown = Mapping[Signature, float]
Rule = Callable[[Signature, Signature], bool]

# Shrinking drives an error down to just above its threshold, where a reader takes it for noise. So a candidate must
# stay above the geometric mean of the threshold and the original error, half of the way down on a logarithmic scale. No
# more than CLEAR thresholds are required. A gradient that is all zero is, in bfloat16, 2^8 rounding errors from the
# right one, and a threshold is 4 of them (the doubled unit, times 2) for each rounding on its way: 8 leaves room for 8.
CLEAR = 8.0


def margin(error: float) -> float:
    """The least error of a candidate, in thresholds, for an original with an error of `error` thresholds."""
    return min(math.sqrt(max(error, 1.0)), CLEAR)


@dataclass(frozen=True)
class Sameness:
    """A candidate is the SAME finding when at least `k` of `n` runs show it."""

    k: int = 1
    n: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n:
            raise ValueError(f"{self.k} of {self.n}: k must be in 1..n")

    def accepts(self, rate: float) -> float:
        """The probability that a candidate which shows the finding in this share of runs is accepted."""
        chances = (math.comb(self.n, i) * rate**i * (1 - rate) ** (self.n - i) for i in range(self.k, self.n + 1))
        return sum(chances)

    def judge(
        self, target: Signature, runs: Sequence[Shown], rule: Rule = follows, least: float = 1.0
    ) -> Answer | None:
        """The answer that these runs already decide; None while further runs could change it."""
        hits = sum(any(rule(target, s) and error >= least for s, error in shown.items()) for shown in runs)
        if hits >= self.k:
            return Answer.SAME
        if hits + self.n - len(runs) >= self.k:
            return None
        strangers = any(not rule(target, s) for shown in runs for s in shown)
        return Answer.OTHER if strangers else Answer.NONE


# A compile is deterministic: a finding that reproduced in 3 of 3 runs (a rate under 0.37 does that in fewer than 1 of
# 20 cases) is run once. A miss only loses one candidate, and a stored finding has to reproduce 3 of 3 times again.
DETERMINISTIC = Sameness(1, 1)

# A flaky finding. The danger is drift: with k = 1 of 10, a candidate that shows the finding in 5 % of runs passes with
# probability 0.40, and after a hundred candidates the result would be irreproducible. With 3 of 10:
#     rate   0.05   0.10   0.30   0.50   0.70
#     passes 0.012  0.070  0.617  0.945  0.998
# so a candidate at 5 % passes one time in 87, and one at 50 % is lost one time in 18. Early decisions (`judge`) make
# that about 6 runs for a candidate at rate 0.5 and 8 for one at rate 0.
FLAKY = Sameness(3, 10)


def sameness(reproduced: int, runs: int) -> Sameness:
    """The rule for a finding that reproduced in `reproduced` of `runs` runs."""
    return DETERMINISTIC if reproduced == runs else FLAKY


def checker(
    target: Signature,
    run: Callable[[Sequence[Program]], Iterable[Shown]],
    how: Sameness = DETERMINISTIC,
    rule: Rule = follows,
    least: float = 1.0,
) -> Callable[[Sequence[Program]], Iterator[Answer]]:
    """The `is_same` of `reduce`, from a function that runs a batch once and returns each program's result, in order.

    Where one run decides, an answer is given as soon as its run and those before it have ended.
    """

    def once(programs: Sequence[Program]) -> Iterator[Answer]:
        for shown in run(programs):
            yield how.judge(target, [shown], rule, least) or Answer.NONE

    def often(programs: Sequence[Program]) -> Iterator[Answer]:
        runs: list[list[Shown]] = [[] for _ in programs]
        answers: list[Answer | None] = [None for _ in programs]
        while open_ := [i for i, answer in enumerate(answers) if answer is None]:
            for i, shown in zip(open_, run([programs[i] for i in open_]), strict=True):
                runs[i].append(shown)
                answers[i] = how.judge(target, runs[i], rule, least)
        yield from (answer for answer in answers if answer is not None)

    return once if how.n == 1 else often
