"""The text format: what parses, what is canonical, and where a parse error points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.language.program import Dtype, Program, Recipe, Region, TensorType, canonical
from fuzzer.language.text import ParseError, identify, parse, show

CORPUS = Path(__file__).parents[2] / "corpus"

EXAMPLE = """\
# backward of a slice_scatter whose cotangent is broadcast by sum
# expect: agree
program(1)
settings({"inductor.max_fusion_size": 4})
route("autograd", dynamic=True)
x0 = leaf(f32[4, 13, 33], stride=(429, 1, 13), seed=1)
x1 = leaf(f32[4, 6, 33], values="ties", seed=2)
v0 = slice_scatter(x0, x1, dim=1, start=0, end=6)
v1 = sum(v0, dim=1)
backward(v1, cotangent(f32[4, 33], stride=(0, 1), values="integers", seed=3))
"""

EVERYTHING = """\
program(1)
settings({"functorch.cse": False, "inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})
route("vjp")
x0 = leaf(f64[()], values=data([-1.5]))
x1 = leaf(bf16[8, 0], requires_grad=False)
x2 = leaf(i64[3], values=below(7), seed=4)
x3 = leaf(f16[2, 2], stride=(1, 2), offset=5, parameter=True, values=data([inf, -inf, nan, -0.0]))
x4 = leaf_view(x3, f16[2], stride=(2,), offset=1, requires_grad=False)
x5 = leaf(bool[1], values="coins", seed=1)
v0, v1 = topk(x3, k=1)
v2 = cat([x3, v0], dim=-1)
v3 = index_put(x3, [x2, None], x0, accumulate=True)
v4 = clamp(v2, None, x0)
with autocast(dtype=bf16):
    v5 = mul(v4, x0)
    with checkpoint():
        v6 = pad(v5, pad=(1,), mode="constant", value=-1e-05, dtype=f64, sizes=((1, 2), ()))
v7 = add_(v6, x0)
returns(v1)
backward(v7, cotangent(f64[()], values="ones"))
returns(v3)
"""

NOTHING = 'program(1)\nroute("autograd")\n'


@pytest.mark.parametrize("text", [EXAMPLE, EVERYTHING, NOTHING])
def test_a_canonical_text_is_shown_as_it_was_parsed(text: str) -> None:
    assert show(parse(text)) == text


def test_every_program_of_the_corpus_is_canonical() -> None:
    paths = sorted(CORPUS.rglob("*.prog"))
    assert paths
    for path in paths:
        text = path.read_text()
        assert show(parse(text)) == text, path


def test_every_program_in_the_grammars_description_parses() -> None:
    blocks = (CORPUS / "README.md").read_text().split("```")[1::2]
    programs = [block.removeprefix("python\n") for block in blocks if block.startswith("python\n")]
    assert programs
    for text in programs:
        assert show(parse(text)) == text


def test_layout_and_values_may_be_written_in_full_and_are_shown_short() -> None:
    full = NOTHING + 'x0 = leaf(f32[2, 3], stride=(3, 1), offset=0, requires_grad=True, values="normal", seed=0)\n'
    assert show(parse(full)) == NOTHING + "x0 = leaf(f32[2, 3])\n"


def test_quotes_blank_lines_and_comments_between_statements_do_not_matter() -> None:
    loose = EXAMPLE.replace('"', "'").replace("\nv0", "\n\n# here it goes wrong\nv0").replace(", dim=1)", ",dim = 1)")
    assert show(parse(loose)) == EXAMPLE


def test_the_route_may_be_left_out() -> None:
    assert parse("program(1)\n").route.name == "autograd"


def test_the_parts_of_a_program_are_what_the_text_says() -> None:
    program = parse(EVERYTHING)
    leaves = {leaf.name: leaf for leaf in program.leaves}
    assert leaves["x0"].type == TensorType("f64", (), ())
    assert leaves["x3"].offset == 5
    assert leaves["x4"].base == "x3"
    assert (leaves["x2"].values, leaves["x2"].requires_grad) == (Recipe("below", (7,)), False)
    assert program.nodes[0].outs == ("v0", "v1")
    assert program.nodes[2].args == ("x3", ("x2", None), "x0")
    assert ("dtype", Dtype("f64")) in program.nodes[-2].attrs
    assert isinstance(program.body[4], Region)
    assert [output.value for output in program.outputs if output.cotangent is None] == ["v1", "v3"]


def test_an_id_depends_on_neither_names_nor_comments() -> None:
    program = parse(EXAMPLE)
    renamed = parse(EXAMPLE.replace("x0", "weight").replace("v0", "out"))
    assert identify(replace(renamed, comment=("another",))) == identify(program)
    assert canonical(renamed) == canonical(program)
    assert identify(parse(EXAMPLE.replace("seed=3", "seed=4"))) != identify(program)


def test_a_parsed_text_is_never_executed(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    with pytest.raises(ParseError):
        parse(f"program(1)\nx0 = leaf(f32[__import__('pathlib').Path({str(target)!r}).touch()])\n")
    assert not target.exists()


# The text after "program(1)", and the line, the column and the words in which the error must speak.
ERRORS = [
    ("x0 = leaf(f32[4)", 2, 16, "Python syntax"),
    ("x0 = leaf(f33[4])", 2, 11, "f64, f32, bf16"),
    ("x0 = leaf(f32)", 2, 11, "dtype[sizes]"),
    ("x0 = leaf(f32[-1])", 2, 15, "non-negative"),
    ("x0 = leaf(f32[2.5])", 2, 15, "non-negative integers"),
    ("x0 = leaf(f32[True])", 2, 15, "non-negative integers"),
    ("x0 = leaf()", 2, 6, "1 positional"),
    ("x0 = leaf(f32[4], colour=1)", 2, 19, "not colour"),
    ("x0 = leaf(f32[4], **extra)", 2, 19, "one of stride"),
    ("x0 = leaf(f32[4], stride=(1, 2))", 2, 6, "stride of 1 "),
    ("x0 = leaf(f32[4], offset=-1)", 2, 26, "non-negative integer for offset"),
    ("x0 = leaf(f32[4], seed=1.5)", 2, 24, "integer for seed"),
    ("x0 = leaf(f32[4], requires_grad=1)", 2, 33, "True or False"),
    ("x0 = leaf(f32[4], values=normal)", 2, 26, "value recipe"),
    ("x0 = leaf(f32[4], values=data(1.0))", 2, 26, "data([numbers])"),
    ("x0 = leaf_view(f32[4])", 2, 6, "2 positional"),
    ("x0, x1 = leaf(f32[4])", 2, 1, "one name"),
    ("x0 = leaf_view(x9, f32[4])", 2, 1, "x9 is used before it is bound"),
    ("x0 = leaf(f32[4])\nv0 = relu(x1)", 3, 1, "x1 is used before"),
    ("x0 = leaf(f32[4])\nv0 = relu(1.0)", 3, 11, "attributes are given by keyword"),
    ("x0 = leaf(f32[4])\nv0 = relu(x0 + x0)", 3, 11, "a value's name"),
    ("x0 = leaf(f32[4])\nv0 = relu(relu(x0))", 3, 11, "a value's name"),
    ("x0 = leaf(f32[4])\nv0 = torch.relu(x0)", 3, 6, "a plain name"),
    ("x0 = leaf(f32[4])\nv0 = sum(x0, dim=d)", 3, 18, "a number, string"),
    ("x0 = leaf(f32[4])\nv0 = x0", 3, 6, "a call"),
    ("x0 = leaf(f32[4])\nv0 = v1 = relu(x0)", 3, 1, "one assignment"),
    ("x0 = leaf(f32[4])\nx0[0] = relu(x0)", 3, 1, "the name of a value"),
    ("x0 = leaf(f32[4])\nv0 = add_(x0, x0)\nv1 = relu(x0)", 4, 1, "dead"),
    ("import os", 2, 1, "expected name = op(...)"),
    ("run()", 2, 1, "settings, route, returns or backward"),
    ("settings(4)", 2, 1, 'settings({"name"'),
    ("settings({cse: True})", 2, 11, "in quotes"),
    ("route(vjp)", 2, 7, "a number, string"),
    ("route()", 2, 1, 'route("name"'),
    ("x0 = leaf(f32[4])\nreturns(x0, x0)", 3, 1, "returns(name)"),
    ("x0 = leaf(f32[4])\nbackward(x0)", 3, 1, "backward(name, cotangent(...))"),
    ("x0 = leaf(f32[4])\nbackward(x0, leaf(f32[4]))", 3, 14, "cotangent(...)"),
    ("x0 = leaf(f32[4])\nbackward(x0, cotangent(f32[4], conj=True))", 3, 32, "not conj"),
    ("with autocast(dtype=bf16) as a:\n    v0 = relu(x0)", 2, 1, "with region"),
    ("with autocast:\n    v0 = relu(x0)", 2, 6, "a call"),
    ("with autocast():\n    returns(x0)", 3, 5, "a nested region"),
    ("x0 = leaf(f32[4])\nx0 = leaf(f32[4])", 3, 1, "bound twice"),
    ("x0 = leaf(f32[4])\nreturns(x0)\nreturns(x0)", 4, 1, "returned twice"),
    ("x10 = leaf(f32[4])\nv0 = relu(x1)\nv1 = relu(x10)", 3, 1, "x1 is used before"),
    ("x0 = leaf(f32[4])\nwith autocast():\n    v0 = relu(x0)\n    v0 = relu(x0)", 5, 5, "bound twice"),
    ("x0 = leaf(f32[4])\nbackward(v0, cotangent(f32[4]))", 3, 1, "v0 is used before"),
    ("x0 = leaf(i64[4], requires_grad=True)", 2, 1, "cannot require grad"),
    ("x0 = leaf(f32[4])\nx1 = leaf_view(x0, f64[4])", 3, 1, "not f64"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), ERRORS)
def test_a_parse_error_names_line_column_and_what_was_expected(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse("program(1)\n" + text + "\n")
    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "program(1) as the first statement"),
        ("# only a comment\n", 1, 1, "program(1) as the first statement"),
        ("\nx0 = leaf(f32[4])\n", 2, 1, "program(1) as the first statement"),
        ("program(2)\n", 1, 1, "reads format 1, the text says [2]"),
        ("program()\n", 1, 1, "reads format 1"),
        ("program(1)\0", 1, 11, "plain text"),
    ],
)
def test_a_text_that_does_not_begin_as_a_program_says_so(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_program_is_frozen() -> None:
    program = parse(EXAMPLE)
    with pytest.raises(AttributeError):
        program.body = ()  # type: ignore[misc]
    assert isinstance(program, Program)
