"""The command `backfuzz`: a module a verb, imported when that verb is asked for."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.config import defaults, read_config
from fuzzer.commands.shared.exits import INTERRUPTED, Refusal


def _verbs() -> dict[str, str]:
    """The module of each verb; one whose name is a word of Python's ends in an underscore."""
    found = pkgutil.iter_modules([str(Path(__file__).parent.parent)])
    return {name.rstrip("_"): name for name in sorted(module.name for module in found if not module.ispkg)}


class Verbs(click.Group):
    """A group that imports the module of a verb when it is asked for: `backfuzz list` pays for no other."""

    modules = _verbs()

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self.modules and name not in self.commands:
            importlib.import_module(f"fuzzer.commands.{self.modules[name]}")
        return super().get_command(context, name)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:  # while a verb is imported; what a verb interrupts, `exit_codes` tells
            raise Refusal("interrupted", INTERRUPTED) from None


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="backfuzz", prog_name="backfuzz")
@click.pass_context
def main(context: click.Context) -> None:
    """Fuzz the backward pass of compiled PyTorch.

    Options may stand in backfuzz.toml, or in pyproject.toml below [tool.backfuzz], a table for each command.
    """
    path, table = read_config()
    for verb in table:
        if verb not in Verbs.modules or not isinstance(table[verb], dict):
            raise Refusal(f"{path}: no command {verb!r}; a table is named like one, as [fuzz]")
    verb = context.invoked_subcommand or ""
    command = main.get_command(context, verb)
    if command is not None and verb in table:
        context.default_map = {verb: defaults(path, command, table[verb])}
