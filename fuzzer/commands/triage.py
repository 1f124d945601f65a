"""`backfuzz triage`: the state of a fault, set by a person."""

from __future__ import annotations

from pathlib import Path

import click

from fuzzer.campaign.told.written import now
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import FAULT_HELP, db_option
from fuzzer.commands.shared.screen import user
from fuzzer.commands.shared.verb import DECIDE
from fuzzer.language.errors import UsageError
from fuzzer.ledger.faults import STATES, State
from fuzzer.ledger.states import mistake


@main.command(
    purpose=DECIDE,
    exits={0: "set, or left as it was", 2: "there is no such fault, the state lacks an option, or wrong usage"},
    example="backfuzz triage F9957c78 known --issue https://github.com/pytorch/pytorch/issues/180164",
)
@click.argument(
    "reference",
    metavar="[ID]",
    required=False,
    help=(f"{FAULT_HELP} Without it: all open faults, to go through with the keyboard."),
)
@click.argument("state", metavar="[STATE]", type=click.Choice(STATES), required=False,
                help=f"Its new state: {', '.join(STATES)}.")  # fmt: skip
@click.option("--issue", default="", help="The URL of its issue; `known` and `reported` need it.")
@click.option("--note", default="", help="A reason or a remark; `not-a-fault` needs it.")
@click.option("--fixed-in", default="", metavar="RELEASE", help="The first release without it; `fixed` needs it.")
@click.option("--searched", default="", help="The words that were searched for in the tracker.")
@click.option("--by", "who", default="", metavar="NAME", help="The person who says so. Default: the user of this "
              "machine.")  # fmt: skip
@db_option
def triage(
    reference: str | None,
    state: str | None,
    issue: str,
    note: str,
    fixed_in: str,
    searched: str,
    who: str,
    db: Path,
) -> None:
    """Set the state of a fault.

    A fault is new until a person has looked at it, confirmed if it is one of torch, known if others reported it,
    reported if you did, fixed if a release is without it, and not-a-fault if it is legal or meant so. The ledger
    keeps when and by whom a state was set.
    """
    from fuzzer.ledger.store import open_store

    if reference is None:
        from fuzzer.commands.shared.handover import exported
        from fuzzer.commands.shared.screen import go_through

        return go_through(db, lambda fault: exported(fault, db))
    if state is None:
        raise UsageError(f"the new state of {reference} is missing: one of {', '.join(STATES)}")
    said = State(state, issue, note, fixed_in)
    require_complete(said)
    with open_store(db, create=False) as store:
        fault = store.triage(reference, said, now(), who or user(), searched)
    click.echo(f"{fault.id}  {fault.state}  {fault.title}")


NEEDS = {"known": "--issue", "reported": "--issue", "fixed": "--fixed-in", "not-a-fault": "--note"}


def require_complete(state: State) -> None:
    """Raise UsageError for a state without the option that it needs, or with one that is not what it should be."""
    needed = {"--issue": state.issue, "--fixed-in": state.fixed_in, "--note": state.note}
    option = NEEDS.get(state.name)
    if option and not needed[option]:
        raise UsageError(f"{state.name} needs {option}")
    if wrong := mistake(state):
        raise UsageError(wrong)
