"""How new features are, by how many programs showed them."""

from __future__ import annotations

import random

import pytest

from fuzzer.guidance.novelty import MAX_COUNT, SLOTS, FeatureCounts, novelty


def test_a_feature_that_more_programs_showed_is_less_novel() -> None:
    seen, features = (
        FeatureCounts(),
        {"operand": frozenset({1, 2}), "edge": frozenset({SLOTS + 3}), "other": frozenset({9})},
    )
    assert novelty([1, 2, 3, 9], seen, 0.0) == 4
    seen.add(features)
    assert novelty([1, 2, 3], seen, 0.0) == 1.5
    assert novelty([9], seen, 0.0) == 1, "only what is known before a compile is counted"
    assert novelty([1, 2, 3, 5], seen, 1.0) == 2.5 / 4
    assert novelty([], seen) == 0
    for _ in range(MAX_COUNT + 5):
        seen.add(features)
    assert FeatureCounts(seen.packed())[1] == MAX_COUNT


def test_a_program_counts_once_for_all_its_features_that_share_a_place_and_counts_end() -> None:
    seen = FeatureCounts()
    seen.count([5, 5 + SLOTS, 2**64 - 1])
    assert [seen[5], seen[5 + SLOTS], seen[2**64 - 1], seen[6]] == [1, 1, 1, 0]
    for _ in range(MAX_COUNT + 3):
        seen.count({5})
    assert seen[5] == MAX_COUNT


def test_packed_counts_are_read_as_they_were_and_anything_else_is_refused() -> None:
    seen = FeatureCounts()
    seen.count(range(1000))
    again = FeatureCounts(seen.packed())
    again.count([3])
    assert (again[2], again[3], seen[3]) == (1, 2, 1)
    assert FeatureCounts(seen.packed()).packed() == seen.packed()
    with pytest.raises(ValueError, match="no packed counts"):
        FeatureCounts(b"noise")


def test_novelty_is_the_sum_of_its_definition_to_the_last_bit() -> None:
    seen, drawn = FeatureCounts(), random.Random(7)
    features = [drawn.getrandbits(64) for _ in range(300)]
    for _ in range(50):
        seen.count(drawn.sample(features, 40))
    assert novelty(features, seen) == sum(1 / (1 + seen[feature]) for feature in features)
    assert novelty([], seen) == 0.0
