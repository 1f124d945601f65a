"""A fault's title: the kind of error, torch's names of the operators, and the conditions under which it shows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fuzzer.judgement.verdict import CORRUPT_HEAP, EAGER, NARROWING, NO_DERIVATIVE, OF_EAGER, VALUES, Finding
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import REQUIRED
from fuzzer.language.program import PLAIN_OPS, Dtype, Node, Program, Region, Value, statements
from fuzzer.language.text import parse
from fuzzer.ledger.cause import DEMANDED, KERNELS, NUMBERS, first_stage, raised
from fuzzer.ledger.conditions import DTYPES, compiled_with, dtype_needed, inputs_needed, ratio
from fuzzer.ledger.diagnosed import diagnosed_by
from fuzzer.ledger.scope import Scope, listed
from fuzzer.ledger.switches import convicting

MOST = 96  # characters: a tracker's list cuts longer titles
_MOST_OPS = (3, 2, 1)  # the most that leave a title with room
# The kind of error where nothing raises, by the pattern of the difference.
_SILENT = {
    **dict.fromkeys((*NUMBERS, NO_DERIVATIVE), "wrong {what} of {ops}"),
    "all-zero": "zero {what} of {ops}",
    "dtype": "{what} of {ops} has another dtype",
    "shape": "{what} of {ops} has another shape",
    "storage": "{what} of {ops} reaches beyond its storage",
    "leaf": "{call} of {ops} overwrites an input",
    "cotangent": "{call} of {ops} overwrites the incoming gradient",
    "around leaf": "{call} of {ops} writes out of bounds of an input",
    "around cotangent": "{call} of {ops} writes out of bounds of the incoming gradient",
}
_LOUD = {
    "hangs": "{call} of {ops} does not end",
    "nondeterministic": "{what} of {ops} differs between two equal runs",
    "costly": "{ops} takes far more {pattern} than its size explains",
    "rounding-sensitive": "{what} of {ops} differs by more than consistent rounding",
    NARROWING: "{what} of {ops} depends on a rounding to half precision",
    "signed-zero": "zeros of another sign in the {what} of {ops}",
}
# torch's names for the regions that transform operators.
_WITHIN = {
    "hook": "Tensor.register_hook",
    "function": "torch.autograd.Function",
    "vmap": "torch.vmap",
    **{name: f"torch.func.{name}" for name in ("grad", "jacrev", "jacfwd", "jvp")},
    "cond": "torch.cond",
    **{name: name for name in ("map", "scan", "while_loop")},
}


@dataclass(frozen=True)
class _Title:
    """The parts of a title.

    whose   the side at fault, where that is not the compiler.   claim   the error, with a place for the ops.
    calls   the operators' names.  within   the regions around them.  most   names that stand in the title.
    said    the exception's message.  The others are conditions.
    """

    whose: str
    claim: str
    calls: tuple[str, ...]
    within: str
    most: int
    dtype: str = ""
    inputs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    unless: str = ""
    said: str = ""

    def __str__(self) -> str:
        more = " ..." if len(self.calls) > self.most else ""
        ops = " + ".join(self.calls[: self.most]) + more + (f" in {self.within}" if self.within else "")
        conditions = (("in", self.dtype), ("for", listed(self.inputs)), ("with", listed(self.options)),
                      ("under", ", ".join(self.under)), ("unless", self.unless))  # fmt: skip
        told = "".join(f" {word} {text}" for word, text in conditions if text)
        return f"{self.whose}{self.claim.replace('{ops}', ops)}{told}{f': {self.said}' if self.said else ''}"

    def fits(self) -> bool:
        return len(str(self)) <= MOST


def title(finding: Finding, scope: Scope | None = None) -> str:
    """One line, such as "zero gradient of torch.slice_scatter + torch.sum in float64 for an expanded input"; "eager: "
    stands before errors without a compiler.

    scope   which programs beside the finding's show it: then conditions and ratios are the scope's. Conditions follow
            one another while the line has room.
    """
    program = parse(finding.program)
    shortest = [_Title(_whose(finding), _wrong(finding, program), *_named(program), most) for most in _MOST_OPS]
    told = next((one for one in shortest if one.fits()), shortest[-1])
    for part, value in _more(finding, program, scope):
        several = part in ("inputs", "options")
        added: dict[str, Any] = {part: (*getattr(told, part), value) if several else value}
        longer = replace(told, **added)
        told = longer if longer.fits() else told
    return str(told)


def _more(finding: Finding, program: Program, scope: Scope | None) -> Iterator[tuple[str, Any]]:
    """(part, value) of all that a title may tell, the most telling first."""
    what = "gradient" if finding.signature.direction == "backward" else "result"
    kinds = (*NUMBERS, "all-zero")
    multiple = ratio(program, scope)
    if multiple and _pattern(finding) in kinds and not raised(finding):
        yield "claim", f"{what} of {{ops}} {multiple}"
    words = tuple(_call(node, _told_by_words(node)) for node in telling(program))
    yield "calls", tuple(dict.fromkeys(words))
    autocast = any(isinstance(s, Region) and s.kind in ("autocast", "ambient_autocast") for s in program.body)
    under = [f"{name.partition('.')[2]}={value}" for name, value in program.settings if name not in DEMANDED]
    settings = [f"{len(under)} settings"] if len(under) > 1 else []
    for some in (under[:1] if len(under) == 1 else settings, under):
        yield "under", (*(["torch.autocast"] if autocast else []), *some)
    for text in compiled_with(program):
        yield "options", text
    for text in inputs_needed(program, scope):
        yield "inputs", text
    if finding.signature.pattern != "dtype":
        yield "dtype", dtype_needed(program, scope)
    yield "calls", tuple(dict.fromkeys(_call(node, _told_by_all(node)) for node in telling(program)))
    if switched := _switch(finding, program):
        yield "unless", switched
    if message := re.match(r"the \w* ?raised \w+: ?(.*)", finding.detail):
        for end in (r"[.,;:]", r"[.;]"):  # a clause, then a sentence
            yield "said", re.split(rf"{end}(?:\s|$)", message[1])[0].strip(" :,")


def _switch(finding: Finding, program: Program) -> str:
    """The setting that removes the error, where it acts by default: `donated_buffer=False`."""
    if first_stage(finding) == KERNELS or diagnosed_by(finding) < 2 or program.settings:
        return ""
    found = [switch for switch in convicting(finding.ablation) if switch.setting]
    return f"{found[0].setting.partition('.')[2]}={found[0].value}" if found else ""


def _whose(finding: Finding) -> str:
    """The side at fault, where that is not the compiler."""
    if gems(finding):
        return "FlagGems: "
    return "eager: " if first_stage(finding) == KERNELS else ""


def gems(finding: Finding) -> bool:
    """Whether the finding is about FlagGems' kernels."""
    return finding.place.get("backend", "").startswith("flag_gems")


# ---------------------------------------------------------------- the error


def _wrong(finding: Finding, program: Program) -> str:
    """The kind of error, as a template with a place for the ops."""
    if any(c.name == leaf.name for c in finding.comparisons[:1] for leaf in program.leaves):
        return "an input is wrong after {ops}"
    direction = finding.signature.direction
    what = "gradient" if direction == "backward" else "result"
    return _kind(finding).format(what=what, call=direction or "call", pattern=finding.signature.pattern, ops="{ops}")


def _kind(finding: Finding) -> str:
    signature, detail = finding.signature, finding.detail
    if exception := raised(finding):
        return f"{{call}} of {{ops}} raises {exception[1]}"
    pattern = signature.pattern.removeprefix(OF_EAGER)
    if signature.verdict == "crashes":
        died = f"dies of {pattern.partition(' ')[0]}"
        return f"{{call}} of {{ops}} {'corrupts the heap' if pattern.endswith(CORRUPT_HEAP) else died}"
    if pattern != signature.pattern:
        return "compiled {call} of {ops} runs; eager raises"
    if signature.verdict in _LOUD:
        return _LOUD[signature.verdict]
    if pattern == "None-ness":
        lost = re.search(r"^\S+ is None", detail)
        return "no {what} of {ops}" if lost else "a {what} of {ops} where eager has none"
    dtypes = re.findall(r"is (b?float\d+|complex\d+)\[", detail)
    if pattern == "dtype" and len(dtypes) == 2:
        return f"{{what}} of {{ops}} is {dtypes[0]} instead of {dtypes[1]}"
    if _pattern(finding) == "nonfinite":
        return f"{_not_finite(finding)} in the {{what}} of {{ops}}"
    return _SILENT.get(_pattern(finding), "{pattern} in the {what} of {ops}")


def _pattern(finding: Finding) -> str:
    """The pattern of the wrong side; a signature has the pattern of the side under test."""
    if not _wrong_eager(finding) or finding.signature.pattern not in VALUES:
        return finding.signature.pattern
    numbers = [c.eager for c in finding.comparisons]
    if not all(map(math.isfinite, numbers)):
        return "nonfinite"
    return "all-zero" if numbers and not any(numbers) else "other"


def _wrong_eager(finding: Finding) -> bool:
    return finding.side == EAGER or finding.signature.verdict == "eager-suspect"


def _not_finite(finding: Finding) -> str:
    """The wrong side's numbers that are not finite: NaN, infinity, or both."""
    numbers = [c.eager if _wrong_eager(finding) else c.compiled for c in finding.comparisons]
    numbers = [number for number in numbers if not math.isfinite(number)]
    kinds = {"NaN" if math.isnan(number) else "infinity" for number in numbers}
    return kinds.pop() if len(kinds) == 1 else "NaN or infinity"


# ---------------------------------------------------------------- operators


def _named(program: Program) -> tuple[tuple[str, ...], str]:
    """The operators' names, and the regions that transform them."""
    within = {_WITHIN[s.kind] for s in statements(program.body) if isinstance(s, Region) and s.kind in _WITHIN}
    return tuple(dict.fromkeys(_call(node) for node in telling(program))), " and ".join(sorted(within))


def telling(program: Program) -> list[Node]:
    """The nodes without those that stand for any op; all, where there are no others."""
    return [node for node in program.nodes if node.op not in PLAIN_OPS] or list(program.nodes)


def _call(node: Node, attributes: tuple[str, ...] = ()) -> str:
    """torch's name for a node's op, as people write it, and some of its attributes: `F.pad(mode='circular')`."""
    name, _, held = short_name(torch_name(node.op)).partition("(")
    told = ", ".join(filter(None, [held.removesuffix(")"), *attributes]))
    return f"{name}({told})" if told else name


def _told_by_words(node: Node) -> tuple[str, ...]:
    """The attributes that choose among several functions: names, and switches that are not at their default."""
    optional = _optional(node)
    return tuple(
        f"{name}={value!r}"
        for name, value in node.attrs
        if isinstance(value, str) or (isinstance(value, bool) and name in optional)
    )


def _told_by_all(node: Node) -> tuple[str, ...]:
    """All attributes that are not at their default, but for None and dimensions."""
    optional = _optional(node)
    return tuple(
        f"{name}={_text(value)}"
        for name, value in node.attrs
        if isinstance(value, str) or (name in optional and value is not None)
    )


def _optional(node: Node) -> set[str]:
    attributes = OPS[node.op].attributes if node.op in OPS else ()
    return {a.name for a in attributes if a.default is not REQUIRED and a.kind not in ("dim", "dims")}


def _text(value: Value) -> str:
    return DTYPES.get(value.name, value.name) if isinstance(value, Dtype) else repr(value)


def short_name(name: str) -> str:
    """A name of torch's as people write it: `F.relu`, `Tensor.unfold`."""
    return name.replace("torch.nn.functional.", "F.").replace("torch.Tensor.", "Tensor.")


def torch_name(op: str) -> str:
    """torch's name for an op: the public one, by which people reach it."""
    return (OPS[op].public or OPS[op].source) if op in OPS else op
