"""`backfuzz status`: what a campaign has seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import corpus_option, json_option
from fuzzer.language.errors import UsageError


@main.command()
@corpus_option
@click.option("--prometheus", is_flag=True, help="The last minute of the campaign, in Prometheus' text format.")
@click.option("--coverage", is_flag=True, help="The compiler's files and functions too that no program reached.")
@json_option
@exit_codes
def status(corpus: Path, prometheus: bool, coverage: bool, as_json: bool) -> None:
    """Say what a campaign has seen, also while it runs: the last one, or the one whose corpus is named.

    Exit codes: 0 told; 2 there is no corpus, it cannot be read, or for --coverage no lines were recorded.
    """
    from fuzzer.campaign.audit import audit, audit_totals, cell_lines, filled, report_lines
    from fuzzer.campaign.corpus import load_corpus
    from fuzzer.campaign.told import logs

    own = max((corpus.parent / "campaigns").glob("*"), default=corpus)
    beat = logs.last_beat(own)
    if prometheus:
        if beat is None:
            raise UsageError(f"no campaign beside {corpus} has told how it is")
        click.echo("\n".join(logs.prometheus(beat)))
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
