"""The draft of an issue: what a maintainer asks for, in the order of PyTorch's template, and evidence folded below."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fuzzer.export.demonstration import Compared, Demonstration
from fuzzer.export.issue import issue, issue_title, search_terms
from fuzzer.export.script import repro
from fuzzer.judgement.verdict import Comparison, Natural, Signature
from fuzzer.ledger.diagnosed import EARLIER
from fuzzer.ledger.faults import SEARCHED, Fault, State
from tests.diagnosis import cases
from tests.ledger.found import RELU, finding
from tests.ledger.varied import SHAPES, row, scope


def test_the_issue_folds_the_diagnosis_and_what_is_long() -> None:
    found = cases.finding(
        diagnosis={
            "culprit": "the decomposition of aten.tanh",
            "suspect": "static_cast<int>(x)",
            "memcheck": "not run: no GPU",
            "ratio": "all zero",
        },
        attachments={"backward_graph.py": "class GraphModule: ...", "x0.grad.txt": "[2]\n.#", EARLIER: "as it was"},
        ablation={"inductor.max_fusion_size=1": "wrong"},
    )
    text = issue(found)
    assert "| culprit | the decomposition of aten.tanh |" in text
    assert "| suspect | `static_cast<int>(x)` |" in text
    assert "memcheck" not in text
    assert "as it was" not in text  # what an older diagnosis said is for us
    assert text.index("import torch") < text.index("<details>") < text.index("| ratio | all zero |")
    assert (
        "<details><summary>`backward_graph.py`</summary>\n\n```python\nclass GraphModule: ...\n```\n\n</details>"
        in text
    )
    assert "<summary>1 single changes</summary>" in text


def test_the_issue_holds_what_a_maintainer_asks_for() -> None:
    text = issue(
        finding(
            RELU,
            comparisons=(
                Comparison("x0.grad", (0, 2), 1.0, 0.0, 1.0, 1e-7, 3, 12),
                Comparison("v0", (), 1, 2, 3, 0, 1, 1),
            ),
            stages={"eager": "agree", "aot_eager": "agree", "inductor": "wrong"},
            ablation={"inductor.cpp.inject_relu_bug_TESTING_ONLY=None": "agree"},
        )
    )
    title = "zero gradient of F.relu under cpp.inject_relu_bug_TESTING_ONLY=accuracy"
    assert text.startswith(f"# [inductor] {title} (cpu)\n")
    for words in (
        "### 🐛 Describe the bug",
        "| `x0.grad` | (0, 2) | 1 | 0 | 1 | 1e-07 | 3 of 12 |",
        "3 of 3 fresh processes",
        "| aot_eager | agree |",
        "inject_relu_bug_TESTING_ONLY=None",
        RELU.strip(),
        repro(finding(RELU, comparisons=())).splitlines()[0][:30],
        "### Versions",
        "| torch | 2.13.0 |",
    ):
        assert words in text


def test_the_sections_are_the_templates_and_no_word_of_ours_stands_above_the_fold() -> None:
    shown = Demonstration(1, "x0.grad: compiled 0, eager 1\n", "", "2.13.0", "cpu")
    text = issue(finding(RELU), shown=shown, versions="PyTorch version: 2.13.0")
    heads = ("### 🐛 Describe the bug", "### Error logs", "### Minified repro", "### Versions", "<details>")
    places = [text.index(head) for head in heads]
    assert places == sorted(places)
    above = text[: text.index("<details>")]
    assert "x0.grad: compiled 0, eager 1" in above
    assert issue_title(finding(RELU), replace(shown, device="cuda")).endswith("(cuda)")
    assert "Run when this was written (torch 2.13.0, cpu): it exited with 1." in above
    assert not [word for word in ("signature", "floor", "variant", "oracle", "leaf", "cotangent") if word in above]
    assert "topic: fuzzer" in above
    assert text.rstrip().splitlines()[-1].startswith("Found by a fuzzer")
    assert "It was not run when this was written." in issue(finding(RELU))


def test_the_natural_program_is_the_reproducer_and_the_minimal_one_is_below() -> None:
    wide = RELU.replace("[3]", "[3, 5]")
    signature = replace(finding(RELU).signature, pattern="nonfinite")
    grown = finding(RELU, natural=Natural(wide, signature, "x0.grad[0, 0]: compiled nan"))
    text = issue(grown)
    assert "NaN or infinity in the gradient" in issue_title(grown)
    assert text.index("x0.grad[0, 0]: compiled nan") < text.index("<details>") < text.index("is all zero where")
    assert wide.strip() in text
    assert RELU.strip() in text


def test_the_ablation_that_the_template_asks_for_is_a_sentence() -> None:
    stages = {"eager": "agree", "aot_eager": "wrong", "inductor:graph": "wrong", "inductor": "wrong"}
    text = issue(finding(RELU, stages=stages, ablation={"functorch.donated_buffer=False": "agree", "x": "agree"}))
    assert (
        'Ablation: differs with `backend="aot_eager"`, `backend="inductor"`; agrees with `backend="eager"`; '
        "gone with `functorch.donated_buffer=False`." in text
    )
    dtype = replace(finding(RELU).signature, pattern="dtype")
    assert "The dtype of the gradient of a function" in issue(finding(RELU, signature=dtype))


def test_what_a_program_needs_and_what_removes_the_fault_is_told() -> None:
    dynamic = RELU.replace('route("autograd")', 'route("autograd", dynamic=True)')
    gone = ("functorch.donated_buffer=False", "aten.cat.default left to ATen", "backward graph uncompiled", "x off")
    stages = {"eager": "agree", "inductor": "wrong"}
    text = issue(finding(dynamic, stages=stages, ablation=dict.fromkeys(gone, "agree")))
    assert "It needs `dynamic=True`." in text
    assert (
        "gone with `functorch.donated_buffer=False` or a fallback to ATen for `aten.cat.default` or the backward graph "
        "not compiled." in text
    )


def test_a_fault_of_eager_is_removed_by_no_change_of_the_compiler() -> None:
    gone = {"every leaf contiguous": "agree", "aten.cat.default left to ATen": "agree"}
    text = issue(finding(RELU, diagnosis={"side": "eager wrong: at x0[0] it is 1"}, ablation=gone))
    assert "Ablation: gone with contiguous inputs.\n" in text
    both = issue_title(finding(RELU, "eager-suspect", diagnosis={"side": "both wrong: at x0[0] it is 1"}))
    assert both.startswith("both eager and compiled: wrong gradient")


def test_issues_that_look_alike_are_those_given_and_those_of_the_note() -> None:
    note = "the like of #198201 and issue 77507; FlagGems issue 5212"
    fault = Fault("F1", "t", "wrong", "", "", "", "", 1, 1, State("confirmed", note=note))
    assert "Related: #7, #198201, #77507.\n" in issue(finding(RELU), fault, kin=("#7",))
    assert "Related" not in issue(finding(RELU), replace(fault, state=State("confirmed")))


def test_what_is_known_of_the_fault_and_what_to_search_for_are_told() -> None:
    url = "https://github.com/pytorch/pytorch/issues/1"
    fault = Fault("F1", "", "wrong", "", "", "", "", 1, 1, State("known", url))
    text = issue(finding(RELU), fault)
    assert f"Already known: {url}." in text
    assert f"search the tracker, and read {url};" in text
    assert "https://github.com/pytorch/pytorch/issues?q=is%3Aissue+relu+wrong+gradient\n" in text
    assert "Fixed in 2.15.0." in issue(finding(RELU), replace(fault, state=State("fixed", fixed_in="2.15.0")))
    raises = finding(RELU, "raises", detail="the forward raised RuntimeError: The tensor has no data, or so.")
    assert "relu The tensor has no data" in search_terms(raises)
    assert "Already known." in issue(finding(RELU), replace(fault, state=State("known")))
    looked = replace(
        fault, state=State("new"), history=(("2026", "met as x", ""), ("2026", SEARCHED + "relu nan", "me"))
    )
    told, _, body = issue(finding(RELU), looked).partition("-->")
    assert "(so far: relu nan)" in told
    assert "relu nan" not in body


def test_a_persons_note_stands_in_the_draft_but_for_what_names_the_ledgers_own_ids() -> None:
    note = "eager adds up in half precision: 256 ones stay 256; kin of F19efd66. Since 2.13"
    fault = Fault("F1", "", "wrong", "", "", "", "", 1, 1, State("confirmed", note=note))
    assert "\n\nEager adds up in half precision: 256 ones stay 256. Since 2.13.\n\n" in issue(finding(RELU), fault)
    assert "Confirmed" not in issue(finding(RELU), fault)
    named = replace(fault, state=State("confirmed", note="scale_factor=1.1 leaves the size"))
    assert "\n\nscale_factor=1.1 leaves the size.\n\n" in issue(finding(RELU), named)


def test_a_draft_for_flag_gems_is_for_its_tracker_and_names_its_kernels() -> None:
    text = issue(finding(RELU, place={"backend": "flag_gems", "against": "eager", "device": "cuda"}))
    assert "github.com/pytorch" not in text
    assert "with FlagGems' kernels differs from eager mode" in text


@pytest.mark.parametrize(
    ("verdict", "pattern", "words"),
    [
        ("eager-suspect", "other", "The gradient of `torch.nn.functional.relu` is wrong in eager mode"),
        ("crashes", "SIGSEGV", "A function of `torch.nn.functional.relu`, under `torch.compile`: crash, backward."),
        ("wrong", "None-ness", "A gradient of a function of `torch.nn.functional.relu` is None under"),
        ("raises", "E", "runs in eager mode; under `torch.compile` it raises ValueError."),
    ],
)
def test_what_is_wrong_is_one_plain_sentence(verdict: str, pattern: str, words: str) -> None:
    found = finding(
        RELU, verdict, detail="the backward raised ValueError: no" if verdict == "raises" else "x, floor 1; y"
    )
    text = issue(replace(found, signature=replace(found.signature, pattern=pattern)))
    assert words in text
    assert "floor" not in text[: text.index("<details>")]


def test_an_issue_without_diagnosis_leaves_its_tables_out() -> None:
    text = issue(finding(RELU))
    assert "stage" not in text
    assert "\n\n\n" not in text.split("```")[0]


@pytest.mark.parametrize(
    ("side", "title", "first"),
    [
        ("eager wrong: at x0[0] it is 1", "# eager: wrong ", "**Eager is wrong**: at x0[0] it is 1."),
        ("both wrong: at x0[0] it is 1", "# [inductor] both eager", "**Both sides are wrong**: at x0[0] it is 1."),
        (
            "subgradient choice: a tie",
            "# [inductor] another subgradient than eager's of F.relu",
            "**Another subgradient, as legal as eager's**: a tie.",
        ),
        ("compiled wrong: at x0[0] it is 1", "# [inductor] zero gradient", ""),
        ("undecided: it draws", "# [inductor] zero gradient", ""),
    ],
)
def test_who_is_wrong_stands_in_the_title_and_in_the_description(side: str, title: str, first: str) -> None:
    text = issue(finding(RELU, diagnosis={"side": side}))
    assert text.startswith(title)
    described = text.partition("### 🐛 Describe the bug\n\n")[2].partition("###")[0]
    assert first in described if first else "**" not in described


def test_the_scope_is_a_line_above_and_folded_tables_below() -> None:
    text = issue(finding(RELU), scope=scope(*SHAPES, row("dtype", "f64")))
    above, _, below = text.partition("<details>")
    assert "Scope: fails in f32 and f64; any of 6 sizes and attributes tried; " in above
    assert (
        "the wrong sum is the right one times n / (n - k), n = x0.shape[1], k = x1.shape[1]; zero where start = 0."
        in above
    )
    assert "<summary>Scope: 6 neighbouring programs and their results</summary>" in below
    assert "| dtype | f64 | fails |  |  |  |" in below
    assert "| 20 | 7 | 5 | 1.53846 (20/13) | 1.53846 |" in below
    assert "Scope" not in issue(finding(RELU))


def test_the_releases_are_told_where_more_than_one_was_tried() -> None:
    fault = Fault("F1", "t", "wrong", "", "inductor", "", "2026-01-01", 1, 1, State("new"), ("2.11.0 cpu",))
    assert "Releases" not in issue(finding(RELU), fault)
    told = replace(fault, gone_on=("2.13.0 cpu", "2.15.0 cpu"))
    releases = "Releases: reproduces on torch 2.11.0 cpu; gone on torch 2.13.0 cpu, 2.15.0 cpu."
    assert f"{releases}\n" in issue(finding(RELU), told)


@pytest.mark.parametrize(
    ("code", "told"),
    [(1, "torch 2.13.0 cpu, 2.15.0 cpu;"), (0, "torch 2.13.0 cpu, not on torch 2.15.0 cpu;")],
)
def test_of_a_fault_of_several_programs_it_is_told_where_this_one_was_seen(code: int, told: str) -> None:
    lives = ("2.11.0 cpu", "2.13.0 cpu", "2.15.0 cpu")
    fault = Fault("F1", "t", "wrong", "", "inductor", "", "2026-01-01", 5, 4, State("new"), lives)
    shown = Demonstration(code, "x0.grad[0]: compiled 0, eager 1", "", "2.15.0+cpu", "cpu")
    text = issue(finding(RELU), fault, shown)
    assert f"2.15.0 cpu. This program was seen to fail on {told} on the others another program" in text


def test_the_draft_and_script_of_a_program_without_a_gradient_do_not_speak_of_one() -> None:
    program = (
        'program(1)\nroute("autograd")\nx0 = leaf(f32[3], requires_grad=False)\n'
        "v0 = sin(x0)\nv1 = neg_(x0)\nreturns(v0)\nreturns(v1)\n"
    )
    signature = Signature("outputs_agree", "wrong", "forward", "other")
    assert "gradient" not in issue(finding(program, signature=signature, detail="v0[0]: compiled 0, eager 1"))


@pytest.mark.parametrize(
    ("eager", "exact", "blamed"), [(9.0, 1.0, True), (9.0, 9.0, False), (1.0, 1.0, False), (9.0, math.nan, False)]
)
def test_eager_is_blamed_where_the_scripts_own_float64_is_what_compiled_code_gives(
    eager: float, exact: float, blamed: bool
) -> None:
    numbers = Compared("x0.grad", (), 1.0, eager, exact, 1, 1, "", True)
    shown = Demonstration(1, "x0.grad: ...", "", "2.13.0", "cpu", (numbers,))
    text = issue(finding(RELU, diagnosis={"side": "compiled wrong: so"}), shown=shown)
    assert text.startswith("# eager: ") == blamed
    assert (
        "**Eager is wrong**: float64 of dense inputs gives 1, as compiled code does; eager gives 9" in text
    ) == blamed
    assert ("as in eager; compiled code gives" in text) != blamed


@pytest.mark.parametrize(("compiled", "blamed"), [(math.nan, True), (5.0, True), (1.0, False)])
def test_compiled_code_is_blamed_where_the_scripts_own_float64_is_what_eager_gives(
    compiled: float, blamed: bool
) -> None:
    signature = Signature("gradients_agree", "eager-suspect", "backward", "other")
    numbers = Compared("x0.grad", (), compiled, 1.0, 1.0, 1, 1, "", True)
    shown = Demonstration(1, "x0.grad: ...", "", "2.13.0", "cpu", (numbers,))
    found = finding(RELU, signature=signature, diagnosis={"side": "undecided: so"})
    text = issue(found, shown=shown)
    assert text.startswith("# eager: ") != blamed
    assert ("under `torch.compile` differs from eager mode" in text) == blamed
    assert ("to be 1, as in eager; compiled code gives" in text) == blamed


def test_where_only_one_side_is_finite_the_draft_says_which() -> None:
    signature = Signature("finiteness_agrees", "nonfinite-differs", "backward", "NaN for finite")
    text = issue(finding(RELU, signature=signature))
    assert (
        "The gradient of a function of `torch.nn.functional.relu` under `torch.compile` is NaN where eager's is finite."
        in text
    )


def test_an_input_that_is_overwritten_is_named() -> None:
    signature = Signature("outputs_agree", "wrong", "forward", "other")
    worst = Comparison("x0", (0,), 1.0, 0.0, 1.0, 0.0, 1, 2)
    text = issue(finding(RELU, signature=signature, comparisons=(worst,)))
    assert "the input `x0` holds other numbers than in eager mode." in text
