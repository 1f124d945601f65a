"""Is it still the same finding?

A candidate that shows the finding's signature is the SAME finding and is followed. One that shows only a different
signature is an OTHER finding: it is not followed (that would be slippage), but remembered. The rest shows NONE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from fuzzer.program import Program
from fuzzer.verdict import Signature


class Answer(Enum):
    """What a candidate showed."""

    SAME = "same"
    OTHER = "other"
    NONE = "none"


# What one run of one candidate showed: a signature for each oracle that spoke, none where all agree.
Shown = Collection[Signature]
Rule = Callable[[Signature, Signature], bool]

# The explicit rule for a change of pattern. With few elements every difference looks regular: one element is always a
# constant ratio of its reference. So an irregular pattern may become a regular one; never the reverse, never nonfinite.
IRREGULAR = ("scattered", "other")
MAY_BECOME = dict.fromkeys(IRREGULAR, (*IRREGULAR, "constant-ratio", "all-zero"))


def follows(target: Signature, shown: Signature) -> bool:
    """Whether a signature counts as the target: equal, or of a pattern that the target's may shrink to."""
    if (target.oracle, target.verdict, target.direction) != (shown.oracle, shown.verdict, shown.direction):
        return False
    return shown.pattern == target.pattern or shown.pattern in MAY_BECOME.get(target.pattern, ())


@dataclass(frozen=True)
class Sameness:
    """A candidate is the SAME finding when at least `k` of `n` runs show it."""

    k: int = 1
    n: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n:
            raise ValueError(f"{self.k} of {self.n}: k must lie in 1..n")

    def accepts(self, rate: float) -> float:
        """The probability that a candidate which shows the finding in this share of runs is accepted."""
        chances = (math.comb(self.n, i) * rate**i * (1 - rate) ** (self.n - i) for i in range(self.k, self.n + 1))
        return sum(chances)

    def judge(self, target: Signature, runs: Sequence[Shown], rule: Rule = follows) -> Answer | None:
        """The answer that these runs already decide; None while further runs could change it."""
        hits = sum(any(rule(target, s) for s in shown) for shown in runs)
        if hits >= self.k:
            return Answer.SAME
        if hits + self.n - len(runs) >= self.k:
            return None
        strangers = any(not rule(target, s) for shown in runs for s in shown)
        return Answer.OTHER if strangers else Answer.NONE


# A compile is deterministic: a finding that showed in every verification run (8 of 8: a rate under 0.69 would have
# done that in fewer than 1 of 20 cases) is asked once. A miss only loses one candidate.
DETERMINISTIC = Sameness(1, 1)

# A flaky finding. The danger is drift: with k = 1 of 10, a candidate that shows the finding in 5 % of runs passes with
# probability 0.40, and after a hundred candidates the result would be irreproducible. With 3 of 10:
#     rate   0.05   0.10   0.30   0.50   0.70
#     passes 0.012  0.070  0.617  0.945  0.998
# so a candidate at 5 % passes one time in 87, and one at 50 % is lost one time in 18. Early decisions (`judge`) make
# that about 6 runs for a candidate at rate 0.5 and 8 for one at rate 0.
FLAKY = Sameness(3, 10)


def sameness(reproduced: int, runs: int) -> Sameness:
    """The rule that suits a finding which was seen in `reproduced` of `runs` verification runs."""
    return DETERMINISTIC if reproduced == runs else FLAKY


def checker(
    target: Signature,
    run: Callable[[Sequence[Program]], Sequence[Shown]],
    how: Sameness = DETERMINISTIC,
    rule: Rule = follows,
) -> Callable[[Sequence[Program]], list[Answer]]:
    """The `is_same` of `reduce`, from a function that runs a batch once and says what each program showed."""

    def is_same(programs: Sequence[Program]) -> list[Answer]:
        runs: list[list[Shown]] = [[] for _ in programs]
        answers: list[Answer | None] = [None for _ in programs]
        while open_ := [i for i, answer in enumerate(answers) if answer is None]:
            for i, shown in zip(open_, run([programs[i] for i in open_]), strict=True):
                runs[i].append(shown)
                answers[i] = how.judge(target, runs[i], rule)
        return [answer for answer in answers if answer is not None]

    return is_same
