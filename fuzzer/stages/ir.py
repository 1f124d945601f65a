"""The stage `ir`: everything of inductor but the text of its kernels, whose loops are evaluated instead of compiled.

Lowering, scheduler, fusion, reuse of buffers, the Python wrapper and the kernels that it calls are inductor's own.
Where inductor would write a kernel, its wrapper calls `kernels.run`. The scheduling here derives from torch's own for
the device, so fusion and the choice of templates are those of a full compile.

Private API, tried on torch 2.11.0, 2.13.0 and 2.15.0: torch._inductor.codegen.common.{init_backend_registration,
device_codegens, DeviceCodegen, Kernel, KernelArgs, RemovedArg}, the methods of schedulings that are overridden here,
torch._inductor.codegen.cpp.{CppScheduling, OuterLoopFusedSchedulerNode}, SchedulerNode.{_body, decide_inplace_update,
mark_run}, Scheduler.{free_buffers, mutation_real_name}, GraphLowering.{removed_buffers, inplaced_to_remove,
get_buffer}, PythonWrapperCodegen.{add_import_once, writeline, ensure_size_computed}.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

from torch._inductor.codegen import common
from torch._inductor.codegen.cpp import CppScheduling, OuterLoopFusedSchedulerNode
from torch._inductor.virtualized import V

from fuzzer.language.devices import DEVICES
from fuzzer.stages import kernels
from fuzzer.stages.cannot import own_work

_LOADS, _STORES = ("LOAD", "BUCKETIZE"), ("STORE", "STORE_REDUCTION")


class Evaluating:
    """A mixin in front of a device's scheduling: it writes a call of `kernels.run` for every kernel."""

    reasons: list[str]
    late = False  # Triton uses as many inner loops as needed

    def codegen_node(self, node: Any) -> None:
        self.write(node)
        self.scheduler.free_buffers()  # type: ignore[attr-defined]

    def codegen_combo_kernel(self, node: Any) -> None:
        """One kernel of several unrelated ones."""
        self.write(*node.get_subkernel_nodes())
        self.scheduler.free_buffers()  # type: ignore[attr-defined]

    def codegen_mix_order_reduction(self, node: Any) -> None:
        """One kernel of two parts that reduce the same data in different orders."""
        self.write(node.node1, node.node2)
        self.scheduler.free_buffers()  # type: ignore[attr-defined]

    codegen_nested_reduction = codegen_mix_order_reduction

    def write(self, *parts: Any) -> None:
        """Write a kernel of its own for each part."""
        with own_work(self.reasons):
            for part in parts:
                removed = getattr(self.scheduler, "removed_ops", ())  # type: ignore[attr-defined]
                if nodes := [node for node in part.get_nodes() if node.get_name() not in removed]:
                    write_kernel([nodes], 0, self.late, self.reasons)


class EvaluatingCpp(Evaluating):
    """The mixin for C++: kernels share a function until the next flush, and only the flush frees buffers."""

    late = True  # C++ uses one inner loop for each nest

    def codegen_node(self, node: Any) -> None:
        with own_work(self.reasons):
            if isinstance(node, OuterLoopFusedSchedulerNode):
                nests = [part.get_nodes() for part in node.get_outer_nodes()]
                write_kernel(nests, node.outer_loop_fusion_depth, self.late, self.reasons)
            else:
                nodes = self.try_loop_split(node.get_nodes())  # type: ignore[attr-defined]
                write_kernel([nodes], 0, self.late, self.reasons)


def write_kernel(nests: Sequence[Sequence[Any]], depth: int, late: bool, reasons: list[str]) -> None:
    """Allocate the buffers to which a kernel of these nests stores, reuse and remove buffers as the kernel would, and
    call it.

    depth: how many outer loops the nests have in common.
    """
    args = common.KernelArgs()
    for nodes in nests:
        kernel = common.Kernel(args, increase_kernel_count=False)
        with V.set_kernel_handler(kernel):
            for node in nodes:
                node.decide_inplace_update()
                node.mark_run()
                _note_buffers(kernel, node._body)
            kernel.remove_kernel_local_buffers()
        V.graph.removed_buffers |= kernel.removed_buffers
        V.graph.inplaced_to_remove |= kernel.inplaced_to_remove
    made = [_node(args, number, node._body) for number, nodes in enumerate(nests) for node in nodes]
    local = {name: _extent(name) for node in made for name in node.names.values() if name in V.graph.removed_buffers}
    results = [_results(nodes) for nodes in nests]
    _call(kernels.Kernel(made, results, results[0][:depth], late, local, reasons))


def _results(nodes: Sequence[Any]) -> Sequence[Any]:
    """The sizes of the loops that all nodes of a nest share: for a reduction, those of its results."""
    sizes = [node._body.sizes for node in nodes]
    found: Sequence[Any] = next((outer for outer, inner in sizes if inner), sizes[0][0])
    return found


def _touched(body: Any, kinds: Sequence[str]) -> list[str]:
    """The buffers that a body touches in these ways."""
    entries = (entry for kind, found in body.memory_usage.items() if kind.name in kinds for entry in found)
    return [entry.buffer_name for entry in entries if entry.buffer_name is not None]


def _real_name(name: str) -> str:
    found: str = V.graph.scheduler.mutation_real_name.get(name, name)
    return found


def _note_buffers(kernel: Any, body: Any) -> None:
    """Note which buffers the kernel is given and which it stores to, as writing its code would."""
    for name in _touched(body, _LOADS):
        if name not in kernel.store_buffer_names and _real_name(name) not in V.graph.removed_buffers:
            kernel.args.input(name)
    for name in _touched(body, _STORES):
        kernel.store_buffer_names.add(name)
        if _real_name(name) not in V.graph.removed_buffers:
            kernel.args.output(name)


def _node(args: Any, nest: int, body: Any) -> kernels.Node:
    loads, stores = _touched(body, _LOADS), _touched(body, _STORES)
    names = {name: _variable(args, _real_name(name)) for name in (*loads, *stores)}
    loaded, stored = (frozenset(names[name] for name in found) for found in (loads, stores))
    return kernels.Node(body, nest, names, loaded, stored)


def _variable(args: Any, name: str) -> str:
    """The wrapper's variable that holds a buffer while the kernel runs: the last one, where a buffer takes over
    memory."""
    inplace = args.inplace_buffers.get(name)
    if name in V.graph.removed_buffers or inplace is None or isinstance(inplace, common.RemovedArg):
        return name
    found: str = inplace.other_names[-1]
    return found


def _extent(name: str) -> tuple[Any, Any]:
    layout = V.graph.get_buffer(name).get_layout()
    return layout.storage_size(), layout.dtype


def _call(kernel: kernels.Kernel) -> None:
    wrapper = V.graph.wrapper_code
    for symbol in kernel.symbols:
        wrapper.ensure_size_computed(symbol)
    wrapper.add_import_once(f"from {kernels.__name__} import run as run_kernel")
    given = ", ".join(f"{name!r}: {name}" for name in kernel.given)
    sizes = ", ".join(f"{str(symbol)!r}: {symbol}" for symbol in kernel.symbols)
    adds = "  # atomic_add" if any(_adds(node.body) for node in kernel.nodes) else ""
    wrapper.writeline(f"run_kernel({kernels.register(kernel)}, {{{given}}}, {{{sizes}}}){adds}")


def _adds(body: Any) -> bool:
    return any(entry.mode == "atomic_add" for entries in body.memory_usage.values() for entry in entries)


# ---------------------------------------------------------------- in force


@functools.cache
def _derived(scheduling: type) -> type:
    before = EvaluatingCpp if issubclass(scheduling, CppScheduling) else Evaluating
    return type(f"Evaluating{scheduling.__name__}", (before, scheduling), {})


def _evaluating(made: Callable[[Any], Any], reasons: list[str]) -> Callable[[Any], Any]:
    """A constructor of schedulings like this one whose kernels are evaluated."""

    def make(scheduler: Any) -> Any:
        kind: Any = type(made(None))
        found = _derived(kind)(scheduler)
        found.reasons = reasons
        return found

    return make


@contextlib.contextmanager
def loops(reasons: list[str]) -> Iterator[None]:
    """Make inductor's kernels run in the evaluator, on every type of device for which it writes code."""
    common.init_backend_registration()
    known = {name: row for name, row in common.device_codegens.items() if name in DEVICES}
    evaluated = {
        name: common.DeviceCodegen(
            _evaluating(row.scheduling, reasons), row.wrapper_codegen, row.cpp_wrapper_codegen, row.fx_wrapper_codegen
        )
        for name, row in known.items()
    }
    kernels.KERNELS.clear()
    with patch.dict(common.device_codegens, evaluated):
        yield
