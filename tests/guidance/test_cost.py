"""What a program is expected to cost follows what programs cost, and never falls to nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fuzzer.guidance.cost import CHEAPEST, MIN_PROGRAMS, CostModel


def learned(cost: Callable[[int], float], programs: int = 200) -> CostModel:
    rng, price = random.Random(1), CostModel()
    for _ in range(programs):
        features = rng.randint(20, 400)
        price.learn(features, cost(features) * rng.uniform(0.9, 1.1))
    return price


def test_base_and_slope_are_found() -> None:
    base, each = learned(lambda features: 1.5 + 0.01 * features).coefficients()
    assert base == pytest.approx(1.5, rel=0.15)
    assert each == pytest.approx(0.01, rel=0.1)


def test_where_size_does_not_matter_or_large_ones_are_cheaper_all_cost_the_mean() -> None:
    base, each = learned(lambda features: 5 - 0.01 * features).coefficients()
    assert each == 0
    assert 2.5 < base < 3.5


def test_small_programs_are_never_free() -> None:
    base, each = learned(lambda features: 0.02 * features - 1).coefficients()
    mean = 0.02 * 210 - 1
    assert base == pytest.approx(CHEAPEST * mean, rel=0.1)
    assert base + 210 * each == pytest.approx(mean, rel=0.1)


def test_until_enough_is_known_all_cost_the_same() -> None:
    assert learned(lambda features: features, programs=MIN_PROGRAMS - 1).coefficients() == (1.0, 0.0)
    assert CostModel().coefficients() == (1.0, 0.0)


def test_a_new_price_replaces_the_old_one_and_is_taken_over() -> None:
    price = learned(lambda features: 1 + 0.01 * features)
    rng = random.Random(2)
    for _ in range(5000):
        features = rng.randint(20, 400)
        price.learn(features, 3 + 0.05 * features)
    other = CostModel()
    other.restore(price.state())
    assert other.coefficients() == price.coefficients() == pytest.approx((3.0, 0.05), rel=0.05)
