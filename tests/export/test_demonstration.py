"""What is said of a script that was run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fuzzer.export.demonstration import Compared, Demonstration, comparisons, expected
from fuzzer.judgement.verdict import BOTH, COMPILED, EAGER

CLOSE = "Tensor-likes are not close!\n\nMismatched elements: 2 / 3 (66.7%)\nGreatest absolute difference: nan"
NAN = Compared("v0", (1,), math.nan, 0.1, 0.1, 2, 3, CLOSE, same=False)
FAINT = replace(NAN, name="x0.grad", index=(), compiled=0.1000001, close="", same=True)


def test_expected_and_actual_are_one_sentence_in_a_readers_terms() -> None:
    assert expected(NAN, COMPILED) == "Expected `v0[1]` to be 0.1, as in eager; compiled code gives nan."
    assert expected(FAINT, "").startswith("Expected `x0.grad` to be 0.1, as in eager")
    assert expected(replace(NAN, compiled=2.0), EAGER).endswith("2, which compiled code gives; eager gives 0.1.")
    assert expected(replace(NAN, exact=3.0), EAGER, exact=True).startswith("Expected `v0[1]` to be 3, as in float64;")
    assert expected(NAN, BOTH).startswith("Neither side")
    dense = replace(NAN, compiled=2.0, against="contiguous inputs")
    assert expected(dense, EAGER) == "Expected `v0[1]` to be 2, as with contiguous inputs; eager gives 0.1."


def test_the_usual_comparisons_are_told_as_they_came_out() -> None:
    text = comparisons((NAN, FAINT), COMPILED)
    assert "assert_close` at its defaults fails for `v0` (Mismatched elements: 2 / 3 (66.7%); Greatest abs" in text
    assert text.endswith("`torch._dynamo.utils.same` with a float64 reference is false for `v0`.")
    assert "passes: the difference is within" in comparisons((FAINT,), COMPILED)
    assert comparisons((FAINT,), COMPILED).endswith("is true.")


def test_eager_in_float64_is_no_reference_where_eager_is_wrong() -> None:
    assert "same" not in comparisons((NAN,), EAGER)


@pytest.mark.parametrize(
    ("code", "output", "shows", "told"),
    [
        (1, "v0: 1\n", True, "exited with 1"),
        (1, "", False, "exited with 1"),
        (0, "v0: 1\n", False, "exited with 0"),
        (2, "", False, "exited with 2 (no such device)"),
        (None, "", False, "ran out of its time"),
    ],
)
def test_only_a_script_that_printed_and_exited_1_shows_its_fault(
    code: int | None, output: str, shows: bool, told: str
) -> None:
    seen = Demonstration(code, output, "no such device", "2.13.0", "cpu")
    assert (seen.shows, seen.told()) == (shows, told)
