"""The compiler features that a diagnosis can switch off, one at a time, and which of them is the cause.

Leaving an operator to ATen also removes its memory, its place in a kernel and its passes. So a difference that vanishes
then is no proof against the operator. Features shared by operators are therefore switched off first: if the difference
vanishes, that feature is the cause, and the operator is only where it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fuzzer.language.program import Value

AGREE = "agree"
GONE = "gone: "  # prefix of the class of another difference, which the change itself causes


@dataclass(frozen=True)
class Switch:
    """One feature of the compiler that can be left out.

    kind     of the cause that this switch proves.
    does     the feature that is left out, in a person's words.
    stage    the first at which the feature acts: it does not cause a difference that exists before.
    setting  and the value that turns the feature off;  part  the function to leave out where torch has no setting
             (`private.without_part`).
    code     of the devices where it acts: "cpp", "triton"; "" for all.
    apart    whether later stages need the feature, so that a full compile cannot run without it.
    holds    the name of a more telling switch, which leaves out a part of this feature.
    """

    kind: str
    does: str
    stage: str
    setting: str = ""
    value: Value = False
    part: str = ""
    code: str = ""
    apart: bool = False
    holds: str = ""

    @property
    def name(self) -> str:
        """The switch's name in the table of single changes (`Finding.ablation`)."""
        return f"{self.part} off" if self.part else f"{self.setting}={self.value}"

    @property
    def decided(self) -> str:
        """The cause, as in `cause.Cause`, of a difference that this switch removes."""
        if self.kind == "pass":
            return f"pass {self.name}"
        if self.kind in ("precision", "layout"):  # the bisector's words
            return f"pass {self.setting.replace('.', '_')}"
        return (
            self.kind if self.kind in ("fp fusion", "functionalization") else f"{self.kind} {self.part or self.setting}"
        )


FP_FUSION, OUTER_LOOPS, FUNCTIONALIZATION = "fp fusion", "outer-loop fusion", "functionalization"
DENSE_COPIES, NO_OPS = "dense copies of inputs", "removal of no-ops"
_TRACED, _SPLIT, _GRAPH, _IR, _CODE = (
    "aot_eager", "aot_eager_decomp_partition", "inductor:graph", "inductor:ir", "inductor")  # fmt: skip


def _pass(does: str, key: str, code: str = "", holds: str = "") -> Switch:
    return Switch("pass", does, _GRAPH, f"inductor.{key}", code=code, holds=holds)


# The most telling first: the first of these that removes the difference is the cause.
SWITCHES: tuple[Switch, ...] = (
    Switch(FP_FUSION, "a product and a sum rounded once", _CODE,
           "inductor.cpp.enable_floating_point_contract_flag", "off", code="cpp"),
    Switch(FP_FUSION, "a product and a sum rounded once", _CODE, part=FP_FUSION, code="triton"),
    # passes over graphs, by name
    Switch("pass", "operations that seem to change nothing removed from the joint graph", _GRAPH, part=NO_OPS),
    _pass("constants folded in the joint graph", "joint_graph_constant_folding", holds=f"{NO_OPS} off"),
    _pass("a scatter into a constant turned into a comparison", "optimize_scatter_upon_const_tensor"),
    _pass("operations moved to those that read them", "reorder_for_locality"),
    _pass("matrix products padded to aligned sizes", "shape_padding"),
    _pass("softmax in one walk over its row", "online_softmax", "triton"),
    Switch("pass", "equal operations computed once", _SPLIT, "functorch.cse"),
    # numbers kept wider than eager keeps them
    Switch("precision", "half precision kept in float32 from operation to operation", _IR,
           "inductor.emulate_precision_casts", True),
    # who owns memory, and how it is laid out
    Switch("strides", "strides of cotangents guessed from the outputs'", _TRACED,
           "functorch.guess_tangent_strides_as_outputs"),
    Switch("strides", "outputs that are views made again from their bases", _TRACED,
           "functorch.view_replay_for_aliased_outputs"),
    Switch("strides", "dense copies of inputs that are written, without their strides", _TRACED, part=DENSE_COPIES),
    Switch(FUNCTIONALIZATION, "functionalization of writes in place", _TRACED, part=FUNCTIONALIZATION, apart=True),
    Switch("recomputation", "values that the backward computes anew instead of the forward's", _TRACED,
           "functorch.max_dist_from_bw", 0),
    Switch("memory", "donated buffers: saved tensors whose memory the backward may take", _IR,
           "functorch.donated_buffer"),
    Switch("memory", "in-place buffers: results written over operands", _IR, "inductor.inplace_buffers"),
    Switch("memory", "reuse of the memory of dead buffers", _IR, "inductor.allow_buffer_reuse"),
    Switch("memory", "kernels moved to lower the peak of memory", _IR, "inductor.reorder_for_peak_memory"),
    Switch("layout", "other layouts for convolutions", _IR, "inductor.layout_optimization"),
    Switch("layout", "strides padded", _IR, "inductor.comprehensive_padding", code="triton"),
    # which operations share a kernel, and its loops
    Switch("fusion", "outer-loop fusion: loops of several kernels joined by their outer ones", _IR, part=OUTER_LOOPS,
           code="cpp"),
    Switch("fusion", "kernels side by side in one", _IR, "inductor.cpp.max_horizontal_fusion_size", 1, code="cpp"),
    Switch("fusion", "the fusion of kernels", _IR, "inductor.max_fusion_size", 1),
    Switch("loops", "loops put in another order", _IR, "inductor.pick_loop_orders"),
    Switch("loops", "loops put in another order so that kernels fuse", _IR, "inductor.loop_ordering_after_fusion",
           code="triton"),
    Switch("loops", "reductions split in two", _IR, "inductor.split_reductions", code="triton"),
)  # fmt: skip

# A group of passes: the bisector finds which of them is the cause.
GROUPS: tuple[Switch, ...] = (Switch("passes", "all patterns", _GRAPH, "inductor.pattern_matcher"),)


def gone(seen: str) -> bool:
    """Whether a difference is gone under a single change of this outcome."""
    return seen == AGREE or seen.startswith(GONE)


def convicting(outcomes: Mapping[str, str], tell: tuple[Switch, ...] = SWITCHES) -> list[Switch]:
    """The switches of the most telling kind among those that remove the difference."""
    found = [switch for switch in tell if gone(outcomes.get(switch.name, ""))]
    return [switch for switch in found if switch.kind == found[0].kind]
