"""The command `backfuzz`: a module for each verb, imported when that verb is called."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.config import defaults, read_config
from fuzzer.commands.shared.exits import Refusal, refusals
from fuzzer.commands.shared.verb import CONFIG, PURPOSES, Verb, epilog
from fuzzer.language.errors import meant


def _verbs() -> dict[str, str]:
    """The module of each verb; one whose name is a word of Python's ends in an underscore."""
    found = pkgutil.iter_modules([str(Path(__file__).parent.parent)])
    return {name.rstrip("_"): name for name in sorted(module.name for module in found if not module.ispkg)}


class Verbs(click.Group):
    """A group that imports the module of a verb when it is called: `backfuzz faults` pays for no other."""

    command_class = Verb
    modules = _verbs()

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self.modules and name not in self.commands:
            importlib.import_module(f"fuzzer.commands.{self.modules[name]}")
        return super().get_command(context, name)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.modules and not context.resilient_parsing:
            context.fail(f"no command {args[0]!r}{meant(args[0], self.modules)}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """A section for each purpose; the columns of all stand below each other."""
        verbs = [verb for name in self.modules if isinstance(verb := self.get_command(context, name), Verb)]
        column = max(len(verb.name or "") for verb in verbs)
        for purpose in PURPOSES:
            with formatter.section(purpose):
                room = formatter.width - column - 6
                rows = [(verb.name or "", verb.get_short_help_str(room)) for verb in verbs if verb.purpose == purpose]
                formatter.write_dl([(name.ljust(column), told) for name, told in rows])

    def invoke(self, context: click.Context) -> Any:
        with refusals():
            return super().invoke(context)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=epilog(
        "`backfuzz COMMAND --help` says more: arguments, options, exit codes, an example.",
        "backfuzz fuzz --minutes 30\nbackfuzz faults\nbackfuzz export F9957c78",
    ),
)
@click.version_option(package_name="backfuzz", prog_name="backfuzz")
@click.pass_context
def main(context: click.Context) -> None:
    """Fuzz the backward pass of compiled PyTorch.

    Options may stand in backfuzz.toml, or in pyproject.toml below [tool.backfuzz], with a table for each command.
    """
    path, table = read_config()
    context.meta[CONFIG] = path
    for verb in table:
        if verb not in Verbs.modules or not isinstance(table[verb], dict):
            raise Refusal(f"{path}: no command {verb!r}; a table is named like one, as [fuzz]")
    verb = context.invoked_subcommand or ""
    command = main.get_command(context, verb)
    if command is not None and verb in table:
        context.default_map = {verb: defaults(path, command, table[verb])}
