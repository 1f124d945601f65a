"""Triggers in attention, norms, random draws, routes and settings."""

from __future__ import annotations

from benches.triggers.kinds import Trigger, is_constant
from benches.triggers.sketch import MOVES, Sketch
from fuzzer.language.ops import OPS
from fuzzer.language.settings import CUDA_GRAPHS

_NORMS = ("layer_norm", "rms_norm", "native_layer_norm")
_CHUNKS = ("chunk", "split", "split_sections", "split_with_sizes", "tensor_split", "unbind")
_PRODUCTS = ("matmul", "bmm")
_MANY = 5 * 2**20  # elements from which torch fuses sums of rows with sums of columns
_ANY_SIZE = "inductor.triton.mix_order_reduction_non_strict_mode"


def attention_by_permuted_keys(s: Sketch) -> bool:
    """softmax(q k) v of rank 4, where k is a permutation other than an exchange of its last two dimensions."""
    for last in s.of(*_PRODUCTS):
        weights = s.made_by(last.uses[0], ("softmax",))
        scaled = weights and s.made_by(weights.uses[0], ("mul_scalar", "mul", "div", "rmul_scalar", *_PRODUCTS))
        scores = scaled and (scaled if scaled.op in _PRODUCTS else s.made_by(scaled.uses[0], _PRODUCTS))
        keys = scores and s.made_by(scores.uses[1], ("permute",))
        if keys:
            dims = tuple(d % 4 for d in s.attr(keys, "dims"))
            if len(dims) == 4 and dims not in ((0, 1, 3, 2), (0, 1, 2, 3)):
                return True
    return False


def attention_by_a_negative_factor(s: Sketch) -> bool:
    """softmax(q k) v in which the scores are multiplied by a negative number."""
    for last in s.of(*_PRODUCTS):
        weights = s.made_by(last.uses[0], ("softmax",))
        scaled = weights and s.made_by(weights.uses[0], ("mul_scalar", "rmul_scalar"))
        if scaled and s.attr(scaled, "other") < 0 and s.made_by(scaled.uses[0], _PRODUCTS):
            return True
    return False


def attention_of_symbolic_sizes(s: Sketch) -> bool:
    """scaled_dot_product_attention with symbolic sizes and no scale of its own."""
    return s.dynamic and any(s.attr(node, "scale") is None for node in s.of("scaled_dot_product_attention"))


def attention_to_wider_values(s: Sketch) -> bool:
    """scaled_dot_product_attention whose values and queries have different numbers of features."""
    for node in s.of("scaled_dot_product_attention"):
        query, value = s.size(node.uses[0], -1), s.size(node.uses[2], -1)
        if query is not None and value is not None and query != value:
            return True
    return False


def norms_modulated_by_chunks(s: Sketch) -> bool:
    """Two norms of large values, each multiplied by or added to chunks of the same parameter."""
    used: dict[str, set[str]] = {}
    for norm in s.of(*_NORMS):
        if (s.numel(norm.uses[0]) or 0) < _MANY and s.settings.get(_ANY_SIZE) is not True:
            continue
        for reader in s.readers.get(norm.outs[0], ()):
            for name in reader.uses:
                chunk = s.made_by(name, _CHUNKS, through=MOVES)
                if chunk is not None:
                    used.setdefault(chunk.outs[0], set()).add(norm.outs[0])
    return any(len(norms) > 1 for norms in used.values())


def norm_of_a_constant(s: Sketch) -> bool:
    """A layer norm of a value that is one constant everywhere."""
    return any(is_constant(s, node.uses[0]) for node in s.of(*_NORMS))


def norm_over_one_element(s: Sketch) -> bool:
    """A weighted layer norm over a single element, in bfloat16."""
    for node in s.of("layer_norm"):
        single = all(size == 1 for size in s.attr(node, "normalized_shape"))
        if single and s.dtype(node.uses[0]) == "bf16" and len(node.args) > 1 and node.args[1] is not None:
            return True
    return False


def drawn_again_for_the_backward(s: Sketch) -> bool:
    """Random numbers under a memory budget, so that the backward computes their readers again."""
    budget = s.settings.get("functorch.activation_memory_budget", 1.0)
    return budget < 1 and any(node.op in OPS and OPS[node.op].random for node in s.nodes)


def accumulated_under_cuda_graphs(s: Sketch) -> bool:
    """Gradients accumulate over two runs of CUDA graphs."""
    return s.settings.get(CUDA_GRAPHS) is True and s.program.route.name == "accumulate"


def run_under_cuda_graphs(s: Sketch) -> bool:
    """CUDA graphs."""
    return s.settings.get(CUDA_GRAPHS) is True


TABLE: dict[int, Trigger] = {
    195320: attention_by_permuted_keys,
    105190: attention_by_a_negative_factor,
    144021: attention_of_symbolic_sizes,
    110832: attention_to_wider_values,
    193061: norms_modulated_by_chunks,
    164059: norm_of_a_constant,
    188375: norm_over_one_element,
    190758: drawn_again_for_the_backward,
    96693: accumulated_under_cuda_graphs,
    97253: run_under_cuda_graphs,
}
