"""The options of a campaign, and the place where it runs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuzzer.campaign.bounds import Bounds
from fuzzer.language.devices import HOST, device_row
from fuzzer.ledger.checkout import LEDGER
from fuzzer.workers.cluster import Cluster

if TYPE_CHECKING:
    from fuzzer.workers.messages import Task


@dataclass(frozen=True)
class Guidance:
    """Where the programs of a campaign come from: shares of them, the rest is drawn.

    around   mutants of programs that are given.  mutants  of programs that this campaign kept.
    cells    whether what is drawn is asked for cells.
    """

    around: float = 0.0
    mutants: float = 0.0
    cells: bool = True


CELLS = "cells"  # which is shipped (measured: docs/guidance.md)
BLIND, AROUND, MUTANTS, MIXTURE = "blind", "around", "mutants", "mixture"
GUIDANCES = {
    CELLS: Guidance(),
    BLIND: Guidance(cells=False),
    AROUND: Guidance(around=1.0),
    MUTANTS: Guidance(mutants=0.5),
    MIXTURE: Guidance(around=0.35, mutants=0.25),  # guessed; the whole is measured in docs/guidance.md
}
DRAWN, KIN = "drawn", "kin"  # sources of programs, beside AROUND and MUTANTS
# About half of the CPU time each: a program takes 0.55 CPU seconds at the stage (docs/stages.md) and 1.48 where it is
# built, 16 at a time (docs/speed.md); 1.48 / (0.55 + 1.48) = 0.73. On a GPU it would be 0.67.
STAGED = 0.75

# The share of programs without a gradient. They show what a forward alone does, which is tested elsewhere, too.
FORWARD = 0.03


@dataclass(frozen=True)
class Plan:
    """What a campaign was asked to do. minutes or programs (or neither) bound it.

    batch: programs that a worker has at once, where the schedule gives several.
    db: the ledger.  known: other ledgers, whose faults count as known; they are only read.
    resumed: whether the suspects of the folder's last campaign are taken over.
    grace: seconds that suspects have once the time is up; None: as many as let it end soon.
    on_finding: a command of the shell that is run for each new fault.
    cluster: on whose machines the workers are; None: on this one.
    folder: for everything else.  corpus: where regressions go; None: nowhere.
    """

    task: Task
    workers: int
    minutes: float | None = None
    programs: int | None = None
    db: Path = LEDGER
    folder: Path = Path(".backfuzz")
    corpus: Path | None = None
    command: str = "backfuzz fuzz"
    batch: int = 1
    known: tuple[Path, ...] = ()
    resumed: bool = False
    bounds: Bounds = Bounds()
    grace: float | None = None
    on_finding: str = ""
    cluster: Cluster | None = None

    @property
    def devices(self) -> list[str]:
        return self.task.place.devices

    def own(self, campaign: str) -> Path:
        """The folder of a campaign of this name."""
        return self.campaigns / campaign

    @property
    def campaigns(self) -> Path:
        """Where each campaign has a folder."""
        return self.folder / "campaigns"

    @property
    def explored(self) -> Path:
        """Where a campaign keeps its programs."""
        return self.folder / "corpus"

    @property
    def writes(self) -> str:
        """What goes where, in one line."""
        regressions = "" if self.corpus is None else f", its program to {self.corpus} (git tracks both)"
        return f"a new finding goes to {self.db}{regressions}; everything else to {self.folder}"


def environment_of(task: Task) -> dict[str, str]:
    """The place and the versions it runs with, as a finding stores them."""
    import torch

    from fuzzer.workers.accelerator import device_name

    place = task.place
    found = {
        "backend": place.subject.backend,
        "against": str(place.reference) if place.reference.device != place.subject.device else place.reference.backend,
        "device": place.subject.device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["triton"] = importlib.metadata.version("triton")
    if place.subject.threads > 1:
        found["threads"] = str(place.subject.threads)
    if place.subject.backend == "flag_gems":
        found["flag_gems"] = importlib.metadata.version("flag_gems")
    if (device := device_row(place.subject.device)) is HOST:
        found["compiler"] = _first_line("g++", "--version")
    else:
        found["gpu"] = device_name(device.type)
    return {key: value for key, value in found.items() if value}


def corpus_environment(task: Task) -> dict[str, str]:
    """The versions and the machine on which the features of programs depend."""
    return {name: environment_of(task)[name] for name in ("torch", "backend", "device")}


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""
