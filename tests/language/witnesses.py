"""Programs in which compiler settings show: small training steps that between them use what settings decide."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.language.program import Program
from fuzzer.language.text import parse

HEAD = 'program(1)\nroute("autograd")\n'
TEXTS = {
    "pointwise and reductions": """x0 = leaf(f32[16, 70])
x1 = leaf(f32[16, 70])
v0 = mul(x0, x1)
v1 = exp(v0)
v2 = sum(v1, dim=1)
v3 = sin(v1)
v4 = cos(v3)
v5 = sum(v4, dim=0)
backward(v2, cotangent(f32[16]))
backward(v5, cotangent(f32[70]))
""",
    "softmax in bfloat16": """x0 = leaf(bf16[8, 64])
v0 = gelu(x0)
v1 = softmax(v0, dim=1)
v2 = mul(v1, v0)
v3 = tanh(v2)
backward(v3, cotangent(bf16[8, 64]))
""",
    "cat of views": """x0 = leaf(f32[6, 8])
x1 = leaf(f32[6, 8])
v0 = exp(x0)
v1 = sin(x1)
v2 = cat([v0, v1, x0], dim=1)
v3 = narrow(v2, dim=1, start=4, length=12)
v4 = mul(v3, v3)
backward(v4, cotangent(f32[6, 12]))
""",
    "transposed": """x0 = leaf(f32[20, 30])
x1 = leaf(f32[30, 20])
v0 = transpose(x0, dim0=0, dim1=1)
v1 = add(v0, x1)
v2 = exp(v1)
v3 = transpose(v2, dim0=0, dim1=1)
v4 = mul(v3, x0)
backward(v4, cotangent(f32[20, 30]))
""",
    "scatter": """x0 = leaf(f32[9, 7])
x1 = leaf(i64[5], values=below(9))
x2 = leaf(f32[5, 7])
v0 = index_select(x0, x1, dim=0)
v1 = mul(v0, v0)
v2 = index_add(x0, x1, x2, dim=0)
v3 = exp(v2)
backward(v1, cotangent(f32[5, 7]))
backward(v3, cotangent(f32[9, 7]))
""",
    "matmuls": """x0 = leaf(f32[12, 10])
x1 = leaf(f32[10, 14])
x2 = leaf(f32[14, 6])
v0 = mm(x0, x1)
v1 = relu(v0)
v2 = mm(v1, x2)
v3 = sigmoid(v2)
v4 = mul(v3, v2)
backward(v4, cotangent(f32[12, 6]))
""",
    "a chain": """x0 = leaf(f32[33])
v0 = exp(x0)
v1 = sin(v0)
v2 = mul(v1, v0)
v3 = tanh(v2)
v4 = mul(v3, v1)
v5 = cos(v4)
v6 = mul(v5, v2)
backward(v6, cotangent(f32[33]))
""",
    "small sums": """x0 = leaf(f32[10, 4])
x1 = leaf(f32[10, 4])
v0 = sum(x0, dim=1)
v1 = mul(x0, x1)
v2 = sum(v1, dim=1)
v3 = mul(v2, v0)
backward(v3, cotangent(f32[10]))
""",
    "images": """x0 = leaf(f32[2, 3, 9, 9])
x1 = leaf(f32[4, 3, 3, 3])
v0 = conv2d(x0, x1)
v1 = relu(v0)
v2 = max_pool2d(v1, kernel_size=(2, 2))
v3 = mul(v2, v2)
backward(v3, cotangent(f32[2, 4, 3, 3]))
""",
    "one constant scattered": """x0 = leaf(f32[40, 8])
x1 = leaf(i64[40], values=below(8))
v0 = cross_entropy(x0, x1)
backward(v0, cotangent(f32[()]))
""",
    "wide and transposed": """x0 = leaf(f32[64, 64])
x1 = leaf(f32[64, 64], stride=(1, 64))
v0 = add(x0, x1)
v1 = exp(v0)
v2 = sum(v1, dim=0)
v3 = add_scalar(v1, other=1.0)
backward(v2, cotangent(f32[64]))
backward(v3, cotangent(f32[64, 64]))
""",
    "long rows": """x0 = leaf(f32[100, 333])
x1 = leaf(f32[333, 100])
v0 = transpose(x1, dim0=0, dim1=1)
v1 = mul(x0, v0)
v2 = mm(v1, x1)
v3 = exp(v2)
v4 = amax(v3, dim=(0,))
backward(v4, cotangent(f32[100]))
backward(v3, cotangent(f32[100, 100]))
""",
    "many reads": """x0 = leaf(f32[40])
x1 = leaf(f32[40])
x2 = leaf(f32[40])
x3 = leaf(f32[40])
v0 = mul(x0, x1)
v1 = add(v0, x2)
v2 = mul(v1, x3)
v3 = exp(v2)
v4 = add(v3, v1)
v5 = mul(v4, x1)
v6 = sin(v5)
v7 = add(v6, x2)
v8 = tanh(v7)
v9 = mul(v8, v4)
v10 = cos(v9)
v11 = add(v10, x3)
v12 = mul(v11, v9)
v13 = sum(v12)
backward(v13, cotangent(f32[()]))
backward(v12, cotangent(f32[40]))
""",
    "rows of rows": """program(1)
route("vjp")
x0 = leaf(f32[3, 20, 60])
x1 = leaf(f32[60, 50])
v0 = softmax(x0, dim=1)
v1 = matmul(v0, x1)
v2 = tanh(v1)
v3 = sum(v2, dim=0)
v4 = softmax(v3, dim=0)
backward(v4, cotangent(f32[20, 50]))
""",
    "frozen convolution": """program(1)
route("vjp")
x0 = leaf(f32[2, 3, 9, 9])
x1 = leaf(f32[4, 3, 3, 3], requires_grad=False)
v0 = conv2d(x0, x1)
v1 = relu(v0)
backward(v1, cotangent(f32[2, 4, 7, 7]))
""",
    "views out": """x0 = leaf(f32[6, 8])
v0 = exp(x0)
v1 = transpose(v0, dim0=0, dim1=1)
v2 = transpose(x0, dim0=0, dim1=1)
v3 = narrow(v2, dim=0, start=2, length=3)
backward(v1, cotangent(f32[8, 6]))
backward(v3, cotangent(f32[3, 6]))
""",
    "layers": """x0 = leaf(f32[8, 16])
x1 = leaf(f32[16, 16])
x2 = leaf(f32[16])
v0 = linear(x0, x1, x2)
v1 = gelu(v0)
v2 = layer_norm(v1, normalized_shape=(16,))
v3 = linear(v2, x1, x2)
v4 = softmax(v3, dim=1)
v5 = mul(v4, v2)
v6 = sum(v5, dim=0)
v7 = tanh(v6)
backward(v7, cotangent(f32[16]))
""",
    "a large scatter": """x0 = leaf(f32[4, 2])
x1 = leaf(i64[4096], values=below(4))
v0 = index_select(x0, x1, dim=0)
v1 = sin(v0)
backward(v1, cotangent(f32[4096, 2]))
""",
    "many wide": """x0 = leaf(f32[64, 64])
x1 = leaf(f32[64])
x2 = leaf(f32[64, 1])
v0 = mul(x0, x1)
v1 = add(v0, x2)
v2 = exp(v1)
v3 = sum(v2, dim=1)
v4 = sum(v2, dim=0)
v5 = mul(v3, v4)
v6 = sin(v5)
backward(v6, cotangent(f32[64]))
backward(v2, cotangent(f32[64, 64]))
""",
    "division": """x0 = leaf(f32[33])
x1 = leaf(f32[33], values="positive")
v0 = div(x0, x1)
v1 = rsqrt(v0)
v2 = pow(x1, v0)
backward(v1, cotangent(f32[33]))
backward(v2, cotangent(f32[33]))
""",
    "two apart": """x0 = leaf(f32[40])
x1 = leaf(f32[40])
v0 = exp(x0)
v1 = sin(x1)
backward(v0, cotangent(f32[40]))
backward(v1, cotangent(f32[40]))
""",
    "convolution out": """x0 = leaf(f32[2, 3, 9, 9])
x1 = leaf(f32[4, 3, 3, 3])
v0 = conv2d(x0, x1)
backward(v0, cotangent(f32[2, 4, 7, 7]))
""",
    "scatters that reduce": """x0 = leaf(f32[9, 7])
x1 = leaf(i64[5, 7], values=below(9))
x2 = leaf(f32[5, 7])
v0 = scatter_reduce(x0, x1, x2, dim=0, reduce="sum")
v1 = gather(v0, x1, dim=0)
v2 = mul(v1, v1)
backward(v2, cotangent(f32[5, 7]))
""",
    "horizontally many": """x0 = leaf(f32[40])
v0 = exp(x0)
v1 = sin(x0)
v2 = cos(x0)
v3 = tanh(x0)
backward(v0, cotangent(f32[40]))
backward(v1, cotangent(f32[40]))
backward(v2, cotangent(f32[40]))
backward(v3, cotangent(f32[40]))
""",
    "one long row": """x0 = leaf(f32[100000])
v0 = exp(x0)
v1 = sum(v0)
backward(v1, cotangent(f32[()]))
""",
    "gaps summed": """x0 = leaf(f32[30, 40], stride=(50, 1))
v0 = exp(x0)
v1 = sum(v0)
backward(v1, cotangent(f32[()]))
""",
    "sums joined": """x0 = leaf(f32[6, 8])
x1 = leaf(f32[7, 8])
v0 = sum(x0, dim=1)
v1 = sum(x1, dim=1)
v2 = cat([v0, v1])
backward(v2, cotangent(f32[13]))
""",
}


def read(text: str) -> Program:
    """The program, each of its leaves with values of its own."""
    program = parse(text if text.startswith("program") else HEAD + text)
    return replace(program, leaves=tuple(replace(leaf, seed=i) for i, leaf in enumerate(program.leaves)))


PROGRAMS = {name: read(text) for name, text in TEXTS.items()}

# A program that shows each setting, on torch 2.13 on the CPU or on 2.11 on a GPU; elsewhere the first to look at.
SHOWN_BY = {
    "inductor.split_reductions": "one long row",
    "inductor.force_shape_pad": "matmuls",
    "inductor.triton.cooperative_reductions": "one long row",
    "inductor.triton.tile_reductions": "gaps summed",
    "inductor.triton.mix_order_reduction_non_strict_mode": "many wide",
    "inductor.max_fusion_size": "many reads",
    "inductor.max_fusion_unique_io_buffers": "pointwise and reductions",
    "inductor.aggressive_fusion": "two apart",
    "inductor.score_fusion_memory_threshold": "cat of views",
    "inductor.realize_reads_threshold": "pointwise and reductions",
    "inductor.realize_opcount_threshold": "pointwise and reductions",
    "inductor.realize_cpu_opcount_threshold": "pointwise and reductions",
    "inductor.realize_acc_reads_threshold": "pointwise and reductions",
    "inductor.realize_cpu_acc_reads_threshold": "pointwise and reductions",
    "inductor.realize_acc_reads_size_threshold": "softmax in bfloat16",
    "inductor.pick_loop_orders": "softmax in bfloat16",
    "inductor.unroll_reductions_threshold": "pointwise and reductions",
    "inductor.constant_and_index_propagation": "softmax in bfloat16",
    "inductor.inplace_buffers": "matmuls",
    "inductor.allow_buffer_reuse": "long rows",
    "inductor.reorder_for_peak_memory": "images",
    "inductor.reorder_for_locality": "rows of rows",
    "inductor.memory_planning": "rows of rows",
    "inductor.memory_pool": "rows of rows",
    "inductor.layout_optimization": "images",
    "inductor.force_layout_optimization": "images",
    "inductor.keep_output_stride": "convolution out",
    "inductor.disable_padding_cpu": "rows of rows",
    "inductor.padding_stride_threshold": "pointwise and reductions",
    "inductor.pad_outputs": "pointwise and reductions",
    "inductor.force_pointwise_cat": "sums joined",
    "inductor.pattern_matcher": "one constant scattered",
    "inductor.joint_graph_constant_folding": "images",
    "inductor.optimize_scatter_upon_const_tensor": "one constant scattered",
    "inductor.partitioned_scatter_enabled": "a large scatter",
    "inductor.freezing": "frozen convolution",
    "inductor.cpp_wrapper": "a chain",
    "inductor.emulate_precision_casts": "softmax in bfloat16",
    "inductor.cpp.simdlen": "a chain",
    "inductor.cpp.threads": "pointwise and reductions",
    "inductor.cpp.dynamic_threads": "pointwise and reductions",
    "inductor.cpp.min_chunk_size": "many wide",
    "inductor.cpp.max_horizontal_fusion_size": "cat of views",
    "inductor.cpp.fallback_scatter_reduce_sum": "scatters that reduce",
    "inductor.cpp.enable_tiling_heuristics": "matmuls",
    "inductor.cpp.enable_loop_tail_vec": "a chain",
    "inductor.cpp.enable_floating_point_contract_flag": "a chain",
    "functorch.activation_memory_budget": "softmax in bfloat16",
    "functorch.aggressive_recomputation": "softmax in bfloat16",
    "functorch.recompute_views": "cat of views",
    "functorch.ban_recompute_materialized_backward": "softmax in bfloat16",
    "functorch.ban_recompute_not_in_allowlist": "cat of views",
    "functorch.ban_recompute_reductions": "softmax in bfloat16",
    "functorch.max_dist_from_bw": "pointwise and reductions",
    "functorch.cse": "long rows",
    "functorch.donated_buffer": "matmuls",
    "functorch.guess_tangent_strides_as_outputs": "views out",
    "functorch.view_replay_for_aliased_outputs": "views out",
}
