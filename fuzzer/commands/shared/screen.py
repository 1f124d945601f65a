"""The faults of a ledger to go through with the keyboard: the screen of `backfuzz triage`."""

from __future__ import annotations

import getpass
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from fuzzer.commands.shared.table import Console, fault_table, print_faults
from fuzzer.ledger.faults import OPEN, Fault, State
from fuzzer.ledger.listing import short_side, to_post, urgency
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.states import mistake
from fuzzer.ledger.store import Store, open_store

# What sets a state, with what is asked for it.
_STATES = {"n": ("new", ""), "c": ("confirmed", ""), "w": ("known", "URL of the issue"),
           "r": ("reported", "URL of the issue"), "f": ("fixed", "first release without it"),
           "x": ("not-a-fault", "reason")}  # fmt: skip
_FAR = 10**6
_HOME, _END = ("\x1b[H", "\x1b[1~", "\x1bOH"), ("\x1b[F", "\x1b[4~", "\x1bOF")  # as terminals send them
_MOVES = {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1, "\x1b[5~": -10, "\x1b[6~": 10}
_MOVES |= dict.fromkeys(_HOME, -_FAR) | dict.fromkeys(_END, _FAR)
_LEAVE = ("q", "\x03", "\x04", "")
KEYS = (
    "up/down j/k Home/End move   Tab next undecided   Enter show   / filter   o open or all   p to post   "
    "states: n new  c confirmed  w known  r reported  f fixed  x not a fault   i issue   m note   s searched   "
    "u undo   e export   q leave"
)
FILTERS = "words, or state: class: side: op: device: torch: lives: with a value"
_FILTERS = {"state": "state", "class": "verdict", "op": "op", "device": "device", "torch": "torch", "lives": "lives_on"}
_SIDE = "side"  # a filter of the fault, not of its findings
_TOLD = ("side", "culprit", "vanishes")  # of a diagnosis


@dataclass
class Screen:
    """The state of the screen, and the action of each key.

    ask     asks a person for a line; "" where there is no answer.  time, who   of what is written into the ledger.
    export  writes the scripts and the draft of a fault, by its id, and tells where.
    before  the states that were changed here, the last one last: undo takes them back.
    faults  that are listed; the first `posts` of them are those to post.
    """

    store: Store
    ask: Callable[[str], str]
    time: Callable[[], str]
    who: str
    export: Callable[[str], str] = lambda fault: ""
    at: int = 0
    text: str = ""
    all: bool = False
    to_post: bool = False
    open: bool = False
    told: str = ""
    faults: list[Fault] = field(default_factory=list)
    posts: int = 0
    before: list[tuple[str, State]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.load()

    def load(self) -> None:
        """Read the faults that are wanted, those to post first, then the most severe, of the equally severe the most
        frequent. The choice stays at its fault, where that is still among them."""
        chosen = self.faults[self.at].id if self.faults else ""
        there = {row["fault"] for row in self.store.rows(wanted(self.text), "fault")}
        faults, side = self.store.faults(), wanted_side(self.text)
        posts = {fault.id for fault in to_post(faults)}
        found = [f for f in faults if f.id in there and short_side(f).startswith(side)]
        found = [f for f in found if (f.id in posts if self.to_post else self.all or f.state.name in OPEN)]
        self.faults = sorted(found, key=lambda f: (f.id not in posts, urgency(f)))
        self.posts = sum(f.id in posts for f in found)
        ids = [fault.id for fault in self.faults]
        self.move(ids.index(chosen) - self.at if chosen in ids else 0)

    def move(self, by: int) -> None:
        """Choose the fault so many rows below."""
        self.at = max(0, min(self.at + by, len(self.faults) - 1))

    def press(self, key: str) -> bool:
        """Do the action of a key; False if the key is to leave."""
        self.told = ""
        if key in _LEAVE:
            return False
        if key in _MOVES:
            self.move(_MOVES[key])
        elif key in ("\r", "\n"):
            self.open = not self.open
        elif key in _LISTS:
            _LISTS[key](self)
            self.load()
        elif key == "u":
            self.undo()
        elif self.faults and key in _STATES:
            self.set(*_STATES[key])
        elif self.faults and key in _ACTIONS:
            _ACTIONS[key](self)
        return True

    def filter(self) -> None:
        """Ask for words that all must occur."""
        self.text = self.ask(FILTERS)

    def next_undecided(self) -> None:
        """Choose the next fault that nobody has judged; from the top again after the last."""
        turn = [(self.at + n) % len(self.faults) for n in range(1, len(self.faults) + 1)]
        self.at = next((at for at in turn if self.faults[at].state.name == "new"), self.at)

    def set(self, name: str, asked: str) -> None:
        """Set the chosen fault's state; an answer that is empty leaves it as it is."""
        state = self.faults[self.at].state
        answer = self.ask(asked) if asked else ""
        if asked and not answer:
            return
        details = {"known": "issue", "reported": "issue", "fixed": "fixed_in", "not-a-fault": "note"}
        self.change(replace(state, name=name, **({details[name]: answer} if asked else {})))

    def issue(self) -> None:
        """Set the chosen fault's issue alone."""
        if answer := self.ask("URL of the issue"):
            self.change(replace(self.faults[self.at].state, issue=answer))

    def note(self) -> None:
        """Set the chosen fault's note alone."""
        if answer := self.ask("note"):
            self.change(replace(self.faults[self.at].state, note=answer))

    def searched(self) -> None:
        """Note a search of the tracker for the chosen fault."""
        fault = self.faults[self.at]
        if answer := self.ask("searched the tracker for"):
            self.store.triage(fault.id, fault.state, self.time(), self.who, answer)
            self.told = f"{fault.id}: searched for {answer}"
            self.load()

    def change(self, state: State) -> None:
        """Give the chosen fault a state that makes sense, and remember the one before."""
        fault = self.faults[self.at]
        if wrong := mistake(state):
            self.told = wrong
            return
        self.before.append((fault.id, fault.state))
        self.told = f"{fault.id} is {self.store.triage(fault.id, state, self.time(), self.who).state}"
        self.load()

    def undo(self) -> None:
        """Take back the last change that was made here; the ledger's history keeps both."""
        if not self.before:
            self.told = "nothing was changed here"
            return
        fault, state = self.before.pop()
        self.told = f"{fault} is {self.store.triage(fault, state, self.time(), self.who).state} again"
        self.load()

    def hand_over(self) -> None:
        """Export the chosen fault."""
        self.told = self.export(self.faults[self.at].id)

    def shown(self, height: int, width: int) -> RenderableType:
        """The screen, for a terminal of this many lines and columns: head, chosen row and keys are always on it."""
        keys = textwrap.wrap(KEYS.replace("   ", " \u00b7 "), width)
        room = max(1, height - len(keys) - 3)  # the head, the names of the columns, a line before the keys
        search = f", with {self.text!r}" if self.text else ""
        which = "fault(s) to post" if self.to_post else f"{'' if self.all else 'open '}fault(s)"
        posts = f", first {self.posts} to post" if self.posts and not self.to_post else ""
        head = f"{len(self.faults)} {which}{search}{posts}  {self.told}"
        body = self.one(room, width) if self.open and self.faults else self.rows(room, width)
        dim = Text("\n".join(["", *keys]), style="dim")
        return Group(Text(head, style="bold", no_wrap=True, overflow="ellipsis"), body, dim)

    def rows(self, room: int, width: int) -> RenderableType:
        """So many faults, a line each, with the chosen one in their middle where there are more above and below."""
        first = max(0, min(self.at - room // 2, len(self.faults) - room))
        chosen = self.faults[self.at].id if self.faults else ""
        return fault_table(self.faults[first : first + room], width, chosen=chosen, one_line=True)

    def one(self, room: int, width: int) -> RenderableType:
        """The chosen fault: the finding that represents it, the diagnosis, its history; as many lines as there is room
        for."""
        fault = self.faults[self.at]
        finding = self.store.get(fault.id)
        told = [f"{name}: {finding.diagnosis[name]}" for name in _TOLD if name in finding.diagnosis]
        lives = f"lives on {', '.join(fault.lives_on) or 'nothing that was tried'}"
        history = [f"{time[:19]} {what} {who}".rstrip() for time, what, who in fault.history]
        parts = [f"{fault.id}  {fault.title}", str(fault.state), "", finding.detail, "", finding.program, *told, lives]
        lines = [
            part
            for line in "\n".join([*parts, *history]).splitlines()
            for part in textwrap.wrap(line, width, drop_whitespace=False) or [""]
        ]
        if len(lines) > room:
            lines = [*lines[: room - 1], f"{len(lines) - room + 1} more lines: backfuzz show {fault.id}"]
        return Text("\n".join(lines))


def _toggle_all(screen: Screen) -> None:
    screen.all = not screen.all


def _toggle_to_post(screen: Screen) -> None:
    screen.to_post = not screen.to_post


# Keys that change which faults are listed, and those that do something with the chosen one.
_LISTS: Mapping[str, Callable[[Screen], None]] = {"/": Screen.filter, "o": _toggle_all, "p": _toggle_to_post}
_ACTIONS: Mapping[str, Callable[[Screen], None]] = {"\t": Screen.next_undecided, "i": Screen.issue, "m": Screen.note,
                                                    "s": Screen.searched, "e": Screen.hand_over}  # fmt: skip


def wanted(text: str) -> Wanted:
    """Filters of a line: words, and `state:new`, `class:wrong` and the like (FILTERS)."""
    named = [word.partition(":") for word in text.split() if word.partition(":")[0] in _FILTERS]
    words = [word for word in text.split() if word.partition(":")[0] not in (*_FILTERS, _SIDE)]
    return Wanted(text=" ".join(words), **{_FILTERS[name]: value for name, _, value in named})


def wanted_side(text: str) -> str:
    """The side that a line asks for, as `side:eager`, as the table shows it: a rule of faults, which no SQL knows; ""
    admits all."""
    return next((word.partition(":")[2] for word in text.split() if word.partition(":")[0] == _SIDE), "")


def go_through(db: Path, export: Callable[[str], str]) -> None:
    """The screen, until a person leaves; where there is no terminal, the open faults as a table."""
    from fuzzer.campaign.told.written import now

    console = Console()
    with open_store(db, create=False) as store:
        if not console.is_terminal:
            print_faults([f for f in store.faults() if f.state.name in OPEN])
            click.echo("no terminal: `backfuzz triage ID STATE` sets a state", err=True)
            return
        screen = Screen(store, ask, now, user(), export)
        with console.screen(hide_cursor=False):
            while True:
                console.clear()
                console.print(screen.shown(console.height, console.width))
                if not screen.press(click.getchar()):
                    return


def ask(what: str) -> str:
    """A line from the person; "" where Ctrl-C leaves the question."""
    try:
        return str(click.prompt(what, default="", show_default=False))
    except click.Abort:
        return ""


def user() -> str:
    """Who is at the keyboard, as the machine calls them."""
    return getpass.getuser()
