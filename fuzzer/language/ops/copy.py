"""Views that are copied at once: torch's own functional forms of the views."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.language.ops import split, view
from fuzzer.language.ops.spec import Operand, OpSpec

FAMILY = "copy"

_COPIED = """
    as_strided diagonal expand narrow permute split_with_sizes squeeze t transpose unbind unfold unsqueeze view
""".split()


def _copied(spec: OpSpec) -> OpSpec:
    name = f"{spec.name}_copy"
    since = "2.13" if name == "narrow_copy" else ""  # without a derivative before
    return replace(spec, name=name, family=FAMILY, source=f"torch.{name}", entries=(name,), since=since)


TABLE = (
    OpSpec("alias_copy", FAMILY, "torch.alias_copy", (Operand(),)),
    *(_copied(spec) for spec in (*view.TABLE, *split.TABLE) if spec.name in _COPIED),
)
