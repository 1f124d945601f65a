"""`backfuzz triage`: a person's word on faults: their states, and which findings are one fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fuzzer.campaign.told.written import now
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.holder import require_own
from fuzzer.commands.shared.options import FAULT_HELP, db_option
from fuzzer.commands.shared.screen import user
from fuzzer.commands.shared.verb import DECIDE
from fuzzer.language.errors import UsageError, meant
from fuzzer.ledger.faults import STATES, Fault, State
from fuzzer.ledger.states import mistake

if TYPE_CHECKING:
    from fuzzer.ledger.store import Store


@main.command(
    purpose=DECIDE,
    exits={0: "set, or left as it was", 2: "there is no such fault, the state lacks an option, or wrong usage"},
    example="backfuzz triage F9957c78 known --issue https://github.com/pytorch/pytorch/issues/180164\n"
    "backfuzz triage --merge F71e4d64 Fddda5c8 --note 'a view of what is returned'",
)
@click.argument(
    "words",
    nargs=-1,
    metavar="[ID] [STATE|ID...]",
    help=(
        f"{FAULT_HELP} Then its new state: {', '.join(STATES)}. Without any: all open faults, to go through with the "
        "keyboard."
    ),
)
@click.option("--issue", default="", help="The URL of its issue; `known` and `reported` need it.")
@click.option("--note", default="", help="A reason or a remark; `not-a-fault` needs it. For --merge and --split the "
              "history keeps it.")  # fmt: skip
@click.option("--fixed-in", default="", metavar="RELEASE", help="The first release without it; `fixed` needs it.")
@click.option("--searched", default="", help="The words that were searched for in the tracker.")
@click.option("--merge", is_flag=True, help="The faults ID ID... are one: the first keeps its id.")
@click.option("--split", is_flag=True, help="These findings of the fault are another one: ID FINDING...")
@click.option("--undo", is_flag=True, help="Undo the newest merge or split of the fault.")
@click.option("--proposals", is_flag=True, help="List merges and splits that the ledger's facts "
              "suggest, each with its command; with ID... those of these faults.")  # fmt: skip
@click.option("--by", "who", default="", metavar="NAME", help="The person who says so. Default: the user of this "
              "machine.")  # fmt: skip
@db_option
def triage(
    words: tuple[str, ...],
    issue: str,
    note: str,
    fixed_in: str,
    searched: str,
    who: str,
    db: Path,
    **acts: bool,
) -> None:
    """Set the state of a fault, or say which findings are one fault.

    A fault is new until a person has looked at it, confirmed if it is one of torch, known if others reported it,
    reported if you did, fixed if a release is without it, and not-a-fault if it is legal or meant so. The ledger
    keeps when and by whom a state was set.
    """
    from fuzzer.ledger.store import open_store

    if asked := [name for name, given in acts.items() if given]:
        require_alone(asked, words, {"--issue": issue, "--fixed-in": fixed_in, "--searched": searched})
        require_own(words, db)
        with open_store(db, create=False) as store:
            return _ACTS[asked[0]](store, words, who or user(), note)
    if not words:
        from fuzzer.commands.shared.handover import exported
        from fuzzer.commands.shared.screen import go_through

        return go_through(db, lambda fault: exported(fault, db))
    reference, said = words[0], State(require_state(words), issue, note, fixed_in)
    require_complete(said)
    require_own(words[:1], db)
    with open_store(db, create=False) as store:
        fault = store.triage(reference, said, now(), who or user(), searched)
    click.echo(f"{fault.id}  {fault.state}  {fault.title}")


# ---------------------------------------------------------------- merges and splits


def _merge(store: Store, words: Sequence[str], who: str, reason: str) -> None:
    _tell(store.merge_faults(words, now(), who, reason))


def _split(store: Store, words: Sequence[str], who: str, reason: str) -> None:
    _tell(*store.split_fault(words[0], words[1:], now(), who, reason))


def _undo(store: Store, words: Sequence[str], who: str, reason: str) -> None:
    _tell(*store.undo_ruling(words[0], now(), who))


def _propose(store: Store, words: Sequence[str], who: str, reason: str) -> None:
    from fuzzer.commands.shared.table import print_proposals

    asked = {store.fault_of(word).id for word in words}
    print_proposals([one for one in store.proposals() if not asked or asked & set(one.faults)])


_ACTS: Mapping[str, Callable[[Store, Sequence[str], str, str], None]] = {
    "merge": _merge, "split": _split, "undo": _undo, "proposals": _propose,
}  # fmt: skip
_LEAST = {"merge": (2, "two faults or more"), "split": (2, "a fault and some of its findings"), "undo": (1, "a fault")}


def _tell(*faults: Fault) -> None:
    """A line for each fault."""
    for fault in faults:
        click.echo(f"{fault.id}  {fault.state}  {fault.variants} finding(s)  {fault.title}")


def require_alone(acts: Sequence[str], words: Sequence[str], options: Mapping[str, str]) -> None:
    """Raise UsageError for several acts, for one with too few words, and for one with an option of a state."""
    act = acts[0]
    if len(acts) > 1:
        raise UsageError(f"--{act} and --{acts[1]} are two things: one at a time")
    least, needed = _LEAST.get(act, (0, ""))
    if len(words) < least:
        raise UsageError(f"--{act} needs {needed}")
    if act == "undo" and len(words) > 1:
        raise UsageError(f"--undo takes one fault, not {len(words)}")
    if given := next((name for name, value in options.items() if value), ""):
        raise UsageError(f"--{act} takes no {given}: set the state by a command of its own")


def require_state(words: Sequence[str]) -> str:
    """The state in `ID STATE`. Raises UsageError where it is missing, unknown or not alone."""
    reference, *states = words
    if not states:
        raise UsageError(f"the new state of {reference} is missing: one of {', '.join(STATES)}")
    if states[0] not in STATES:
        raise UsageError(f"{states[0]!r} is none of the states {', '.join(STATES)}{meant(states[0], STATES)}")
    if len(states) > 1:
        raise UsageError(f"{reference} can have one state, not {' '.join(states)}")
    return states[0]


NEEDS = {"known": "--issue", "reported": "--issue", "fixed": "--fixed-in", "not-a-fault": "--note"}


def require_complete(state: State) -> None:
    """Raise UsageError for a state without the option that it needs, or with one that is not what it should be."""
    needed = {"--issue": state.issue, "--fixed-in": state.fixed_in, "--note": state.note}
    option = NEEDS.get(state.name)
    if option and not needed[option]:
        raise UsageError(f"{state.name} needs {option}")
    if wrong := mistake(state):
        raise UsageError(wrong)
