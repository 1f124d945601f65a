"""Graphs and generated code as text: what is kept, what is found in it, which lines are marked."""

from __future__ import annotations

import pytest

from fuzzer.diagnosis.listings import (
    LONGEST,
    MARK,
    SHARED,
    aten_ops,
    mark_code,
    mark_graph,
    marked_lines,
    node_op,
    overlaps,
    shared,
    tidy_code,
    tidy_graph,
)

READABLE = """class GraphModule(torch.nn.Module):
    def forward(self, tangents_1: "f32[4][1]"):
        # File: step.py:3 in f, code: return x.tanh()
        expand: "f32[4, 13][1, 0]" = torch.ops.aten.expand.default(tangents_1, [4, 13]);  tangents_1 = None

        scattered: "f32[4, 13][1, 0]" = torch.ops.aten.slice_scatter.default(expand, expand, 1, 0, 6)
        doubled: "f32[4][1]" = torch.ops.aten.mul.Tensor(tangents_1, 2)
        cast: "f32[4][1]" = torch.ops.prims.convert_element_type.default(doubled, torch.float32);  doubled = None
        return (scattered, None, cast)
"""
GRAPH = tidy_graph(READABLE)

CPP = """from ctypes import c_void_p
import torch
async_compile = AsyncCompile()


cpp_fused_mul_0 = async_compile.cpp_pybinding(['const float*', 'float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0,
                       float* out_ptr1)
{
    {
        tmp1.store(out_ptr0 + static_cast<int64_t>(x0));
        out_ptr1[static_cast<int64_t>(x0)] = tmp2;
        auto tmp3 = in_ptr0[static_cast<int64_t>(x0)];
    }
}
''')


async_compile.wait(globals())

class Runner:
    def call(self, args):
        tangents_1, = args
        args.clear()
        buf0 = empty_strided_cpu((4, 1), (1, 0), torch.float32)
        buf1 = empty_strided_cpu((4, ), (1, ), torch.float32)
        cpp_fused_mul_0(tangents_1, buf0, buf1)
        buf2 = buf1; del buf1  # reuse
        buf3 = torch.ops.aten.cumsum.default(buf2, 0)
        return (reinterpret_tensor(buf0, (4, 13), (1, 0), 0), None, buf2, )


def get_args():
    from torch._dynamo.testing import rand_strided
"""

TRITON = """triton_poi_fused_mul_0 = async_compile.triton('triton_poi_fused_mul_0', '''
import triton
def triton_poi_fused_mul_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tl.store(out_ptr0 + (x0), tmp0, xmask)
''', device_str='cuda')

def call(args):
    buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)
    stream0 = get_raw_stream(0)
    triton_poi_fused_mul_0.run(tangents_1, buf0, 4, stream=stream0)
    return (None, None, buf0, )
"""


def test_a_graph_is_kept_without_comments_empty_lines_and_deaths() -> None:
    assert "File:" not in GRAPH
    assert "= None" not in GRAPH
    assert len(GRAPH.splitlines()) == 7


def test_code_is_kept_from_the_first_kernel_to_the_last_call() -> None:
    told = tidy_code(CPP)
    assert told.startswith("cpp_fused_mul_0 = ")
    assert told.endswith("buf2, )")


def test_what_is_too_long_is_cut_and_says_so() -> None:
    told = tidy_graph("x" * (LONGEST + 5))
    assert told == "x" * LONGEST + "\n... 5 characters more"


def test_a_node_is_found_by_name_and_the_operations_that_compute_are_listed() -> None:
    assert node_op(["", GRAPH], "scattered") == "aten.slice_scatter.default"
    assert node_op([GRAPH], "nobody") == ""
    assert aten_ops(GRAPH) == ["aten.slice_scatter.default", "aten.mul.Tensor"]


def test_a_node_that_calls_an_operator_by_its_name_alone_calls_the_default_overload() -> None:
    graph = '    clone: "f32[3][1]" = torch.ops.aten.clone(mul)\n    clone_1 = torch.ops.aten.clone.default(mul)'
    assert aten_ops(graph) == ["aten.clone.default"]
    assert node_op([graph], "clone") == "aten.clone.default"
    assert node_op(["    m = torch.ops.higher_order.while_loop(x)"], "m") == "higher_order.while_loop"


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        ("f32[4, 13][1, 0]", True),
        ("f32[2][0]", True),
        ("f32[4, 1][1, 0]", False),
        ("f32[0, 5][1, 0]", False),
        ("f32[4, 13][13, 1]", False),
        ("f32[][]", False),
        ("i64", False),
        ("Sym(s0)", False),
    ],
)
def test_elements_share_memory_where_a_size_above_one_has_stride_zero(kind: str, shared: bool) -> None:
    assert overlaps(kind) == shared


def test_a_result_that_is_no_view_and_shares_memory_is_marked_and_a_view_is_not() -> None:
    (line,) = marked_lines(mark_graph(GRAPH, (), ()))
    assert line.startswith('line 4: scattered: "f32[4, 13][1, 0]"')
    assert SHARED in mark_graph(GRAPH, (), ())
    (told,) = shared(GRAPH)
    assert told.startswith("scattered (aten.")
    assert not shared(DENSE)


DENSE = GRAPH.replace("[1, 0]", "[13, 1]")


@pytest.mark.parametrize("accused", ["aten.mul.Tensor", "doubled"])
def test_an_accused_operation_or_node_is_marked(accused: str) -> None:
    (line,) = marked_lines(mark_graph(DENSE, [accused], ["[4]"]))
    assert "doubled" in line


def test_without_an_accused_what_returns_a_tensor_of_the_wrong_ones_shape_is_marked() -> None:
    (line,) = marked_lines(mark_graph(DENSE, (), ["[4]"]))
    assert "cast" in line
    assert mark_graph(DENSE, (), ["[5]"]) == DENSE


@pytest.mark.parametrize(
    ("shape", "store"),
    [
        ("[4,13]", "tmp1.store(out_ptr0 + static_cast<int64_t>(x0));"),
        ("[4]", "out_ptr1[static_cast<int64_t>(x0)] = tmp2;"),
    ],
)
def test_the_store_into_the_wrong_tensor_is_marked_in_cpp(shape: str, store: str) -> None:
    code = mark_code(tidy_code(CPP), GRAPH, [shape])
    (line,) = marked_lines(code)
    assert line.endswith(store)
    assert f"// {MARK}" in code


def test_the_store_into_the_wrong_tensor_is_marked_in_triton() -> None:
    code = mark_code(TRITON, GRAPH, ["[4]"])
    (line,) = marked_lines(code)
    assert line.endswith("tl.store(out_ptr0 + (x0), tmp0, xmask)")
    assert f"# {MARK}" in code


def test_a_call_of_atens_that_computes_the_wrong_tensor_is_marked() -> None:
    code = CPP.replace("None, buf2, )", "None, buf3, )")
    (line,) = marked_lines(mark_code(code, GRAPH, ["[4]"]))
    assert "cumsum" in line


def test_a_wrong_tensor_that_nothing_writes_is_marked_where_it_is_returned() -> None:
    code = TRITON.replace("buf0, )", "reinterpret_tensor(tangents_1, (4, ), (1, ), 0), )")
    (line,) = marked_lines(mark_code(code, GRAPH, ["[4]"]))
    assert "return (None" in line


def test_code_without_a_graph_or_a_return_is_left_as_it_is() -> None:
    assert mark_code(TRITON, "", ["[4]"]) == TRITON
    assert mark_code("x = 1", GRAPH, ["[4]"]) == "x = 1"
