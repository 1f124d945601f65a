"""`backfuzz vary`: the scope of a fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared import again
from fuzzer.commands.shared.describe import scope_lines
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    Number,
    db_option,
    json_option,
    program_device_option,
    programs_argument,
    workers_option,
)
from fuzzer.commands.shared.reference import load_program
from fuzzer.commands.shared.verb import DECIDE
from fuzzer.ledger.scope import Scope


@main.command(
    purpose=DECIDE,
    runs=True,
    exits={2: "a program does not differ here, or there is no such finding, file or ledger"},
    example="backfuzz vary F9957c78\nbackfuzz vary step.prog --seconds 30",
)
@programs_argument
@program_device_option
@workers_option
@click.option(
    "--seconds",
    type=Number(1),
    default=again.VARY_SECONDS,
    show_default=True,
    help="The time for each program; neighbours that are left then are not tried.",
)
@db_option
@json_option
def vary(
    references: Sequence[str], device: str | None, workers: int | None, seconds: float, db: Path, as_json: bool
) -> None:
    """Measure the scope of faults: which other programs fail too.

    These are neighbours, and it measures by how much each is wrong. A neighbour differs from the natural program of
    a finding, or from a file, in one dtype, size, attribute, layout, route, setting or device. The scope of a
    finding is stored. It takes about a minute for each program.
    """
    from fuzzer.ledger.scope import encode_scope

    def tell(label: str, scope: Scope) -> tuple[dict[str, Any], str]:
        return encode_scope(scope), "\n".join([label, *scope_lines(scope)])

    loaded = [load_program(reference, db) for reference in references]
    again.for_each(
        [(label, finding or text) for label, text, finding in loaded],
        lambda varied: again.vary_one(varied, device, workers, seconds),
        lambda store, scope: store.set_scope(scope),
        tell,
        db,
        as_json,
    )
