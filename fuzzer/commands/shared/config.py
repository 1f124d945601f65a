"""Options from a file: `backfuzz.toml`, or `[tool.backfuzz]` in `pyproject.toml`, of the working folder."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fuzzer.commands.shared.exits import Refusal
from fuzzer.language.errors import meant

OWN, SHARED = Path("backfuzz.toml"), Path("pyproject.toml")


def read_config() -> tuple[Path | None, dict[str, Any]]:
    """The file and its table, which has a table for each command; (None, {}) where there is none. Raises Refusal."""
    for path in (OWN, SHARED):
        try:
            read = tomllib.loads(path.read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:  # no TOML, or not UTF-8
            if path == SHARED:
                continue  # somebody else's, who will tell
            raise Refusal(f"{path}: {error}") from None
        table = read if path == OWN else read.get("tool", {}).get("backfuzz")
        if isinstance(table, dict):
            return path, table
    return None, {}


def defaults(path: Path | None, command: click.Command, table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a command by its parameters' names, as click's `default_map` has them: options are written as on the
    command line, without the dashes. Raises Refusal where there is no such option."""
    names = {
        option.removeprefix("--"): param.name or ""
        for param in command.params
        if isinstance(param, click.Option)
        for option in param.opts
    }
    found = {}
    for name, value in table.items():
        if name not in names:
            raise Refusal(f"{path}: {command.name} has no option {name!r}{meant(name, names)}")
        pairs = isinstance(value, dict)  # [fuzz.set]
        found[names[name]] = [f"{key}={one!r}" for key, one in value.items()] if pairs else value
    return found


def words(context: click.Context) -> list[str]:
    """The options that a command took from the file, as words of a command line."""
    taken: list[str] = []
    for param in context.command.params:
        if context.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT_MAP:
            continue
        value: Any = context.lookup_default(param.name or "")
        name = param.opts[0]
        if isinstance(value, bool):
            taken += [name] if value else list(param.secondary_opts)
        elif isinstance(param, click.Option) and param.multiple:
            taken += [word for one in value for word in (name, str(one))]
        else:
            taken += [name, *map(str, value if isinstance(value, list) else [value])]
    return taken


def command_line(context: click.Context, given: list[str]) -> str:
    """The command that does the same without the file."""
    return "backfuzz " + shlex.join([*given, *words(context)])
