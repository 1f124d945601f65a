"""Legal implementations against each other: what is measured of a trial, what a run of the bench tells."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from benches import calibrate
from benches.__main__ import main
from benches.calibrate import Measured, Ratio, binned, calibration_summary, largest, measured
from click.testing import CliRunner

from fuzzer.judgement.trial import Place, Subject, parse_subject
from fuzzer.language.errors import UsageError
from fuzzer.language.text import parse
from fuzzer.trial.observe import thread_count
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

EAGER = Task(Place(Subject("eager"), Subject("eager")))
SIGMOID = """
program(1)
route("autograd")
x0 = leaf(f32[5, 7], seed=1)
v0 = sigmoid(x0)
backward(v0, cotangent(f32[5, 7], seed=3))
"""
INTEGERS = """
program(1)
route("autograd")
x0 = leaf(bf16[5, 7], values="integers", seed=1)
v0 = neg(x0)
backward(v0, cotangent(bf16[5, 7], values="integers", seed=3))
"""


def measure(text: str, task: Task = EAGER) -> Measured:
    found = report_program(parse(text), task, Journal(None), on_judged=measured)
    assert isinstance(found, Measured)
    return found


def test_a_rounding_program_lies_within_a_few_deviations_and_not_at_its_reference() -> None:
    found = measure(SIGMOID)
    assert {(r.side, r.name, r.dtype) for r in found.ratios} == {
        (side, name, "f32") for side in ("reference", "subject") for name in ("v0", "x0.grad")
    }
    assert all(0 < r.ratio < 4 for r in found.ratios)
    assert not found.beyond


def test_exact_arithmetic_has_the_ratio_zero() -> None:
    assert {r.ratio for r in measure(INTEGERS).ratios} == {0.0}


def test_a_planted_fault_lies_far_outside_and_needs_every_look() -> None:
    found = measure(SIGMOID, Task(EAGER.place, canary="eager_gradient_scaled"))
    ratios = {(r.side, r.name): r.ratio for r in found.ratios}
    assert found.beyond
    assert ratios["reference", "x0.grad"] > 1000 > ratios["subject", "x0.grad"]


@pytest.mark.parametrize(
    ("value", "reference", "deviation", "expected"),
    [
        (1.5, 1.0, 0.25, 2.0),
        (1.0, 1.0, 0.0, 0.0),
        (1.5, 1.0, 0.0, math.inf),
        (math.nan, 1.0, 0.5, math.inf),
        (math.inf, math.inf, 0.5, 0.0),
        (-math.inf, math.inf, 0.5, math.inf),
        (math.nan, 1.0, math.inf, 0.0),
    ],
)
def test_the_ratio_of_one_element(value: float, reference: float, deviation: float, expected: float) -> None:
    given = (torch.tensor([number], dtype=torch.float64) for number in (value, reference, deviation))
    assert largest(*given) == expected


def test_a_bin_is_a_tenth_of_a_decade() -> None:
    assert [binned(r) for r in (0.0, 1.0, 1.3, 10.0, 0.09, math.inf)] == ["exact", "0", "1", "10", "-11", "inf"]


def test_the_summary_counts_programs_by_dtype_and_tensors_by_bin() -> None:
    half = Measured(INTEGERS, ratios=(Ratio("subject", "v0", "bf16", 0.0), Ratio("reference", "v0", "bf16", 2.0)))
    single = Measured(SIGMOID, ratios=(Ratio("subject", "v0", "f32", 3.0),), beyond=True)
    figures = calibration_summary([(0, half), (1, single), (2, Report("", rejected="no"))])
    assert (figures["programs"], figures["drawn"], figures["beyond_first_look"], figures["tensors"]) == (2, 3, 1, 2)
    assert figures["programs_by_dtype"] == {"bf16": 1, "f32": 1, "half": 1, "half only": 1}
    assert figures["ratios"] == {"reference": {"bf16": {"3": 1}}, "subject": {"bf16": {"exact": 1}, "f32": {"4": 1}}}
    assert [(row["index"], row["ratio"]) for row in figures["largest"]] == [(1, 3.0), (0, 2.0)]


def run(*arguments: Any) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["calibrate", "--json", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    figures = json.loads(done.output.splitlines()[-1])
    assert isinstance(figures, dict)
    return figures


def test_the_command_draws_half_precision_alone_where_asked_to(tmp_path: Path) -> None:
    figures = run("--programs", 8, "--workers", 1, "--dtypes", "bf16,f16", "--keep", tmp_path / "kept")
    assert figures["programs"] + figures["classes"].get("rejected", 0) == figures["drawn"] == 8
    by_dtype = figures["programs_by_dtype"]
    assert by_dtype["half"] == figures["programs"]
    # autocast computes some ops in float32, which their cotangents then have
    assert 0.75 * figures["programs"] <= by_dtype["half only"] == figures["programs"] - by_dtype.get("f32", 0)
    assert {"bf16", "f16"} & set(figures["ratios"]["subject"])
    assert figures["seconds"] > 0
    assert not figures["differing"]


def test_the_command_ends_when_the_time_is_up() -> None:
    assert run("--programs", 1000, "--workers", 1, "--minutes", 0)["drawn"] == 0


def dies_on_the_second(task: Task, index: int) -> Report:
    import os

    from fuzzer.workers.journal import journal

    if index == 1:
        journal().begin(SIGMOID)
        journal().phase("backward")
        os.abort()
    return Report(SIGMOID)


def test_a_death_costs_one_program_which_is_kept(tmp_path: Path) -> None:
    with Pool(1, ["cpu"]) as pool:
        found = calibrate.stream(pool, dies_on_the_second, EAGER, range(4), None)
    assert [(index, r.verdict) for index, r in found] == [(0, "agree"), (1, "crashes"), (2, "agree"), (3, "agree")]
    row = calibrate._kept(*found[1], tmp_path)
    assert parse(Path(row["file"]).read_text()).nodes == parse(SIGMOID).nodes


@pytest.mark.parametrize(
    "pair", ["eager", "inductor,eager", "eager@cpu/2,eager", "eager,eager@tpu", "eager,eager@cpu/x"]
)
def test_a_pair_is_two_sides_and_the_first_records(pair: str) -> None:
    with pytest.raises(UsageError):
        CliRunner().invoke(main, ["calibrate", "--pair", pair], catch_exceptions=False)


def test_a_side_may_have_threads_of_its_own() -> None:
    side = parse_subject("eager@cpu/3", "cuda")
    assert (side.device, side.threads, str(side)) == ("cpu", 3, "eager@cpu/3")
    before = torch.get_num_threads()
    with thread_count(side):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before


def test_threads_do_not_race_for_a_leaf_whose_elements_overlap() -> None:
    text = """
program(1)
route("autograd")
x0 = leaf(f32[64, 4096], stride=(0, 1), seed=1)
v0 = neg(x0)
backward(v0, cotangent(f32[64, 4096], stride=(0, 0), values="ones"))
"""
    found = measure(text, Task(Place(Subject("eager"), Subject("eager", threads=4))))
    assert not found.verdicts
    assert {r.ratio for r in found.ratios} == {0.0}
