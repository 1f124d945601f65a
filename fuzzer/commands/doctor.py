"""`backfuzz doctor`: this machine, and every canary."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import click

from fuzzer.commands.shared.exits import DIFFERS
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import device_option, json_option, workers_option
from fuzzer.commands.shared.verb import LOOK
from fuzzer.commands.shared.waiting import starting, working
from fuzzer.trial.places import make_task


@main.command(
    purpose=LOOK,
    runs=True,
    exits={0: "all is well", 1: "a canary was missed, a twin rang, or a family of features saw nothing"},
    example="backfuzz doctor --device cpu",
)
@device_option
@workers_option
@json_option
def doctor(device: str | None, workers: int | None, as_json: bool) -> None:
    """Check this machine and every oracle.

    Prints the versions and devices of this machine. Then every canary runs, a planted fault: its oracle must ring
    for it, and all must be silent for its twin, the same program without the fault. Last one program is compiled,
    in which every family of features must see something.
    """
    start = starting()
    from fuzzer.campaign.canaries import CANARIES, run_canaries, runs_of
    from fuzzer.campaign.plan import environment_of
    from fuzzer.campaign.self_check import silent_families
    from fuzzer.coverage.lines import recorded_share
    from fuzzer.language.settings import SETTINGS, exists

    task = make_task(device, "inductor", None)
    place = task.place.subject.device
    about = {key: value for key, value in environment_of(task).items() if key not in ("backend", "against")}
    missing = [s.name for s in SETTINGS if not exists(s.name)]
    start.stop()
    with working("canaries", [place], workers, scratch=None, total=runs_of(CANARIES) + 1) as pool:
        found = run_canaries(pool, place)
        silent, shown = silent_families(pool, replace(task, fresh=True, lines=recorded_share()))
    rows = [
        {"canary": c.name, "oracle": c.oracle, "flagged": c.flagged, "silent": c.silent, "detail": c.detail}
        for c in found
    ]
    if as_json:
        click.echo(
            json.dumps({"place": about, "missing_settings": missing, "silent_families": silent, "canaries": rows})
        )
    else:
        for key, value in about.items():
            click.echo(f"{key:10} {value}")
        click.echo(f"settings that this torch does not have: {', '.join(missing) or 'none'}")
        for c in found:
            click.echo(f"{'ok    ' if c.passed else 'MISSED'} {c.name} ({c.oracle}) {c.detail}".rstrip())
        told = f"{', '.join(silent)} {shown.rejected}".rstrip() if silent else "none"
        click.echo(f"families of features that show nothing of a compile: {told}")
    sys.exit(0 if all(c.passed for c in found) and not silent else DIFFERS)
