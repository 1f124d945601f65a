"""`backfuzz grow`."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.commands.shared.again import grow_one
from fuzzer.diagnosis.demonstrate import demonstrate
from fuzzer.export.script import repro
from fuzzer.judgement.verdict import Comparison, Natural, Signature
from fuzzer.language.text import parse
from fuzzer.workers.messages import Report
from minimizer.natural import Growth
from minimizer.public import public_op
from tests.commands.calls import FINDING, RELU, call
from tests.ledger.found import finding

WIDE = RELU.replace("[4]", "[3, 3]")


def test_grow_stores_the_natural_program_beside_the_minimal_one(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(FINDING, natural=Natural(WIDE, FINDING.signature, "x0.grad[0]: compiled 7, eager 1"))
    asked: list[Any] = []
    found = (known, ("usual_sizes",), 3)
    monkeypatch.setattr("fuzzer.commands.shared.again.grow_one", lambda *given: asked.append(given) or found)
    done = call("grow", FINDING.id[:4], "--device", "cpu", "--workers", "1", "--db", db)
    assert done.exit_code == 0
    assert asked == [(FINDING, "cpu", 1, "")]
    assert done.stdout.startswith(f"{FINDING.id}: usual_sizes (3 programs run)\nx0.grad[0]: compiled 7, eager 1\n")
    shown = call("show", FINDING.id, "--db", db).stdout
    assert f"the natural program: x0.grad[0]: compiled 7, eager 1\n\n{WIDE}" in shown
    assert RELU in shown
    [row] = json.loads(call("grow", FINDING.id, "--db", db, "--json").stdout)
    assert (row["natural"]["program"], row["steps"]) == (WIDE, ["usual_sizes"])


def test_grow_takes_the_program_that_a_person_wrote_for_one_finding(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.prog").write_text(WIDE)
    own = replace(FINDING, natural=Natural(WIDE, FINDING.signature, "x0.grad[0]: compiled 7, eager 1"))
    asked: list[str] = []
    growing = "fuzzer.campaign.suspects.growing.with_program"
    monkeypatch.setattr(growing, lambda found, text, *_: asked.append(text) or own)
    done = call("grow", FINDING.id, "--program", tmp_path / "own.prog", "--workers", "1", "--db", db)
    assert (done.exit_code, asked) == (0, [parse(WIDE)])
    assert done.stdout.startswith(f"{FINDING.id}: as a person wrote it (1 programs run)\n")
    done = call("grow", FINDING.id, FINDING.id, "--program", tmp_path / "own.prog", "--db", db)
    assert done.exit_code == 2
    assert "--program takes one finding, and there are 2" in done.stderr


def test_grow_of_what_does_not_show_here_exits_2_and_stores_nothing(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.read_bytes()
    monkeypatch.setattr("fuzzer.trial.verify.examine_all", lambda pool, asked: [Report("") for _ in asked])
    nothing = Growth(parse(RELU), 0.0, (), 20)
    monkeypatch.setattr("fuzzer.campaign.suspects.growing.grow_finding", lambda found, *_: (found, nothing))
    done = call("grow", FINDING.id, "--workers", "1", "--db", db)
    assert done.exit_code == 2
    assert f"{FINDING.id}: it does not reproduce here" in done.stderr
    assert db.read_bytes() == before


EXPANDED = """program(1)
route("autograd")
x0 = leaf(f32[13])
v0 = neg(x0)
v1 = expand_as(v0, x0)
v2 = square_(v1)
backward(v0, cotangent(f32[13], values="ones"))
"""


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__ >= "2.16", reason="seen up to torch 2.15")
def test_a_write_through_a_view_that_is_off_by_a_millionth_grows_into_nan_for_a_tenth(tmp_path: Path) -> None:
    faint = finding(
        EXPANDED,
        signature=Signature("outputs_agree", "wrong", "forward", "constant-ratio"),
        comparisons=(Comparison("v0", (8,), 1.8492958e-3, 1.8492974e-3, 1.8492958e-3, 4.6e-10, 2, 13),),
        place={"backend": "aot_eager", "against": "eager", "device": "cpu", "torch": torch.__version__},
        stages={"eager": "agree", "aot_eager": "wrong"},
    )
    found = grow_one(faint, None, 1)
    assert found is not None
    natural = found[0].natural
    assert natural is not None
    assert "values=data([100000000.0, inf, 1.0])" in natural.program
    [far] = natural.comparisons
    assert (round(far.eager, 6), math.isnan(far.compiled)) == (0.1, True)


NATIVE = """program(1)
settings({"inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
x1 = leaf(f32[4], seed=2)
x2 = leaf(f32[4], seed=3)
v0, v1, v2 = native_layer_norm(x0, x1, x2, normalized_shape=(4,), eps=1e-05)
v3 = relu(v0)
backward(v3, cotangent(f32[3, 4], seed=4))
"""


@pytest.mark.slow
def test_a_function_beneath_torch_nn_is_called_by_its_public_name_and_the_script_still_shows_the_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other steps, of which each query costs a compile, are those of the test above and of the tutorial."""
    monkeypatch.setattr("minimizer.natural.STEPS", (public_op,))
    shown = Signature("outputs_agree", "wrong", "forward", "other")
    place = {"backend": "inductor", "against": "eager", "device": "cpu", "torch": torch.__version__}
    found = grow_one(finding(NATIVE, signature=shown, comparisons=(), place=place), None, 1)
    assert found is not None
    assert found[1] == ("public_op",)
    grown = found[0].grown
    script = repro(grown, drawn=True)
    assert "F.layer_norm(" in script
    assert demonstrate(script, grown, compares=False).shows
