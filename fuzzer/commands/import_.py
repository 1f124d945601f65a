"""`backfuzz import`: a Python function written as a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    help="A Python file, and a function or torch.nn.Module in it; FUNCTION may be left out if it is the only one. The "
    "file runs, whatever is in it. Its tuple `inputs` holds the tensors to call FUNCTION with.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=None, help="The file to write. Default: FUNCTION.prog.")
def import_(reference: str, out: Path | None) -> None:
    """Write a Python function as a program.

    Each torch call that the function makes becomes a node. Inputs and parameters become leaves, with their types and
    layouts, and with their values if they have at most 64 elements. The program is compared with the function: if an
    output, a gradient or a write is not the same, bit by bit, no program is written.
    """
    from fuzzer.language.text import show
    from fuzzer.language.transcribe import Inexpressible, transcribe

    path, _, wanted = reference.partition(":")
    name, function, inputs = _user_function(path, wanted)
    try:
        with _running(f"{path}:{name}", but=Inexpressible):
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


@contextmanager
def _running(what: str, but: type[Exception] | None = None) -> Iterator[None]:
    """The person's own code runs. Raises UsageError for whatever it raises, and where it exits."""
    try:
        yield
    except SystemExit as error:
        raise UsageError(f"{what} exits, with {error.code!r}") from None
    except Exception as error:
        if but is not None and isinstance(error, but):
            raise
        told = " ".join(str(error).split())
        raise UsageError(f"{what} raised {type(error).__name__}: {told}") from None


def _user_function(path: str, wanted: str) -> tuple[str, Callable[..., Any], tuple[Any, ...]]:
    """(name, function, inputs) of a Python file. Raises UsageError."""
    import runpy

    import torch

    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file; `backfuzz import` takes FILE.py or FILE.py:FUNCTION")
    with _running(path):
        space = runpy.run_path(path, run_name="backfuzz_import")
    inputs = space.get("inputs")
    if not (isinstance(inputs, tuple | list) and inputs and all(isinstance(t, torch.Tensor) for t in inputs)):
        raise UsageError(f"{path}: it has no tuple of tensors called `inputs` to call the function with")
    defined = [key for key, v in space.items() if callable(v) and getattr(v, "__module__", "") == "backfuzz_import"]
    own = [key for key in defined if not isinstance(space[key], type)]
    if not wanted and len(own) != 1:
        raise UsageError(f"{path} defines {', '.join(own) or 'no function'}: name one, {path}:FUNCTION")
    function = space.get(wanted or own[0])
    if not callable(function):
        raise UsageError(f"{path}: no function {wanted!r}; it defines {', '.join(own) or 'none'}")
    if isinstance(function, type):
        raise UsageError(f"{path}: {wanted} is a class; make an object of it there, and name that")
    return wanted or own[0], function, tuple(inputs)
