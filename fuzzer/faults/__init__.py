"""FAULTS: what a canary plants, in the worker and around one side's run only. A fault is one function and one line.

Most sit where a real fault would: a wrong decomposition of an op that only backwards have; a wrong pass over the
compiled backward graph; a meta kernel that gives wrong strides; compiled code that dies or writes where it must not;
torch's own planted relu faults. The rest corrupt what a run has recorded.
A fault knows nothing of programs or oracles: `canaries` says what is expected of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fuzzer.faults import gradients, passes, records
from fuzzer.faults.deeds import in_compiled_backward, in_compiler, injected_relu, overwriting_cotangent
from fuzzer.faults.fault import Fault, Tamper, together, untouched
from fuzzer.faults.gradients import decomposed
from fuzzer.faults.passes import in_backward
from fuzzer.faults.rare import RARE, recorded
from fuzzer.private import graph_pass

aten = torch.ops.aten


class UnknownFault(ValueError):
    """A fault that is not in FAULTS."""


FAULTS: dict[str, Fault] = {
    "sigmoid_gradient_without_complement": decomposed(aten.sigmoid_backward.default, gradients.without_complement),
    "one_gradient_element_scaled": decomposed(aten.sigmoid_backward.default, gradients.one_element_scaled),
    "gradient_all_zero": decomposed(aten.tanh_backward.default, gradients.zeros),
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
    "accumulation_forgotten": in_backward(aten.add.Tensor, passes.operand),
    "broadcast_summed_over_columns": in_backward(aten.sum.dim_IntList, passes.over_columns),
    "recomputed_of_another_value": in_backward(aten.exp.default, passes.of_what_came_before),
    "size_one_dim_of_the_first_row": in_backward(aten.expand.default, passes.from_the_first_row),
    "ties_not_shared": in_backward(aten.div.Tensor, passes.operand),
    "scatter_overwrites": in_backward(aten.scatter_add.default, passes.overwriting),
    "window_one_further": in_backward(aten.slice_scatter.default, passes.one_further),
    "scan_not_reversed": in_backward(torch.ops.prims.rev.default, passes.operand),
    "product_not_transposed": in_backward(aten.mm.default, passes.transposed),
    "average_of_padding_too": in_backward(aten.avg_pool2d_backward.default, passes.of_padding_too),
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
    "compile_takes_long": Fault(tamper=records.long_compile),
    "cotangent_overwritten": overwriting_cotangent(gradients.sigmoid_gradient),
    "written_behind_cotangent": overwriting_cotangent(gradients.sigmoid_gradient, "write behind"),
    "relu_accuracy": injected_relu("accuracy"),
    "relu_compile_error": injected_relu("compile_error"),
    "relu_runtime_error": injected_relu("runtime_error"),
    "gradients_doubled": records.changed_gradients(lambda gradient: gradient * 2),
    "gradient_in_float64": records.changed_gradients(torch.Tensor.double),
    "gradient_flattened": records.changed_gradients(torch.Tensor.flatten),
    "gradient_missing": records.changed_gradients(lambda tensor: None),
    "output_in_float64": records.changed_outputs(torch.Tensor.double),
    "eager_gradient_scaled": records.changed_gradients(records.scaled_in_place, side="reference"),
}
# One compile rings several oracles, where seconds count.
FAULTS["three_at_once"] = together(in_compiled_backward("alternate, take memory"), FAULTS["compile_takes_long"])
FAULTS["five_at_once"] = together(
    overwriting_cotangent(gradients.without_complement),
    *(FAULTS[name] for name in ("softplus_gradient_without_threshold", "relu_accuracy", "gradient_in_float64")),
)
# Each of the rare ones alone, and all of them in one run.
FAULTS |= {name: recorded([name]) for name in RARE} | {"rare": recorded(RARE)}


@contextlib.contextmanager
def planted(name: str, side: str) -> Iterator[Tamper]:
    """The fault of this name in force where it belongs on this side; "" is none. Raises UnknownFault."""
    if name and name not in FAULTS:
        raise UnknownFault(f"no fault {name!r}; known are {', '.join(FAULTS)}")
    fault = FAULTS[name] if name else Fault()
    if fault.side != side:
        yield untouched
        return
    with fault.plant():
        yield fault.tamper
