"""Faults to go through with the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fuzzer.commands.shared.screen import KEYS, Screen
from fuzzer.ledger.store import Store, open_store
from tests.commands.calls import FINDING, RELU

EXP = replace(FINDING, program=RELU.replace("relu", "exp"), created="2026-01-02")
URL = "https://github.com/pytorch/pytorch/issues/1"


@pytest.fixture
def store(db: Path) -> Iterator[Store]:
    with open_store(db) as opened:
        opened.add(EXP)
        yield opened


def screen(store: Store, *answers: str) -> Screen:
    lines = iter(answers)
    return Screen(store, lambda what: next(lines), lambda: "2026-03-01T00:00:00", "somebody")


def shown(screen: Screen) -> str:
    console = Console(width=200, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(screen.shown(40, 200))
    return console.export_text()


def test_keys_stand_at_the_bottom_and_move_the_choice(store: Store) -> None:
    made = screen(store)
    text = shown(made)
    assert text.startswith("2 open fault(s)")
    assert KEYS.split()[-1] in text.splitlines()[-1]
    assert made.faults[made.at].id == f"F{FINDING.id[:7]}"
    for key, at in (("\x1b[B", 1), ("\x1b[B", 1), ("\x1b[A", 0), ("\x1b[6~", 1), ("\x1b[5~", 0), ("y", 0)):
        assert made.press(key)
        assert made.at == at
    assert not made.press("q")


def test_enter_shows_the_fault_and_its_program(store: Store) -> None:
    made = screen(store)
    made.press("\r")
    text = shown(made)
    for part in ("v0 = relu(x0)", FINDING.detail, "silent: wrong gradient of torch.nn.functional.relu", "lives on"):
        assert part in text


def test_a_key_sets_a_state_and_asks_for_what_it_needs(store: Store) -> None:
    made = screen(store, URL, "", "legal")
    chosen = made.faults[0].id
    made.press("k")
    assert store.fault(chosen).state.issue == URL
    assert store.fault(chosen).history[-1][2] == "somebody"
    made.press("x")  # an empty answer leaves it as it is
    assert {f.state.name for f in store.faults()} == {"new", "known"}
    made.press("x")
    assert {f.state.name for f in store.faults()} == {"not-a-fault", "known"}
    assert len(made.faults) == 1  # what is no fault is not open
    made.press("o")
    assert len(made.faults) == 2


def test_a_search_keeps_the_faults_with_all_words(store: Store) -> None:
    made = screen(store, "exp", "nowhere")
    made.press("/")
    assert [f.id for f in made.faults] == [f"F{EXP.id[:7]}"]
    made.press("/")
    assert made.faults == []
    assert "0 open fault(s), with 'nowhere'" in shown(made)
    assert made.press("c")  # there is nothing to set
