"""The faults of a ledger to go through with the keyboard: the screen of `backfuzz triage`."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from fuzzer.commands.shared.table import Console, fault_table, print_faults
from fuzzer.ledger.faults import OPEN, Fault, State
from fuzzer.ledger.listing import to_post, urgency
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.store import Store, open_store

# What sets a state, with what is asked for it.
_STATES = {"n": ("new", ""), "c": ("confirmed", ""), "k": ("known", "URL of the issue"),
           "r": ("reported", "URL of the issue"), "f": ("fixed", "first release without it"),
           "x": ("not-a-fault", "reason")}  # fmt: skip
_MOVES = {"\x1b[A": -1, "\x1b[B": 1, "\x1b[5~": -10, "\x1b[6~": 10}
_LEAVE = ("q", "\x03", "\x04", "")
KEYS = (
    "up/down move   Enter show   n new   c confirmed   k known   r reported   f fixed   x not a fault   "
    "/ search   o open ones or all   p those to post   q leave"
)
_TOLD = ("side", "culprit", "vanishes")  # of a diagnosis
_ROWS_AROUND = 6  # lines for head, keys and the like; a fault takes up to three


@dataclass
class Screen:
    """The state of the screen, and the action of each key.

    ask   asks a person for a line.  time, who   of what is written into the ledger.
    """

    store: Store
    ask: Callable[[str], str]
    time: Callable[[], str]
    who: str
    at: int = 0
    text: str = ""
    all: bool = False
    to_post: bool = False
    open: bool = False
    told: str = ""
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.load()

    def load(self) -> None:
        """Read the faults that are wanted, the most severe first, of the equally severe the most frequent."""
        chosen = {row["fault"] for row in self.store.rows(Wanted(text=self.text), "fault")}
        found = [f for f in self.store.faults() if f.id in chosen and (self.all or f.state.name in OPEN)]
        self.faults = to_post(found) if self.to_post else sorted(found, key=urgency)
        self.at = max(0, min(self.at, len(self.faults) - 1))

    def press(self, key: str) -> bool:
        """Do the action of a key; False if the key is to leave."""
        self.told = ""
        if key in _LEAVE:
            return False
        if key in _MOVES:
            self.at = max(0, min(self.at + _MOVES[key], len(self.faults) - 1))
        elif key in ("\r", "\n"):
            self.open = not self.open
        elif key == "/":
            self.text = self.ask("words")
            self.load()
        elif key == "o":
            self.all = not self.all
            self.load()
        elif key == "p":
            self.to_post = not self.to_post
            self.load()
        elif key in _STATES and self.faults:
            self.set(*_STATES[key])
        return True

    def set(self, name: str, asked: str) -> None:
        """Set the chosen fault's state; an answer that is empty leaves it as it is."""
        fault = self.faults[self.at]
        answer = self.ask(asked) if asked else ""
        if asked and not answer:
            return
        issue = answer if "URL" in asked else fault.state.issue
        note = answer if name == "not-a-fault" else fault.state.note
        state = State(name, issue, note, answer if name == "fixed" else fault.state.fixed_in)
        self.told = f"{fault.id} is {self.store.triage(fault.id, state, self.time(), self.who).state}"
        self.load()

    def shown(self, height: int, width: int) -> RenderableType:
        """The screen, for a terminal of this many lines and columns."""
        room = max(3, (height - _ROWS_AROUND) // 2)
        first = max(0, min(self.at - room // 2, len(self.faults) - room))
        chosen = self.faults[self.at].id if self.faults else ""
        search = f", with {self.text!r}" if self.text else ""
        which = "fault(s) to post" if self.to_post else f"{'' if self.all else 'open '}fault(s)"
        head = f"{len(self.faults)} {which}{search}  {self.told}"
        some = self.faults[first : first + room]
        body = self.one() if self.open and self.faults else fault_table(some, width, chosen=chosen)
        return Group(Text(head, style="bold"), body, Text(f"\n{KEYS}", style="dim"))

    def one(self) -> RenderableType:
        """The chosen fault: its simplest variant, the diagnosis, its history."""
        fault = self.faults[self.at]
        finding = self.store.get(fault.id)
        told = [f"{name}: {finding.diagnosis[name]}" for name in _TOLD if name in finding.diagnosis]
        lives = f"lives on {', '.join(fault.lives_on) or 'nothing that was tried'}"
        history = [f"{time[:19]} {what} {who}".rstrip() for time, what, who in fault.history]
        parts = [f"{fault.id}  {fault.title}", str(fault.state), "", finding.detail, "", finding.program, *told, lives]
        return Text("\n".join([*parts, *history]))


def go_through(db: Path) -> None:
    """The screen, until a person leaves; where there is no terminal, the open faults as a table."""
    from fuzzer.campaign.told.written import now

    console = Console()
    with open_store(db, create=False) as store:
        if not console.is_terminal:
            print_faults([f for f in store.faults() if f.state.name in OPEN])
            click.echo("no terminal: `backfuzz triage ID STATE` sets a state")
            return
        screen = Screen(store, lambda what: click.prompt(what, default="", show_default=False), now, user())
        with console.screen(hide_cursor=False):
            while True:
                console.clear()
                console.print(screen.shown(console.height, console.width))
                if not screen.press(click.getchar()):
                    return


def user() -> str:
    """Who is at the keyboard, as the machine calls them."""
    return getpass.getuser()
