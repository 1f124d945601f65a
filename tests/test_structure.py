"""What the compiler made of a program: graphs and code as words, and the hooks through which they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuzzer import private
from fuzzer.doctor import WITNESS, silent_families
from fuzzer.execution import guide, watch
from fuzzer.execution.messages import Place, Subject
from fuzzer.execution.pool import Pool
from fuzzer.execution.watch import watched
from fuzzer.execution.worker import Task
from fuzzer.features import FAMILIES as TRACED
from fuzzer.structure import FAMILIES, Compiled, bucket, kernel_kind, of_compiled
from fuzzer.text import parse, show

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
    forward = Compiled("forward", FORWARD, CPP, [[("aten.exp.default", "aten.mul.Tensor")], []])
    found = of_compiled([forward, Compiled("backward", BACKWARD)], {"inductor pattern_matcher_count": 5})
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
    assert set(found) == set(FAMILIES)


def test_lines_keep_what_they_do_and_lose_names_and_numbers() -> None:
    found = of_compiled([Compiled("backward", "", CPP)], {})["line"]
    assert found == {
        "backward for(int64_t x=static_cast<int64_t>(N); x<static_cast<int64_t>(N); x+=static_cast<int64_t>(N))",
        "backward auto tmp = at::vec::Vectorized<float>::loadu(in_ptr + static_cast<int64_t>(x + N*x));",
        "backward auto tmp = tmp * static_cast<float>(N);",
    }


def test_triton_kernels_tell_their_heuristic_tiles_and_lines() -> None:
    found = of_compiled([Compiled("joint", "", TRITON)], {})
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
    found = of_compiled([Compiled("forward", FORWARD), Compiled("backward", backward)], {})
    assert found["saved"] == {"handed on primals: f32 rank 2 contiguous", "computed again aten.exp.default"}


@pytest.mark.parametrize(("number", "told"), [(1, "1"), (3, "3"), (4, "4-7"), (7, "4-7"), (8, "8-15"), (100, "64-127")])
def test_counts_grow_coarser(number: int, told: str) -> None:
    assert bucket(number) == told


def test_a_caches_counters_are_no_features() -> None:
    counted = {"inductor fxgraph_cache_hit": 3, "inductor extern_calls": 0, "stats calls_captured": 5}
    assert of_compiled([], counted)["counter"] == frozenset()


def test_a_kernel_without_loops_is_of_a_kind_too() -> None:
    assert kernel_kind('extern "C" void kernel(float* out_ptr0)\n{\n    atomic_add(&out_ptr0[0], 1);\n}') == (
        "cpp loops 0 atomic"
    )


# ---------------------------------------------------------------- with inductor

INDUCTOR = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")), fresh=True)
SMALL = """program(1)
route("ROUTE")
x0 = leaf(f32[4, 3], seed=1)
v0 = exp(x0)
v1 = mul(v0, v0)
backward(v1, cotangent(f32[4, 3], seed=2))
"""


@pytest.fixture(scope="module")
def pool() -> Any:
    with Pool(1, ["cpu"]) as made:
        yield made


def test_every_family_sees_something_of_the_witness(pool: Pool) -> None:
    silent, report = silent_families(pool, INDUCTOR)
    assert (silent, report.verdict) == ([], "agree")
    assert show(parse(WITNESS)) == WITNESS


@pytest.mark.slow
def test_features_of_a_compile_are_the_same_in_every_process() -> None:
    found = []
    for _ in range(2):
        with Pool(1, ["cpu"]) as made:
            found.append(silent_families(made, INDUCTOR)[1])
    assert found[0].files == found[1].files
    assert found[0].features == found[1].features
    assert all(found[0].features[family] for family in (*TRACED, *FAMILIES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("route", "directions"),
    [("autograd", {"forward", "backward"}), ("vjp", {"joint"}), ("compiled_autograd", {"forward", "backward"}),
     ("accumulate", {"forward", "backward"}), ("backward_twice", {"forward", "backward"}), ("aoti", {"joint"})],
)  # fmt: skip
def test_every_route_tells_its_directions(pool: Pool, route: str, directions: set[str]) -> None:
    report = pool.result(pool.submit(guide.features_of, INDUCTOR, SMALL.replace("ROUTE", route)), INDUCTOR)
    assert report.verdict == "agree"
    for family in ("node", "link") if route == "aoti" else ("node", "link", "kernel", "line"):
        assert {word.split()[0] for word in report.files[family].splitlines()} == directions, family


def test_an_error_in_a_hook_is_not_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: dict[str, Callable[..., Any]] = {}

    def caught(name: str) -> Callable[..., Any]:
        def hook(function: Callable[..., Any]) -> Any:
            hooks[name] = function
            return torch.no_grad()

        return hook

    monkeypatch.setattr(watch, "inner_graphs", caught("received"))
    monkeypatch.setattr(watch, "output_code", caught("written"))
    with watched("autograd", lambda: "forward") as seen:
        assert hooks["received"](object(), False) is True
    with pytest.raises(AttributeError, match="print_readable"):
        seen.words()


def test_counters_are_those_of_the_compiler() -> None:
    from torch._dynamo.utils import counters

    counters["inductor"]["some_match"] += 2
    try:
        assert private.counters()["inductor some_match"] == 2
    finally:
        del counters["inductor"]["some_match"]
