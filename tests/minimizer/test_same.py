"""Whether a candidate shows the same finding: k of n runs, patterns that may change, errors that sink."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from fuzzer.judgement.verdict import Signature, follows
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from minimizer.same import CLEAR, DETERMINISTIC, FLAKY, Answer, Sameness, Shown, checker, margin, sameness

TARGET = Signature("gradients_agree", "wrong", "backward", "scattered")
STRANGER = Signature("gradients_agree", "raises", "backward", "RuntimeError")
SHOWN = {TARGET: 50.0}


def test_an_irregular_pattern_may_become_regular_and_never_the_reverse() -> None:
    regular = replace(TARGET, pattern="all-zero")
    assert follows(TARGET, regular)
    assert not follows(regular, TARGET)
    assert not follows(TARGET, replace(TARGET, pattern="nonfinite"))
    assert not follows(TARGET, replace(TARGET, direction="forward"))


def test_k_of_n_decides_as_soon_as_it_can() -> None:
    how = Sameness(2, 3)
    assert how.judge(TARGET, [SHOWN, SHOWN]) is Answer.SAME
    assert how.judge(TARGET, [SHOWN, {}]) is None
    assert how.judge(TARGET, [{}, {}]) is Answer.NONE
    assert how.judge(TARGET, [{STRANGER: math.inf}, {}]) is Answer.OTHER


def test_the_probabilities_beside_the_defaults_are_right() -> None:
    assert [round(FLAKY.accepts(rate), 3) for rate in (0.05, 0.1, 0.3, 0.5, 0.7)] == [0.012, 0.07, 0.617, 0.945, 0.998]
    assert DETERMINISTIC.accepts(1.0) == 1.0
    assert sameness(8, 8) == DETERMINISTIC
    assert sameness(5, 8) == FLAKY


def test_k_larger_than_n_is_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        Sameness(3, 2)


def test_a_checker_runs_again_only_what_is_undecided() -> None:
    a, b = (parse(f'program(1)\nroute("autograd")\nx0 = leaf(f32[{n}])\nreturns(x0)\n') for n in (1, 2))
    rounds: list[int] = []

    def show_target_for_a(batch: Sequence[Program]) -> list[Shown]:
        rounds.append(len(batch))
        return [SHOWN if p == a else {} for p in batch]

    assert list(checker(TARGET, show_target_for_a, Sameness(1, 3))([a, b])) == [Answer.SAME, Answer.NONE]
    assert rounds == [2, 1, 1]


def test_a_checker_answers_before_the_whole_batch_has_run() -> None:
    program = parse('program(1)\nroute("autograd")\nx0 = leaf(f32[1])\nreturns(x0)\n')

    def only_the_first_ends(batch: Sequence[Program]) -> Iterator[Shown]:
        yield SHOWN
        raise AssertionError("nobody asked for the second")

    assert next(iter(checker(TARGET, only_the_first_ends)([program, program]))) is Answer.SAME


def test_a_candidate_whose_error_sinks_towards_the_threshold_is_not_followed() -> None:
    assert margin(36.0) == 6.0  # the geometric mean of 36 thresholds and one
    assert margin(1e9) == margin(math.inf) == CLEAR
    assert margin(0.5) == 1.0  # never below the threshold itself
    faint, clear = ({TARGET: error} for error in (5.9, 6.1))
    assert DETERMINISTIC.judge(TARGET, [faint], least=margin(36.0)) is Answer.NONE
    assert DETERMINISTIC.judge(TARGET, [clear], least=margin(36.0)) is Answer.SAME
