"""Every use of a torch API that is not public, except in `fuzzer/stages/`, whose modules name their own. Tried on
torch 2.11.0, 2.13.0 and 2.15.0.

fake_mode            torch._subclasses.FakeTensorMode with its cache_info and cache_clear: types without running
real_mode, needs_memory  torch._subclasses.fake_tensor.{unset_fake_temporarily, DataDependentOutputException} (tried on
                     2.11.0 and 2.13.0)
config_module        torch._inductor.config, torch._functorch.config, torch._dynamo.config
config_type          get_type of those modules: the declared type of a key
know_machine         torch._inductor.{codecache.torch_key, cpu_vec_isa.pick_vec_isa} (tried on 2.11.0 and 2.13.0)
load_probes_here     torch._inductor.cpu_vec_isa.{subprocess, VecISA._probe_load} (tried on 2.11.0, 2.13.0, 2.15.0)
watch_headers        torch._inductor.codecache.{_precompile_header, _HEADER_DIR} (tried on 2.13.0)
move_headers         torch._inductor.codecache.{_HEADER_DIR, _HEADER_LOCK_DIR} (tried on 2.13.0)
replace_compiler     torch._inductor.cpp_builder.run_compile_cmd (tried on 2.11.0 and 2.13.0)
leave_guards_untimed torch._dynamo.guards.profile_guard_manager
reset_compiler       torch._dynamo.reset: forget what was compiled before
saved_tensor_hooks_kept torch._C._autograd._saved_tensors_hooks_{get_disabled_error_message, enable, disable} (tried on
                     2.11.0 and 2.13.0)
replaced_decomposition torch._inductor.decomposition.{decompositions, fast_random_decomps} (tried on 2.11.0 and 2.13.0)
decomposition, replaced_lowering  the first of those tables, torch._inductor.lowering.lowerings
replaced_fake        torch._subclasses.fake_impls.op_implementations_dict (tried on 2.11.0 and 2.13.0)
compiled_backward    torch._dynamo.compiled_autograd._enable: autograd's own graph goes to the compiler
compile_ahead        torch.fx.experimental.proxy_tensor.make_fx, torch._inductor.aoti_* (tried on 2.11.0 and 2.13.0)
graph_pass           torch._inductor.config.post_grad_custom_pre_pass (tried on 2.11.0 and 2.13.0)
schema_defaults      torch.ops.aten and OpOverload._schema: how the parameters of a torch function are called
body_of              torch.overrides.has_torch_function and its two forms, by name in functions of torch (tried
                     on 2.13.0)
unseen, without_overrides  torch.utils._python_dispatch._disable_current_modes, torch._C.DisableTorchFunction (tried on
                     2.13.0)
saves_by_hooks       torch._C._autograd._top_saved_tensors_default_hooks (tried on 2.13.0)
output_code          torch._inductor.graph.GraphLowering.save_output_code (tried on 2.11.0 and 2.13.0)
graph_in_work        torch._inductor.virtualized.V.graph (tried on 2.11.0 and 2.13.0)
kernels_in_work      V.graph.scheduler.nodes, IRNode.get_origins (tried on 2.11.0 and 2.13.0)
before_code          torch._inductor.scheduler.Scheduler.codegen
loops_in_work        V.graph.scheduler.nodes, SchedulerNode.{_body, get_device}, GraphLowering.get_dtype,
                     torch._inductor.cpu_vec_isa.{pick_vec_isa, VecISA.nelements}; the bodies are read in coverage.loops
counters             torch._dynamo.utils.counters (tried on 2.11.0 and 2.13.0)
compile_phases       torch._dynamo.utils.ChromiumEventLogger.log_event_{start,end} (tried on 2.11.0 and 2.13.0)
inner_graphs         torch._inductor.compile_fx._compile_fx_inner (tried on 2.11.0 and 2.13.0)
without_part         the two above, torch._inductor.lowering.{lowerings, fallback_handler},
                     torch._inductor.codegen.triton.TritonKernel.triton_meta_common (tried on 2.11.0 and 2.13.0),
                     torch._inductor.codegen.cpp.CppScheduling._get_outer_loop_fusion_depth,
                     torch._functorch._aot_autograd.schemas.AOTConfig.disable_functionalization,
                     torch._functorch._aot_autograd.graph_capture_wrappers.maybe_to_fresh_input and
                     torch._prims_common.clone_preserve_strides (tried on 2.14.1, too),
                     torch._inductor.fx_passes.joint_graph.remove_no_ops (tried on 2.13.0 and 2.15.0)
bisect               torch._inductor.compiler_bisector.CompilerBisector (tried on 2.11.0 and 2.13.0)
cpp_kernels          torch._inductor.async_compile.AsyncCompile.cpp_pybinding
build_command        torch._inductor.cpp_builder.{CppBuilder, CppTorchDeviceOptions}
build_unit           torch._inductor.codecache.CppPythonBindingsCodeCache, torch._inductor.exc.CppCompileError
forget_sizes         torch._dynamo.pgo.reset_code_state
forget_graphs        torch._C._dynamo.compiled_autograd.clear_cache (tried on 2.11.0 and 2.13.0)
backward_is_running  torch._C._current_graph_task_id (tried on 2.11.0 and 2.13.0)
negated              torch._neg_view: read negated, like a lazy conjugate's imaginary part (tried on 2.11.0 and 2.13.0)
in_memory            torch.Tensor._is_zerotensor (tried on 2.13.0)
dispatch_kept        torch._C._PreserveDispatchKeyGuard
in_transform, memory_of  torch._C._functorch.{peek_interpreter_stack, is_functorch_wrapped_tensor, get_unwrapped}
higher_order         torch._higher_order_ops.{cond, map, scan, while_loop}: control flow as operations
is_fake              torch._subclasses.FakeTensor
passes_accuracy_check torch._dynamo.utils.same (tried on 2.11.0 and 2.13.0)
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import subprocess
import tempfile
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

CONFIGS = {
    "inductor": "torch._inductor.config",
    "functorch": "torch._functorch.config",
    "dynamo": "torch._dynamo.config",
    "triton": "fuzzer.language.tuning",  # ours, and made like those
}


# Fake results in torch's cache, at one or two kilobytes each: torch never removes any. A search meets the same again,
# two searches seldom do.
MOST_FAKES = 1 << 12


@contextlib.contextmanager
def dispatch_kept() -> Iterator[None]:
    """Keep the dispatch of operations as it is through the `with` block, also if the block raises.

    torch (2.13) changes the dispatch when the frames of certain exceptions die (forward-mode derivatives of fake
    tensors): afterwards nothing has a derivative. So these frames are released inside the block.
    """
    with torch._C._PreserveDispatchKeyGuard():
        try:
            yield
        except Exception as error:
            raised: BaseException | None = error
            while raised is not None:
                traceback.clear_frames(raised.__traceback__)
                raised = raised.__cause__ or raised.__context__
            raise


@contextlib.contextmanager
def fake_mode() -> Iterator[None]:
    """A mode under which tensors have a type and no data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    # ill-typed programs are expected here and need no traceback in the log
    log = logging.getLogger("torch._subclasses.fake_tensor")
    if log.level != logging.CRITICAL:  # to set it clears what every logger has cached
        log.setLevel(logging.CRITICAL)
    if FakeTensorMode.cache_info().size > MOST_FAKES:  # a campaign of weeks types millions of programs
        FakeTensorMode.cache_clear()
    with dispatch_kept(), FakeTensorMode():
        yield


def real_mode() -> contextlib.AbstractContextManager[Any]:
    """Within `fake_mode`: tensors have data again."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    return unset_fake_temporarily()


def needs_memory(error: Exception) -> bool:
    """Whether an error comes from fake tensors, not from the program: it needs values, or a fake kernel laid its result
    out beyond its storage (FFTs over dims in another order, torch 2.11). Only then are real tensors tried: a kernel may
    kill the process on operands that torch refuses."""
    from torch._subclasses.fake_tensor import DataDependentOutputException

    return isinstance(error, DataDependentOutputException) or str(error).startswith("setStorage")


def lacks_forward_mode(error: Exception) -> bool:
    """Whether an error comes from fake tensors: some operations have no forward mode on them (pytorch #160508,
    #197090)."""
    return "INTERNAL ASSERT FAILED" in str(error) and "is_inference()" in str(error)


def config_module(prefix: str) -> Any:
    """The config module behind a setting's prefix, one of CONFIGS ("inductor"). KeyError otherwise."""
    return importlib.import_module(CONFIGS[prefix])


def config_type(name: str) -> Any:
    """The type that torch declares for a setting ("inductor.max_fusion_size"); a plain type or a union of some."""
    prefix, _, key = name.partition(".")
    return config_module(prefix).get_type(key)


COMPILER = ("torch._dynamo", "torch._inductor.compile_fx", "torch._functorch.aot_autograd", "torch.func")
# Further imports of a process's first compile.
FIRST_COMPILE = (
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.quantization",
    "torch._inductor.fx_passes.serialized_patterns.bmm_pattern",
    "torch.export._trace",
    "sympy.physics.units",
)


def preload() -> None:
    """Import what every compile needs, so that forked workers share it in memory. Touches no device."""
    for name in COMPILER:
        importlib.import_module(name)
    for name in FIRST_COMPILE:
        with contextlib.suppress(ImportError):  # modules that this torch lacks are not needed
            importlib.import_module(name)


def know_machine() -> None:
    """Compute in advance for all forked processes what each first compile would: the hash of torch's own files and, by
    compiling small probes into inductor's cache folder, the CPU's vector instructions. Touches no device."""
    from torch._inductor.codecache import torch_key
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    torch_key()
    with load_probes_here(), contextlib.suppress(RuntimeError):  # no C++ compiler: a process that needs one reports it
        pick_vec_isa()


@contextlib.contextmanager
def load_probes_here() -> Iterator[None]:
    """Inside the block a fork of this process loads the probes that inductor compiles. In torch 2.11 a new Python
    does so and imports torch first, for each of up to four probes where a CPU has matrix instructions (AMX); 2.13 and
    later import nothing for it, and are left alone."""
    from torch._inductor import cpu_vec_isa

    if hasattr(cpu_vec_isa.VecISA, "_probe_load"):
        yield
        return
    started = cpu_vec_isa.subprocess
    cpu_vec_isa.subprocess = types.SimpleNamespace(**{**vars(started), "check_call": _run_in_fork})
    try:
        yield
    finally:
        cpu_vec_isa.subprocess = started


def _run_in_fork(command: Sequence[str], **_: Any) -> None:
    """Run the code of a command (python, -c, code) in a fork. Raises CalledProcessError where it fails or dies."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            exec(command[-1], {})
            status = 0
        finally:
            os._exit(status)
    if failed := os.waitpid(pid, 0)[1]:
        raise subprocess.CalledProcessError(failed, command)


def watch_headers(used: Callable[[Path], None]) -> Path | None:
    """Call used(header) when inductor first uses a precompiled header, in this process and those forked from it: the
    text's path, which that of what was compiled begins with. Returns the folder in which inductor looks for headers;
    None where this torch does not do so."""
    from torch._inductor import codecache

    make = getattr(codecache, "_precompile_header", None)
    folder = getattr(codecache, "_HEADER_DIR", None)
    if make is None or folder is None:
        return None
    seen: set[str] = set()

    def watched(*given: Any, **named: Any) -> str:
        header: str = make(*given, **named)
        if header not in seen:
            seen.add(header)
            used(Path(header))
        return header

    codecache._precompile_header = watched
    return Path(folder)


def move_headers(folder: Path) -> Path | None:
    """Have inductor look for its precompiled headers in this folder, and make them there, in this process. Returns the
    folder in which it looked before; None where this torch does not do so."""
    from torch._inductor import codecache

    before = getattr(codecache, "_HEADER_DIR", None)
    if before is None:
        return None
    codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR = str(folder), str(folder / "locks")
    return Path(before)


def replace_compiler(answer: Callable[[str, Callable[[], None]], None]) -> Callable[[], None]:
    """Have inductor call answer(command, compile) instead of a C++ compiler; compile() runs the command. This holds in
    this process and those forked from it, until somebody calls the function that is returned. It changes nothing where
    this torch has no such place."""
    from torch._inductor import cpp_builder

    run = getattr(cpp_builder, "run_compile_cmd", None)
    if run is None:
        return lambda: None

    def replaced(cmd_line: str, cwd: str) -> None:
        answer(cmd_line, lambda: run(cmd_line, cwd))

    def restore() -> None:
        cpp_builder.run_compile_cmd = run

    cpp_builder.run_compile_cmd = replaced
    return restore


def leave_guards_untimed() -> None:
    """Keep dynamo from timing its guards: for that it flushes the CPU's caches, 18 CPU milliseconds a program
    (docs/speed.md), and only logs the result."""
    from torch._dynamo import guards

    guards.profile_guard_manager = lambda root, scope, times: 0.0


def reset_compiler() -> None:
    """Forget every compiled frame."""
    torch._dynamo.reset()


@dataclass
class Graphs:
    """The graphs that torch.compile made inside a block, and the reasons of its graph breaks."""

    made: int = 0
    breaks: list[str] = field(default_factory=list)


@contextlib.contextmanager
def compiled_graphs() -> Iterator[Graphs]:
    """Count the graphs and the graph breaks of the block (dynamo's own counters, torch 2.11 to 2.15)."""
    from torch._dynamo.utils import counters

    made, broken, found = counters["stats"]["unique_graphs"], dict(counters["graph_break"]), Graphs()
    try:
        yield found
    finally:
        found.made = counters["stats"]["unique_graphs"] - made
        found.breaks += [reason for reason, count in counters["graph_break"].items() if count > broken.get(reason, 0)]


def is_higher_order(op: Any) -> bool:
    """Whether an operator takes functions (cond, scan, flex_attention)."""
    return isinstance(op, torch._ops.HigherOrderOperator)


def isa_trusted() -> contextlib.AbstractContextManager[Any]:
    """Inductor believes /proc/cpuinfo of the vector instructions in the block, and compiles no probe of them: with its
    caches off it would in each process, for 6 seconds (torch 2.13). A value that is set stays."""
    from torch._inductor import config

    known = config.cpp.vec_isa_ok is not None
    return contextlib.nullcontext() if known else config.patch("cpp.vec_isa_ok", True)


@contextlib.contextmanager
def module_calls_watched(before: Callable[..., None], after: Callable[..., None]) -> Iterator[None]:
    """Call before(module, args) and after(module, args, kwargs, result) for each call of any module in the block.

    Removing a global hook with kwargs leaves its number in a table of its own (torch 2.13), and torch.compile warns of
    global hooks from then on.
    """
    from torch.nn.modules import module as hooks

    first = hooks.register_module_forward_pre_hook(before)
    second = hooks.register_module_forward_hook(after, with_kwargs=True)
    try:
        yield
    finally:
        first.remove()
        second.remove()
        hooks._global_forward_hooks_with_kwargs.pop(second.id, None)


@contextlib.contextmanager
def saved_tensor_hooks_kept() -> Iterator[None]:
    """Restore after the block whether tensors saved for the backward can have hooks.

    torch.func.vjp forbids such hooks while it is traced, and a compile that raises meanwhile leaves them forbidden
    (torch 2.13): from then on torch refuses every checkpoint in the process.
    """
    hooks = torch._C._autograd
    before = hooks._saved_tensors_hooks_get_disabled_error_message()
    try:
        yield
    finally:
        hooks._saved_tensors_hooks_enable() if before is None else hooks._saved_tensors_hooks_disable(before)


def compiled_backward(compile: Callable[..., Any], dynamic: bool) -> contextlib.AbstractContextManager[None]:
    """Make autograd hand the graph of every backward to compile(graph), and run the result."""
    from torch._dynamo import compiled_autograd

    return compiled_autograd._enable(compile, dynamic)


def compile_ahead(step: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """step(*given) as AOTInductor computes it: traced with make_fx, exported, packaged, loaded, run; then removed."""
    from torch.fx.experimental.proxy_tensor import make_fx

    exported = torch.export.export(make_fx(step)(*given), given)
    with tempfile.TemporaryDirectory() as folder:
        package = torch._inductor.aoti_compile_and_package(exported, package_path=f"{folder}/step.pt2")
        results = torch._inductor.aoti_load_package(package)(*given)
        # a result may be in the package's own memory, which is freed with the package
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, results)


def print_native_stacks() -> None:
    """Make torch print the C++ stack on a fatal signal (used to name the native frame of a crash)."""
    torch._C._set_print_stack_traces_on_fatal_signal(True)


@contextlib.contextmanager
def replaced_decomposition(op: Any, function: Callable[..., Any]) -> Iterator[None]:
    """Make inductor decompose this ATen overload by `function` instead; restored afterwards.

    Both tables that inductor chooses from are changed in place: the second is cached and handed out as it is. Neither
    is part of a cache key, so inductor's caches must be off meanwhile.
    """
    from torch._inductor import decomposition

    missing = object()
    tables: list[dict[Any, Any]] = [decomposition.decompositions, decomposition.fast_random_decomps()]
    before = [table.get(op, missing) for table in tables]
    for table in tables:
        table[op] = function
    try:
        yield
    finally:
        for table, known in zip(tables, before, strict=True):
            if known is missing:
                del table[op]
            else:
                table[op] = known


def is_composite(source: str) -> bool:
    """Whether ATen composes a function of others and uses their derivatives: "torch.tile", "torch.fft.ihfft"."""
    name = source.removeprefix("torch.").removeprefix("nn.functional.").replace(".", "_")
    implicit = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    return any(operator.partition(".")[0] == f"aten::{name}" for operator in implicit)


def decomposition(op: Any) -> Callable[..., Any]:
    """The function by which inductor now decomposes this ATen overload. KeyError where there is none."""
    from torch._inductor.decomposition import decompositions

    found: Callable[..., Any] = decompositions[op]
    return found


@contextlib.contextmanager
def replaced_lowering(op: Any, function: Callable[..., Any]) -> Iterator[None]:
    """Make inductor lower this ATen overload by function(the replaced lowering, whether in a backward, *arguments)."""
    from torch._inductor.lowering import lowerings
    from torch._inductor.virtualized import V

    before = lowerings[op]

    def lowered(*args: Any, **kwargs: Any) -> Any:
        return function(before, bool(V.graph.is_backward), *args, **kwargs)

    lowerings[op] = lowered
    try:
        yield
    finally:
        lowerings[op] = before


@contextlib.contextmanager
def replaced_fake(op: Any, function: Callable[..., Any]) -> Iterator[None]:
    """Make the compiler use function(*args) for the shape, dtype and strides of this ATen overload's result."""
    from torch._subclasses.fake_impls import op_implementations_dict as table
    from torch._subclasses.fake_tensor import FakeTensorMode

    def fake(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return function(*args, **kwargs)

    before = table.get(op)
    table[op] = fake
    FakeTensorMode.cache_clear()  # the cache holds results by op and arguments
    try:
        yield
    finally:
        if before is None:
            del table[op]
        else:
            table[op] = before
        FakeTensorMode.cache_clear()


@contextlib.contextmanager
def graph_pass(change: Callable[[Any], None]) -> Iterator[None]:
    """Make inductor call change(graph) on every graph, forward and backward, before its own passes after the split."""
    with config_module("inductor").patch({"post_grad_custom_pre_pass": change}):
        yield


@contextlib.contextmanager
def output_code(note: Callable[[str], None]) -> Iterator[None]:
    """Make inductor also call note(code) with the Python module that it writes for every graph; restored afterwards."""
    from torch._inductor.graph import GraphLowering

    before = GraphLowering.save_output_code

    def both(code: str) -> None:
        if before is not None:
            before(code)
        note(code)

    GraphLowering.save_output_code = staticmethod(both)
    try:
        yield
    finally:
        GraphLowering.save_output_code = staticmethod(before)


def graph_in_work() -> tuple[bool, str]:
    """(whether it is a backward, its text with dtypes, sizes and strides) of the graph that inductor is lowering."""
    from torch._inductor.virtualized import V

    return bool(V.graph.is_backward), readable(V.graph.module)


def kernels_in_work() -> list[tuple[tuple[str, str], ...]]:
    """For each kernel of the graph that inductor is lowering, the pairs of its operations of which one feeds the other.

    Operations are named like "aten.mul.Tensor". Nothing where inductor takes the graph's code from its cache.
    """
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    if not isinstance(V.graph, GraphLowering) or V.graph.scheduler is None:
        return []
    return [_pairs(_origins(node)) for node in V.graph.scheduler.nodes if not node.is_extern()]


def _origins(node: Any) -> list[Any]:
    """The operations of the graph that a kernel computes."""
    found = {origin for part in node.get_nodes() if part.node is not None for origin in part.node.get_origins()}
    return [origin for origin in found if origin.op == "call_function"]


@contextlib.contextmanager
def before_code(note: Callable[[], None]) -> Iterator[None]:
    """Make inductor call note() once a graph is lowered and scheduled, before it writes code, which changes the bodies
    of loops in half precision; restored afterwards."""
    from torch._inductor.scheduler import Scheduler

    before = Scheduler.codegen

    def codegen(self: Any) -> None:
        note()
        before(self)

    Scheduler.codegen = codegen
    try:
        yield
    finally:
        Scheduler.codegen = before


def loops_in_work(note: Callable[[list[Any], Callable[[str], Any], Callable[[Any], int]], None]) -> None:
    """Call note(bodies, dtype of a buffer by name, lanes of a dtype) for each kernel of the graph that inductor is
    lowering. Lanes are those of the CPU's vectors under the present settings (0: none); elsewhere 16, Triton's own
    threshold for sizes. Not called if inductor takes the graph's code from its cache."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    if not isinstance(V.graph, GraphLowering) or V.graph.scheduler is None:
        return
    for node in V.graph.scheduler.nodes:
        bodies = [part._body for part in node.get_nodes() if getattr(part, "_body", None) is not None]
        if bodies:
            isa = pick_vec_isa() if node.get_device().type == "cpu" else None
            note(bodies, _dtype_in_work, (lambda dtype: 16) if isa is None else isa.nelements if isa else lambda _: 0)


def _dtype_in_work(name: str) -> Any:
    """The dtype of a buffer of the graph that inductor is lowering; None where it knows no such buffer."""
    from torch._inductor.virtualized import V

    with contextlib.suppress(KeyError):
        return V.graph.get_dtype(name)
    return None


def _pairs(origins: list[Any]) -> tuple[tuple[str, str], ...]:
    inside = set(origins)
    found = {(str(a.target), str(b.target)) for a in origins for b in a.users if b in inside}
    return tuple(sorted(found))


def counters() -> dict[str, int]:
    """The compiler's counters in this process so far, by names like "inductor pattern_matcher_count"."""
    from torch._dynamo.utils import counters as counted

    return {f"{group} {name}": number for group, found in counted.items() for name, number in found.items()}


@contextlib.contextmanager
def compile_phases(enter: Callable[[str], None], leave: Callable[[], None]) -> Iterator[None]:
    """Make the compiler call enter(name) and leave() around each phase that it times ("GraphLowering.run")."""
    from torch._dynamo.utils import ChromiumEventLogger as Logger

    start, end = Logger.log_event_start, Logger.log_event_end

    def entering(self: Any, name: str, *given: Any, **named: Any) -> Any:
        enter(name)
        return start(self, name, *given, **named)

    def leaving(self: Any, *given: Any, **named: Any) -> Any:
        leave()
        return end(self, *given, **named)

    Logger.log_event_start, Logger.log_event_end = entering, leaving
    try:
        yield
    finally:
        Logger.log_event_start, Logger.log_event_end = start, end


def readable(module: Any) -> str:
    """A graph module as Python code with the dtype, sizes and strides of every value."""
    return str(module.print_readable(print_output=False, include_stride=True))


@contextlib.contextmanager
def inner_graphs(wanted: Callable[[Any, bool], bool]) -> Iterator[None]:
    """Make inductor call wanted(graph module, is backward) for every graph; where that is False the graph runs
    uncompiled."""
    from torch._inductor import compile_fx

    before = compile_fx._compile_fx_inner

    def inner(gm: Any, example_inputs: Any, *args: Any, **options: Any) -> Any:
        if wanted(gm, bool(options.get("is_backward"))):
            return before(gm, example_inputs, *args, **options)
        return compile_fx.make_boxed_func(gm)

    compile_fx._compile_fx_inner = inner
    try:
        yield
    finally:
        compile_fx._compile_fx_inner = before


FP_FUSION, GRAPHS = "fp fusion", ("forward graph", "backward graph")
OUTER_LOOPS, FUNCTIONALIZATION = "outer-loop fusion", "functionalization"
DENSE_COPIES, NO_OPS = "dense copies of inputs", "removal of no-ops"


def without_part(name: str) -> contextlib.AbstractContextManager[None]:
    """Make inductor leave out one part, to find the cause of a difference.

    name   FP_FUSION: Triton contracts no multiplication and addition;  one of GRAPHS: that graph runs uncompiled;
           OUTER_LOOPS: C++ loops share no outer loop;  FUNCTIONALIZATION: AOTAutograd keeps writes in place;
           DENSE_COPIES: AOTAutograd copies an input that is written with its strides;
           NO_OPS: the joint graph keeps operations that seem to change nothing, such as x * 1;
           an ATen overload ("aten.mm.default"): neither decomposed nor lowered, ATen computes it. AttributeError where
           no part has this name.

    None of this is part of a cache key, so inductor's caches must be off meanwhile.
    """
    if name == FP_FUSION:
        return _without_fp_fusion()
    if name == OUTER_LOOPS:
        return _without_outer_loops()
    if name == FUNCTIONALIZATION:
        return _without_functionalization()
    if name == DENSE_COPIES:
        return _without_dense_copies()
    if name == NO_OPS:
        return _with_no_ops()
    if name in GRAPHS:
        return inner_graphs(lambda module, backward: backward != (name == GRAPHS[1]))
    packet, _, overload = name.removeprefix("aten.").rpartition(".")
    return _left_to_aten(getattr(getattr(torch.ops.aten, packet), overload))


@contextlib.contextmanager
def _without_fp_fusion() -> Iterator[None]:
    from torch._inductor.codegen.triton import TritonKernel

    before = TritonKernel.__dict__["triton_meta_common"]

    def meta(cls: Any) -> dict[str, Any]:
        return {**before.__func__(cls), "enable_fp_fusion": False}

    TritonKernel.triton_meta_common = classmethod(meta)
    try:
        yield
    finally:
        TritonKernel.triton_meta_common = before


@contextlib.contextmanager
def _without_outer_loops() -> Iterator[None]:
    from torch._inductor.codegen.cpp import CppScheduling

    before = CppScheduling._get_outer_loop_fusion_depth
    CppScheduling._get_outer_loop_fusion_depth = lambda self, node1, node2: 0
    try:
        yield
    finally:
        CppScheduling._get_outer_loop_fusion_depth = before


@contextlib.contextmanager
def _without_functionalization() -> Iterator[None]:
    from torch._functorch._aot_autograd.schemas import AOTConfig

    before = AOTConfig.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        before(self, *args, **options | {"disable_functionalization": True})

    AOTConfig.__init__ = init
    try:
        yield
    finally:
        AOTConfig.__init__ = before


@contextlib.contextmanager
def _without_dense_copies() -> Iterator[None]:
    from torch._functorch._aot_autograd import graph_capture_wrappers as traced
    from torch._prims_common import clone_preserve_strides

    before = traced.maybe_to_fresh_input

    def fresh(index: int, given: Any, facts: Any) -> Any:
        made = before(index, given, facts)
        copied = isinstance(given, torch.Tensor) and made is not given and made.stride() != given.stride()
        return clone_preserve_strides(given) if copied else made

    traced.maybe_to_fresh_input = fresh
    try:
        yield
    finally:
        traced.maybe_to_fresh_input = before


@contextlib.contextmanager
def _with_no_ops() -> Iterator[None]:
    from torch._inductor.fx_passes import joint_graph

    before = joint_graph.remove_no_ops
    joint_graph.remove_no_ops = lambda *_: None
    try:
        yield
    finally:
        joint_graph.remove_no_ops = before


@contextlib.contextmanager
def _left_to_aten(op: Any) -> Iterator[None]:
    from torch._inductor import decomposition
    from torch._inductor.lowering import fallback_handler, lowerings

    tables: list[dict[Any, Any]] = [decomposition.decompositions, decomposition.fast_random_decomps(), lowerings]
    before = [table.pop(op) if op in table else None for table in tables]
    lowerings[op] = fallback_handler(op, add_to_fallback_set=False)
    try:
        yield
    finally:
        for table, known in zip(tables, before, strict=True):
            table.pop(op, None)
            if known is not None:
                table[op] = known


@contextlib.contextmanager
def cpp_kernels(make: Callable[[list[str], str], Callable[..., None]]) -> Iterator[None]:
    """Make inductor call make(types of the arguments, source) for each C++ kernel in place of compiling it."""
    from torch._inductor.async_compile import AsyncCompile

    before = AsyncCompile.cpp_pybinding
    AsyncCompile.cpp_pybinding = lambda self, types, source: make(types, source)
    try:
        yield
    finally:
        AsyncCompile.cpp_pybinding = before


def build_command() -> str:
    """inductor's command line of the C++ compiler for a kernel, under the present settings; without names of files."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache
    from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    flags = CppPythonBindingsCodeCache.cpp_compile_command_flags
    options = CppTorchDeviceOptions(vec_isa=pick_vec_isa(), device_type="cpu", **flags)
    return str(CppBuilder(name="kernel", sources="kernel.cpp", BuildOption=options).get_command_line())


def build_unit(kernels: Sequence[tuple[Sequence[str], str]]) -> list[Callable[..., None]] | None:
    """Compile several C++ kernels (types of the arguments, source) together, as inductor would compile one, under the
    present settings. Returns a Python function for each, with inductor's own binding; None if that fails."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache
    from torch._inductor.exc import CppCompileError

    class Unit(CppPythonBindingsCodeCache):
        cache: dict[str, Any] = {}  # noqa: RUF012 (its type is inductor's)

        @classmethod
        def _load_library_inner(cls, path: str, key: str) -> Any:
            loaded = types.SimpleNamespace(functions=[])
            for cls.entry_function in (f"kernel_{i}" for i in range(len(kernels))):
                module = super()._load_library_inner(path, key)  # a library is several modules, one for each entry
                loaded.functions.append(getattr(module, cls.entry_function))
            return loaded

    try:
        built: list[Callable[..., None]] = Unit.load(_unit_text(kernels)).functions
    except (CppCompileError, ImportError, OSError):  # refused by the compiler, the linker or the loader
        return None
    return built


def _unit_text(kernels: Sequence[tuple[Sequence[str], str]]) -> str:
    """Several C++ sources joined to one, each in its own namespace with its binding; their includes come first."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache as Single

    bodies = []
    for i, (kinds, source) in enumerate(kernels):
        given = ", ".join(f"parse_arg<{kind.replace('const ', '')}>(args, {n})" for n, kind in enumerate(kinds))
        binding = Single.suffix_template.format(
            arg_len=len(kinds),
            call_entry_func=Single.call_entry_function.format(given),
            entry_func=f"kernel_{i}",
            extra_parse_arg="",
        )
        # C has no namespaces: `kernel` gets a name of its own
        bodies.append(f"#define kernel kernel_{i}\nnamespace unit_{i} {{\n{source}\n{binding}\n}}\n#undef kernel\n")
    text = "".join(bodies)
    included = dict.fromkeys(_INCLUDE.findall(text))
    return "\n".join([*included, _INCLUDE.sub("", text)])


_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)


def forget_sizes() -> None:
    """Forget sizes from earlier compiles. dynamo stores them by the code's name and line, which many programs share."""
    from torch._dynamo.pgo import reset_code_state

    reset_code_state()


def forget_graphs() -> None:
    """Forget compiled graphs of autograd. They are stored by their operations, which many programs share."""
    torch._C._dynamo.compiled_autograd.clear_cache()


def bisect(agrees: Callable[[], bool]) -> tuple[str, str, int, str] | None:
    """The result of PyTorch's own bisector: (backend, subsystem, number, debug info), "" and 0 for unknown parts.

    agrees   compiles and runs the program, each time anew, and returns whether the difference is gone. None: it is gone
             with every backend. The bisector keeps its state in files of TORCHINDUCTOR_CACHE_DIR, removes that folder,
             and affects all other compiles of the process: run it in a process of its own with a cache of its own.
    """
    from torch._inductor.compiler_bisector import CompilerBisector

    found = CompilerBisector.do_bisect(agrees)
    if found is None:
        return None
    return found.backend, found.subsystem or "", found.bisect_number or 0, found.debug_info or ""


def backward_is_running() -> bool:
    """Whether autograd runs a backward in this thread."""
    return int(torch._C._current_graph_task_id()) != -1


def in_transform() -> bool:
    """Whether a transform of torch.func (vmap, grad, jvp) is active for the present call."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def memory_of(tensor: torch.Tensor) -> int:
    """A number that identifies a tensor's storage among those alive, also within a transform of torch.func."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage()._cdata


def higher_order(name: str) -> Callable[..., Any]:
    """torch's own operation for control flow: cond, map, scan or while_loop."""
    return getattr(torch._higher_order_ops, name)  # type: ignore[no-any-return]


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether the tensor, or the one inside a wrapper of torch.func, has a type and no data."""
    from torch._subclasses.fake_tensor import FakeTensor

    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return isinstance(tensor, FakeTensor)


def in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor. Zeros that torch keeps without memory (a tangent known to be zero) become zeros with memory.

    Under a dispatch mode some kernels read such tensors at no address (`mul.Scalar`, torch 2.13).
    """
    if not tensor._is_zerotensor():
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).zero_()


def negated(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the tensor that negates its values."""
    return torch._neg_view(tensor)


def schema_defaults(function: Any, none: Any) -> Iterator[dict[str, Any]]:
    """The parameters, in order, with their defaults (`none`: it has none) of each overload of the ATen operation that a
    torch function is named after."""
    if isinstance(function, torch._ops.OpOverload):
        overloads = [function]
    else:
        packet = getattr(torch.ops.aten, function.__name__, None)
        overloads = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
    for overload in overloads:
        known = overload._schema.arguments
        yield {a.name: a.default_value if a.has_default_value() else none for a in known}


_OVERRIDES = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def body_of(function: Any) -> Callable[..., Any] | None:
    """A torch function that is written in Python, without its look at overrides: called under a mode of overrides it
    runs its body, whose calls the mode sees. None for another function."""
    if not isinstance(function, types.FunctionType) or not set(_OVERRIDES) & set(function.__code__.co_names):
        return None
    space = {**function.__globals__, **dict.fromkeys(_OVERRIDES, lambda *given: False)}
    body = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    body.__kwdefaults__ = function.__kwdefaults__
    return body


def unseen() -> contextlib.AbstractContextManager[Any]:
    """Within: modes of dispatch see no operation."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def without_overrides() -> contextlib.AbstractContextManager[Any]:
    """Within: modes of overrides see no call."""
    return torch._C.DisableTorchFunction()


def saves_by_hooks() -> bool:
    """Whether hooks store the tensors that operations save for the backward, as within a checkpoint."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def passes_accuracy_check(eager: torch.Tensor, found: torch.Tensor, exact: torch.Tensor, tolerance: float) -> bool:
    """PyTorch's own accuracy check of a compiled result, as its benchmarks call it."""
    from torch._dynamo.utils import same

    return bool(same(eager, found, exact, tol=tolerance, equal_nan=True, log_error=lambda *_: None))
