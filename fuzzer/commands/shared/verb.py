"""A verb of the command line: its place in `backfuzz --help`, and a help that ends in exit codes and an example."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click
from click.core import ParameterSource

from fuzzer.commands.shared.exits import Refusal, exits_line

CONFIG = "backfuzz.config"  # in a context's meta: the configuration file

# What a person wants, in the order of `backfuzz --help`.
FIND, DECIDE, HAND_OVER, KEEP, LOOK = PURPOSES = (
    "Find faults",
    "Decide what they are",
    "Hand them over",
    "Keep the ledger",
    "Look inside",
)


class Verb(click.Command):
    """A command of the group.

    purpose   one of PURPOSES.  example   lines that can be typed.  runs   whether it runs programs, which a machine
    may be unable to.  exits   own words for some exit codes.  advanced   the options, without dashes, that stand apart.
    """

    def __init__(
        self,
        *given: Any,
        purpose: str,
        example: str,
        runs: bool = False,
        exits: dict[int, str] | None = None,
        advanced: Collection[str] = (),
        **more: Any,
    ):
        super().__init__(*given, **more)
        self.purpose, self.advanced = purpose, {f"--{name}" for name in advanced}
        unknown = self.advanced - {name for param in self.params for name in param.opts}
        assert not unknown, f"{self.name} has no {sorted(unknown)}"
        self.epilog = epilog(exits_line(exits or {}, runs), example)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Raises Refusal, with the file's name, for a wrong value in the configuration file; BadParameter for one on
        the command line."""
        try:
            return super().parse_args(context, args)
        except click.BadParameter as error:
            name = error.param.name if error.param else None
            if name and context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
                raise Refusal(f"{context.meta[CONFIG]}: [{self.name}]: {error.format_message()}") from None
            raise

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in two sections."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Advanced": []}
        for param in self.get_params(context):
            record = param.get_help_record(context)
            if record is not None and isinstance(param, click.Option):
                sections["Advanced" if self.advanced & set(param.opts) else "Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def epilog(said: str, example: str) -> str:
    """The end of a help: a paragraph, and lines that can be typed, which are left as they are."""
    return f"{said}\n\n\b\nExample:\n" + "\n".join(f"  {line}" for line in example.splitlines())
