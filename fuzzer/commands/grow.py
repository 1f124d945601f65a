"""`backfuzz grow`: minimal programs of the ledger grown into natural ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared import again
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, found_device_option, ids_argument, json_option, workers_option
from fuzzer.commands.shared.reference import load_program
from fuzzer.commands.shared.verb import DECIDE
from fuzzer.judgement.verdict import Finding
from fuzzer.language.errors import UsageError

Grown = tuple[Finding, tuple[str, ...], int]


@main.command(
    purpose=DECIDE,
    runs=True,
    exits={2: "a finding, or --program, does not reproduce here, or there is no such finding, file or ledger"},
    example="backfuzz grow F9957c78\nbackfuzz grow F9957c78 --program from_the_report.prog",
)
@ids_argument
@found_device_option
@workers_option
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    default=None,
    help="Take this .prog, which a person wrote, as the natural program of one ID, if it shows the same fault.",
)
@db_option
@json_option
def grow(
    references: Sequence[str], device: str | None, workers: int | None, program: Path | None, db: Path, as_json: bool
) -> None:
    """Grow the minimal programs of findings into natural ones.

    A natural program is stored beside the minimal one. It has the same fault, and is as a person would write it:
    random normal values, usual layouts and sizes, and an error that is easy to see. It takes about a minute for
    each finding.
    """
    from fuzzer.ledger.rows import encode_natural

    if program is not None and len(references) > 1:
        raise UsageError(f"--program takes one finding, and there are {len(references)}")
    text = "" if program is None else load_program(str(program), db)[1]

    def tell(label: str, found: Grown) -> tuple[dict[str, Any], str]:
        grown, history, queries = found
        steps = ", ".join(history) or ("as a person wrote it" if text else "nothing is more natural")
        row = {"id": grown.id, "natural": encode_natural(grown.natural), "steps": history, "queries": queries}
        return row, f"{label}: {steps} ({queries} programs run)\n{grown.grown.detail}\n\n{grown.grown.program}"

    again.for_each(
        again.findings_of(references, db),
        lambda finding: again.grow_one(finding, device, workers, text),
        lambda store, found: store.set_natural(found[0]),
        tell,
        db,
        as_json,
    )
