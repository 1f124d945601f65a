"""A fault's title: torch's operator names, what is wrong, and whether anything says so ("silent")."""

from __future__ import annotations

import re

from fuzzer.findings.cause import DEMANDED, NUMBERS, raised
from fuzzer.judgement.verdict import EAGER, Finding
from fuzzer.language.text import parse

_MOST_OPS = 3
# What is wrong where nothing raises, by the pattern of the difference.
_SILENT = {
    **dict.fromkeys(NUMBERS, "wrong {what} of {ops}"),
    "all-zero": "zero {what} of {ops}",
    "nonfinite": "NaN or infinity in the {what} of {ops}",
    **dict.fromkeys(("dtype", "shape", "storage"), "another {pattern} of the {what} of {ops}"),
    **dict.fromkeys(("leaf", "cotangent"), "the {what} of {ops} overwrites memory that is not its own"),
}


def title(finding: Finding) -> str:
    """One line, such as "silent: wrong gradient of torch.slice_scatter + torch.sum"."""
    program, signature = parse(finding.program), finding.signature
    names = list(dict.fromkeys(torch_name(node.op) for node in program.nodes))
    ops = " + ".join(names[:_MOST_OPS]) + (" ..." if len(names) > _MOST_OPS else "")
    what = "gradient" if signature.direction == "backward" else "result"
    own = [f"{name}={value}" for name, value in program.settings if name not in DEMANDED]
    eager = signature.verdict == "eager-suspect" or finding.side == EAGER
    text = _wrong(finding).format(what=what, pattern=signature.pattern, ops=ops)
    under = f" under {', '.join(own)}" if own else ""
    return f"{'eager: ' if eager else ''}{text}{under}"


def _wrong(finding: Finding) -> str:
    """What is wrong, with places for what, pattern and ops."""
    signature = finding.signature
    if exception := raised(finding):
        return f"{signature.direction or 'call'} of {{ops}} raises {exception[1]}"
    if signature.verdict in ("crashes", "hangs", "nondeterministic", "costly"):
        return f"{{what}} of {{ops}}: {signature.verdict}"
    if signature.pattern == "None-ness":
        lost = re.search(r"^\S+ is None", finding.detail)
        return "silent: no {what} of {ops}" if lost else "silent: a {what} of {ops} where eager has none"
    return f"silent: {_SILENT.get(signature.pattern, '{pattern} of the {what} of {ops}')}"


def torch_name(op: str) -> str:
    """What torch calls an op."""
    from fuzzer.language.ops import OPS  # needs torch, which a ledger that is only read does not

    return OPS[op].source if op in OPS else op
