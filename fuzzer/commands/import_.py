"""`backfuzz import`: a Python function written as a program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.verb import FIND
from fuzzer.language.errors import UsageError


@main.command(
    name="import",
    purpose=FIND,
    exits={2: "the function cannot be expressed (what stands in the way is named), or wrong usage"},
    example="backfuzz import block.py:step\nbackfuzz replay step.prog",
)
@click.argument(
    "reference", metavar="FILE.py[:FUNCTION]",
    help="A Python file, or a module by its name, and a function or torch.nn.Module in it; FUNCTION may be left out if "
    "it is the only one of a file. The file runs, whatever is in it. Its tuple `inputs` holds the tensors to call "
    "FUNCTION with.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=None, help="The file to write. Default: FUNCTION.prog.")
def import_(reference: str, out: Path | None) -> None:
    """Write a Python function as a program.

    Each torch call that the function makes becomes a node. Inputs and parameters become leaves, with their types and
    layouts, and with their values if they have at most 64 elements. The program is compared with the function: if an
    output, a gradient or a write is not the same, bit by bit, no program is written.
    """
    from fuzzer.commands.shared.call import find_call, running
    from fuzzer.language.text import show
    from fuzzer.language.transcribe import Inexpressible, transcribe

    path, name, function, inputs = find_call(reference)
    try:
        with running(f"{path}:{name}", but=Inexpressible):
            found = transcribe(function, inputs)
    except Inexpressible as error:
        for call in error.calls:
            click.echo(f"cannot be expressed: {call}", err=True)
        raise UsageError(
            f"{reference}: no program says it, for {len(error.calls)} reason(s); `backfuzz ops` lists the ops"
        ) from None
    told = []
    if found.drawn:
        told.append(f"{', '.join(found.drawn)} hold drawn values, not those of the function's inputs.")
    told += found.made_inside
    target = out or Path(f"{name}.prog")
    if out is None and target.exists():
        raise UsageError(f"{target} exists; --out names another file, or this one to replace it")
    target.write_text(show(replace(found.program, comment=(f"The function {name} of {Path(path).name}.", *told))))
    click.echo(str(target))
