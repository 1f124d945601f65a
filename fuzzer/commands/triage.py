"""`backfuzz triage`: what a person says of a fault."""

from __future__ import annotations

from pathlib import Path

import click

from fuzzer.campaign.told.written import now
from fuzzer.commands.shared.exits import exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option
from fuzzer.commands.shared.screen import user
from fuzzer.language.errors import UsageError
from fuzzer.ledger.faults import STATES, State


@main.command()
@click.argument("reference", metavar="ID", required=False)
@click.argument("state", metavar="STATE", type=click.Choice(STATES), required=False)
@click.option("--issue", default="", help="The URL of its issue: what `known` and `reported` need.")
@click.option("--note", default="", help="A reason, or what else is to be told; `not-a-fault` needs one.")
@click.option("--fixed-in", default="", metavar="RELEASE", help="The first release without it: what `fixed` needs.")
@click.option("--searched", default="", help="What was looked for in the tracker.")
@click.option("--by", "who", default="", metavar="NAME", help="Who says so. Default: the user of this machine.")
@db_option
@exit_codes
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
    """Set the state of a fault: new, confirmed, known, reported, fixed or not-a-fault. ID may be a finding's.

    Without ID, a list of all open faults to go through with the keyboard; its keys stand at the bottom.

    Exit codes: 0 set, or left as it was; 2 no such fault, the state lacks what it needs, or usage; 130 interrupted.
    """
    from fuzzer.ledger.store import open_store

    if reference is None:
        from fuzzer.commands.shared.screen import go_through

        return go_through(db)
    if state is None:
        raise UsageError(f"{reference} is to be what? One of {', '.join(STATES)}")
    said = State(state, issue, note, fixed_in)
    require_complete(said)
    with open_store(db, create=False) as store:
        fault = store.triage(reference, said, now(), who or user(), searched)
    click.echo(f"{fault.id}  {fault.state}  {fault.title}")


NEEDS = {"known": "--issue", "reported": "--issue", "fixed": "--fixed-in", "not-a-fault": "--note"}


def require_complete(state: State) -> None:
    """Raise UsageError for a state without what it needs."""
    needed = {"--issue": state.issue, "--fixed-in": state.fixed_in, "--note": state.note}
    option = NEEDS.get(state.name)
    if option and not needed[option]:
        raise UsageError(f"{state.name} needs {option}")
