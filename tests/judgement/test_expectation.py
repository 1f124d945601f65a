"""`# expect:` in a program's header."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzer.judgement.expectation import as_expected, expected
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.language.text import ParseError, parse

CORPUS = Path(__file__).parents[2] / "corpus"
RELU = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""


@pytest.mark.parametrize(
    ("header", "release", "classes"),
    [
        ("", "2.13.0", ("agree",)),
        ("# a comment\n", "2.13.0", ("agree",)),
        ("# expect: wrong\n", "2.13.0", ("wrong",)),
        ("# expect: raises\n# what it is\n", "", ("raises",)),
        ("# expect: wrong there, agree where it is fixed\n", "2.13.0", ("wrong", "agree")),
        ("# expect: agree, wrong on torch 2.11\n", "2.11.0+cu130", ("wrong",)),
        ("# expect: agree, wrong on torch 2.11\n", "2.11", ("wrong",)),
        ("# expect: agree, wrong on torch 2.1\n", "2.11.0", ("agree",)),
        ("# expect: agree, wrong on torch 2.11\n", "", ("agree",)),
    ],
)
def test_a_header_says_which_classes_are_expected(header: str, release: str, classes: tuple[str, ...]) -> None:
    assert expected(parse(header + RELU), release) == classes


def test_what_is_no_class_is_refused() -> None:
    with pytest.raises(ParseError, match=r"line 2, .* not 'wrng'"):
        expected(parse("# a comment\n# expect: wrng\n" + RELU))


def test_a_fault_may_turn_out_to_be_one_that_torch_promises_nothing_of() -> None:
    assert as_expected("unsupported", ("raises", "agree"))
    assert not as_expected("unsupported", ("agree",))
    assert not as_expected("rejected", ("raises", "agree"))


def test_every_program_of_the_corpus_says_what_is_expected_of_it() -> None:
    found = {path: parse(path.read_text()) for path in CORPUS.rglob("*.prog")}
    assert len(found) > 400
    for path, program in found.items():
        faulty = set(expected(program, "2.11")) & set(FINDINGS)
        assert faulty or path.parent.name not in ("regressions", "starts"), path
