"""`backfuzz status`: the programs, features and cells of a campaign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import corpus_option, json_option
from fuzzer.commands.shared.verb import LOOK
from fuzzer.language.errors import UsageError


@main.command(
    purpose=LOOK,
    exits={2: "there is no corpus, it cannot be read, or no lines were recorded for --coverage"},
    example="backfuzz status\nbackfuzz status --coverage --corpus .backfuzz/corpus-1",
)
@corpus_option
@click.option(
    "--prometheus", is_flag=True, help="Print the last minute of the campaign, in the text format of Prometheus."
)
@click.option(
    "--coverage", is_flag=True, help="List the files and functions of the compiler, too, that no program reached."
)
@json_option
def status(corpus: Path, prometheus: bool, coverage: bool, as_json: bool) -> None:
    """Print the programs, features and cells of a campaign.

    It is the last campaign, which may still run, or the one with this corpus.
    """
    from fuzzer.campaign.audit import audit, audit_totals, cell_lines, filled, report_lines
    from fuzzer.campaign.corpus import load_corpus
    from fuzzer.campaign.told import logs

    own = max((corpus.parent / "campaigns").glob("*"), default=corpus)
    beat = logs.last_beat(own)
    if prometheus:
        if beat is None:
            raise UsageError(f"no campaign beside {corpus} has written a heartbeat")
        click.echo("\n".join(logs.prometheus(beat, own.name)))
        return
    found = load_corpus(corpus)
    state = found.state()
    seen = found.frontier
    families = {
        name: {"features": n, "last_new": seen.last_new.get(name, seen.programs)}
        for name, n in sorted(seen.families.items())
    }
    audited = audit(found) if coverage else []
    told = filled(found, state)
    row: dict[str, Any] = {"corpus": str(corpus), "place": found.place, "programs": seen.programs}
    row |= {"kept": len(found.kept), "lines_share": state.get("lines", 0.0), "families": families}
    row |= {"cells": {name: family.row() for name, family in told.items()}} if told else {}
    row |= {"last_minute": beat} if beat else {}
    if as_json:
        row |= {"coverage": audit_totals(audited) | {"by_file": [file.row() for file in audited]}} if coverage else {}
        click.echo(json.dumps(row))
        return
    place = ", ".join(f"{name} {value}" for name, value in found.place.items())
    click.echo(f"{corpus}: {seen.programs} programs, {len(found.kept)} kept ({place})")
    if beat:
        click.echo(f"  {own.name} {logs.told(beat)}")
    for name, family in families.items():
        click.echo(f"  {name:9} {family['features']:6} features, the last new one with program {family['last_new']}")
    for line in cell_lines(told):
        click.echo(f"  {line}")
    if coverage:
        click.echo(f"the compiler's lines were recorded of {row['lines_share']:.0%} of the programs")
        click.echo("\n".join(report_lines(audited)))
