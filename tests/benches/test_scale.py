"""Programs a second by units of a machine, and on Ray."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from benches import scale
from benches.__main__ import main
from benches.scale import HELD_BACK, Asked, Spent, held_back, loop_ms, measure_scale
from click.testing import CliRunner

from fuzzer.language.errors import UsageError

ASKED = Asked(1, 2, 10, 2, 1, "cpu", "inductor", 0, ("local", "ray"))
RATES = {1: (2.0, 1.9), 2: (3.9, 3.8), 4: (6.0, 6.3)}


def test_rates_are_held_against_those_of_one_unit_and_ray_against_local_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(asked: Asked, say: Any) -> dict[str, Any]:
        local, ray = RATES[asked.units]
        held = dict.fromkeys(HELD_BACK, 0.5)
        return {"local": {"rate": local, **held}, "ray": {"rate": ray, **held}, "ratios": [0.9, 1.0],
                "loop_ms": 2.0 * asked.units, "workers": asked.workers}  # fmt: skip

    monkeypatch.setattr(scale, "cores", lambda: 8)
    monkeypatch.setattr(scale, "_in_a_process", told)
    found = measure_scale((1, 2, 4), ASKED, print)
    assert found["workers"] == {1: 2, 2: 4, 4: 8}
    assert found["per_unit"] == {"local": {1: 1.0, 2: 0.975, 4: 0.75}, "ray": {1: 1.0, 2: 1.0, 4: 0.829}}
    assert found["busy"] == {name: {1: 0.5, 2: 0.5, 4: 0.5} for name in ("local", "ray")}
    assert found["loop_ms"] == {1: 2.0, 2: 4.0, 4: 8.0}
    assert found["ray_of_local"] == {1: 0.95, 2: 0.974, 4: 1.05}


def test_more_units_than_the_machine_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "cores", lambda: 4)
    with pytest.raises(UsageError, match=r"4 units of 2 core\(s\) are asked for; this machine has 4 core\(s\)$"):
        measure_scale((1, 4), ASKED, print)
    with pytest.raises(UsageError, match=r"and 0 cuda device\(s\)"):
        measure_scale((1,), Asked(1, 1, 10, 2, 1, "cuda", "inductor", 0, ("local",)), print)
    refused = CliRunner().invoke(main, ["scale", "--units", "1,x"])
    assert refused.exit_code == click.UsageError.exit_code


@pytest.mark.slow
def test_it_measures_on_cores_in_processes_of_their_own() -> None:
    """On programs that compile in no time, with local workers alone."""
    arguments = "--units 1 --programs 2 --rounds 1 --warm 1 --backend aot_eager --executors local --json".split()
    done = CliRunner().invoke(main, ["scale", *arguments], catch_exceptions=False)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["workers"] == {"1": 1}
    assert found["programs_per_s"]["local"]["1"] > 0
    assert 0 < found["cpu_seconds_per_program"]["local"]["1"] < 60
    assert 0 < found["busy"]["local"]["1"] <= 1


@pytest.mark.slow
def test_the_loop_tells_cpu_milliseconds_and_not_those_of_the_clock() -> None:
    """Where eight processes share two cores, each takes a quarter of a core, and as much of the CPU as alone."""
    alone, crowded = loop_ms(1), loop_ms(8)
    assert 0.1 < alone < 1000
    assert crowded < 3 * alone


def test_what_holds_the_pace_back_is_a_share_of_the_cores_and_of_the_clock() -> None:
    assert held_back(Spent(100, 80, 5, 50, 10), 1.5) == {
        "cpu_seconds_per_program": 1.5, "busy": 0.8, "taken_by_host": 0.05, "main_process": 0.2
    }  # fmt: skip
    before = Spent.so_far()
    later = Spent.so_far() - before
    assert 0 <= later.busy <= later.total
