"""The help of verbs: sections, exit codes, examples."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from fuzzer.commands import main
from fuzzer.commands.shared.exits import EXITS
from fuzzer.commands.shared.verb import PURPOSES, Verb
from tests.commands.calls import call

VERBS = {name: main.get_command(click.Context(main), name) for name in main.modules}


def told(*arguments: str) -> str:
    return call(*arguments, "--help").stdout


def test_the_help_of_all_groups_the_verbs_by_what_a_person_wants_and_cuts_no_line() -> None:
    text = told()
    headings = re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE)
    assert headings == ["Options", *PURPOSES]
    verbs = re.findall(r"^  ([a-z]+)  +\S", text.partition("Find faults:")[2], re.MULTILINE)
    assert sorted(verbs) == sorted(VERBS)
    assert "..." not in text.partition("Find faults:")[2]


@pytest.mark.parametrize("name", VERBS)
def test_a_help_explains_the_arguments_and_ends_in_an_example_that_can_be_typed(name: str) -> None:
    verb, text = VERBS[name], told(name)
    assert isinstance(verb, Verb)
    assert all(param.help for param in verb.params if isinstance(param, click.Argument))
    *_, examples = text.partition("  Example:\n")
    lines = [shlex.split(line) for line in examples.splitlines()]
    own = [line for line in lines if line[:2] == ["backfuzz", name]]
    assert own
    options = {option for param in verb.params for option in param.opts}
    for line in own:
        of_verb = line[: [*line, "--"].index("--")]
        assert {word for word in of_verb if word.startswith("-")} <= options
        verb.make_context(name, line[2:], resilient_parsing=True)
    assert all(line[1] in VERBS for line in lines if line[0] == "backfuzz")


@pytest.mark.parametrize("name", VERBS)
def test_the_exit_codes_of_a_help_are_those_of_the_table(name: str) -> None:
    line = " ".join(told(name).partition("Exit codes:")[2].partition("Example:")[0].split())
    codes = [int(code) for code in re.findall(r"(?:^|; )(\d+) ", line)]
    assert codes == sorted(set(codes) & set(EXITS))
    assert {0, 2, 130} <= set(codes)
    assert (3 in codes) == any(param.name == "workers" for param in VERBS[name].params) or name == "export"


def test_the_options_that_few_people_use_stand_apart() -> None:
    usual, _, advanced = told("fuzz").partition("Options:")[2].partition("Advanced:")
    count = [len(re.findall(r"^  (?:-h, )?--", part, re.MULTILINE)) for part in (usual, advanced)]
    assert count[0] == 16, "fifteen and --help"
    assert sum(count) == sum(isinstance(param, click.Option) for param in VERBS["fuzz"].params) + 1
    assert "Advanced:" not in told("replay")


def test_an_option_that_is_not_there_cannot_stand_apart() -> None:
    with pytest.raises(AssertionError, match="x has no"):
        Verb("x", purpose=PURPOSES[0], example="", advanced=["nothing"])
