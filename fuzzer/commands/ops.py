"""`backfuzz ops`: the operations of programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import json_option
from fuzzer.commands.shared.verb import LOOK

if TYPE_CHECKING:
    from fuzzer.language.ops.spec import OpSpec


@main.command(purpose=LOOK, example="backfuzz ops\nbackfuzz ops --complex")
@click.option("--complex", "complex_", is_flag=True, help="Only those that take complex numbers with this torch.")
@json_option
def ops(complex_: bool, as_json: bool) -> None:
    """List the operations of which programs are made.

    Each has a family, and some belong to a set, such as `core`, which `fuzz --ops` takes.
    """
    from fuzzer.generation.sets import SETS
    from fuzzer.language.ops import OPS
    from fuzzer.language.ops.spec import SAME

    rows: list[dict[str, Any]] = []
    for spec in _taking_complex() if complex_ else OPS.values():
        first = spec.operands[0].dtypes
        rows.append(
            {
                "name": spec.name,
                "family": spec.family,
                "sets": [name for name, members in SETS.items() if spec.name in members],
                "source": spec.source,
                "dtypes": [] if first == SAME else list(first),
                "attributes": [a.name for a in spec.attributes],
                "differentiable": spec.differentiable,
                "entries": list(spec.entries),
            }
        )
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        sets = " ".join(row["sets"])
        click.echo(f"{row['family']:14} {row['name']:24} {sets:5} {row['source']}({', '.join(row['attributes'])})")
    click.echo(f"{len(rows)} op(s), {sum(bool(r['differentiable']) for r in rows)} differentiable")


def _taking_complex() -> Iterator[OpSpec]:
    """The ops that take complex numbers with this torch."""
    from fuzzer.generation.vocabulary import complex_form
    from fuzzer.language.ops import OPS

    return filter(lambda spec: spec.takes_complex, map(complex_form, OPS))
