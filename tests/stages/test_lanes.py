"""Lanes: what one stores, no other of the same nest touches."""

from __future__ import annotations

import pytest
import torch

from fuzzer.stages.cannot import Faulty
from fuzzer.stages.lanes import Access, Lanes

MEMORY = (1, torch.float32)


def access(at: list[int], stores: bool = True, nest: int = 0) -> Access:
    return Access("buf0", stores, torch.tensor(at), torch.arange(len(at)), len(at), nest)


def noted(*accesses: Access, results: tuple[int, ...] = (4,), outer: int = 1, late: bool = False) -> None:
    lanes = Lanes(list(results), outer, late)
    for one in accesses:
        lanes.note(MEMORY, one)


def test_a_lane_may_load_what_it_stored_and_store_what_it_loaded() -> None:
    noted(access([0, 1, 2, 3]), access([0, 1, 2, 3], stores=False), access([0, 1, 2, 3]))


def test_what_is_loaded_alone_may_be_loaded_by_all() -> None:
    noted(access([0, 0, 0, 0], stores=False), access([0, 1, 0, 1], stores=False))


@pytest.mark.parametrize("stores_first", [True, False])
def test_another_lane_may_neither_load_nor_have_loaded_what_is_stored(stores_first: bool) -> None:
    both = [access([0, 1, 2, 3]), access([3, 2, 1, 0], stores=False)]
    with pytest.raises(Faulty, match="lane 3 of 4 stores to buf0 what lane 0 loads from buf0: element 3"):
        noted(*(both if stores_first else both[::-1]))


def test_two_lanes_may_not_store_the_same_element_for_different_nodes() -> None:
    with pytest.raises(Faulty, match="stores to buf0"):
        noted(access([0, 1, 2, 3]), access([1, 0, 2, 3]))


def test_an_element_that_several_lanes_store_is_left_out() -> None:
    noted(access([0, 0, 0, 3]), access([0, 0, 1, 3], stores=False))


def test_lanes_of_a_reduction_are_compared_with_others_by_their_result() -> None:
    noted(access([0, 1]), access([0, 0, 1, 1], stores=False), results=(2,))
    with pytest.raises(Faulty, match="of 2"):
        noted(access([0, 1]), access([0, 1, 0, 1], stores=False), results=(2,))


def test_within_the_reduced_loop_all_iterations_are_compared() -> None:
    with pytest.raises(Faulty, match="of 4"):
        noted(access([0, 1, 2, 3]), access([1, 0, 3, 2], stores=False), results=(2,))


def test_a_result_that_is_late_is_not_read_in_the_loop_that_makes_it() -> None:
    both = access([0, 1]), access([0, 0, 1, 1], stores=False)
    noted(*both, results=(2,))
    with pytest.raises(Faulty, match="within the loop"):
        noted(*both, results=(2,), late=True)


def test_a_late_result_does_not_keep_other_memory_of_its_pool_from_being_read() -> None:
    noted(access([0, 1]), access([2, 2, 3, 3], stores=False), results=(2,), late=True)


def test_nests_are_compared_by_the_outer_loops_that_they_share() -> None:
    both = access([0, 1, 2, 3]), access([1, 0, 3, 2], stores=False, nest=1)
    noted(*both, results=(4, 4), outer=1)
    noted(*both, results=(4, 4), outer=2)
    with pytest.raises(Faulty, match="of 4"):
        noted(*both, results=(4, 4), outer=4)
