"""What must be left of every program in corpus/planted, to the letter, and the queries that it may cost.

Reviewed by hand: is this what a compiler engineer would have written for that fault? The proof is part of the queries.
"""

from __future__ import annotations

# fault: (queries, text)
LEFT: dict[str, tuple[int, str]] = {
    "activation_of_a_strided_value": (
        37,
        """program(1)
route("autograd")
x0 = leaf(f32[1, 2], values="ones")
v0, v1 = chunk(x0, dim=1, chunks=2)
v2 = relu(v0)
backward(v2, cotangent(f32[1, 1], values="ones"))
""",
    ),
    "add_under_a_setting": (
        22,
        """program(1)
settings({"inductor.max_fusion_size": 4})
route("autograd")
x0 = leaf(f32[()], requires_grad=False, values="ones")
x1 = leaf(f32[()], values="ones")
v0 = add(x0, x1)
backward(v0, cotangent(f32[()], values="ones"))
""",
    ),
    "broadcast_cotangent_on_vjp": (
        29,
        """program(1)
route("vjp")
x0 = leaf(f32[1, 1], values="ones")
v0 = pad_circular(x0, pad=(0, 1))
backward(v0, cotangent(f32[1, 2], stride=(1, 0), values="ones"))
""",
    ),
    "cat_of_unequal_parts": (
        22,
        """program(1)
route("autograd")
x0 = leaf(f32[1], values="ones")
x1 = leaf(f32[2], requires_grad=False, values="ones")
v0 = cat([x0, x1])
backward(v0, cotangent(f32[3], values="ones"))
""",
    ),
    "convolution_with_a_stride": (
        21,
        """program(1)
route("autograd")
x0 = leaf(f32[1, 1, 1], values="ones")
x1 = leaf(f32[1, 1, 1, 1], requires_grad=False, values="ones")
v0 = conv2d(x0, x1, stride=(1, 2))
backward(v0, cotangent(f32[1, 1, 1], values="ones"))
""",
    ),
    "cumsum_in_reverse": (
        25,
        """program(1)
route("autograd")
x0 = leaf(f32[3], values="ones")
v0 = cumsum(x0, dim=0)
backward(v0, cotangent(f32[3], values="ones"))
""",
    ),
    "division_by_a_small_value": (
        30,
        """program(1)
route("autograd")
x0 = leaf(f32[()], values=data([0.033203125]))
v0 = log(x0)
backward(v0, cotangent(f32[()], values="ones"))
""",
    ),
    "exp_wider_than_a_vector": (
        31,
        """program(1)
route("autograd")
x0 = leaf(f32[17], values="ones")
v0 = exp(x0)
backward(v0, cotangent(f32[17], values="ones"))
""",
    ),
    "gather_of_a_repeated_index": (
        18,
        """program(1)
route("autograd")
x0 = leaf(f32[1], values="ones")
x1 = leaf(i64[2], values=below(1))
v0 = index_select(x0, x1, dim=0)
backward(v0, cotangent(f32[2], values="ones"))
""",
    ),
    "layer_norm_without_weight": (
        17,
        """program(1)
route("autograd")
x0 = leaf(f32[1], values="ones")
v0 = layer_norm(x0, normalized_shape=(1,))
backward(v0, cotangent(f32[1], values="ones"))
""",
    ),
    "leaf_with_gaps": (
        28,
        """program(1)
route("autograd")
x0 = leaf(f32[2], stride=(2,), values="ones")
v0 = neg(x0)
backward(v0, cotangent(f32[2], values="ones"))
""",
    ),
    "matmul_with_a_long_inner_dim": (
        22,
        """program(1)
route("autograd")
x0 = leaf(f32[1, 3], requires_grad=False, values="ones")
x1 = leaf(f32[3], values="ones")
v0 = matmul(x0, x1)
backward(v0, cotangent(f32[1], values="ones"))
""",
    ),
    "mixed_precision_product": (
        21,
        """program(1)
route("autograd")
x0 = leaf(f16[()], requires_grad=False, values="ones")
x1 = leaf(f32[()], values="ones")
v0 = add(x0, x1)
backward(v0, cotangent(f32[()], values="ones"))
""",
    ),
    "padding_on_the_left_only": (
        14,
        """program(1)
route("autograd")
x0 = leaf(f32[1], values="ones")
v0 = pad(x0, pad=(1, 0))
backward(v0, cotangent(f32[2], values="ones"))
""",
    ),
    "pooling_beyond_the_edge": (
        15,
        """program(1)
route("autograd")
x0 = leaf(f32[1, 1, 1], values="ones")
v0 = avg_pool2d(x0, kernel_size=(1, 1), ceil_mode=True)
backward(v0, cotangent(f32[1, 1, 1], values="ones"))
""",
    ),
    "prod_through_a_zero": (
        28,
        """program(1)
route("autograd")
x0 = leaf(f32[2], values="integers")
v0 = prod(x0, dim=0)
backward(v0, cotangent(f32[()], values="ones"))
""",
    ),
    "relu_anywhere": (
        15,
        """program(1)
route("autograd")
x0 = leaf(f32[()], values="ones")
v0 = relu(x0)
backward(v0, cotangent(f32[()], values="ones"))
""",
    ),
    "sigmoid_in_half_precision": (
        18,
        """program(1)
route("autograd")
x0 = leaf(bf16[()], values="ones")
v0 = sigmoid(x0)
backward(v0, cotangent(bf16[()], values="ones"))
""",
    ),
    "slice_scatter_under_sum": (
        54,
        """program(1)
route("autograd")
x0 = leaf(f32[2], values="ones")
x1 = leaf(f32[1], requires_grad=False, values="ones")
v0 = slice_scatter(x0, x1, step=2)
v1 = sum(v0)
backward(v1, cotangent(f32[()], values="ones"))
""",
    ),
    "softmax_over_an_outer_dim": (
        23,
        """program(1)
route("autograd")
x0 = leaf(f32[2, 1], values="ones")
v0 = softmax(x0, dim=0)
backward(v0, cotangent(f32[2, 1], values="ones"))
""",
    ),
    "sub_of_size_one_dim": (
        26,
        """program(1)
route("autograd")
x0 = leaf(f32[2], requires_grad=False, values="ones")
x1 = leaf(f32[1], values="ones")
v0 = sub(x0, x1)
backward(v0, cotangent(f32[2], values="ones"))
""",
    ),
    "two_gradients_of_two_outputs": (
        50,
        """program(1)
route("autograd")
x0 = leaf(f32[()], values="ones")
x1 = leaf(f32[1], values="ones")
v0 = neg(x0)
v1 = neg(x1)
backward(v0, cotangent(f32[()], values="ones"))
backward(v1, cotangent(f32[1], values="ones"))
""",
    ),
    "upsampling_by_a_fraction": (
        25,
        """program(1)
route("autograd")
x0 = leaf(f32[1, 1, 1], values="ones")
v0 = interpolate_nearest(x0, scale_factor=1.5)
backward(v0, cotangent(f32[1, 1, 1], values="ones"))
""",
    ),
    "value_read_twice": (
        81,
        """program(1)
route("autograd")
x0 = leaf(f32[()], values="ones")
v0 = neg(x0)
v1 = neg(v0)
v2 = relu(v0)
returns(v1)
backward(v2, cotangent(f32[()], values="ones"))
""",
    ),
    "where_with_a_broadcast_condition": (
        21,
        """program(1)
route("autograd")
x0 = leaf(bool[()], values="coins")
x1 = leaf(f32[()], values="ones")
x2 = leaf(f32[2], requires_grad=False, values="ones")
v0 = where(x0, x1, x2)
backward(v0, cotangent(f32[2], values="ones"))
""",
    ),
}
