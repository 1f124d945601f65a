"""`backfuzz doctor`: this machine, and every canary."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import click

from fuzzer.commands.shared.exits import DIFFERS, exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import device_option, json_option, workers_option
from fuzzer.commands.shared.waiting import Waiting, starting
from fuzzer.trial.places import make_task


@main.command()
@device_option
@workers_option
@json_option
@exit_codes
def doctor(device: str | None, workers: int | None, as_json: bool) -> None:
    """Say what this machine has, and run every canary: each oracle must ring for it and be silent for its twin.

    Then one program is compiled of which every family of features must see something.

    Exit codes: 0 all is well; 1 a canary was missed, a twin rang or a family saw nothing; 2 usage; 3 this machine
    cannot run backfuzz; 130 interrupted.
    """
    start = starting()
    from fuzzer.campaign.canaries import CANARIES, run_canaries, runs_of
    from fuzzer.campaign.plan import environment_of
    from fuzzer.campaign.self_check import silent_families
    from fuzzer.coverage.lines import recorded_share
    from fuzzer.language.settings import SETTINGS, exists
    from fuzzer.workers.at_work import told as told_of
    from fuzzer.workers.capacity import default_workers
    from fuzzer.workers.pool import Pool

    task = make_task(device, "inductor", None)
    place = task.place.subject.device
    about = {key: value for key, value in environment_of(task).items() if key not in ("backend", "against")}
    missing = [s.name for s in SETTINGS if not exists(s.name)]
    start.stop()
    with (
        Pool(workers or default_workers([place]), [place]) as pool,
        Waiting("canaries", lambda: told_of(pool), lambda: pool.finished, runs_of(CANARIES) + 1),
    ):
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
