"""A finding as the draft of an issue, in Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus

from fuzzer.export.demonstration import Demonstration, comparisons, expected
from fuzzer.export.script import headline, one_line, plainly, repro
from fuzzer.judgement.verdict import BOTH, CHOICE, COMPILED, EAGER, EAGER_DIES, EAGER_RAISES, Comparison, Finding
from fuzzer.language.text import parse
from fuzzer.ledger.cause import IN_ORDER, KERNELS, LEFT, RESET, cause_of, first_stage, raised, vanishing
from fuzzer.ledger.conditions import compiled_with
from fuzzer.ledger.diagnosed import EARLIER
from fuzzer.ledger.faults import Fault, release
from fuzzer.ledger.scope import SCOPE_HEAD, Scope, scope_rows, shape_head, shape_rows
from fuzzer.ledger.title import gems, telling, title, torch_name


def issue(
    finding: Finding,
    fault: Fault | None = None,
    shown: Demonstration | None = None,
    scripts: Mapping[str, str] | None = None,
    versions: str = "",
    scope: Scope | None = None,
    kin: Sequence[str] = (),
) -> str:
    """The draft of an issue in the form of PyTorch's bug reports, as Markdown.

    finding   its natural program is the reproducer.
    fault     the finding's fault; the draft gives its state and issue.
    shown     the result of running the reproducer; without it the draft claims no result.
    scripts   the reproducer, and further scripts, by file name; without them the reproducer is written here.
    versions  the output of torch.utils.collect_env; without it, the versions of the finding's run.
    scope     which programs beside the natural one fail.
    kin       issues that look alike, beside those that the fault's note names.
    """
    scripts = scripts or {"repro.py": repro(finding.grown)}
    finding = _as_shown(finding, shown)
    grown = finding.grown
    (_, first), *others = scripts.items()
    sections = [
        f"# {issue_title(finding, shown, scope)}",
        _before_posting(finding, fault),
        "### 🐛 Describe the bug",
        description(finding),
        _note(fault),
        _side(finding),
        _where(finding),
        _needs(grown),
        f"Scope: {scope.summary}." if scope is not None else "",
        _releases(finding, fault, shown),
        _known(fault),
        _kin(fault, kin),
        "### Error logs",
        *_logs(grown, shown),
        "### Minified repro",
        _fenced(first, "python"),
        _exits(finding, shown),
        "### Versions",
        _folded("`python -m torch.utils.collect_env`", _fenced(versions)) if versions else _place(finding),
        _scope(scope) if scope is not None else "",
        *_evidence(finding, others),
        _MADE,
    ]
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


def _as_shown(finding: Finding, shown: Demonstration | None) -> Finding:
    """The finding, with the side as wrong that the script's own float64, of a dense copy of each input, contradicts.

    That is eager where compiled code gives the same, and compiled code where an undecided eager does: the trial's
    float64 replays what a recorder saw, and under a recorder eager may run other operations.
    """
    if shown is None or not shown.compared or shown.compared[0].against:
        return finding
    c = shown.compared[0]
    if finding.side == COMPILED and _NEAR * abs(c.compiled - c.exact) < abs(c.eager - c.exact):
        said = f"{EAGER}: float64 of dense inputs gives {c.exact:.6g}, as compiled code does; eager gives {c.eager:.6g}"
        return replace(finding, diagnosis=finding.diagnosis | {"side": said})
    undecided = finding.signature.verdict == "eager-suspect" and finding.side not in (EAGER, BOTH)
    if undecided and not abs(c.compiled - c.exact) <= _NEAR * abs(c.eager - c.exact) < math.inf:
        said = f"{COMPILED}: eager in float64 gives {c.exact:.6g}, as eager does; compiled code gives {c.compiled:.6g}"
        return _of_compiled(finding, said)
    return finding


def _of_compiled(finding: Finding, side: str) -> Finding:
    """A finding about eager, and its natural program's, as one about compiled code."""
    natural, signature = finding.natural, replace(finding.signature, verdict="wrong")
    if natural is not None:
        natural = replace(natural, signature=replace(natural.signature, verdict="wrong"))
    return replace(finding, signature=signature, natural=natural, diagnosis=finding.diagnosis | {"side": side})


_NEAR = 16  # as in the script: 16 times the other side's rounding
_MADE = (
    "Found by a fuzzer, backfuzz: it generates random programs, compares their compiled with their eager results, "
    "and shrinks programs that differ. The program, the numbers and the draft of this text are its output."
)
_LABEL = "topic: fuzzer"  # required by PyTorch's template
_GEMS_TRACKER = "https://github.com/flagos-ai/FlagGems/issues"
_TRACKER = "https://github.com/pytorch/pytorch/issues"


def issue_title(finding: Finding, shown: Demonstration | None = None, scope: Scope | None = None) -> str:
    """The stage at fault, then the fault's title, then the device where it was shown, else found:
    "[inductor] wrong gradient of ... (cpu)"."""
    stage = first_stage(finding)
    text = title(finding.grown, scope)
    if finding.side == BOTH:
        text = f"both eager and compiled: {text.removeprefix('eager: ')}"
    elif finding.side == COMPILED:
        text = text.removeprefix("eager: ")
    elif finding.side == CHOICE:
        text = f"another subgradient than eager's of {text.partition(' of ')[2]}"
    where = (shown.device if shown is not None else finding.place.get("device", "cpu")).split(":")[0]
    return f"{'' if stage == KERNELS or gems(finding) else f'[{stage}] '}{text} ({where})"


def search_terms(finding: Finding) -> list[str]:
    """Search terms for the tracker: each operator with the kind of failure, and the exception."""
    exception = raised(finding)
    wrong = _LOUD.get(finding.signature.verdict, "wrong gradient" if _backward(finding) else "wrong result")
    words = exception[2].strip() if exception else wrong
    kind, _, what = cause_of(finding).decided.partition(" ")
    nodes = telling(parse(finding.grown.program))
    ops = [" ".join(re.findall(r"(\w+)(?:=True|$|\()", torch_name(node.op))) for node in nodes]
    decided = [what.rpartition(".")[2]] if kind in _SEARCHED else []
    return [f"{name} {words}" for name in list(dict.fromkeys([*decided, *ops]))[:_MOST_TERMS]]


_MOST_TERMS = 3
_LOUD = {"crashes": "crash", "hangs": "hang"}
_SEARCHED = ("operator", "setting", "pass", "memory", "strides", "fusion", "loops")  # kinds of causes


def _backward(finding: Finding) -> bool:
    return finding.signature.direction == "backward"


def _before_posting(finding: Finding, fault: Fault | None) -> str:
    known = fault.state.issue.split() if fault is not None else []
    before = f" (so far: {'; '.join(dict.fromkeys(fault.searched))})" if fault is not None and fault.searched else ""
    tracker, label = (_GEMS_TRACKER, "") if gems(finding) else (_TRACKER, f" Label: {_LABEL}.")
    searches = [f"{tracker}?q={quote_plus(f'is:issue {term}')}" for term in search_terms(finding)]
    told = (
        f"A draft. Before you post it: run the script on the newest nightly; search the tracker{before}"
        f"{', and read ' + ', '.join(known) if known else ''}; say in your own words what is wrong.{label}"
    )
    return "\n".join([f"<!-- {told}", *searches, "-->"])


def description(finding: Finding) -> str:
    """The error in one plain sentence."""
    grown = finding.grown
    ops = list(dict.fromkeys(f"`{torch_name(node.op)}`" for node in parse(grown.program).nodes))
    names = ", ".join(ops[:-1]) + (" and " if len(ops) > 1 else "") + ops[-1]
    what = "gradient" if _backward(grown) else "result"
    under = "with FlagGems' kernels" if gems(finding) else "under `torch.compile`"
    if exception := raised(grown):
        return f"A function of {names} runs in eager mode; {under} it raises {exception[1]}."
    if finding.side == EAGER_DIES:
        return f"A function of {names} ends the process in eager mode."
    if finding.side == EAGER_RAISES:
        return f"A function of {names} raises in eager mode, as it should; {under} it runs."
    if finding.side in (EAGER, BOTH) or grown.signature.verdict == "eager-suspect":
        return f"The {what} of {names} is wrong in eager mode, without an error."
    kinds = grown.signature.pattern.split(" for ")
    if grown.signature.verdict == "nonfinite-differs" and len(kinds) == 2:
        return f"The {what} of a function of {names} {under} is {kinds[0]} where eager's is {kinds[1]}."
    if grown.signature.verdict != "wrong":
        return f"A function of {names}, {under}: {headline(grown).partition('] ')[2]}."
    if grown.signature.pattern == "None-ness":
        return f"A {what} of a function of {names} is None {under} or in eager mode, but not in both."
    named = grown.comparisons[0].name if grown.comparisons else ""
    if named in {leaf.name for leaf in parse(grown.program).leaves}:
        return f"After a function of {names} {under} the input `{named}` holds other numbers than in eager mode."
    if grown.signature.pattern in _METADATA:
        what = f"{grown.signature.pattern} of the {what}"
    return f"The {what} of a function of {names} {under} differs from eager mode, without an error."


_METADATA = ("dtype", "shape")


def _where(finding: Finding) -> str:
    """The backends that reproduce the finding, and the single changes that remove it: the ablation that the template
    requires."""
    seen = {name: said for name, said in finding.stages.items() if ":" not in name and not said.startswith("not run")}
    of_eager = first_stage(finding) == KERNELS
    shows = [f'`backend="{name}"`' for name, said in seen.items() if said != "agree" and not of_eager]
    agrees = [f'`backend="{name}"`' for name, said in seen.items() if said == "agree"]
    gone = [change for name in vanishing(finding) if (change := _change(name, of_eager))]
    told = [f"differs with {', '.join(shows)}"] if shows else []
    told += [f"agrees with {', '.join(agrees)}"] if shows and agrees else []
    told += [f"gone with {' or '.join(gone[:_MOST_CHANGES])}"] if gone else []
    return f"Ablation: {'; '.join(told)}." if told else ""


_MOST_CHANGES = 5
_UNCOMPILED = " graph uncompiled"


def _change(name: str, of_eager: bool) -> str:
    """A single change that removes a difference, in words for a reader who knows torch; "" where nobody could make it,
    and for the compiler's where eager is at fault."""
    if name.startswith("device="):
        return f"both sides on {name.removeprefix('device=')}"
    if of_eager or name == IN_ORDER:
        return "contiguous inputs" if name == IN_ORDER else ""
    if re.fullmatch(r"(inductor|functorch)\.[\w.]+=\w+", name):
        return f"`{name}`"
    if name.endswith(RESET):
        return f"`{name.removesuffix(RESET)}` at its default"
    if name.endswith(LEFT):
        return f"a fallback to ATen for `{name.removesuffix(LEFT)}`"
    if name.endswith(_UNCOMPILED):
        return f"the {name.removesuffix(_UNCOMPILED)} graph not compiled"
    return ""


def _needs(grown: Finding) -> str:
    """The options without which a minimal program does not show its fault."""
    needed = [f"`{text}`" for text in compiled_with(parse(grown.program)) if "=" in text]
    return f"It needs {' and '.join(needed)}." if needed else ""


def _releases(finding: Finding, fault: Fault | None, shown: Demonstration | None) -> str:
    """The releases and devices where the fault reproduces or is gone, if more than one was tried; for a fault with
    several programs, those of this program."""
    if fault is None or len(fault.lives_on) + len(fault.gone_on) < 2:
        return ""
    tried = (("reproduces on", ", ".join(fault.lives_on)), ("gone on", ", ".join(fault.gone_on)))
    told = f"Releases: {'; '.join(f'{told} torch {places}' for told, places in tried if places)}."
    if fault.variants == 1:
        return told
    seen = {_release_and_device(finding.place.get("torch", "?"), finding.place.get("device", "cpu"))}
    here = {_release_and_device(shown.torch, shown.device)} if shown is not None else set()
    seen |= here if shown is not None and shown.shows else set()
    if seen >= {*fault.lives_on}:
        return told
    not_here = f", not on torch {', '.join(here)}" if here - seen else ""
    own = f"This program was seen to fail on torch {', '.join(sorted(seen))}{not_here}"
    return f"{told} {own}; on the others another program with the same cause was."


def _release_and_device(torch: str, device: str) -> str:
    return f"{release(torch)} {device.split(':')[0]}"


def _scope(scope: Scope) -> str:
    """The neighbours of the natural program in a folded section: each that was tried, and the sizes with their
    ratios."""
    where = f"torch {scope.torch}, {scope.device}"
    if scope.stage:
        where += f"; those marked `built` were compiled in full, the others ran at the stage `inductor:{scope.stage}`"
    parts = [
        f"The program above with one change ({where}):",
        _table(SCOPE_HEAD, scope_rows(scope)),
    ]
    if shapes := shape_rows(scope):
        formula = f"; the ratio is {scope.formula}" if scope.formula is not None else ""
        parts += [f"Sizes and attributes that fail{formula}:", _table(shape_head(scope), shapes)]
    return _folded(f"Scope: {len(scope.rows) - 1} neighbouring programs and their results", "\n\n".join(parts))


def _note(fault: Fault | None) -> str:
    """A person's note about the fault, but for clauses that name other faults of the ledger."""
    told = []
    for sentence in re.split(r"(?<=\.) ", fault.state.note) if fault is not None else []:
        clauses = [c for c in sentence.rstrip(".").split("; ") if c and not re.search(r"\bF[0-9a-f]{7}\b", c)]
        told += ["; ".join(clauses) + "."] if clauses else []
    text = " ".join(told)
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+[ ,]", text) else text  # a name stays as it is spelt


def _kin(fault: Fault | None, given: Sequence[str]) -> str:
    """Issues that look alike: those given, and those that the fault's note names."""
    # numbers behind another project's name are that project's
    note = fault.state.note.partition("FlagGems")[0] if fault is not None else ""
    named = re.findall(r"(?:#|\b(?:issues?|pull requests?|and) )(\d{4,})\b", note)
    told = dict.fromkeys([*given, *(f"#{number}" for number in named)])
    return f"Related: {', '.join(told)}." if told else ""


def _known(fault: Fault | None) -> str:
    """Where the fault is known, or since when it is gone."""
    told = {"known": "Already known", "reported": "Already reported", "fixed": "Fixed in"}
    if fault is None or fault.state.name not in told:
        return ""
    more = fault.state.fixed_in if fault.state.name == "fixed" else fault.state.issue
    between = ": " if more and fault.state.name != "fixed" else " "
    return f"{told[fault.state.name]}{between}{more}".rstrip() + "."


def _logs(grown: Finding, shown: Demonstration | None) -> list[str]:
    """Expected and actual, the usual comparisons, and the script's output."""
    if shown is None:
        return [one_line(plainly(grown.detail), 1000)]
    eager = grown.signature.verdict == "eager-suspect"
    side = EAGER if eager else grown.side
    found = [expected(shown.compared[0], side, eager), comparisons(shown.compared, side)] if shown.compared else []
    return [*found, _fenced(shown.output)]


def _exits(finding: Finding, shown: Demonstration | None) -> str:
    """The purpose of the script, and the result of its run."""
    text = "The script exits 1 while it reproduces, 0 once it is fixed, and 2 where this cannot be told."
    if shown is None:
        return f"{text} It was not run when this was written."
    where = shown.where + ("" if shown.bare else f"; with {_WORKERS}")
    found = finding.place.get("torch", "?"), finding.place.get("device", "cpu")
    elsewhere = "" if shown.shows and shown.device == found[1] else f"; it was found with torch {found[0]}, {found[1]}"
    return f"{text} Run when this was written ({where}): it {shown.told()}{elsewhere}."


_WORKERS = "MALLOC_PERTURB_=165 OMP_NUM_THREADS=1"  # of a worker's environment, what may matter to a script


def _place(finding: Finding) -> str:
    return _table(("", ""), sorted(finding.place.items()))


def _evidence(finding: Finding, others: list[tuple[str, str]]) -> list[str]:
    """Evidence beside the reproducer, in folded sections."""
    parts = [
        f"The error of the minimal program: {one_line(finding.detail, 1000)}",
        _comparison_table(finding.comparisons),
        _diagnosis(finding),
        _before(finding),
        f"Reproduced in {finding.reproduced} of {finding.runs} fresh processes. Found with:",
        _place(finding),
        _stages(finding.stages),
        _ablation(finding.ablation),
        f"As a backfuzz program (`backfuzz replay FILE`), signature `{finding.signature}`, finding `{finding.id}`:",
        _fenced(finding.program),
        "The more natural program in the script above:" if finding.grown is not finding else "",
        _fenced(finding.grown.program) if finding.grown is not finding else "",
    ]
    files = [(name, text) for name, text in (*others, *finding.attachments.items()) if name != EARLIER]
    return [
        _folded("Evidence: how it was found, and its cause", "\n\n".join(part for part in parts if part)),
        *(_folded(f"`{name}`", _fenced(text, _language(name))) for name, text in files),
    ]


# The first words of a draft, where not the compiled side alone is wrong.
_SIDE_TITLES = {
    EAGER: "Eager is wrong",
    BOTH: "Both sides are wrong",
    CHOICE: "Another subgradient, as legal as eager's",
}


def _side(finding: Finding) -> str:
    """The wrong side, and the derivative that proves it: eager's formulas in float64 may be wrong in the same way."""
    told = _SIDE_TITLES.get(finding.side)
    of = " (of the minimal program, below)" if finding.grown is not finding else ""
    return f"**{told}**{of}{finding.diagnosis['side'].removeprefix(finding.side)}." if told else ""


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
    """The error of the program before shrinking: a small error of the minimal program need not have been small
    there."""
    if not finding.before or finding.original == finding.program:
        return ""
    size = len(parse(finding.original).nodes)
    return f"In the original program of {size} operations, before minimizing: {one_line(finding.before, 1000)}"


def _stages(stages: dict[str, str]) -> str:
    table = _table(("backend", "verdict"), list(stages.items()))
    return f"By compiler stage, on the program above:\n\n{table}" if table else ""


def _ablation(ablation: dict[str, str]) -> str:
    ran = {change: said for change, said in ablation.items() if not said.startswith("not run")}
    table = _table(("single change", "verdict"), list(ran.items()))
    return _folded(f"{len(ran)} single changes", table) if table else ""


_OF_THE_DIAGNOSER = ("programs run", "their CPU seconds", "diagnoser")  # of its work, not of the fault


def _diagnosis(finding: Finding) -> str:
    """The diagnosis, a row for each field; fields that did not run or do not apply are left out."""
    silent = ("not run", "none", "ran out", "failed")
    told = ((name, text) for name, text in finding.diagnosis.items() if name not in _OF_THE_DIAGNOSER)
    known = [(name, text) for name, text in told if not text.startswith(silent)]
    known = [
        (name, f"`{one_line(text, 290)}`" if name == "suspect" else text) for name, text in known
    ]  # code may look like HTML
    table = _table(("diagnosis", ""), known)
    return f"The cause, as far as it is known:\n\n{table}" if table else ""


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def _language(name: str) -> str:
    return "python" if name.endswith(".py") else ""
