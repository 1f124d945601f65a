"""A finding as a row of the ledger, and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from fuzzer.judgement.verdict import FINDINGS, Comparison, Finding, Natural, Signature, parse_signature
from fuzzer.language.text import parse
from fuzzer.language.trust import harmless
from fuzzer.ledger.errors import UnverifiedFinding

LEAST_RUNS = 3  # a finding enters only after it reproduced in all of at least this many fresh processes


def encode(finding: Finding) -> dict[str, Any]:
    """A finding as plain values for JSON; numbers that JSON does not know are the strings "nan", "inf" and "-inf"."""
    signature = finding.signature
    fields = asdict(finding)
    del fields["signature"]
    return {
        "id": finding.id,
        "oracle": signature.oracle,
        "class": signature.verdict,
        "direction": signature.direction,
        "pattern": signature.pattern,
        **fields,
        "comparisons": [_plain(asdict(comparison)) for comparison in finding.comparisons],
        "natural": encode_natural(finding.natural),
    }


def encode_natural(natural: Natural | None) -> dict[str, Any] | None:
    """A natural program and its results, as plain values."""
    if natural is None:
        return None
    plain = [_plain(asdict(comparison)) for comparison in natural.comparisons]
    return {"program": natural.program, "signature": str(natural.signature), "detail": natural.detail,
            "comparisons": plain}  # fmt: skip


def decode(fields: dict[str, Any]) -> Finding:
    """The finding that `encode` wrote; other keys are ignored."""
    return Finding(
        signature=Signature(fields["oracle"], fields["class"], fields["direction"], fields["pattern"]),
        comparisons=tuple(map(_comparison, fields["comparisons"])),
        natural=_natural(fields.get("natural")),
        **{key: fields[key] for key in _PLAIN_FIELDS},
    )


_PLAIN_FIELDS = (
    *("detail", "original", "program", "place", "reproduced", "runs", "stages", "ablation"),
    *("campaign", "created", "note", "before", "diagnosis", "attachments", "unsupported"),
)
DIAGNOSED = ("stages", "ablation", "diagnosis", "attachments")
_JSON_COLUMNS = ("place", "comparisons", "totals", "natural", *DIAGNOSED)


def _natural(fields: dict[str, Any] | None) -> Natural | None:
    if fields is None:
        return None
    signature, comparisons = parse_signature(fields["signature"]), tuple(map(_comparison, fields["comparisons"]))
    return Natural(fields["program"], signature, fields["detail"], comparisons)


def _plain(comparison: dict[str, Any]) -> dict[str, Any]:
    def value(v: Any) -> Any:
        if isinstance(v, tuple):
            return list(v)
        return str(v) if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf"))) else v

    return {key: value(v) for key, v in comparison.items()}


def decode_comparisons(text: str) -> tuple[Comparison, ...]:
    """The comparisons of a row."""
    return tuple(map(_comparison, json.loads(text)))


def _comparison(fields: dict[str, Any]) -> Comparison:
    numbers = {key: float(fields[key]) for key in ("eager", "compiled", "float64", "floor")}
    return Comparison(fields["name"], tuple(fields["index"]), wrong=fields["wrong"], total=fields["total"], **numbers)


def to_row(fields: dict[str, Any]) -> dict[str, Any]:
    # the order of keys is kept: stages stand in pipeline order
    return {key: json.dumps(v) if key in _JSON_COLUMNS else v for key, v in fields.items()}


def from_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row as values of a finding; texts without characters that a terminal obeys, since others may have written
    them."""
    return {key: _harmless(json.loads(v) if key in _JSON_COLUMNS else v) for key, v in row.items()}


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        return {_harmless(key): _harmless(one) for key, one in value.items()}
    return list(map(_harmless, value)) if isinstance(value, list) else value


def require_verified(finding: Finding) -> None:
    """Raise `UnverifiedFinding` unless this finding may enter a store."""
    if finding.signature.verdict not in FINDINGS:
        raise UnverifiedFinding(f"{finding.id}: {finding.signature.verdict!r} is no class of finding")
    if not finding.reproduced == finding.runs >= LEAST_RUNS:
        raise UnverifiedFinding(
            f"{finding.id}: reproduced {finding.reproduced} of {finding.runs}; a finding is stored only when it "
            f"reproduced in all of at least {LEAST_RUNS} runs"
        )
    for text in (finding.program, finding.original):
        try:
            parse(text)
        except ValueError as error:
            raise UnverifiedFinding(f"{finding.id}: its program does not parse: {error}") from None
