"""Compiler settings: the table from which the generator draws, and the code that puts a program's settings in force.

A setting is named by config and key, `inductor.max_fusion_size`; torch gives its default. Any key that the running
torch has can be set by hand (`--set`); the table holds those worth drawing.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from fuzzer.language.devices import DEVICES, devices_with_code
from fuzzer.language.errors import UsageError, meant
from fuzzer.language.private import CONFIGS, config_module, config_type
from fuzzer.language.program import Attributes, Value
from fuzzer.language.trust import why_refused
from fuzzer.language.tuning import ALL


class UnknownSetting(UsageError):
    """A setting that the running torch does not have, or a value that it cannot hold."""


# Compiled code draws the same random numbers as eager only where it calls eager's kernels for them.
SAME_DRAWS: tuple[str, Value] = ("inductor.fallback_random", True)
ONE_CONFIG = "triton.config"


@dataclass(frozen=True)
class Setting:
    """A setting worth drawing.

    name     config and key.
    values   to try beside torch's default (`default`).
    devices  on which it has an effect, and is drawn; none where it is not drawn at all, and `note` says why.
    graphs   TRAINING or INFERENCE: the only kind in which it has an effect (`RouteSpec.takes`); none given: both.
    needs    other settings without which it has no effect; they are set with it.
    always   whether every program draws a value of it, beside the drawn settings; if it needs others, every program
             that has drawn these.
    note     why it has no effect elsewhere, or why its effect is legal rounding, or is not.
    code     whether it affects only the text of kernels: no earlier stage shows it (`shown_before_code`).
    promised whether torch means it for users; else it is there for torch's own tests and debugging, and a program that
             differs under it alone is `unsupported`.
    """

    name: str
    values: tuple[Value, ...]
    devices: tuple[str, ...] = tuple(DEVICES)
    graphs: str = ""
    needs: Attributes = ()
    always: bool = False
    note: str = ""
    code: bool = False
    promised: bool = True


_CPP, _TRITON, _NOWHERE = devices_with_code("cpp"), devices_with_code("triton"), ()
_GRAPHED = tuple(name for name, device in DEVICES.items() if device.graphs)
TRAINING = "training"  # a forward and a backward graph, split by the partitioner
INFERENCE = "inference"  # one graph, under no_grad
CUDA_GRAPHS = "inductor.triton.cudagraphs"
_PADS: Attributes = (("inductor.disable_padding_cpu", False),)
_PADS_ALL: Attributes = (*_PADS, ("inductor.padding_stride_threshold", 0))
_PLANS: Attributes = (("inductor.memory_planning", True),)
_AS_TORCH = -1  # as many threads as torch has: one in workers
_TWO_THREADS: Attributes = (("inductor.cpp.threads", 2),)  # workers have one

SETTINGS: tuple[Setting, ...] = (
    # which operations share a kernel
    Setting("inductor.max_fusion_size", (1, 2, 3, 4)),
    Setting("inductor.max_fusion_unique_io_buffers", (1, 2, 4)),
    Setting("inductor.aggressive_fusion", (True,), needs=(("inductor.score_fusion_memory_threshold", 0),)),
    Setting("inductor.score_fusion_memory_threshold", (0, 1_000_000)),
    Setting("inductor.realize_reads_threshold", (0, 1, 16)),
    Setting("inductor.realize_opcount_threshold", (1, 5)),
    Setting("inductor.realize_cpu_opcount_threshold", (1, 5), _CPP),
    Setting("inductor.realize_acc_reads_threshold", (1, 2)),
    Setting("inductor.realize_cpu_acc_reads_threshold", (1, 2), _CPP),
    Setting("inductor.realize_acc_reads_size_threshold", (0, 64)),
    Setting("inductor.epilogue_fusion", (False,), _NOWHERE, note="only templates have one: max_autotune"),
    Setting("inductor.combo_kernels", (True,), _TRITON, note="inductor groups no CPU nodes"),
    # loops and reductions
    Setting("inductor.pick_loop_orders", (False,)),
    Setting("inductor.loop_ordering_after_fusion", (False,), _TRITON, note="inductor reorders no CPU nodes"),
    Setting("inductor.unroll_reductions_threshold", (1, 32), promised=False),
    Setting("inductor.split_reductions", (False,), _TRITON, note="on the CPU the threads split them"),
    Setting("inductor.online_softmax", (False,), _TRITON, note="a pattern for Triton only"),
    Setting("inductor.constant_and_index_propagation", (False,), promised=False),
    # buffers and layouts
    Setting("inductor.inplace_buffers", (False,)),
    Setting("inductor.allow_buffer_reuse", (False,)),
    Setting("inductor.reorder_for_peak_memory", (False,)),
    Setting("inductor.reorder_for_locality", (False,), graphs=INFERENCE),
    Setting("inductor.memory_planning", (True,), graphs=INFERENCE),
    Setting("inductor.memory_pool", ("none", "outputs", "combined"), graphs=INFERENCE, needs=_PLANS),
    Setting("inductor.layout_optimization", (False,)),
    Setting("inductor.force_layout_optimization", (True,)),
    Setting("inductor.keep_output_stride", (False,)),
    Setting("inductor.comprehensive_padding", (False,), _TRITON, note="off on the CPU: disable_padding_cpu"),
    Setting("inductor.disable_padding_cpu", (False,), _CPP),
    Setting("inductor.padding_stride_threshold", (0,), needs=_PADS),
    Setting("inductor.pad_outputs", (True,), needs=_PADS_ALL),
    Setting("inductor.force_shape_pad", (True,), _TRITON, note="matrix products padded for tensor cores, of any size"),
    Setting("inductor.shape_padding", (False,), _NOWHERE, note="torch pads no product as small as a program's"),
    Setting("inductor.force_pointwise_cat", (True,)),
    # graph passes
    Setting("inductor.pattern_matcher", (False,)),
    Setting("inductor.joint_graph_constant_folding", (False,)),
    Setting("inductor.optimize_scatter_upon_const_tensor", (False,)),
    Setting("inductor.partitioned_scatter_enabled", (True,)),
    Setting(
        "inductor.split_cat_fx_passes", (False,), _NOWHERE, note="torch 2.11 to 2.13 declares it and reads it nowhere"
    ),
    Setting("inductor.freezing", (True,), graphs=INFERENCE, note="inductor freezes only graphs without a backward"),
    Setting("inductor.cpp_wrapper", (True,)),
    # precision: each at most rounds where eager rounds, or at fewer places, all of which the rounding model allows
    Setting("inductor.emulate_precision_casts", (True,)),
    Setting(
        "inductor.eager_numerics.division_rounding", (True,), _TRITON, note="Triton's division is exact then", code=True
    ),
    Setting(
        "inductor.eager_numerics.disable_ftz", (True,), _TRITON, note="subnormals are kept, as in eager", code=True
    ),
    Setting(
        "inductor.eager_numerics.use_pytorch_libdevice", (True,), _TRITON, note="other ulps in pow, erf", code=True
    ),
    # Triton's code; each of 1, 2, 3, 4 or 6 configs is chosen as often
    Setting(ONE_CONFIG, (ALL, *range(12)), _TRITON, always=True, note="no Triton kernels", code=True),
    Setting("inductor.triton.persistent_reductions", (False,), _TRITON),
    Setting("inductor.triton.cooperative_reductions", (True,), _TRITON),
    Setting("inductor.triton.force_cooperative_reductions", (True,), _TRITON, promised=False),
    Setting("inductor.triton.multi_kernel", (1,), _TRITON, code=True),
    Setting("inductor.triton.prefer_nd_tiling", (True,), _TRITON),
    Setting("inductor.triton.tile_reductions", (True,), _TRITON, needs=(("inductor.triton.prefer_nd_tiling", True),)),
    Setting("inductor.triton.max_tiles", (1, 2, 3), _TRITON),
    Setting(
        "inductor.triton.mix_order_reduction_non_strict_mode", (True,), _TRITON, note="fuses sums of rows and columns"
    ),
    Setting(
        "inductor.triton.mix_order_reduction", (False,), _NOWHERE, note="torch fuses so from 5 * 2**20 elements on"
    ),
    Setting("inductor.triton.use_block_ptr", (True,), _TRITON, code=True),
    Setting(CUDA_GRAPHS, (True,), _GRAPHED, note="a program runs once: the warm-up run"),
    Setting(
        "inductor.triton.codegen_upcast_to_fp32",
        (False,),
        _NOWHERE,
        note="sums and functions then round to half precision inside, which the rounding model does not allow",
    ),
    # C++ code
    Setting("inductor.cpp.simdlen", (1, 256), _CPP, code=True),
    Setting("inductor.cpp.threads", (_AS_TORCH, _AS_TORCH, 2, 8), _CPP, always=True, note="1 in workers"),
    Setting("inductor.cpp.dynamic_threads", (True,), _CPP),
    Setting("inductor.cpp.min_chunk_size", (512, 512, 1, 4096), _CPP, needs=_TWO_THREADS, always=True, code=True),
    Setting("inductor.cpp.max_horizontal_fusion_size", (1, 2), _CPP),
    Setting("inductor.cpp.fallback_scatter_reduce_sum", (False,), _CPP, needs=_TWO_THREADS),
    Setting("inductor.cpp.enable_tiling_heuristics", (False,), _CPP, code=True),
    Setting("inductor.cpp.enable_loop_tail_vec", (False,), _CPP, code=True),
    Setting(
        "inductor.cpp.enable_floating_point_contract_flag", ("on", "fast"), _CPP, note="fused multiply-adds", code=True
    ),
    # values saved for the backward, and the form of outputs
    Setting("functorch.activation_memory_budget", (0.0, 0.5), graphs=TRAINING),
    Setting("functorch.aggressive_recomputation", (True,), graphs=TRAINING),
    Setting("functorch.recompute_views", (True,), graphs=TRAINING),
    Setting("functorch.ban_recompute_materialized_backward", (False,), graphs=TRAINING),
    Setting("functorch.ban_recompute_not_in_allowlist", (False,), graphs=TRAINING),
    Setting("functorch.ban_recompute_reductions", (False,), graphs=TRAINING),
    Setting("functorch.max_dist_from_bw", (1,), graphs=TRAINING),
    Setting("functorch.cse", (False,), graphs=TRAINING),
    Setting("functorch.donated_buffer", (False,), graphs=TRAINING),
    Setting("functorch.guess_tangent_strides_as_outputs", (True, False), graphs=TRAINING),
    Setting("functorch.view_replay_for_aliased_outputs", (False,), graphs=TRAINING),
)


_IN_CODE = frozenset(setting.name for setting in SETTINGS if setting.code)


def shown_before_code(settings: Attributes) -> Attributes:
    """The settings whose effect a stage before the text of kernels can show; an unknown setting counts as one."""
    return tuple((name, value) for name, value in settings if name not in _IN_CODE)


@functools.cache
def default(name: str) -> Value:
    """The running torch's default of a setting. Raises UnknownSetting."""
    return in_effect(name)


def in_effect(name: str) -> Value:
    """A setting's present value. Raises UnknownSetting."""
    prefix, _, key = name.partition(".")
    if prefix not in CONFIGS or not key:
        raise UnknownSetting(f"no setting {name!r}: a name starts with {', '.join(f'{p}.' for p in CONFIGS)}")
    found = config_module(prefix)
    for part in key.split("."):
        if not part or not hasattr(found, part):
            why = f"this torch has no setting {name!r} (no {part!r} in {CONFIGS[prefix]})"
            raise UnknownSetting(f"{why}{meant(name, [setting.name for setting in SETTINGS])}")
        found = getattr(found, part)
    return found


def require(name: str, value: Value) -> None:
    """Raise UnknownSetting where the setting does not exist or its value is of another type than torch declares."""
    if why := why_refused(name, value):
        raise UnknownSetting(why)
    usual = default(name)
    declared = config_type(name)
    kinds = tuple(t for t in (*get_args(declared), declared, type(usual)) if isinstance(t, type))
    if not any(k in (bool, int, float, str) for k in kinds) or usual is None:
        return  # containers and settings without a value: torch declares too little to decide
    if not (type(value) in kinds or (type(value) is int and float in kinds)):
        raise UnknownSetting(f"{name} is {usual!r} by default and cannot be {value!r}")


def exists(name: str) -> bool:
    """Whether the running torch has this setting."""
    try:
        default(name)
    except UnknownSetting:
        return False
    return True


def parse_assignment(text: str) -> tuple[str, Value]:
    """`KEY=VALUE` of the command line, the value as a Python literal (a bare word is a string)."""
    name, separator, given = text.partition("=")
    if not separator:
        raise UnknownSetting(f"--set takes KEY=VALUE, not {text!r}")
    value: Value = given.strip()
    with contextlib.suppress(ValueError, SyntaxError):
        value = ast.literal_eval(given.strip())
    require(name.strip(), value)
    return name.strip(), value


_WITHOUT = 0.5  # the share of programs without settings
_MOST = 3  # settings of the others, at least one


def draw_settings(rng: random.Random, acting: Collection[Setting]) -> Attributes:
    """Settings for one program of those that act on it (`routes.acts`), and those that they need; beside them those
    that every program has, unless the value drawn is the default."""
    drawn: dict[str, Value] = {}
    for setting in acting:
        if setting.always and all(name in drawn for name, _ in setting.needs):
            value = rng.choice(setting.values)
            drawn |= {setting.name: value} if value != default(setting.name) else {}
    if rng.random() < _WITHOUT:
        return tuple(sorted(drawn.items()))
    known = [s for s in acting if not s.always and exists(s.name)]
    for setting in rng.sample(known, min(rng.randint(1, _MOST), len(known))):
        drawn = {**dict(setting.needs), **drawn, setting.name: rng.choice(setting.values)}
    return tuple(sorted(drawn.items()))


def without_choices(settings: Attributes) -> Attributes:
    """torch's defaults in place of these settings, except those that make both sides draw the same random numbers or
    choose the Triton config."""
    return tuple(pair for pair in settings if pair == SAME_DRAWS or pair[0] == ONE_CONFIG)


@contextlib.contextmanager
def in_force(settings: Attributes) -> Iterator[None]:
    """Run with these settings, restored afterwards. Raises UnknownSetting."""
    grouped: dict[str, dict[str, Any]] = {}
    for name, value in settings:
        require(name, value)
        prefix, _, key = name.partition(".")
        grouped.setdefault(prefix, {})[key] = value
    with contextlib.ExitStack() as stack:
        for prefix, changes in grouped.items():
            stack.enter_context(config_module(prefix).patch(changes))
        yield
