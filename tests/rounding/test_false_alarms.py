"""The looks' replicas and factors follow from one false alarm in a million programs (docs/rounding.md)."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fuzzer.rounding.floors import FACTOR, FINAL_LOOK, FIRST_LOOK, SCALE, SECOND_LOOK, Model
from fuzzer.rounding.record import Recorder

ALARM = 1e-6  # the probability that a program of legal results is stored as wrong
ELEMENTS = 2**16  # judged in one program, at most: sixteen tensors of the largest size that is drawn
REACH = SCALE * FACTOR  # the floor in largest deviations of single units


def moving(look: int) -> int:
    """Of a look's replicas, those that move at random: one in eight takes the nearest numbers."""
    return look * 7 // 8


def tail(sigmas: float) -> float:
    """P(Z > sigmas) of a standard normal Z."""
    return math.erfc(sigmas / math.sqrt(2)) / 2


def missed_sum(replicas: int) -> float:
    """P(|e| > REACH * largest of n |d|) for a deviation e and replicas' d that are sums of many roundings: normal."""
    step = 1e-3
    largest = [(i + 0.5) * step for i in range(int(10 / step))]
    density = (
        replicas * (1 - 2 * tail(m)) ** (replicas - 1) * math.sqrt(2 / math.pi) * math.exp(-m * m / 2) for m in largest
    )
    return sum(p * 2 * tail(REACH * m) * step for p, m in zip(density, largest, strict=True))


def missed_rounding(replicas: int) -> float:
    """The same for a single rounding that is always as far off as is documented, where d is uniform."""
    return REACH**-replicas


def missed_flip(replicas: int) -> float:
    """A decision t sigma away that legal rounding takes otherwise and no replica does, with doubled units: worst t."""
    return max(tail(t / 100) * (1 - tail(t / 100 / SCALE)) ** replicas for t in range(1000))


def test_the_final_look_has_the_fewest_replicas_that_keep_the_promise() -> None:
    def kept(look: int) -> bool:
        replicas = moving(look)
        elements = ELEMENTS * max(missed_sum(replicas), missed_rounding(replicas))
        return elements + missed_flip(replicas) <= ALARM

    assert FINAL_LOOK[0] == next(2**k for k in range(20) if kept(2**k))


def test_the_second_look_makes_a_suspect_of_noise_in_less_than_one_program_in_a_thousand() -> None:
    replicas = moving(SECOND_LOOK[0])
    rate = ELEMENTS * max(missed_sum(replicas), missed_rounding(replicas)) + missed_flip(replicas)
    assert ELEMENTS * missed_sum(replicas // 2) > 1e-3 > rate


def test_every_look_repeats_the_replicas_of_the_one_before_with_the_same_units() -> None:
    assert FIRST_LOOK[0] < SECOND_LOOK[0] < FINAL_LOOK[0]
    assert {look[1:] for look in (FIRST_LOOK, SECOND_LOOK, FINAL_LOOK)} == {(SCALE, FACTOR)}


TRACES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one rounding": lambda x: x.sigmoid(),
    "a few": lambda x: (x.sigmoid() * x + x.exp()) / 3.7,
    "many": lambda x: x.reshape(64, -1) @ (x.reshape(64, -1).t() @ x.reshape(64, -1)).tanh(),
}


@pytest.mark.parametrize("name", TRACES)
def test_draws_of_the_model_itself_are_flagged_as_rarely_as_the_formula_says(name: str) -> None:
    """What stands in for a compiled result is another replica, with units as documented."""
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    recorder = Recorder()
    recorder.ref(x)
    with recorder:
        value = TRACES[name](x)
    model = Model(recorder.trace, [recorder.ref(value)])
    (r,) = model.reference
    drawn = [model.replica(10_000 + 2 * k, False, 1.0)[0].clone() for k in range(40)]
    flagged = {}
    for replicas, scale, factor in (FIRST_LOOK, SECOND_LOOK):
        (floor,) = model.spread(replicas, scale=scale).floors(factor)
        flagged[replicas] = sum(int(((d - r).abs() > floor).sum()) for d in drawn)
    assert flagged[FIRST_LOOK[0]] <= 2 * missed_sum(FIRST_LOOK[0]) * r.numel() * len(drawn) + 4
    assert flagged[SECOND_LOOK[0]] == 0
