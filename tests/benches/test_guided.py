"""Policies replayed over a pool: what is chosen, what it costs, and how a difference is tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benches.guided import (
    H200_SECONDS,
    KS,
    POWERS,
    Policy,
    PolicyCost,
    Profile,
    compare,
    fill,
    line,
    measure_policies,
    policy_cost,
    rank_test,
    read_pool,
    replay,
)

from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.judgement.trial import Place, Subject
from fuzzer.workers.messages import Report, Task

FREE = PolicyCost(0.0, 0.0)


def program(*features: int, compile: float = 1.0) -> Profile:
    return Profile(features, frozenset(("node", n) for n in features), 0.02, 0.01, compile, 1)


# Half of the programs are alike; each of the others shows something of its own.
POOL = [program(1, 2) for _ in range(40)] + [program(1, 100 + n) for n in range(40)]


def test_the_rarest_candidates_show_more_in_as_many_compiles() -> None:
    blind, guided = (replay(POOL, Policy(k), FREE, 20.0, 1) for k in (1, 4))
    assert blind[1] == guided[1] == 20
    assert len(guided[0]) > len(blind[0]) + 4


def test_an_order_is_the_same_each_time_and_others_differ() -> None:
    assert replay(POOL, Policy(4), FREE, 20.0, 1) == replay(POOL, Policy(4), FREE, 20.0, 1)
    assert replay(POOL, Policy(), FREE, 20.0, 1) != replay(POOL, Policy(), FREE, 20.0, 2)


def test_candidates_and_compiles_are_paid_for() -> None:
    cost = PolicyCost(candidate=0.5, look=0.25, scale=2.0)
    assert cost.seconds(Policy(4), program(1, compile=3.0)) == 4 * 0.5 + 0.25 + 2.0 * 3.0
    assert replay(POOL, Policy(1), cost, 10 * 2.75, 1)[1] == 10
    assert replay(POOL, Policy(4), cost, 10 * 2.75, 1)[1] == 6


def test_who_is_passed_over_costs_too_and_compiles_can_be_rated_anew() -> None:
    pool = [Profile((), frozenset(), 0.1, 0.05, 2.0, draws) for draws in (1, 3)]
    assert policy_cost(pool) == PolicyCost(pytest.approx(0.2), pytest.approx(0.1), 1.0)
    assert policy_cost(pool, H200_SECONDS).scale == pytest.approx(0.25)


def test_sizes_to_a_power_favour_small_programs() -> None:
    pool = [program(*range(10, 30)), program(1)]
    assert replay(pool, Policy(2, 0.0), FREE, 1.0, 1)[0] == pool[0].after
    assert replay([*pool, program(1, compile=9.0)], Policy(3, 1.0), FREE, 1.0, 1)[1] == 1


@pytest.mark.parametrize(("a", "b", "low", "high"), [(range(20), range(100, 120), 0.0, 1e-6),
                         (range(20), range(20), 0.9, 1.0), ([1, 2, 3, 4, 5], [3, 4, 5, 6, 7], 0.1, 0.25)])  # fmt: skip
def test_the_rank_test_tells_apart_what_differs(a: list[float], b: list[float], low: float, high: float) -> None:
    assert low <= rank_test(list(a), list(b)) <= high


def test_every_policy_has_a_row_and_blind_is_the_first() -> None:
    rows = compare(POOL, 5)
    assert len(rows) == 1 + len(KS) * len(POWERS)
    assert (rows[0]["policy"], rows[0]["ratio"]) == ("blind", 1.0)
    assert rows[4]["policy"] == "best of 4, size^0"
    assert rows[4]["ratio"] > 1.05
    assert rows[4]["families"]["node"] == rows[4]["features"]


def test_a_pool_is_read_as_it_was_recorded_and_measured_by_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    reports = [
        Report("x", features={"operand": frozenset({n % 7, n}), "node": frozenset({n})}, redrawn=n % 2,
               seconds={"draw": 0.02, "look": 0.01, "compile": 1.5})
        for n in range(40)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line(r)) + "\n" for r in [*reports, Report("", rejected="no")]))
    pool = read_pool(path)
    assert len(pool) == 40
    assert pool[9] == Profile((2, 9), frozenset({("node", 9)}), 0.02, 0.01, 1.5, 2)
    figures = measure_policies(path, 3)
    assert figures["programs"] == 40
    assert figures["as measured"]["compile_s"] == 1.5
    assert figures["compiles of 0.5 s"]["compile_s"] == 0.5
    assert figures["as measured"]["chosen"] in figures["as measured"]["odd"]


@pytest.mark.slow
def test_recording_goes_on_where_the_file_ends(tmp_path: Path) -> None:
    task = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")), seed=2)
    fill(task, tmp_path / "pool.jsonl", 1, 1)
    fill(task, tmp_path / "pool.jsonl", 2, 1)
    lines = [json.loads(text) for text in (tmp_path / "pool.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    (first, *_) = [row for row in lines if row]
    assert first["before"]
    assert first["after"].keys() == set(COMPILED_FAMILIES)
    assert first["compile"] > 0.1
