"""A core: read as it was written, and told in a line."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.campaign.suspects.core import Core, Key, decode_core, encode_core
from fuzzer.judgement.verdict import Comparison, Signature, Verdict
from fuzzer.language.text import parse
from tests.campaign.fakes import PROGRAM, SIGNATURE

NUMBERS = (
    Comparison("x0.grad", (2,), 4.0, 3.0, 4.0, 1e-6, 1, 4),
    Comparison("v0", (), 1.0, float("inf"), 1.0, 0.0, 1, 1),
)
CORE = Core(parse(PROGRAM), Verdict(SIGNATURE, "x0.grad[2]: compiled 3, eager 4", NUMBERS), "aot_eager", "more\nlines")


def test_a_core_is_read_as_it_was_written() -> None:
    line = encode_core(CORE)
    assert "\n" not in line
    assert decode_core(line) == CORE
    bare = replace(CORE, verdict=Verdict(SIGNATURE, ""))
    assert decode_core(encode_core(bare)) == bare


def test_cores_of_one_difference_through_the_same_kernels_at_the_same_stage_have_one_key() -> None:
    assert CORE.key == Key("wrong", "backward", "other", "aot_eager", ("relu",))
    assert str(CORE.key) == "wrong backward other at aot_eager through relu"
    alike = replace(CORE, program=parse(PROGRAM.replace("f32[4]", "f32[5]")), before="")
    assert alike.key == CORE.key
    assert replace(CORE, stage="inductor:ir").key != CORE.key
    assert replace(CORE, program=parse(PROGRAM.replace("relu", "tanh"))).key != CORE.key


def test_a_core_is_told_with_its_numbers_or_its_words() -> None:
    assert CORE.told == "wrong gradient of x0 through relu: compiled 3, eager 4, floor 1e-06"
    output = replace(CORE, verdict=replace(CORE.verdict, comparisons=NUMBERS[1:]))
    assert output.told == "wrong output v0 through relu: compiled inf, eager 1, floor 0"
    raised = Verdict(
        Signature("compile_does_not_raise", "raises", "forward", "KeyError"), "the backward raised\nKeyError"
    )
    assert replace(CORE, verdict=raised).told == "raises through relu: the backward raised KeyError"
