"""A fault's title: torch's operator names, the kind of error, and whether the error is silent."""

from __future__ import annotations

import math
import re

from fuzzer.judgement.verdict import EAGER, NO_DERIVATIVE, VALUES, Finding
from fuzzer.language.program import Region, statements
from fuzzer.language.text import parse
from fuzzer.ledger.cause import DEMANDED, KERNELS, NUMBERS, first_stage, raised

_MOST_OPS = 3
# The kind of error where nothing raises, by the pattern of the difference.
_SILENT = {
    **dict.fromkeys((*NUMBERS, NO_DERIVATIVE), "wrong {what} of {ops}"),
    "all-zero": "zero {what} of {ops}",
    "nonfinite": "NaN or infinity in the {what} of {ops}",
    **dict.fromkeys(("dtype", "shape", "storage"), "another {pattern} of the {what} of {ops}"),
    **dict.fromkeys(("leaf", "cotangent"), "the {what} of {ops} overwrites memory that is not its own"),
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


def title(finding: Finding) -> str:
    """One line, such as "silent: wrong gradient of torch.slice_scatter + torch.sum"; "eager: " stands before errors
    without a compiler."""
    program, signature = parse(finding.program), finding.signature
    names = list(dict.fromkeys(name for node in program.nodes for name in _shown_names(node.op)))
    ops = " + ".join(names[:_MOST_OPS]) + (" ..." if len(names) > _MOST_OPS else "")
    within = {_WITHIN[s.kind] for s in statements(program.body) if isinstance(s, Region) and s.kind in _WITHIN}
    ops += f" in {' and '.join(sorted(within))}" if within else ""
    what = "gradient" if signature.direction == "backward" else "result"
    text = _wrong(finding).format(what=what, pattern=signature.pattern, ops=ops)
    autocast = any(isinstance(s, Region) and s.kind in ("autocast", "ambient_autocast") for s in program.body)
    under = ["torch.autocast"] if autocast else []
    under += [f"{name}={value}" for name, value in program.settings if name not in DEMANDED]
    told = f" under {', '.join(under)}" if under else ""
    return f"{_whose(finding)}{text}{told}"


def _whose(finding: Finding) -> str:
    """The side at fault, where that is not the compiler."""
    if gems(finding):
        return "FlagGems: "
    return "eager: " if first_stage(finding) == KERNELS else ""


def gems(finding: Finding) -> bool:
    """Whether the finding is about FlagGems' kernels."""
    return finding.place.get("backend", "").startswith("flag_gems")


def _wrong(finding: Finding) -> str:
    """The kind of error, as a template with places for the wrong quantity, the pattern and the ops."""
    signature = finding.signature
    if exception := raised(finding):
        return f"{signature.direction or 'call'} of {{ops}} raises {exception[1]}"
    if signature.verdict in ("crashes", "hangs", "nondeterministic", "costly"):
        return f"{{what}} of {{ops}}: {signature.verdict}"
    if signature.pattern == "None-ness":
        lost = re.search(r"^\S+ is None", finding.detail)
        return "silent: no {what} of {ops}" if lost else "silent: a {what} of {ops} where eager has none"
    dtypes = re.findall(r"is (b?float\d+|complex\d+)\[", finding.detail)
    if signature.pattern == "dtype" and len(dtypes) == 2:
        return f"silent: {{what}} of {{ops}} is {dtypes[0]}, not {dtypes[1]}"
    return f"silent: {_SILENT.get(_pattern(finding), '{pattern} of the {what} of {ops}')}"


def _pattern(finding: Finding) -> str:
    """The pattern of the wrong side; a signature has the pattern of the side under test."""
    wrong_eager = finding.side == EAGER or finding.signature.verdict == "eager-suspect"
    if not wrong_eager or finding.signature.pattern not in VALUES:
        return finding.signature.pattern
    numbers = [c.eager for c in finding.comparisons]
    if not all(map(math.isfinite, numbers)):
        return "nonfinite"
    return "all-zero" if numbers and not any(numbers) else "other"


def _shown_names(op: str) -> list[str]:
    """torch's name for an op, and for the op that makes real numbers of its complex results."""
    from fuzzer.language.ops import OPS  # needs torch, which reading a ledger does not

    names = (OPS[op].source, *OPS[op].then) if op in OPS else (op,)
    return [name for name in names if name != "torch.resolve_conj"]  # it does not change numbers


def torch_name(op: str) -> str:
    """torch's name for an op."""
    from fuzzer.language.ops import OPS  # needs torch, which reading a ledger does not

    return OPS[op].source if op in OPS else op
