"""Which guidance finds more real faults in the same CPU time? Campaigns of hours, each with workers and a ledger of its
own. The plan and what came out: docs/guidance.md.

Each run is `backfuzz fuzz` in a folder of its own, all programs judged at the last stage before code. What a run
brought is read from the rows that its campaigns write once a minute: keys that one build bore out and no known fault
explains, and new faults by severity, over the CPU seconds of drawing, judging and triage together. A run that was cut
off goes on where it was.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from benches.curves import COLOURS, SIZE
from benches.options import json_option, module_path, print_figures
from fuzzer.campaign.plan import GUIDANCES
from fuzzer.campaign.told.logs import HEARTBEAT_FILE
from fuzzer.language.errors import UsageError

_ARMS = tuple(name for name, guidance in GUIDANCES.items() if guidance.cells)
_LEAST = 0.2  # minutes of a run that are worth another campaign


@dataclass(frozen=True)
class Moment:
    """What a run had brought after so many CPU seconds: programs that ran, keys that one build bore out, new faults by
    severity."""

    cpu: float
    programs: int
    told: int
    severities: Mapping[str, int]

    def __add__(self, later: Moment) -> Moment:
        """What this campaign and one that went on with it brought together. The later one sorts anew the suspects that
        this one left, so that its keys hold theirs; what became a fault it does not meet again."""
        names = {*self.severities, *later.severities}
        both = {name: self.severities.get(name, 0) + later.severities.get(name, 0) for name in sorted(names)}
        return Moment(
            self.cpu + later.cpu, self.programs + later.programs, sum(self.severities.values()) + later.told, both
        )


_NOTHING = Moment(0.0, 0, 0, {})


@dataclass(frozen=True)
class Run:
    """An arm and a seed; folder: of all its campaigns."""

    arm: str
    seed: int
    folder: Path

    def campaigns(self) -> list[list[dict[str, Any]]]:
        """The rows of its campaigns, in the order in which they ran."""
        folders = sorted(self.folder.glob(".backfuzz/campaigns/*/"))
        return [rows for folder in folders if (rows := _rows(folder))]

    def minutes(self) -> float:
        """Minutes that its campaigns explored so far."""
        return sum(rows[-1]["seconds"] for rows in self.campaigns()) / 60

    def moments(self) -> list[Moment]:
        """What it had brought by and by. While a campaign sorts anew what the one before it left, the number of keys
        stands still: those had been told."""
        found, before = [_NOTHING], _NOTHING
        for rows in self.campaigns():
            for row in rows:
                moment = before + _moment(row)
                found.append(replace(moment, told=max(moment.told, found[-1].told)))
            before = found[-1]
        return found


def _rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a campaign, the older file first; none of a line that was cut off."""
    found = []
    for name in (f"{HEARTBEAT_FILE}.1", HEARTBEAT_FILE):
        if (folder / name).exists():
            lines = (folder / name).read_text().splitlines(keepends=True)
            found += [json.loads(line) for line in lines if line.endswith("\n")]
    return found


def _moment(row: Mapping[str, Any]) -> Moment:
    cpu = row["exploration_cpu_seconds"] + row.get("triage_cpu_seconds", 0.0)
    return Moment(cpu, row["programs"], row["told"], row["severities"])


# ---------------------------------------------------------------- running


def run_all(runs: Sequence[Run], minutes: float, grace: str, workers: int, lanes: int) -> None:
    """Bring each run to its minutes, so many at a time. `grace`: what a campaign's suspects have afterwards."""
    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(lambda run: _go_on(run, minutes, grace, workers), runs))


def _go_on(run: Run, minutes: float, grace: str, workers: int) -> None:
    """Run what is left of a run, as a campaign. Its output is in the folder."""
    left = minutes - run.minutes()
    if left < _LEAST:
        return
    run.folder.mkdir(parents=True, exist_ok=True)
    with (run.folder / "log.txt").open("a") as log:
        command = _command(run, left, grace, workers)
        environment = os.environ | {"PYTHONPATH": module_path()}
        done = subprocess.run(command, cwd=run.folder, stdout=log, stderr=log, env=environment)
    if done.returncode:
        raise UsageError(f"{run.arm} {run.seed} ended with {done.returncode}; {run.folder / 'log.txt'} says why")


def _command(run: Run, minutes: float, grace: str, workers: int) -> list[str]:
    known = (run.folder / ".backfuzz" / "corpus").exists()
    chosen = ["--resume"] if known else ["--guidance", run.arm, "--seed", str(run.seed)]
    given = {"--staged": "1", "--workers": str(workers), "--minutes": f"{minutes:.2f}", "--grace": grace,
             "--device": "cpu", "--db": str(run.folder / "ledger.db")}  # fmt: skip
    return [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "backfuzz",
        "fuzz",
        *chosen,
        *(w for pair in given.items() for w in pair),
    ]


# ---------------------------------------------------------------- telling


def guidance_summary(runs: Sequence[Run]) -> dict[str, Any]:
    """By arm, and by run: CPU hours, programs, keys, faults of S1 and S2, others; also at the CPU time that every run
    has."""
    ended = {run: run.moments() for run in runs}
    common = min(moments[-1].cpu for moments in ended.values())
    rows = {f"{run.arm} {run.seed}": _row(moments[-1]) | _at(moments, common) for run, moments in ended.items()}
    arms: dict[str, Any] = {}
    for arm in dict.fromkeys(run.arm for run in runs):
        own = [row for name, row in rows.items() if name.startswith(f"{arm} ")]
        arms[arm] = {what: statistics.median(row[what] for row in own) for what in own[0]}
    return {"common_cpu_hours": round(common / 3600, 2), "arms": arms, "runs": rows}


def _row(moment: Moment) -> dict[str, float]:
    severe = sum(moment.severities.get(name, 0) for name in ("S1", "S2"))
    return {
        "cpu_hours": round(moment.cpu / 3600, 2),
        "programs": moment.programs,
        "keys": moment.told,
        "severe": severe,
        "others": sum(moment.severities.values()) - severe,
    }


def _at(moments: Sequence[Moment], cpu: float) -> dict[str, float]:
    """Keys and severe faults by that time."""
    found = _row(max((m for m in moments if m.cpu <= cpu), key=lambda m: m.cpu))
    return {f"{what}_at_common": found[what] for what in ("keys", "severe")}


def picture(runs: Sequence[Run]) -> str:
    """The SVG: keys and severe faults over CPU hours, a line a run, a colour an arm."""
    from fuzzer.export.plots import draw

    def panel(title: str, what: str) -> Any:
        def on(axes: Any) -> None:
            for number, arm in enumerate(dict.fromkeys(run.arm for run in runs)):
                for place, run in enumerate(run for run in runs if run.arm == arm):
                    points = [(moment.cpu / 3600, _row(moment)[what]) for moment in run.moments()]
                    axes.step(*zip(*points, strict=True), where="post", color=COLOURS[number % len(COLOURS)],
                              label="" if place else arm, gid=f"{what}-{arm}-{run.seed}")  # fmt: skip
            axes.set(title=title, xlabel="CPU hours", ylim=(0, None))
            axes.legend(loc="upper left")

        return on

    return draw("guidance", SIZE, panel("keys borne out by one build", "keys"), panel("S1 and S2", "severe"),
                paper=True) + "\n"  # fmt: skip


@click.command("guidance")
@click.option("--arms", default=",".join(_ARMS), show_default=True, help="Guidances to compare.")
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="Runs of each.")
@click.option("--minutes", default=120.0, show_default=True, help="That a run explores.")
@click.option("--grace", default="1s", show_default=True, help="That its suspects have afterwards: 20m.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Of each run.")
@click.option("--lanes", default=2, show_default=True, type=click.IntRange(1), help="Runs at a time.")
@click.option("--folder", default=Path(".backfuzz/guidance"), type=click.Path(path_type=Path), help="Of all runs.")
@click.option("--report", is_flag=True, help="Run nothing: tell what the runs in the folder brought.")
@click.option("--svg", type=click.Path(path_type=Path), default=None, help="Keys and faults over CPU time.")
@json_option
def guidance_command(
    arms: str, seeds: int, minutes: float, grace: str, workers: int, lanes: int, folder: Path, report: bool,
    svg: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Which guidance finds more real faults in the same CPU time? What was cut off goes on.

    The first runs of all arms go first, so that arms run side by side.
    """
    names = tuple(name.strip() for name in arms.split(","))
    for name in names:
        if name not in GUIDANCES:
            raise UsageError(f"no guidance {name!r}; known are {', '.join(GUIDANCES)}")
    runs = [Run(arm, seed, folder.absolute() / f"{arm}-{seed}") for seed in range(1, seeds + 1) for arm in names]
    if not report:
        run_all(runs, minutes, grace, workers, lanes)
    begun = [run for run in runs if run.campaigns()]
    if not begun:
        raise UsageError(f"{folder}: no run of these arms has a row there")
    if svg is not None:
        svg.write_text(picture(begun))
    print_figures(guidance_summary(begun), as_json)
