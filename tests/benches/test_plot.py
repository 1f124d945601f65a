"""Ratios of faults, and the picture of both."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from benches import planted_ratios
from benches.__main__ import main
from benches.calibrate import Measured, Ratio
from benches.planted_ratios import corrupted, examine_corrupted, planted_ratios_summary, worst
from benches.plot import columns, picture
from benches.sensitivity import KINDS
from click.testing import CliRunner

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task

EAGER = Task(Place(Subject("eager"), Subject("eager")))
SIGMOID = """
program(1)
route("autograd")
x0 = leaf(f32[5, 7], seed=1)
v0 = sigmoid(x0)
backward(v0, cotangent(f32[5, 7], values="ones"))
"""
LEGAL = {"ratios": {"subject": {"f32": {"exact": 5, "-5": 3, "2": 2}}}}
PLANTED = {"faults": {"canary": 4}, "ratios": {"planted": {"canary": {"43": 3, "inf": 1}}}}


def test_corrupted_gradients_lie_far_outside() -> None:
    found = report_program(parse(SIGMOID), EAGER, Journal(None), on_judged=corrupted)
    assert isinstance(found, Measured)
    ratios = {ratio.side: ratio.ratio for ratio in found.ratios}
    assert set(ratios) == {kind.__name__ for kind in KINDS} - {"add_unit"}  # no gradient is an integer
    assert min(ratios.values()) > 100


def test_a_canary_is_run_with_its_fault() -> None:
    found = examine_corrupted(EAGER, ("gradients_doubled", SIGMOID))
    assert isinstance(found, Measured)
    assert worst(found) > 1e4


def test_the_summary_is_a_histogram_a_kind() -> None:
    ratios = [Ratio("canary", "a", "", 10.0), Ratio("canary", "b", "", math.inf), Ratio("doubled", "c", "", 0.0)]
    assert planted_ratios_summary(ratios) == {
        "faults": {"canary": 2, "doubled": 1},
        "ratios": {"planted": {"canary": {"10": 1, "inf": 1}, "doubled": {"exact": 1}}},
    }


def test_there_are_big_programs_to_double() -> None:
    assert len(list(planted_ratios.big_programs())) > 20


def test_columns_are_shares_and_hold_everything() -> None:
    shares = columns([{"exact": 1, "-99": 1, "0": 1, "999": 1, "inf": 4}])
    assert sum(shares) == pytest.approx(1)
    assert (shares[0], shares[-1]) == (0.25, 0.625)


def drawn(svg: str) -> tuple[list[str], str]:
    """The colours of an SVG's bars, and its texts."""
    root = ElementTree.fromstring(svg)
    styles = [e.get("style") or "" for e in root.iter("{http://www.w3.org/2000/svg}path") if e.get("clip-path")]
    bars = [style[6:13] for style in styles if style.startswith("fill: #") and "opacity: 0.6" in style]
    return bars, " ".join(e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text"))


def test_the_picture_is_an_svg_with_both_distributions() -> None:
    bars, told = drawn(picture(LEGAL, PLANTED))
    assert bars == ["#4477aa"] * 3 + ["#cc3311"] * 2
    assert "legal results, 10 tensors" in told
    assert "planted faults, 4 tensors" in told
    assert "beyond it the first look is suspicious" in told


def test_the_command_reads_what_calibrate_printed(tmp_path: Path) -> None:
    for name, figures in (("legal", LEGAL), ("planted", PLANTED)):
        (tmp_path / name).write_text(json.dumps(figures) + "\n")
    out = tmp_path / "ratios.svg"
    done = CliRunner().invoke(main, ["plot", str(tmp_path / "legal"), str(tmp_path / "planted"), str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_text() == picture(LEGAL, PLANTED)


def test_the_committed_picture_is_that_of_the_committed_figures() -> None:
    folder = Path(__file__).parents[2] / "docs" / "calibration"
    legal, planted = (json.loads((folder / name).read_text()) for name in ("legal.json", "planted.json"))
    # not to the letter: releases of matplotlib write coordinates in different ways
    assert drawn((folder / "ratios.svg").read_text()) == drawn(picture(legal, planted))
