"""Draws until all cells are met: what the figures of some draws say, and draws as a campaign makes them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from benches.__main__ import main
from benches.cells import Filled, arm_summary, family_summary, fill, least_nodes
from click.testing import CliRunner

from fuzzer.coverage.cells import Possible
from fuzzer.generation.sets import SETS
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.language.ops.spec import Limits
from fuzzer.workers.messages import Task


def test_a_share_of_the_cells_is_met_after_so_many_draws_and_nodes() -> None:
    told = family_summary({"a": 0, "b": 4, "z": 1}, [3, 4, 6, 6, 9], Possible(frozenset("abcd"), 2))
    assert (told["possible"], told["met"], told["untold"], told["met_untold"]) == (4, 2, 2, 1)
    assert told["50%"] == {"draws": 5, "nodes": 9}
    assert told["90%"] is told["100%"] is None
    assert family_summary({"a": 0, "b": 4}, [1] * 6, None) == {"met": 2, "met_by_half": 1}


def test_the_first_draw_counts_in_whatever_order_they_are_told() -> None:
    late = Filled("", first={"op": {"exp": 3}}, nodes={2: 1, 3: 2}, refused=1)
    early = Filled("", first={"op": {"exp": 0, "sin": 1}}, nodes={0: 2, 1: 1})
    told = arm_summary([late, early], 5, {"op": Possible(frozenset({"exp", "sin"}))})
    assert (told["nodes"], told["refused"]) == (6, 1)
    assert told["families"]["op"]["50%"] == {"draws": 1, "nodes": 2}
    assert told["families"]["op"]["100%"] == {"draws": 2, "nodes": 3}


def test_no_way_of_drawing_needs_fewer_nodes_than_cells_that_exclude_each_other() -> None:
    least = least_nodes(vocabulary(Limits(), ("exp", "layer_norm")), Limits())
    assert least["op"] == 2
    assert least["dtype"] == len(Limits().dtypes) * 2
    assert least["attribute"] == 3  # of layer_norm's eps
    assert least["layout"] == 7 + 6  # layer_norm takes no scalar


def test_draws_by_cells_meet_more_frequent_ops_than_blind_ones() -> None:
    task = Task(seed=1)
    blind, asked = fill(task, range(40)), fill(replace(task, cells=True), range(40))
    assert isinstance(blind, Filled)
    assert isinstance(asked, Filled)
    core = set(SETS["core"])
    assert len(core & set(asked.first["op"])) > 1.5 * len(core & set(blind.first["op"]))


@pytest.mark.slow
def test_the_command_tells_both_arms() -> None:
    done = CliRunner().invoke(main, ["cells", "--draws", "8", "--workers", "1", "--json"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.output)["arms"]) == {"blind", "cells"}
