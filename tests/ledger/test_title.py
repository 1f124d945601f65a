"""A fault's title."""

from __future__ import annotations

import inspect
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fuzzer.judgement.verdict import ELEMENTS, Comparison, Finding, Signature
from fuzzer.language.ops import OPS
from fuzzer.ledger.scope import AGREES, FAILS, PROGRAM, Row
from fuzzer.ledger.title import MOST, title
from tests.ledger.found import RELU, TWO_OPS, finding
from tests.ledger.varied import row, scope

ROOT = Path(__file__).parents[2]

RAISED = Signature("compile_does_not_raise", "raises", "forward", "TypeError < lower < call")
LOST = Signature("metadata_agrees", "wrong", "backward", "None-ness")
DTYPE = Signature("metadata_agrees", "wrong", "forward", "dtype")
EAGERS = {"side": "eager wrong: at x0[0]"}
AUTOCAST = """program(1)
route("autograd")
x0 = leaf(f32[2])
with autocast(dtype=bf16):
    v0 = polar_parts(x0, x0)
backward(v0, cotangent(f32[2, 2]))
"""
LOOP = """program(1)
route("autograd")
x0 = leaf(f32[2])
with while_loop(x0):
    with hook(scale=2.0):
        v0 = neg(x0)
backward(v0, cotangent(f32[2]))
"""
SET = " under cpp.inject_relu_bug_TESTING_ONLY=accuracy"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (finding(TWO_OPS), "zero gradient of torch.slice_scatter(end=2) + torch.sum"),
        (finding(LOOP), "zero gradient of torch.neg in Tensor.register_hook and while_loop"),
        (finding(RELU), f"zero gradient of F.relu{SET}"),
        (
            replace(finding(TWO_OPS), signature=RAISED, detail="the forward raised TypeError: no"),
            "forward of torch.slice_scatter(end=2) + torch.sum raises TypeError: no",
        ),
        (finding(TWO_OPS, "eager-suspect"), "eager: wrong gradient of torch.slice_scatter(end=2) + torch.sum"),
        (
            finding(TWO_OPS, diagnosis=EAGERS),
            "eager: wrong gradient of torch.slice_scatter(end=2) + torch.sum",  # the compiled one is zero, and right
        ),
        (
            finding(TWO_OPS, diagnosis=EAGERS, comparisons=(Comparison("x0.grad", (0,), math.nan, 0, 0, 0, 1, 1),)),
            "eager: NaN in the gradient of torch.slice_scatter(end=2) + torch.sum",
        ),
        (
            finding(TWO_OPS, place={"backend": "eager", "against": "eager@cpu", "device": "cuda"}, stages={}),
            "eager: zero gradient of torch.slice_scatter(end=2) + torch.sum",
        ),
        (
            finding(TWO_OPS, place={"backend": "flag_gems", "against": "eager", "device": "cuda"}, stages={}),
            "FlagGems: zero gradient of torch.slice_scatter(end=2) + torch.sum",
        ),
        (
            replace(finding(TWO_OPS), signature=DTYPE, detail="v1 is float32[4], the reference's is bfloat16[4]"),
            "result of torch.slice_scatter(end=2) + torch.sum is float32 instead of bfloat16",
        ),
        (
            finding(AUTOCAST),
            "zero gradient of torch.polar under torch.autocast",
        ),
        (
            replace(finding(TWO_OPS), signature=LOST, detail="x0.grad is None, the reference's is float32[4, 4]"),
            "no gradient of torch.slice_scatter(end=2) + torch.sum",
        ),
        (
            replace(finding(TWO_OPS), signature=LOST, detail="x0.grad is float32[4, 4], the reference's is None"),
            "a gradient of torch.slice_scatter(end=2) + torch.sum where eager has none",
        ),
        (
            replace(finding(TWO_OPS), signature=Signature("worker_survives", "crashes", "forward", "SIGSEGV")),
            "forward of torch.slice_scatter(end=2) + torch.sum dies of SIGSEGV",
        ),
    ],
)
def test_a_title_says_what_is_wrong_of_which_operators_of_torch(found: Finding, expected: str) -> None:
    assert title(found) == expected


def one_op(node: str, leaf: str = "f32[3, 9]", route: str = 'route("autograd")') -> str:
    return f"program(1)\n{route}\nx0 = leaf({leaf})\nv0 = {node}\nbackward(v0, cotangent(f32[()]))\n"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (one_op("prod_all(x0)", "f32[3, 9], stride=(1, 0)"), "torch.prod for an expanded input"),
        (one_op("prod_all(x0)", 'f64[9], values="nonfinite"'), "torch.prod in float64 for a non-finite input"),
        (one_op("sum(x0)", route='route("vjp", dynamic=True)'), "torch.sum with vjp and dynamic=True"),
        (
            one_op('interpolate_trilinear(x0, scale_factor=1.1, mode="trilinear")', "f32[1, 1, 3, 3, 3]"),
            "F.interpolate(scale_factor=1.1, mode='trilinear')",
        ),
        (
            one_op("upsample_bilinear2d_aa(x0, output_size=(2, 1), align_corners=False)", "f32[1, 1, 3, 1]"),
            "F.interpolate(antialias=True)",
        ),
    ],
)
def test_a_title_says_the_condition_as_the_program_has_it(program: str, expected: str) -> None:
    assert title(finding(program)) == f"zero gradient of {expected}"


def test_an_op_that_stands_for_any_other_is_not_named() -> None:
    assert title(finding(TWO_OPS.replace("v1 = sum(v0, dim=(1,))", "v1 = neg(v0)"))).endswith("slice_scatter(end=2)")


def wide(n: int, outcome: str) -> Row:
    """The gradient of a product over n equal elements, which is 1/n of itself from 9 on."""
    ratios = {ELEMENTS: 1 / n} if outcome == FAILS else {}
    return Row("size", f"n={n}", outcome, EXPANDED, error=1.0, ratios=ratios, numbers={"x0.shape[1]": n})


EXPANDED = one_op("prod_all(x0)", "f32[3, 9], stride=(1, 0)")
PRODUCT = scope(
    replace(wide(9, FAILS), axis=PROGRAM), *(wide(n, FAILS) for n in (10, 18, 41)), wide(8, AGREES), wide(1, AGREES)
)


def test_a_title_says_the_condition_and_the_ratio_as_the_scope_has_them() -> None:
    told = "gradient of torch.prod is 1/n of itself for an expanded dimension of 9 or more"
    assert title(finding(EXPANDED), PRODUCT) == told
    dtypes = row("dtype", "bf16"), row("dtype", "f64", AGREES)
    assert title(finding(EXPANDED), replace(PRODUCT, rows=(*PRODUCT.rows, *dtypes))) == told, "there is no more room"
    told = "zero gradient of torch.prod in float32 and bfloat16 for an expanded input"
    assert title(finding(EXPANDED), scope(row(PROGRAM, "x"), *dtypes)) == told


def test_a_title_tells_two_thresholds() -> None:
    rows = [replace(r, numbers=r.numbers | {"x0.shape[0]": 3}) for r in PRODUCT.rows]
    rows += [
        replace(rows[0], outcome=o, numbers={"x0.shape[0]": k, "x0.shape[1]": 9})
        for k, o in enumerate((AGREES, FAILS), 1)
    ]
    told = title(finding(EXPANDED), scope(*(replace(r, ratios={}) for r in rows)))
    assert told == "zero gradient of torch.prod for an expanded dimension of 9 or more and shape[0] >= 2"


def test_a_scope_in_which_every_layout_fails_leaves_the_layout_out() -> None:
    any_layout = scope(row(PROGRAM, "x"), row("layout", "contiguous"))
    assert title(finding(EXPANDED), any_layout) == "zero gradient of torch.prod"


def test_a_title_has_room_for_so_much_and_the_error_and_the_operators_come_first() -> None:
    settings = {f"inductor.a_long_name_of_a_setting_{n}": False for n in range(3)}
    text = TWO_OPS.replace("program(1)", f"program(1)\nsettings({json.dumps(settings).replace('false', 'False')})")
    told = title(finding(text))
    assert told == "zero gradient of torch.slice_scatter(end=2) + torch.sum under 3 settings"
    assert len(told) <= MOST


def test_the_setting_that_removes_the_error_is_named_where_an_experiment_says_so() -> None:
    found = finding(
        TWO_OPS,
        ablation={"functorch.donated_buffer=False": "agree"},
        diagnosis={"side": "compiled wrong: so", "diagnoser": "2"},
        stages={"eager": "agree", "inductor": "wrong"},
    )
    assert title(found).endswith(" unless donated_buffer=False")


def test_an_input_that_is_wrong_after_the_call_is_no_result() -> None:
    told = title(finding(TWO_OPS, comparisons=(Comparison("x0", (0,), 1, 2, 1, 0, 1, 1),)))
    assert told == "an input is wrong after torch.slice_scatter(end=2) + torch.sum"


def test_an_internal_operator_that_a_public_function_calls_has_that_functions_name() -> None:
    """A fact of torch: the public function's source names the internal operator."""
    text = inspect.getsource(torch.nn.functional)
    internal = {name: s.source for name, s in OPS.items() if re.search(r"\._(?!_)\w+$", s.source)}
    called = {name for name, source in internal.items() if f"{source.rpartition('.')[2]}(" in text}
    assert called
    assert called == {name for name, spec in OPS.items() if spec.public}
    for name in called:
        function, argument = re.fullmatch(r"torch\.nn\.functional\.(\w+)\((\w+)=True\)", OPS[name].public).groups()
        source = inspect.getsource(getattr(torch.nn.functional, function))
        assert internal[name].rpartition(".")[2] in source.partition(argument)[2]


def test_a_title_is_made_without_torch() -> None:
    code = (
        "import sys\nfrom fuzzer.ledger.store import open_store\n"
        "with open_store('findings.db', create=False) as store: titles = [fault.title for fault in store.faults()]\n"
        "sys.exit(('torch' in sys.modules) + 2 * (max(map(len, titles)) > 100))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
