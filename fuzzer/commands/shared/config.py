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
    command line, without the dashes. Raises Refusal where there is no such option, or it takes no such value."""
    named = {
        option.removeprefix("--"): param
        for param in command.params
        if isinstance(param, click.Option)
        for option in param.opts
    }
    found = {}
    for name, value in table.items():
        if name not in named:
            raise Refusal(f"{path}: {command.name} has no option {name!r}{meant(name, named)}")
        option = named[name]
        if isinstance(value, dict) and option.multiple:  # [fuzz.set]
            value = [f"{key}={one!r}" for key, one in value.items()]
        try:
            found[option.name or ""] = _as_written(option, value)
        except ValueError as error:
            raise Refusal(f"{path}: {name} of {command.name} takes {error}, not {str(value)[:_WIDTH]!r}") from None
    return found


_WIDTH = 100  # characters of a value that is shown


def _as_written(option: click.Option, value: Any) -> Any:
    """The value of an option as a command line has it: words. Raises ValueError with the kind of value that the option
    takes."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if option.multiple:
        return [_words(option, one) for one in (value if isinstance(value, list) else [value])]
    return _words(option, value)


def _words(option: click.Option, value: Any) -> str | list[str]:
    """One value of an option, which may be of several words. Raises ValueError."""
    if option.nargs == 1:
        return _word(value)
    if not isinstance(value, list) or len(value) != option.nargs:
        raise ValueError(f"a list of {option.nargs}")
    return [_word(one) for one in value]


def _word(value: Any) -> str:
    """A string or a number as a word. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
        raise ValueError("a string or a number")
    return str(value)


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
