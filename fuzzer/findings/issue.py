"""A finding as the draft of an issue, in Markdown."""

from __future__ import annotations

import re
from typing import Any

from fuzzer.findings.script import headline, one_line, repro
from fuzzer.judgement.verdict import BOTH, CHOICE, EAGER, Comparison, Finding
from fuzzer.language.text import parse


def issue(finding: Finding) -> str:
    """The draft of an issue in the form of PyTorch's bug reports, as Markdown."""
    program = parse(finding.program)
    ops = list(dict.fromkeys(node.op for node in program.nodes))
    title = f"{headline(finding)}: {' + '.join(ops[:4])}{' ...' if len(ops) > 4 else ''}"
    sections = [
        f"# {title}",
        "<!-- A draft by backfuzz. Before you post it: run the script on the newest nightly, search the tracker for "
        "the operators named above, and say in your own words what is wrong. -->",
        "### 🐛 Describe the bug",
        _side(finding),
        one_line(finding.detail, 1000),
        _comparison_table(finding.comparisons),
        _diagnosis(finding),
        _before(finding),
        f"Reproduced in {finding.reproduced} of {finding.runs} fresh processes. The script exits 1 while the fault is "
        "there and 0 when it is gone.",
        _fenced(repro(finding), "python"),
        _stages(finding.stages),
        _ablation(finding.ablation),
        *(_folded(f"`{name}`", _fenced(text, _language(name))) for name, text in finding.attachments.items()),
        "The same as a backfuzz program (`backfuzz replay FILE`), signature "
        f"`{finding.signature}`, finding `{finding.id}`:",
        _fenced(finding.program),
        "### Versions",
        _table(("", ""), sorted(finding.place.items())),
    ]
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


# What a draft says first, where it is not the compiled side alone that is wrong.
_SIDE_TITLES = {
    EAGER: "Eager is wrong",
    BOTH: "Both sides are wrong",
    CHOICE: "Another subgradient, as legal as eager's",
}


def _side(finding: Finding) -> str:
    told = _SIDE_TITLES.get(finding.side)
    return f"**{told}**{finding.diagnosis['side'].removeprefix(finding.side)}." if told else ""


def _fenced(text: str, language: str = "") -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    """A Markdown table; nothing where there are no rows."""
    if not rows:
        return ""
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(one_line(str(c)).replace("|", "\\|") for c in row) + " |" for row in cells)


def _comparison_table(comparisons: tuple[Comparison, ...]) -> str:
    head = ("tensor", "element", "eager", "compiled", "float64", "legal rounding", "wrong elements")
    rows = [
        (
            f"`{c.name}`",
            f"({', '.join(map(str, c.index))})",
            *(f"{number:.9g}" for number in (c.eager, c.compiled, c.float64)),
            f"{c.floor:.3g}",
            f"{c.wrong} of {c.total}",
        )
        for c in comparisons
    ]
    table = _table(head, rows)
    return f"Each differing tensor at its worst element:\n\n{table}" if table else ""


def _before(finding: Finding) -> str:
    """The error of the program that this one was shrunk from: a small error here need not have been small there."""
    if not finding.before or finding.original == finding.program:
        return ""
    size = len(parse(finding.original).nodes)
    return f"In the program of {size} operations that this one was reduced from: {one_line(finding.before, 1000)}"


def _stages(stages: dict[str, str]) -> str:
    table = _table(("backend", "verdict"), list(stages.items()))
    return f"By compiler stage, on the program above:\n\n{table}" if table else ""


def _ablation(ablation: dict[str, str]) -> str:
    table = _table(("one thing changed", "verdict"), list(ablation.items()))
    return _folded(f"{len(ablation)} single changes", table) if table else ""


def _diagnosis(finding: Finding) -> str:
    """What is at fault, a row each; what was not run or does not apply is left out."""
    silent = ("not run", "none", "ran out", "failed")
    known = [(name, text) for name, text in finding.diagnosis.items() if not text.startswith(silent)]
    known = [
        (name, f"`{one_line(text, 290)}`" if name == "suspect" else text) for name, text in known
    ]  # code may look like HTML
    table = _table(("diagnosis", ""), known)
    return f"What is at fault, as far as it could be narrowed down:\n\n{table}" if table else ""


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def _language(name: str) -> str:
    return "python" if name.endswith(".py") else ""
