"""Which of several programs are built: those whose loops are rarest among what was built so far. In the worker."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import NamedTuple

from fuzzer.coverage.features import Features
from fuzzer.coverage.structure import LOOPS
from fuzzer.guidance.novelty import FeatureCounts, novelty
from fuzzer.trial.batch import Batch
from fuzzer.trial.sift import Sifted, explore_sifted
from fuzzer.workers.messages import Report, Task


class Asked(NamedTuple):
    """What a worker is asked for: programs, and by what to choose.

    counts   how many programs that were built showed each feature (`FeatureCounts`);  share  to be built of those that
             can be;  cost  CPU seconds of building one, (base, each feature): `CostModel.coefficients`.
    """

    batch: Batch
    counts: bytes
    share: float
    cost: tuple[float, float]


def explore_rarest(task: Task, asked: Asked) -> list[Report] | Report:
    """The Reports of a batch, of which the rarest are built; of one program its Report. They depend on the task and
    what is asked alone."""
    rng = random.Random(f"{task.seed}/{asked.batch.numbers[0]}/built")
    choose = functools.partial(choose_rarest, counts=asked.counts, share=asked.share, cost=asked.cost, rng=rng)
    found = explore_sifted(task, asked.batch, choose)
    return found if len(found) > 1 else found[0]


def choose_rarest(
    shown: Sequence[Features], counts: bytes, share: float, cost: tuple[float, float], rng: random.Random
) -> list[Sifted]:
    """This share of programs, by what is rarest for what it takes to build; what was chosen counts as built for those
    after it. A part of a program is one by chance."""
    built, loops = FeatureCounts(counts), [sorted(features.get(LOOPS, ())) for features in shown]
    left, chosen = dict.fromkeys(range(len(shown))), dict[int, float]()

    def rarities() -> dict[int, float]:
        return {n: novelty(loops[n], built) / (cost[0] + cost[1] * len(loops[n])) for n in left}

    for _ in range(min(len(shown), int(share * len(shown) + rng.random()))):
        rarity = rarities()
        best = max(rarity, key=rarity.__getitem__)
        chosen[best] = rarity[best]
        left.pop(best)
        built.count(loops[best])
    known = chosen | rarities()
    return [Sifted(n in chosen, known[n]) for n in range(len(shown))]
