"""`backfuzz cmin`: a campaign's corpus reduced."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import corpus_option, json_option
from fuzzer.commands.shared.verb import LOOK


@main.command(
    purpose=LOOK,
    exits={2: "there is no corpus, its index cannot be read, or --out exists"},
    example="backfuzz cmin --out small-corpus",
)
@corpus_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="A new folder for the result. Default: the corpus itself.",
)
@json_option
def cmin(corpus: Path, out: Path | None, as_json: bool) -> None:
    """Reduce a campaign's corpus to few programs.

    These have all features of the corpus.
    """
    from fuzzer.campaign.corpus import distil, load_corpus

    found = load_corpus(corpus)
    chosen = distil(found, out or corpus)
    told = {"programs": len(found.kept), "kept": len(chosen), "features": len(found.frontier.best)}
    line = f"{told['kept']} of {told['programs']} programs have all {told['features']} features: {out or corpus}"
    click.echo(json.dumps(told) if as_json else line)
