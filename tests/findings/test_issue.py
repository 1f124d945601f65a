"""The draft of an issue: what a maintainer asks for, and who is wrong comes first."""

from __future__ import annotations

import pytest

from fuzzer.findings.issue import issue
from fuzzer.findings.script import repro
from fuzzer.judgement.verdict import Comparison
from tests.diagnosis import cases
from tests.findings.found import RELU, finding


def test_the_issue_shows_the_diagnosis_first_and_folds_what_is_long() -> None:
    found = cases.finding(
        diagnosis={
            "culprit": "the decomposition of aten.tanh",
            "suspect": "static_cast<int>(x)",
            "memcheck": "not run: no GPU",
            "ratio": "all zero",
        },
        attachments={"backward_graph.py": "class GraphModule: ...", "x0.grad.txt": "[2]\n.#"},
        ablation={"inductor.max_fusion_size=1": "wrong"},
    )
    text = issue(found)
    assert "| culprit | the decomposition of aten.tanh |" in text
    assert "| suspect | `static_cast<int>(x)` |" in text
    assert "memcheck" not in text
    assert text.index("| ratio | all zero |") < text.index("import torch") < text.index("<details>")
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
    assert text.startswith("# [inductor] wrong gradient: relu\n")
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


def test_an_issue_without_diagnosis_leaves_its_tables_out() -> None:
    text = issue(finding(RELU))
    assert "stage" not in text
    assert "\n\n\n" not in text.split("```")[0]


@pytest.mark.parametrize(
    ("side", "title", "first"),
    [
        ("eager wrong: at x0[0] it is 1", "# [eager] wrong gradient: ", "**Eager is wrong**: at x0[0] it is 1."),
        (
            "both wrong: at x0[0] it is 1",
            "# [eager, inductor] wrong gradient: ",
            "**Both sides are wrong**: at x0[0] it is 1.",
        ),
        (
            "subgradient choice: a tie",
            "# [inductor] another subgradient than eager's: ",
            "**Another subgradient, as legal as eager's**: a tie.",
        ),
        ("compiled wrong: at x0[0] it is 1", "# [inductor] wrong gradient: ", ""),
        ("undecided: it draws", "# [inductor] wrong gradient: ", ""),
    ],
)
def test_who_is_wrong_stands_in_the_title_and_comes_first(side: str, title: str, first: str) -> None:
    text = issue(finding(RELU, diagnosis={"side": side}))
    assert text.startswith(title)
    described = text.partition("### 🐛 Describe the bug\n\n")[2]
    assert described.startswith(first) if first else not described.startswith("**")
