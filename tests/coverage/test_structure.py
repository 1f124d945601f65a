"""What the compiler made of a program: graphs and code as words, and the hooks through which they come."""

from __future__ import annotations

import pytest

from fuzzer.coverage.structure import COMPILED_FAMILIES, CompiledGraph, bucket, compiled_words, kernel_kind

FORWARD = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4, 3][3, 1]", primals_2: "Sym(s0)"):
        # some comment
        exp: "f32[4, 3][3, 1]" = torch.ops.aten.exp.default(primals_1);  primals_1 = None
        topk = torch.ops.aten.topk.default(exp, 2)
        getitem: "f32[4, 2][2, 1]" = topk[0]
        getitem_1: "i64[4, 2][2, 1]" = topk[1];  topk = None
        return (getitem, exp)
"""
BACKWARD = """class GraphModule(torch.nn.Module):
    def forward(self, exp: "f32[4, 3][3, 1]", tangents_1: "f32[4][1]"):
        unsqueeze: "f32[4, 1][1, 1]" = torch.ops.aten.unsqueeze.default(tangents_1, 1);  tangents_1 = None
        expand: "f32[4, s1][1, 0]" = torch.ops.aten.expand.default(unsqueeze, [4, s1]);  unsqueeze = None
        mul: "f32[4, 3][3, 1]" = torch.ops.aten.mul.Tensor(expand, exp);  expand = exp = None
        return (mul,)
"""
CPP = """
cpp_fused_exp_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(12L); x0+=static_cast<int64_t>(16L))
    {
        for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(3L); x1+=static_cast<int64_t>(1L))
        {
            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 3L*x0));
            auto tmp1 = tmp0 * static_cast<float>(-0.5e-3);
        }
    }
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(9L); x0+=static_cast<int64_t>(1L))
}
''')

    def call(self, args):
        extern_kernels.mm(buf0, primals_3, out=buf4)
        buf1 = torch.ops.aten.topk.default(buf0, 2)
"""
TRITON = """
triton_per_fused_sum_0 = async_compile.triton('triton_per_fused_sum_0', '''
import triton

@triton_heuristics.persistent_reduction(
    size_hints={'x': 4, 'r0_': 16},
    filename=__file__,
)
@triton.jit
def triton_per_fused_sum_0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x0 + 4*r0_1), xmask, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr0 + (x0), tmp5, xmask)
''', device_str='cuda')
"""


def test_every_family_reads_its_part_of_graphs_and_code() -> None:
    forward = CompiledGraph("forward", FORWARD, CPP, [[("aten.exp.default", "aten.mul.Tensor")], []])
    found = compiled_words([forward, CompiledGraph("backward", BACKWARD)], {"inductor pattern_matcher_count": 5})
    assert found["node"] >= {
        "forward aten.exp.default gives f32 rank 2 contiguous",
        "forward aten.topk.default gives i64 rank 2 contiguous",
        "forward aten.topk.default 0: f32 rank 2 contiguous",
        "backward aten.mul.Tensor 0: f32 rank 2 symbolic broadcast",
    }
    assert found["link"] == {
        "forward primals > aten.exp.default 0: contiguous",
        "forward aten.exp.default > aten.topk.default 0: contiguous",
        "backward tangents > aten.unsqueeze.default 0: contiguous",
        "backward aten.unsqueeze.default > aten.expand.default 0: contiguous size 1",
        "backward aten.expand.default > aten.mul.Tensor 0: symbolic broadcast",
        "backward exp > aten.mul.Tensor 1: contiguous",
    }
    assert found["saved"] == {"handed on exp: f32 rank 2 contiguous"}
    assert found["fused"] == {"forward aten.exp.default > aten.mul.Tensor"}
    assert found["kernel"] == {"forward 1 written", "forward cpp loops 2 vectors"}
    assert found["extern"] == {"forward mm"}
    assert found["fallback"] == {"forward aten.topk.default"}
    assert found["counter"] == {"pattern_matcher_count 4-7"}
    assert set(found) == set(COMPILED_FAMILIES)


def test_lines_keep_what_they_do_and_lose_names_and_numbers() -> None:
    found = compiled_words([CompiledGraph("backward", "", CPP)], {})["line"]
    assert found == {
        "backward for(int64_t x=static_cast<int64_t>(N); x<static_cast<int64_t>(N); x+=static_cast<int64_t>(N))",
        "backward auto tmp = at::vec::Vectorized<float>::loadu(in_ptr + static_cast<int64_t>(x + N*x));",
        "backward auto tmp = tmp * static_cast<float>(N);",
    }


def test_triton_kernels_tell_their_heuristic_tiles_and_lines() -> None:
    found = compiled_words([CompiledGraph("joint", "", TRITON)], {})
    assert found["kernel"] == {"joint 1 written", "joint triton persistent_reduction x r0_ atomic"}
    assert found["line"] == {
        "joint tl.atomic_add(out_ptr + (x), tmp, xmask)",
        "joint tmp = tl.load(in_ptr + (x + N*r), xmask, other=N).to(tl.float32)",
    }


def test_what_both_graphs_compute_was_computed_again() -> None:
    backward = BACKWARD.replace('exp: "f32[4, 3][3, 1]", ', 'primals_1: "f32[4, 3][3, 1]", ').replace(
        "        mul:",
        '        exp: "f32[4, 3][3, 1]" = torch.ops.aten.exp.default(primals_1);  primals_1 = None\n        mul:',
    )
    found = compiled_words([CompiledGraph("forward", FORWARD), CompiledGraph("backward", backward)], {})
    assert found["saved"] == {"handed on primals: f32 rank 2 contiguous", "computed again aten.exp.default"}


@pytest.mark.parametrize(("number", "told"), [(1, "1"), (3, "3"), (4, "4-7"), (7, "4-7"), (8, "8-15"), (100, "64-127")])
def test_counts_grow_coarser(number: int, told: str) -> None:
    assert bucket(number) == told


def test_a_caches_counters_are_no_features() -> None:
    counted = {"inductor fxgraph_cache_hit": 3, "inductor extern_calls": 0, "stats calls_captured": 5}
    assert compiled_words([], counted)["counter"] == frozenset()


def test_a_kernel_without_loops_is_of_a_kind_too() -> None:
    assert kernel_kind('extern "C" void kernel(float* out_ptr0)\n{\n    atomic_add(&out_ptr0[0], 1);\n}') == (
        "cpp loops 0 atomic"
    )
