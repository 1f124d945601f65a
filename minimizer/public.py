"""The functions of torch.nn behind those that decompositions call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzzer.language.program import Program, Value, substitute_node
from minimizer.rewrite import Types, propose

Held = dict[str, Value]


def public_op(program: Program, types: Types) -> Iterator[Program]:
    """A function that decompositions call becomes the public one of torch.nn, where only its first result is read."""
    read = {name for node in program.nodes for name in node.uses} | {output.value for output in program.outputs}
    for node in program.nodes:
        if node.op in PUBLIC and read.isdisjoint(node.outs[1:]):
            op, attributes = PUBLIC[node.op]
            new = replace(node, outs=node.outs[:1], op=op, attrs=tuple(attributes(dict(node.attrs)).items()))
            yield from propose(program, body=substitute_node(program.body, node, new))


def _normalised(held: Held, **own: Value) -> Held:
    return {**own, "eps": held["eps"]}


def _batch_norm(held: Held) -> Held:
    return _normalised(held, running_mean=None, running_var=None, training=held["training"])


def _grid_sample(held: Held) -> Held:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    named = {"mode": modes[held["interpolation_mode"]], "padding_mode": paddings[held["padding_mode"]]}  # type: ignore[index]
    usual = {"mode": modes[0], "padding_mode": paddings[0]}
    return {name: value for name, value in named.items() if value != usual[name]} | {
        "align_corners": held["align_corners"]
    }


# By the op that decompositions call: the public op of the same operands and first result, and its attributes.
PUBLIC: dict[str, tuple[str, Callable[[Held], Held]]] = {
    "native_layer_norm": ("layer_norm", lambda held: _normalised(held, normalized_shape=held["normalized_shape"])),
    "native_group_norm": ("group_norm", lambda held: _normalised(held, num_groups=held["group"])),
    "native_batch_norm": ("batch_norm", _batch_norm),
    "native_batch_norm_legit": ("batch_norm", _batch_norm),
    "upsample_bilinear2d_aa": (
        "interpolate_bilinear",
        lambda held: {"size": held["output_size"], "mode": "bilinear", "align_corners": held["align_corners"],
                      "antialias": True},
    ),
    "constant_pad_nd": ("pad", lambda held: {"pad": held["pad"], "value": float(held.get("value", 0))}),  # type: ignore[arg-type]
    "grid_sampler_2d": ("grid_sample2d", _grid_sample),
    "grid_sampler_3d": ("grid_sample3d", _grid_sample),
}  # fmt: skip
