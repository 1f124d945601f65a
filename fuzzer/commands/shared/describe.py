"""A diagnosis, a scope and a fault in lines for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.faults import Fault
from fuzzer.ledger.scope import Scope


def diagnosis_lines(finding: Finding) -> list[str]:
    """The diagnosis: a line for each part of the diagnosis, then the traceback of what raised."""
    from fuzzer.ledger.diagnosed import DIAGNOSER, TRACEBACK, VERSION, diagnosed_by

    if not finding.diagnosis:
        return ["not diagnosed yet: backfuzz diagnose " + finding.id]
    lines = [f"  {name}: {text}" for name, text in finding.diagnosis.items() if name != VERSION]
    made = diagnosed_by(finding)
    lines.append(f"  {VERSION}: {made}" + (f"; this is version {DIAGNOSER}" if made != DIAGNOSER else ""))
    lines.append(f"  attachments (in `backfuzz export`): {', '.join(finding.attachments) or 'none'}")
    told = finding.attachments.get(TRACEBACK, "")
    return lines + ([f"  {TRACEBACK}:", *(f"    {line}" for line in told.splitlines())] if told else [])


def severity_line(finding: Finding) -> str:
    """The severity of a finding with its reasons: "S2: function, dynamic sizes"."""
    from fuzzer.ledger.severity import severity_of

    found = severity_of(finding)
    return f"{found}: {', '.join(found.reasons)}" if found.reasons else f"{found}: silent, and nothing rare is needed"


def scope_lines(scope: Scope) -> list[str]:
    """A scope: its summary, a line for each neighbour, the shape table."""
    from fuzzer.ledger.scope import SCOPE_HEAD, scope_rows, shape_head, shape_rows

    where = f"torch {scope.torch}, {scope.device}" + (f", at the stage {scope.stage}" if scope.stage else "")
    lines = [f"{scope.summary} ({where})", *_aligned(SCOPE_HEAD, scope_rows(scope))]
    shapes = shape_rows(scope)
    return [*lines, "", *_aligned(shape_head(scope), shapes)] if shapes else lines


def fault_lines(fault: Fault) -> list[str]:
    """A fault: its title and state, the releases, its note and its history."""
    counted = f"{fault.variants} finding(s), {fault.occurrences} program(s)"
    lines = [f"fault {fault.id}: {fault.title} ({fault.state}; {counted})"]
    lines += [f"  lives on: {', '.join(fault.lives_on) or 'none that was tried'}"]
    lines += [f"  gone on: {', '.join(fault.gone_on)}"] if fault.gone_on else []
    lines += [f"  unknown on: {'; '.join(fault.unsaid)}"] if fault.unsaid else []
    lines += [f"  note: {fault.state.note}"] if fault.state.note else []
    return lines + [f"  {time[:19]} {what}{f' ({who})' if who else ''}" for time, what, who in fault.history]


def _aligned(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns side by side, each as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows))
    return ["  " + line.rstrip() for line in lines]
