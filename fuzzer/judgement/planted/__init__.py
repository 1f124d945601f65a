"""FAULTS: the faults that a canary plants, in the worker and during one side's run. A fault is one function and one
line.

Most resemble real faults: a wrong decomposition of a backward's op; a wrong pass over the compiled backward graph; a
meta kernel with wrong strides; compiled code that dies or writes out of bounds; torch's own planted relu faults. The
rest corrupt the record of a run (`observations`).
A fault knows nothing of programs or oracles: `campaign.canaries` names the verdict expected for each.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

import torch

from fuzzer.judgement.narrowing import KEPT
from fuzzer.judgement.planted import gradients, observations, passes
from fuzzer.judgement.planted.fault import Fault, Tamper, combined, unchanged
from fuzzer.judgement.planted.gradients import decomposed
from fuzzer.judgement.planted.passes import replace_in_backward
from fuzzer.judgement.planted.runtime import (
    in_compiled_backward,
    in_compiler,
    in_eager,
    injected_relu,
    overwriting_cotangent,
    refusing,
)
from fuzzer.language.private import graph_pass
from fuzzer.language.settings import in_force

aten = torch.ops.aten


class UnknownFault(ValueError):
    """A fault that is not in FAULTS."""


FAULTS: dict[str, Fault] = {
    "sigmoid_gradient_without_complement": decomposed(aten.sigmoid_backward.default, gradients.without_complement),
    "one_gradient_element_scaled": decomposed(aten.sigmoid_backward.default, gradients.one_element_scaled),
    "gradient_all_zero": decomposed(aten.tanh_backward.default, gradients.all_zero),
    "softplus_gradient_without_threshold": decomposed(aten.softplus_backward.default, gradients.without_threshold),
    "hardtanh_gradient_at_its_limits": decomposed(
        aten.hardtanh_backward.default, gradients.hardtanh_without_its_limits
    ),
    "relu_gradient_by_multiplication": decomposed(aten.threshold_backward.default, gradients.relu_by_multiplication),
    "softmax_gradient_beyond_its_tail": decomposed(
        aten._softmax_backward_data.default, gradients.softmax_beyond_its_tail
    ),
    "elu_gradient_beside_a_vector": decomposed(aten.elu_backward.default, gradients.elu_beside_a_vector),
    "tanh_gradient_in_single_precision": decomposed(aten.tanh_backward.default, gradients.tanh_in_single_precision),
    "layer_norm_gradient_without_mean": decomposed(
        aten.native_layer_norm_backward.default, gradients.layer_norm_without_mean
    ),
    "sigmoid_gradient_under_a_setting": decomposed(aten.sigmoid_backward.default, gradients.sigmoid_under_a_setting),
    "sigmoid_gradient_without_a_setting": decomposed(
        aten.sigmoid_backward.default, gradients.sigmoid_without_a_setting
    ),
    "relu_gradient_masked_by_minus_zero": decomposed(
        aten.threshold_backward.default, gradients.relu_masked_by_minus_zero
    ),
    "product_not_rounded": Fault(lambda: graph_pass(passes.contract)),
    "accumulation_forgotten": replace_in_backward(aten.add.Tensor, passes.first_operand),
    "broadcast_summed_over_columns": replace_in_backward(aten.sum.dim_IntList, passes.over_columns),
    "recomputed_of_another_value": replace_in_backward(aten.exp.default, passes.of_what_came_before),
    "size_one_dim_of_the_first_row": replace_in_backward(aten.expand.default, passes.from_the_first_row),
    "ties_not_shared": replace_in_backward(aten.div.Tensor, passes.first_operand),
    "scatter_overwrites": replace_in_backward(aten.scatter_add.default, passes.overwriting),
    "window_one_further": replace_in_backward(aten.slice_scatter.default, passes.one_further),
    "scan_not_reversed": replace_in_backward(torch.ops.prims.rev.default, passes.first_operand),
    "product_not_transposed": replace_in_backward(aten.mm.default, passes.transposed),
    "average_of_padding_too": replace_in_backward(aten.avg_pool2d_backward.default, passes.of_padding_too),
    "slice_scatter_of_2_11": gradients.declared(aten.slice_scatter.default, gradients.layout_of_2_11),
    "slice_scatter_since_2_12": gradients.declared(aten.slice_scatter.default, gradients.layout_since_2_12),
    "compiler_aborts": in_compiler("abort"),
    "compiler_raises": in_compiler("raise"),
    "compiled_backward_aborts": in_compiled_backward("abort"),
    "compiled_backward_segfaults": in_compiled_backward("segfault"),
    "compiled_backward_raises": in_compiled_backward("raise"),
    "compiled_backward_hangs": in_compiled_backward("sleep"),
    "compiled_backward_alternates": in_compiled_backward("alternate"),
    "compiled_backward_takes_memory": in_compiled_backward("take memory"),
    "eager_aborts": Fault(tamper=in_eager("abort"), side="reference"),
    "eager_refuses": Fault(refusing(torch.sigmoid), side="reference"),
    "compile_takes_long": Fault(tamper=observations.long_compile),
    "cotangent_overwritten": overwriting_cotangent(gradients.sigmoid_gradient),
    "written_behind_cotangent": overwriting_cotangent(gradients.sigmoid_gradient, "write behind"),
    "relu_accuracy": injected_relu("accuracy"),
    "relu_compile_error": injected_relu("compile_error"),
    "relu_runtime_error": injected_relu("runtime_error"),
    "gradients_doubled": observations.changed_gradients(lambda gradient: gradient * 2),
    "gradient_in_float64": observations.changed_gradients(torch.Tensor.double),
    "gradient_flattened": observations.changed_gradients(torch.Tensor.flatten),
    "gradient_missing": observations.changed_gradients(lambda tensor: None),
    "output_in_float64": observations.changed_outputs(torch.Tensor.double),
    "output_not_overflown": observations.changed_outputs(observations.largest_for_infinite),
    "output_of_minus_zero": observations.changed_outputs(observations.other_zero),
    "hardtanh_gradient_at_rounded_limits": decomposed(
        aten.hardtanh_backward.default, gradients.hardtanh_at_rounded_limits
    ),
    "hardtanh_gradient_at_its_own_limits": decomposed(
        aten.hardtanh_backward.default, gradients.hardtanh_at_its_own_limits
    ),
    "roundings_dropped": Fault(),  # inductor's own way
    "roundings_kept": Fault(lambda: in_force((KEPT,))),
    "eager_gradient_scaled": observations.changed_gradients(observations.scaled_in_place, side="reference"),
}
# Several faults for one compile, each for another oracle, where seconds count.
FAULTS["two_at_once"] = combined(FAULTS["compiled_backward_alternates"], FAULTS["compile_takes_long"])
FAULTS["seven_at_once"] = combined(
    overwriting_cotangent(gradients.without_complement),
    *(FAULTS[name] for name in ("softplus_gradient_without_threshold", "relu_accuracy", "gradient_in_float64")),
    *(FAULTS[name] for name in ("output_not_overflown", "output_of_minus_zero")),
)


def fault_named(name: str) -> Fault:
    """The fault of this name, `module:name` for an entry of another module's FAULTS; "" plants none. Raises
    UnknownFault."""
    if not name:
        return Fault()
    module, _, own = name.rpartition(":")
    table: dict[str, Fault] = importlib.import_module(module).FAULTS if module else FAULTS
    if own not in table:
        raise UnknownFault(f"no fault {own!r} in {module or __name__}; known are {', '.join(table)}")
    return table[own]


@contextlib.contextmanager
def planted(name: str, side: str) -> Iterator[Tamper]:
    """Put the fault of this name (`fault_named`) in force if it belongs to this side. Raises UnknownFault."""
    fault = fault_named(name)
    if fault.side != side:
        yield unchanged
        return
    with fault.plant():
        yield fault.tamper
