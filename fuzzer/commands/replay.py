"""`backfuzz replay`: programs run again."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.exits import COULD_NOT_RUN, DIFFERS, exit_codes
from fuzzer.commands.group import main
from fuzzer.commands.options import (
    also_option,
    compare_option,
    db_option,
    found_backend_option,
    json_option,
    references_argument,
    where_option,
    workers_option,
)
from fuzzer.commands.reference import finding_task, load_program
from fuzzer.execution.messages import Report
from fuzzer.judgement.verdict import FINDINGS


@main.command()
@references_argument
@where_option
@found_backend_option
@compare_option
@also_option
@workers_option
@db_option
@json_option
@exit_codes
def replay(
    references: Sequence[str],
    device: str | None,
    backend: str | None,
    compare: tuple[str, str] | None,
    also: tuple[str, ...],
    workers: int | None,
    db: Path,
    as_json: bool,
) -> None:
    """Run programs again, compiler caches off: .prog files or ids of findings.

    Exit codes: 0 all agree; 1 some differ; 2 some could not run; 3 this machine cannot run it; 130 interrupted.
    """
    from fuzzer.execution.capacity import default_workers
    from fuzzer.execution.pool import Pool
    from fuzzer.execution.verify import examine_all

    loaded = [load_program(reference, db) for reference in references]
    tasks = [finding_task(finding, device, backend, compare, also) for _, _, finding in loaded]
    devices = sorted({side.device for t in tasks for side in (t.place.reference, t.place.subject)})
    with Pool(min(workers or default_workers(devices), len(loaded)), devices) as pool:
        asked = [(task, text) for task, (_, text, _) in zip(tasks, loaded, strict=True)]
        reports = examine_all(pool, asked)
    rows = [_report_row(label, report) for (label, _, _), report in zip(loaded, reports, strict=True)]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        for row in rows:
            reason = f" ({row['rejected']})" if row["rejected"] else ""
            built = f" (built: {row['built']})" if row["built"] else ""
            click.echo(f"{row['program']}: {row['class']}{reason}{built}", err=bool(reason))
            for verdict in row["verdicts"]:
                click.echo(f"  {verdict['signature']}\n    {verdict['detail']}")
    classes = {report.verdict for report in reports}
    sys.exit(COULD_NOT_RUN if "rejected" in classes else DIFFERS if classes & set(FINDINGS) else 0)


def _report_row(label: str, report: Report) -> dict[str, Any]:
    return {
        "program": label,
        "class": report.verdict,
        "rejected": report.rejected,
        "built": report.built,
        "verdicts": [{"signature": str(v.signature), "detail": v.detail} for v in report.verdicts],
        "detectable": report.detectable,
        "elements": report.elements,
    }
