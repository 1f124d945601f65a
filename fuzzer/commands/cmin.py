"""`backfuzz cmin`: a campaign's corpus reduced."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fuzzer.commands.shared.exits import exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import corpus_option, json_option


@main.command()
@corpus_option
@click.option("--out", type=click.Path(path_type=Path), default=None, help="A new folder. Default: the corpus itself.")
@json_option
@exit_codes
def cmin(corpus: Path, out: Path | None, as_json: bool) -> None:
    """Reduce a campaign's corpus to few programs that show every feature that it shows.

    Exit codes: 0 reduced; 2 there is no corpus, its index cannot be read, or --out exists.
    """
    from fuzzer.campaign.corpus import distil, load_corpus

    found = load_corpus(corpus)
    chosen = distil(found, out or corpus)
    told = {"programs": len(found.kept), "kept": len(chosen), "features": len(found.frontier.best)}
    line = f"{told['kept']} of {told['programs']} programs show all {told['features']} features: {out or corpus}"
    click.echo(json.dumps(told) if as_json else line)
