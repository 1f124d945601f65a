"""What a sketch says of a program is what torch says of it; where it knows nothing it says so."""

from __future__ import annotations

from benches.triggers.sketch import Sketch
from benches.triggers.strides import layout

from fuzzer.language.infer import infer
from fuzzer.language.program import Program, Region, TensorType
from fuzzer.language.text import parse
from tests.drawn import drawn

PROGRAM = """
program(1)
route("autograd")
x0 = leaf(f32[4, 6], seed=1)
x1 = leaf(i64[2], values=data([0, 2]))
v0 = neg(x0)
v1 = t(v0)
v2 = reshape(v1, shape=(24,))
v3 = narrow(v2, dim=0, length=3, start=0)
v4 = mul_scalar_(v3, other=2.0)
with checkpoint():
    v5 = index_select(v4, x1, dim=0)
backward(v5, cotangent(f32[2], seed=2))
"""


def sketched(seeds: range) -> list[tuple[Program, dict[str, TensorType], Sketch]]:
    programs = [p for p in drawn(seeds) if not any(isinstance(s, Region) for s in p.body)]
    found = [(p, infer(p), Sketch(p)) for p in programs]
    for _, _, sketch in found:
        sketch._declared.clear()  # what outputs say is not what the rules say
    return found


def test_sizes_are_those_that_torch_infers_or_unknown() -> None:
    known = unknown = 0
    for program, types, sketch in sketched(range(60)):
        for node in program.nodes:
            for name in node.outs:
                shape = sketch.shape(name)
                known, unknown = known + (shape is not None), unknown + (shape is None)
                assert shape in (None, types[name].shape), node
    assert known > unknown / 2


def test_dtypes_and_layouts_are_mostly_those_that_torch_infers() -> None:
    dtypes: list[bool] = []
    layouts: list[bool] = []
    for program, types, sketch in sketched(range(60, 120)):
        for name in (node.outs[0] for node in program.nodes):
            dtypes.append(sketch.dtype(name) == types[name].dtype)
            if sketch.order_in_memory(name) is not None:
                layouts.append(sketch.order_in_memory(name) == layout(types[name].shape, types[name].stride))
    assert sum(dtypes) > 0.9 * len(dtypes) > 50
    assert sum(layouts) > 0.85 * len(layouts) > 20


def test_memory_is_followed_through_views_and_writes() -> None:
    s = Sketch(parse(PROGRAM))
    assert [s.storage(name) for name in ("v0", "v1", "v2", "v4", "v5")] == ["v0", "v0", "v0", "v0", "v5"]
    assert s.source("v3") == "v0"
    assert [(node.op, target) for node, target in s.written()] == [("mul_scalar_", "v3")]
    assert s.inside("checkpoint") == {"v5"}
    assert s.order_in_memory("v1") == "permuted"


def test_makers_are_found_through_what_is_looked_through() -> None:
    s = Sketch(parse(PROGRAM))
    assert s.made_by("v2", ("neg",)) is None
    found = s.made_by("v2", ("neg",), through=("t", "reshape"))
    assert found is not None
    assert found.outs == ("v0",)
    assert [node.op for node in s.ancestors("v2")] == ["reshape", "t", "neg"]
