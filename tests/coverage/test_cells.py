"""The cells of programs written by hand, and which cells there can be."""

from __future__ import annotations

import pytest

from fuzzer.coverage.cells import CELL_FAMILIES, cells, possible_cells
from fuzzer.coverage.features import LINES, TRACE_FAMILIES
from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.language.ops import OPS, REAL
from fuzzer.language.ops.spec import Limits
from fuzzer.language.text import parse
from tests.drawn import drawn

PROGRAM = """program(1)
settings({"inductor.split_reductions": False})
route("vjp", dynamic=True)
x0 = leaf(f16[4, 6], stride=(1, 4), values="ties", seed=1)
x1 = leaf(f16[6], stride=(0,), seed=2)
v0 = softmax(x0, dim=-1)
v1 = add(v0, x1)
v2 = sum(v1, dim=(0,))
v3 = mul(v1, v1)
v4 = narrow(v3, dim=0, start=2, length=2)
v5 = exp(v4)
backward(v2, cotangent(f16[6], seed=3))
backward(v5, cotangent(f16[2, 6], seed=4))
"""


def test_a_program_names_its_cells() -> None:
    found = cells(parse(PROGRAM))
    assert tuple(found) == CELL_FAMILIES
    assert found["op"] == {"softmax", "add", "sum", "mul", "narrow", "exp"}
    assert {"softmax f16", "exp f16"} <= found["dtype"]
    assert {"softmax dim=negative", "sum keepdim=default", "sum dim=one", "narrow dim=first"} <= found["attribute"]
    assert {"softmax x permuted", "add other broadcast", "exp x at offset", "exp x contiguous"} <= found["layout"]
    assert "exp x permuted" not in found["layout"]
    assert found["values"] == {"softmax x ties", "add other normal"}
    assert {"softmax > add x", "add > mul x", "add > mul other", "narrow > exp x"} <= found["pair"]
    assert found["twice"] == {"mul & sum", "mul & mul"}
    assert found["setting"] >= {"inductor.split_reductions=False reduction"}
    assert found["route"] == {"vjp dynamic several outputs"}


@pytest.mark.parametrize(
    ("line", "family", "cell"),
    [
        ("v0 = add_scalar_(v, other=1.0)", "route", "autograd writes"),
        ("v0 = rand_like(v)", "route", "autograd draws"),
        ("with checkpoint():\n    v0 = exp(v)", "route", "autograd checkpoint"),
        ("v0 = cat([v, x0], dim=0)", "layout", "cat tensors contiguous"),
        ("v0 = layer_norm(v, x0, normalized_shape=(4,))", "layout", "layer_norm weight contiguous"),
    ],
)
def test_effects_regions_and_lists_have_cells(line: str, family: str, cell: str) -> None:
    text = f'program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nv = sin(x0)\n{line}\nv9 = mul(v0, x0)\n'
    text = text if "cat" not in line else text.replace("mul(v0, x0)", "exp(v0)")
    size = 8 if "cat" in line else 4
    assert cell in cells(parse(f"{text}backward(v9, cotangent(f32[{size}]))\n"))[family]


def test_what_eager_refuses_has_no_cells() -> None:
    assert cells(parse(PROGRAM.replace("f16[6], stride=(0,)", "f16[5]"))) == {}


def test_families_of_cells_are_no_other_families_of_features() -> None:
    assert set(CELL_FAMILIES).isdisjoint((*TRACE_FAMILIES, *COMPILED_FAMILIES, *LINES))


def test_there_can_be_every_op_its_dtypes_layouts_and_classes_of_attributes() -> None:
    found = possible_cells(REAL, Limits())
    assert found["op"].known == set(REAL)
    assert found["dtype"].known >= {"exp bf16", "logical_not bool"}
    assert "layer_norm x permuted" in found["layout"].known
    assert "layer_norm x 0-dim" not in found["layout"].known
    assert "layer_norm eps=0.1" in found["attribute"].known
    assert found["layout"].unknown > 0
    assert found["attribute"].unknown > 0
    assert found["op"].unknown == found["dtype"].unknown == 0


def test_what_is_drawn_of_ops_and_dtypes_can_be() -> None:
    possible = possible_cells(OPS, Limits())
    for program in drawn([f"cells/{n}" for n in range(40)]):
        found = cells(program)
        assert found["op"] <= possible["op"].known
        assert {c for c in found["dtype"] if "autocast" not in str(program.body)} <= possible["dtype"].known
