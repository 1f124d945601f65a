"""Attention: a weighted mean of values, by the similarity of each query to the keys."""

from __future__ import annotations

from fuzzer.language.ops.matmul import last, named, second
from fuzzer.language.ops.spec import SAME, Draw, Operand, OpSpec, choice, computed, flag
from fuzzer.language.program import Shape, Value

FAMILY = "attention"


def _scale(d: Draw) -> Value:
    return d.rng.choice((None, None, 0.5, 1.0))


def _queries(d: Draw) -> Shape:
    """(length, batch, features) or without the batch; the heads divide the features."""
    features = int(d.attrs["num_heads"]) * d.size(1, 4)  # type: ignore[arg-type]
    return (d.size(1, 8), *((d.size(1, 3),) if d.rng.random() < 0.7 else ()), features)


def _keys(d: Draw) -> Shape:
    return (d.size(1, 8), *d.x.shape[1:])


TABLE = (
    OpSpec(
        "scaled_dot_product_attention",
        FAMILY,
        "torch.nn.functional.scaled_dot_product_attention",
        (
            Operand(
                "query",
                rank=(3, 4),
                accepts=lambda t: t.numel > 0,
                fresh=lambda d: (d.size(1, 3), d.size(1, 3), d.size(1, 12), d.size(1, 16)),
            ),
            Operand("key", SAME, shape=lambda d: (*d.x.shape[:-2], d.size(1, 12), d.x.shape[-1])),
            Operand("value", SAME, shape=lambda d: (*second(d)[:-1], d.size(1, 16))),
            Operand(
                "attn_mask",
                SAME,
                shape=lambda d: (d.x.shape[-2], second(d)[-2]),
                absent=0.6,
                keyword="attn_mask",
            ),
            computed("is_causal", "flag", lambda d: d.operands[3] is None and d.rng.random() < 0.5, False),
            computed("scale", "real", _scale, None),
        ),
        # in half precision a CPU computes in float32 step by step, while a GPU rounds the factors of its products
        portable=False,
    ),
    OpSpec(
        "multi_head_attention",
        FAMILY,
        "torch.nn.functional.multi_head_attention_forward",
        (
            choice("num_heads", 1, 2, 3),
            Operand("query", rank=(2, 3), shape=_queries),
            Operand("key", SAME, shape=_keys),
            Operand("value", SAME, shape=lambda d: second(d)),
            computed("embed_dim_to_check", "integer", lambda d: d.x.shape[-1]),
            named("in_proj_weight", dtypes=SAME, shape=lambda d: (3 * d.x.shape[-1], d.x.shape[-1])),
            named("in_proj_bias", dtypes=SAME, shape=lambda d: (3 * d.x.shape[-1],)),
            choice("bias_k", None),
            choice("bias_v", None),
            flag("add_zero_attn"),
            choice("dropout_p", 0.0),
            named("out_proj_weight", dtypes=SAME, shape=lambda d: (d.x.shape[-1],) * 2),
            named("out_proj_bias", dtypes=SAME, shape=last),
            choice("training", False, default=True),
            named("attn_mask", dtypes=SAME, shape=lambda d: (d.x.shape[0], d.operands[1].shape[0]), absent=0.6),
            flag("average_attn_weights", True),
        ),
        results=2,
        entries=("nn.functional.multi_head_attention_forward",),
    ),
)
