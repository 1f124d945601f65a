"""The page itself: contents and plots, inserted into `page.html`. Needs Jinja2 (it comes with torch)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from fuzzer.export import plots
from fuzzer.export.gather import Contents
from fuzzer.judgement.verdict import FINDINGS, Comparison
from fuzzer.ledger.faults import Fault
from fuzzer.ledger.listing import devices, short_issue
from fuzzer.ledger.releases import numbers, span
from fuzzer.ledger.scope import SCOPE_HEAD, Scope, scope_rows, shape_head, shape_rows
from fuzzer.ledger.severity import label

MOST_SHOWN = 300  # open faults shown with program and evidence, some 1.5 MB; the others have a line each
_MOST_PAIRS = 60
# The lines of a diagnosis that readers need first; the others are folded.
_FIRST = ("side", "culprit", "stage", "vanishes", "settings", "ratio", "elements", "suspect")
_SILENT = ("not run", "none", "ran out", "failed")


def page(contents: Contents, made: str) -> str:
    """The HTML. made: its time and source, for people."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"short_issue": short_issue, "colors": plots.COLORS}
    environment.filters["level"] = label
    drawn, recorded = plots.features(contents)
    return environment.get_template("page.html").render(
        contents=contents,
        made=made,
        shown=[_shown(fault, contents) for fault in contents.open[:MOST_SHOWN]],
        left=contents.open[MOST_SHOWN:],
        counts=_counts(contents),
        matrix=_matrix(contents.open),
        campaigns=[_campaign(c) for c in reversed(contents.campaigns)],
        pairs=_pairs(contents),
        plots={
            "discoveries": plots.discoveries(contents),
            "speed": plots.speed(contents),
            "features": drawn,
            "pairs": plots.pairs(contents),
        },
        recorded=recorded,
    )


def _shown(fault: Fault, contents: Contents) -> dict[str, Any]:
    """A fault with its program and evidence."""
    finding, scope = contents.findings[fault.id], contents.scopes.get(fault.id)
    told = {name: text for name, text in finding.diagnosis.items() if not text.startswith(_SILENT)}
    told_of = {"minimal": finding}
    if finding.grown is not finding:
        told_of = {"as a person would write it": finding.grown, **told_of}
    return {
        "fault": fault,
        "finding": finding,
        "programs": [(name, f, _transposed(f.comparisons)) for name, f in told_of.items()],
        "scope": scope,
        "tables": _tables(scope) if scope is not None else [],
        "first": {name: told[name] for name in _FIRST if name in told},
        "more": {name: text for name, text in told.items() if name not in _FIRST},
        "spans": {device: span(fault, device) for device in devices(fault)},
        "places": [(place, "shows") for place in fault.lives_on] + [(place, "gone") for place in fault.gone_on],
    }


def _tables(scope: Scope) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """(head, rows) of the neighbours' table and, where there is one, of the shape table."""
    found = [(SCOPE_HEAD, scope_rows(scope)), (shape_head(scope), shape_rows(scope))]
    return [(head, rows) for head, rows in found if rows]


_LINES = ("worst element", "compiled", "eager", "float64", "legal rounding", "wrong")


def _transposed(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """A line for each of _LINES, with a column for each tensor, so that the table fits on a phone."""
    return list(zip(_LINES, *map(_comparison, comparisons), strict=True)) if comparisons else []


def _comparison(c: Comparison) -> tuple[str, ...]:
    place = f"{c.name}[{', '.join(map(str, c.index))}]"
    values = (f"{value:.9g}" for value in (c.compiled, c.eager, c.float64))
    return place, *values, f"{c.floor:.2g}" if math.isfinite(c.floor) else "any", f"{c.wrong} of {c.total}"


def _counts(contents: Contents) -> list[tuple[str, int]]:
    """The open faults by class, the worst class first."""
    classes = [fault.verdict for fault in contents.open]
    return [(name, classes.count(name)) for name in FINDINGS if name in classes]


def _matrix(faults: Sequence[Fault]) -> dict[str, Any]:
    """Where each fault was tried: a column for each release and device, "shows", "gone" or "" for each fault."""
    tried = {place for fault in faults for place in (*fault.lives_on, *fault.gone_on)}
    columns = sorted(tried, key=lambda place: (place.split(" ")[1], numbers(place)))
    rows = [
        (fault, ["shows" if c in fault.lives_on else "gone" if c in fault.gone_on else "" for c in columns])
        for fault in faults
    ]
    return {"columns": [column.split(" ") for column in columns], "rows": rows}


def _campaign(campaign: Any) -> dict[str, Any]:
    totals: Mapping[str, Any] = campaign.totals
    place = campaign.place
    new = totals.get("findings", {})
    return {
        "id": campaign.id,
        "started": campaign.started[:16].replace("T", " "),
        "minutes": f"{campaign.seconds / 60:.0f}",
        "where": f"torch {place.get('torch', '?')}, {place.get('gpu') or place.get('device', '?')}",
        "programs": totals.get("programs", ""),
        "speed": totals.get("programs_per_s", ""),
        "detectable": f"{totals['detectable_share']:.1%}" if "detectable_share" in totals else "",
        "new": ", ".join(f"{n} {name}" for name, n in new.items()) or "none",
        "command": campaign.command,
    }


def _pairs(contents: Contents) -> dict[str, Any]:
    """The number of pairs of each kind, and the pairs with the most faults with both counts."""
    at_fault, exercised = contents.at_fault, contents.exercised
    ordered = sorted(at_fault, key=lambda pair: (-at_fault[pair], exercised.get(pair, 0), pair))
    return {
        "exercised": len(exercised),
        "at_fault": len(at_fault),
        "both": len(at_fault.keys() & exercised.keys()),
        "rows": [(*pair, at_fault[pair], exercised.get(pair, 0)) for pair in ordered[:_MOST_PAIRS]],
        "left": len(ordered[_MOST_PAIRS:]),
    }
