"""`backfuzz diagnose`: the cause of a finding, found out again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzzer.commands.shared import again
from fuzzer.commands.shared.describe import diagnosis_lines
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, found_device_option, ids_argument, json_option, workers_option
from fuzzer.commands.shared.verb import DECIDE
from fuzzer.judgement.verdict import Finding


@main.command(
    purpose=DECIDE,
    runs=True,
    exits={2: "a finding does not reproduce here, or there is no such finding or ledger"},
    example="backfuzz diagnose F9957c78",
)
@ids_argument
@found_device_option
@workers_option
@db_option
@json_option
def diagnose(references: Sequence[str], device: str | None, workers: int | None, db: Path, as_json: bool) -> None:
    """Diagnose findings of the ledger again, and store the result.

    A diagnosis names the side that is wrong, the stage, and the setting, pass or lowering that is the cause. It
    takes at most a minute of two quiet cores for each finding, and names the questions that it had no time for.
    """
    from fuzzer.ledger.rows import encode

    def one(finding: Finding) -> Finding | None:
        found = again.diagnose_one(finding, device, workers)
        if found is None:
            again.note_gone(finding, device, db)
        return found

    def tell(label: str, found: Finding) -> tuple[dict[str, Any], str]:
        return encode(found), "\n".join([f"{label}  {found.signature}", *diagnosis_lines(found)])

    again.for_each(
        again.findings_of(references, db), one, lambda store, found: store.set_diagnosis(found), tell, db, as_json
    )
