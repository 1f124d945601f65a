"""`backfuzz faults`: the faults of the ledger, or its findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option
from fuzzer.commands.shared.verb import KEEP
from fuzzer.judgement.verdict import FINDINGS, UNSUPPORTED
from fuzzer.language.errors import UnknownOp, UsageError, meant
from fuzzer.ledger.faults import STATES, encode_fault
from fuzzer.ledger.shipped import SHIPPED

if TYPE_CHECKING:
    from fuzzer.ledger.query import Wanted
    from fuzzer.ledger.store import Store

_COLUMNS = "id, fault, oracle, class, direction, pattern, unsupported, place"


@main.command(
    purpose=KEEP,
    exits={0: "listed, even if there is none", 2: "the ledger is missing or cannot be read"},
    example="backfuzz faults --state new\nbackfuzz faults slice_scatter --findings --device cuda",
)
@click.argument(
    "text", nargs=-1, metavar="[TEXT]...",
    help="Words. Each must occur in the fault's title or in one of its findings, or begin a word there.",
)  # fmt: skip
@click.option("--findings", is_flag=True, help="List findings instead of faults.")
@click.option("--class", "verdict", type=click.Choice(FINDINGS), default=None, help="Only this class.")
@click.option("--state", type=click.Choice(STATES), default=None, help="Only faults in this state.")
@click.option("--op", default=None, help="Only if a program has this op.")
@click.option("--torch", default=None, help="Only if found on this release; 2.1 stands for all that begin so.")
@click.option("--device", default=None, help="Only if found on this device.")
@click.option("--lives-on", default=None, help="Only if the fault reproduces on this release.")
@click.option(
    "--to-post", is_flag=True,
    help="Only faults to report now: confirmed, without an issue, alive on the newest release that the ledger knows.",
)  # fmt: skip
@click.option("--shipped", is_flag=True, help="List the faults that come with backfuzz, not those of the ledger.")
@db_option
@json_option
def faults(
    text: Sequence[str],
    findings: bool,
    verdict: str | None,
    to_post: bool,
    shipped: bool,
    db: Path,
    as_json: bool,
    **filters: str | None,
) -> None:
    """List the faults of the ledger, or its findings.

    The most severe fault comes first, of the open ones. A fault is a cause in torch. Its findings are the minimal
    programs that show it; its severity (S1 to S5) and class are those of the most severe.
    """
    from fuzzer.ledger.query import Wanted
    from fuzzer.ledger.store import open_store

    if findings and to_post:
        raise UsageError("--to-post chooses faults, and --findings lists findings: leave one of them out")
    wanted = Wanted(text=" ".join(text), **{name: value or "" for name, value in filters.items()})
    with open_store(SHIPPED if shipped else db, create=False) as store:
        _refuse_unknown(store, wanted)
        if findings:
            _list_findings(store, replace(wanted, verdict=verdict or ""), as_json)
        else:
            _list_faults(store, wanted, verdict, to_post, as_json)


def _refuse_unknown(store: Store, wanted: Wanted) -> None:
    """Raises UsageError for an op that does not exist, and for a release on which nothing in the ledger was tried: an
    empty list would look like an answer."""
    from fuzzer.ledger.query import Wanted
    from fuzzer.ledger.releases import numbers

    if wanted.op and not any(store.rows(Wanted(op=wanted.op), "id")):
        from fuzzer.language.ops import OPS

        if wanted.op not in OPS:
            raise UnknownOp(f"no op {wanted.op!r}; `backfuzz ops` lists the ops{meant(wanted.op, OPS)}")
    if not (wanted.torch or wanted.lives_on):
        return
    lived = {place.split(" ")[0] for f in store.faults() for place in (*f.lives_on, *f.gone_on)}
    met = {json.loads(row["place"]).get("torch", "") for row in store.rows(Wanted(), "place")}
    for asked, known in ((wanted.torch, met), (wanted.lives_on, lived)):
        if known and not any(release.startswith(asked) for release in known):
            listed = ", ".join(sorted(known, key=numbers))
            raise UsageError(f"no release in the ledger begins with {asked!r}; the ledger has {listed}")


def _list_faults(store: Store, wanted: Wanted, verdict: str | None, post: bool, as_json: bool) -> None:
    """The faults that have such a finding, and this class."""
    from fuzzer.commands.shared.table import print_faults
    from fuzzer.ledger.listing import to_post

    chosen = {row["fault"] for row in store.rows(wanted, "fault")}
    listed = to_post(store.faults()) if post else store.faults()
    found = [fault for fault in listed if fault.id in chosen and verdict in (None, fault.verdict)]
    if as_json:
        click.echo(json.dumps([encode_fault(fault) for fault in found]))
    else:
        print_faults(found)


def _list_findings(store: Store, wanted: Wanted, as_json: bool) -> None:
    from fuzzer.commands.shared.table import print_findings
    from fuzzer.ledger.rows import encode

    states = {fault.id: fault.state.name for fault in store.faults()}
    rows = [row | {"state": states[row["fault"]]} for row in store.rows(wanted, _COLUMNS)]
    if as_json:
        found = {finding.id: encode(finding) for finding in store.list(wanted)}
        click.echo(json.dumps([found[row["id"]] | {name: row[name] for name in ("fault", "state")} for row in rows]))
        return
    for row in rows:
        row["class"] = UNSUPPORTED if row["unsupported"] else row["class"]
        place = json.loads(row["place"])
        row["where"] = f"{place.get('torch', '?').partition('+')[0]} {place.get('device', '?')}"
    print_findings(rows)
