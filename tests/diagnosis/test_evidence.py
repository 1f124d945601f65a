"""What the evidence says: the culprit, where it stands in the graph, and why there is no picture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.diagnosis.ablation import LATER, STAGES
from fuzzer.diagnosis.evidence import Evidence
from tests.diagnosis.cases import finding

INDUCTOR = dict(zip(STAGES, ["agree"] * 5 + ["wrong"], strict=True))
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, tangents_1: "f32[4][1]"):
        tanh: "f32[4][1]" = torch.ops.aten.tanh.default(tangents_1)
        mul: "f32[4][1]" = torch.ops.aten.mul.Tensor(tanh, 2)
        return (mul,)"""


def evidence(gone: tuple[str, ...] = (), side: str = "compiled wrong: so", **found: str) -> Evidence:
    known = Evidence(finding(), found=found, notes={"side": side}, files={"backward_graph.py": GRAPH})
    known.tables["stage"] = INDUCTOR
    known.tables["ablation"] = {"inductor.max_fusion_size=1": "wrong", **dict.fromkeys(gone, "agree")}
    known.summarise()
    return known


LEFT = ("aten.tanh.default left to ATen", "aten.mul.Tensor left to ATen")


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (evidence(), "not found beyond the stage inductor"),
        (
            evidence(subsystem="decomposition", info="aten.tanh_backward.default"),
            "the decomposition of aten.tanh_backward.default, which",
        ),
        (evidence(subsystem="post_grad_passes", info="reinplace"), "inductor's pass reinplace (post_grad_passes)"),
        (
            evidence(("inductor.joint_graph_constant_folding=False",), subsystem="joint_graph_passes", info="folding"),
            "constants folded in the joint graph (inductor.joint_graph_constant_folding=False): with this change",
        ),
        (evidence(subsystem="lowerings", info="tanh"), "inductor's code for aten.tanh.default: left"),
        (evidence(LEFT[:1]), "inductor's code for aten.tanh.default: left to ATen, the difference is gone"),
        (evidence(LEFT), "inductor's code that joins aten.tanh.default, aten.mul.Tensor: with any"),
        (
            evidence(LEFT, subsystem="lowerings", info="mul"),
            "inductor's code for aten.mul.Tensor, on which the bisector ends; gone too with aten.tanh.default left",
        ),
        (evidence(subsystem="inductor_emulate_precision_casts"), "what the bisector calls inductor_emulate_precision"),
        (
            evidence(("fp fusion off", "inductor.emulate_precision_casts=True"), subsystem="lowerings", info="tanh"),
            "fp fusion: a product and a sum rounded once",
        ),
        (evidence(("inductor.cpp.enable_floating_point_contract_flag=off",)), "fp fusion: a product and a sum"),
        (
            evidence(**{"shared backward_graph.py": "diagonal_scatter (aten.diagonal_scatter.default)"}),
            "the layout of diagonal_scatter (aten.diagonal_scatter.default): no view, yet its elements share memory",
        ),
        (evidence(**{"shared forward_graph.py": "of the other graph"}), "not found beyond the stage inductor"),
        # what operators share convicts before an operator, which is where it shows
        (
            evidence(("functorch.donated_buffer=False", "inductor.inplace_buffers=False", *LEFT)),
            "donated buffers: saved tensors whose memory the backward may take (functorch.donated_buffer=False) and "
            "in-place buffers: results written over operands (inductor.inplace_buffers=False): with any of these "
            "changes the difference is gone; it shows in aten.tanh.default, aten.mul.Tensor",
        ),
        (evidence(("inductor.allow_buffer_reuse=False", LEFT[0])), "reuse of the memory of dead buffers"),
        (evidence(("outer-loop fusion off", "inductor.max_fusion_size=1", LEFT[0])), "outer-loop fusion"),
        (
            evidence(("functorch.guess_tangent_strides_as_outputs=False", "every leaf contiguous")),
            "strides of cotangents guessed from the outputs'",
        ),
        # what says more of the cause comes before memory and fusion
        (
            evidence(("inductor.emulate_precision_casts=True", "inductor.max_fusion_size=1", LEFT[0])),
            "half precision kept in float32",
        ),
        (
            evidence((*LEFT[:1], "every leaf contiguous")),
            "inductor's code for aten.tanh.default: left to ATen, the difference is gone; with every leaf contig",
        ),
        (
            evidence(("every leaf contiguous",), "eager wrong: so"),
            "eager's own kernel for tanh: what is compiled instead is right; with every leaf contiguous both agree",
        ),
        (evidence(LEFT[:1], "eager wrong: so"), "eager's own kernel for aten.tanh.default: what is compiled"),
        (
            evidence((), "eager wrong: so", subsystem="decomposition", info="aten.tanh_backward.default"),
            "eager's own kernel for aten.tanh_backward.default: what is compiled instead is right",
        ),
    ],
)
def test_the_culprit_is_the_narrowest_thing_that_was_found(known: Evidence, told: str) -> None:
    assert known.notes["culprit"].startswith(told)


@pytest.mark.parametrize(
    ("side", "told"),
    [
        ("compiled wrong: so", "the kernels of eager@cuda for tanh: eager@cpu is right"),
        ("eager wrong: so", "the kernels of eager@cpu for tanh: eager@cuda is right"),
        ("undecided: so", "not found: no compiler is involved"),
    ],
)
def test_where_no_compiler_is_involved_the_culprit_is_the_side_that_is_wrong(side: str, told: str) -> None:
    place = {"backend": "eager", "against": "eager@cpu", "device": "cuda"}
    known = Evidence(replace(finding(), place=place), notes={"side": side})
    known.summarise()
    assert known.notes["culprit"] == told


def test_what_a_bisector_and_aten_accuse_is_marked_in_the_graph() -> None:
    for known in (evidence(LEFT[:1]), evidence(subsystem="lowerings", info="tanh")):
        assert known.notes["suspect"].startswith("backward_graph.py line 3: tanh")
    assert evidence(shapes="[4]").notes["suspect"].startswith("backward_graph.py line 4: mul")
    assert evidence(shapes="[5]").notes["suspect"] == "none stands out in backward_graph.py"


def test_a_gradient_is_not_looked_for_in_a_graph_that_only_spoils_it() -> None:
    assert evidence(("forward graph uncompiled",), shapes="[4]").shapes() == []
    assert evidence(("backward graph uncompiled",), shapes="[4]").shapes() == ["[4]"]


def test_the_picture_says_why_there_is_none() -> None:
    known = Evidence(finding(before="it was wrong"))
    known.note_difference({}, "the worker died", {}, "")
    assert known.notes["elements"] == "none: the worker died"
    known.finding = replace(known.finding, original="program(1)")
    known.note_difference({}, "", {}, "")
    assert (known.notes["ratio"], known.notes["original"]) == ("none: x0.grad[0]", "none: it was wrong")


def test_a_conclusion_says_what_it_excludes_and_what_was_not_asked() -> None:
    known = evidence(("functorch.donated_buffer=False",))
    known.tables["ablation"] |= {"inductor.inplace_buffers=False": "wrong", "outer-loop fusion off": "'off' already",
                                 "fp fusion off": f"not run: it acts at x, {LATER}",
                                 "aten.mul.Tensor left to ATen": "wrong"}  # fmt: skip
    known.asked_at, known.proved = "inductor:ir", {"functorch.donated_buffer=False": "agree"}
    known.summarise()
    assert known.notes["excludes"] == (
        "it shows still with inductor.inplace_buffers=False, inductor.max_fusion_size=1, aten.mul.Tensor left to ATen; "
        "not asked: outer-loop fusion off ('off' already); not asked: 1 that act later than inductor:ir, "
        "when the difference is there already. Asked at inductor:ir; built: functorch.donated_buffer=False: agree"
    )
