"""Options from a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from fuzzer.commands import main
from fuzzer.commands.shared.config import command_line, defaults, read_config
from fuzzer.ledger.shipped import SHIPPED
from tests.commands.calls import ROOT, call, refused

FUZZ = main.get_command(click.Context(main), "fuzz")
assert FUZZ is not None

# Options of `fuzz`, of every kind that there is: the value as TOML, and what the command gets.
OPTIONS: dict[str, tuple[str, Any]] = {
    "minutes": ("2", 2.0),
    "programs": ("3", 3),
    "seed": ("4", 4),
    "device": ('"cpu"', "cpu"),
    "workers": ("1", 1),
    "backend": ('"aot_eager"', "aot_eager"),
    "compare": ('["eager", "inductor"]', ("eager", "inductor")),
    "routes": ('"vjp"', "vjp"),
    "ops": ('"exp,log"', ("exp", "log")),
    "guidance": ('"cells"', "cells"),
    "unguided": ("true", True),
    "resume": ("true", True),
    "again": ('"choices.jsonl"', Path("choices.jsonl")),
    "lines": ("false", False),
    "staged": ("0.5", 0.5),
    "complex": ("true", True),
    "set": ('{"inductor.max_fusion_size" = 4}', ("inductor.max_fusion_size=4",)),
    "batch": ("8", 8),
    "also": ('["settings_agree"]', ("settings_agree",)),
    "db": ('"other.db"', Path("other.db")),
    "json": ("true", True),
    "known": ('["a.db", "b.db"]', (Path("a.db"), Path("b.db"), SHIPPED)),
    "fail-on-finding": ("true", True),
    "duration": ('"30m"', 1800.0),
    "max-disk": ('"1K"', 1024.0),
}


def made(text: str) -> click.Context:
    """What `backfuzz fuzz` gets, without a word, of a backfuzz.toml."""
    assert FUZZ is not None
    Path("backfuzz.toml").write_text(text)
    path, table = read_config()
    return FUZZ.make_context("fuzz", [], default_map=defaults(path, FUZZ, table["fuzz"]))


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_may_stand_in_the_file_and_is_told_as_it_would_be_given(name: str) -> None:
    assert FUZZ is not None
    text, wanted = OPTIONS[name]
    context = made(f"[fuzz]\n{name} = {text}\n")
    (param,) = (param.name for param in FUZZ.params if f"--{name}" in param.opts)
    assert context.params[str(param)] == wanted
    told = command_line(context, ["fuzz"]).split()
    again = FUZZ.make_context("fuzz", told[2:])
    assert again.params == context.params


def test_the_command_line_goes_before_the_file(db: Path) -> None:
    Path("backfuzz.toml").write_text('[faults]\ndb = "missing.db"\n')
    assert "there is no missing.db" in refused(call("faults"))
    assert call("faults", "--db", db).exit_code == 0


def test_a_table_of_pyproject_is_read_where_there_is_no_file_of_our_own(db: Path) -> None:
    Path("pyproject.toml").write_text(f'[tool.backfuzz.faults]\ndb = "{db}"\n')
    assert call("faults").exit_code == 0
    Path("backfuzz.toml").write_text('[faults]\ndb = "own.db"\n')
    assert "there is no own.db" in refused(call("faults"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[fuzz]\nminuts = 3", "backfuzz.toml: fuzz has no option 'minuts'; did you mean minutes?"),
        ("[fuz]\nminutes = 3", "backfuzz.toml: no command 'fuz'; a table is named like one, as [fuzz]"),
        ("minutes = 3", "backfuzz.toml: no command 'minutes'; a table is named like one, as [fuzz]"),
        ("[fuzz", "backfuzz.toml: "),
        ('[fuzz]\nminutes = "long"', "backfuzz.toml: [fuzz]: Invalid value for '--minutes': "),
        ('[fuzz]\nops = "nonsense"', "no op or set of ops 'nonsense'"),
        ("[fuzz]\nmax-disk = [3]", "backfuzz.toml: max-disk of fuzz takes a string or a number, not '[3]'"),
        ('[fuzz]\nresume = "yes"', "backfuzz.toml: resume of fuzz takes true or false, not 'yes'"),
        ('[fuzz]\ncompare = ["eager"]', "backfuzz.toml: compare of fuzz takes a list of 2, not "),
        ("[fuzz]\nknown = [1979-05-27]", "backfuzz.toml: known of fuzz takes a string or a number, not "),
        ('[fuzz]\ndb = "a\\u0000b"', "backfuzz.toml: db of fuzz takes a string or a number, not 'a\\x00b'"),
    ],
)
def test_what_the_file_says_wrongly_is_told_in_a_line(text: str, told: str) -> None:
    Path("backfuzz.toml").write_text(text)
    assert told in refused(call("fuzz"))


def test_a_pyproject_of_others_is_none_of_our_business(db: Path) -> None:
    Path("pyproject.toml").write_text("[project\n")
    assert call("faults", "--db", db).exit_code == 0


def test_the_file_of_the_document_is_one() -> None:
    (text,) = re.findall(r"```toml\n(# backfuzz.toml.*?)```", (ROOT / "docs" / "commands.md").read_text(), re.DOTALL)
    context = made(text)
    assert context.params["minutes"] == 30.0
    assert context.params["assignments"] == ("inductor.max_fusion_size=4",)
    assert call("replay", "--help").exit_code == 0
