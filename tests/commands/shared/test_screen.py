"""Faults to go through with the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from rich.console import Console

from fuzzer.commands.shared.screen import KEYS, Screen, ask, wanted
from fuzzer.ledger.faults import State
from fuzzer.ledger.listing import short_side
from fuzzer.ledger.query import Wanted
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


def shown(screen: Screen, height: int = 40, width: int = 200) -> str:
    console = Console(width=width, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(screen.shown(height, width))
    return console.export_text()


def test_keys_stand_at_the_bottom_and_move_the_choice(store: Store) -> None:
    made = screen(store)
    text = shown(made)
    assert text.startswith("2 open fault(s)")
    assert KEYS.split()[-1] in text.splitlines()[-1]
    assert made.faults[made.at].id == f"F{FINDING.id[:7]}"
    for key, at in (("\x1b[B", 1), ("\x1b[B", 1), ("\x1b[A", 0), ("\x1b[6~", 1), ("\x1b[5~", 0), ("y", 0),
                    ("j", 1), ("k", 0), ("\x1b[F", 1), ("\x1b[H", 0)):  # fmt: skip
        assert made.press(key)
        assert made.at == at
    assert not made.press("q")


def test_enter_shows_the_fault_and_its_program(store: Store) -> None:
    made = screen(store)
    made.press("\r")
    text = shown(made)
    for part in ("v0 = relu(x0)", FINDING.detail, "wrong gradient of F.relu", "lives on"):
        assert part in text


def test_a_key_sets_a_state_and_asks_for_what_it_needs(store: Store) -> None:
    made = screen(store, URL, "", "legal")
    chosen = made.faults[0].id
    made.press("w")
    assert store.fault(chosen).state.issue == URL
    assert store.fault(chosen).history[-1][2] == "somebody"
    made.press("\t")
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


def test_a_side_is_a_filter(store: Store) -> None:
    sides = [short_side(fault) for fault in store.faults()]
    made = screen(store, f"side:{sides[0].split()[0]}", "side:nobody")
    made.press("/")
    assert len(made.faults) == sides.count(sides[0])
    made.press("/")
    assert made.faults == []


def test_those_to_post_come_first(store: Store) -> None:
    made = screen(store)
    last = made.faults[-1].id
    store.triage(last, State("confirmed"), "2026", "me")
    made.load()
    assert made.faults[0].id == last
    assert shown(made).startswith("2 open fault(s), first 1 to post")
    made.press("p")
    assert [fault.id for fault in made.faults] == [last]
    assert shown(made).startswith("1 fault(s) to post")


@pytest.mark.parametrize(("height", "width"), [(24, 80), (40, 120)])
def test_head_chosen_row_and_keys_are_always_on_the_screen(store: Store, height: int, width: int) -> None:
    made = screen(store)
    for n in range(60):  # more than fit, with issues and places that would take several lines
        place = FINDING.place | {"device": "cuda"}
        store.add(replace(EXP, program=EXP.program.replace("seed=1", f"seed={n + 2}"), place=place))
        store.triage(made.faults[0].id, State("known", f"{URL} {URL}2 {URL}3"), "2026", "me")
    made.load()
    long = "wrong gradient of " + " + ".join(["torch.nn.functional.interpolate"] * 5)
    made.faults = [replace(fault, title=long) for fault in made.faults] * 30
    for at in (0, 7, len(made.faults) - 1):
        made.at = at
        for opened in (False, True):
            made.open, made.told = opened, "it is told"
            lines = shown(made, height, width).splitlines()
            assert len(lines) <= height
            assert "it is told" in lines[0]
            assert any(line.startswith(made.faults[at].id) for line in lines)
            assert KEYS.split()[-1] in lines[-1]


def test_a_change_can_be_undone_and_what_makes_no_sense_is_refused(store: Store) -> None:
    made = screen(store, "soon", URL, "a note", "relu nan")
    chosen = made.faults[0].id
    made.press("w")
    assert "'soon' is no issue" in made.told
    for key in ("c", "i", "m", "s"):
        made.press(key)
    fault = store.fault(chosen)
    assert (fault.state, fault.searched) == (State("confirmed", URL, "a note"), ("relu nan",))
    for _ in range(3):
        made.press("u")
    assert store.fault(chosen).state == State("new")
    made.press("u")
    assert made.told == "nothing was changed here"


def test_tab_goes_to_the_next_that_nobody_has_judged_and_e_exports(store: Store) -> None:
    asked: list[str] = []
    made = screen(store)
    made.export = lambda fault: asked.append(fault) or "written"  # type: ignore[func-returns-value]
    made.press("c")
    undecided = next(f.id for f in store.faults() if f.state.name == "new")
    made.press("\t")
    assert made.faults[made.at].id == undecided
    made.press("e")
    assert (asked, made.told) == ([undecided], "written")


def test_a_filter_may_name_a_state_a_class_or_a_release() -> None:
    assert wanted("relu state:new class:wrong lives:2.15") == Wanted(
        text="relu", state="new", verdict="wrong", lives_on="2.15"
    )
    assert wanted("a:b") == Wanted(text="a:b")


def test_ctrl_c_leaves_a_question_and_not_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(*given: object, **named: object) -> str:
        raise click.Abort

    monkeypatch.setattr(click, "prompt", abort)
    assert ask("words") == ""
