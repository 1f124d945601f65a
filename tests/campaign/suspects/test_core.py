"""A core, its key, and its text."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.campaign.suspects.core import Core, decode_core, encode_core
from fuzzer.judgement.verdict import Comparison, Signature, Verdict
from fuzzer.language.text import parse
from tests.campaign.fakes import PROGRAM, SIGNATURE

WORST = Comparison("x0.grad", (2,), 4.0, 3.0, 4.0, 1e-6, 3, 4)
CORE = Core(parse(PROGRAM), Verdict(SIGNATURE, "x0.grad[2]: compiled 3, eager 4", (WORST,)), "inductor:ir")


def test_a_core_survives_its_text() -> None:
    infinite = Verdict(SIGNATURE, "1\n2 'quoted'", (replace(WORST, compiled=float("inf")), WORST))
    for core in (CORE, replace(CORE, verdict=infinite), replace(CORE, stage="eager")):
        line = encode_core(core)
        assert "\n" not in line
        assert decode_core(line) == core


def test_cores_of_one_class_stage_and_kernels_share_their_key() -> None:
    other = replace(CORE, program=parse(PROGRAM.replace("f32[4]", "f32[9]")))
    assert other.key == CORE.key
    assert CORE.key.kernels == ("relu",)
    for changed in (
        replace(CORE, stage="aot_eager"),
        replace(CORE, program=parse(PROGRAM.replace("relu", "tanh"))),
        replace(CORE, verdict=replace(CORE.verdict, signature=replace(SIGNATURE, pattern="all-zero"))),
        replace(CORE, verdict=replace(CORE.verdict, signature=replace(SIGNATURE, direction="forward"))),
    ):
        assert changed.key != CORE.key


def test_a_core_is_told_in_one_line_with_its_numbers() -> None:
    assert CORE.told == "wrong gradient of x0 through relu: compiled 3, eager 4, floor 1e-06"
    output = replace(CORE, verdict=replace(CORE.verdict, comparisons=(replace(WORST, name="v0"),)))
    assert output.told.startswith("wrong output v0 through relu: ")
    raised = Verdict(Signature("compile_does_not_raise", "raises", "backward", "E < f"), "raised E:\n  no such thing")
    assert replace(CORE, verdict=raised).told == "raises through relu: raised E: no such thing"
