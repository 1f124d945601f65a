"""The bench of injected faults: what it counts as lost, and that a campaign loses nothing."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from benches.injection import (
    CAMPAIGN_FOLDER,
    INJECTIONS,
    LAUNCHES,
    Running,
    can_mount,
    in_campaigns_of_their_own,
    inject_each,
    kill,
    library,
    new_places,
    set_clock_back,
    trouble_disk,
    two_on_one_ledger,
)

from fuzzer.campaign.suspects.shelf import Shelf
from fuzzer.campaign.suspects.suspect import Suspect
from fuzzer.language.text import parse
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING


def test_what_is_neither_in_a_ledger_nor_on_a_shelf_is_lost(tmp_path: Path) -> None:
    own = tmp_path / "own" / "campaigns" / "c1"
    own.mkdir(parents=True)
    for name in ("tmp", "ledger"):
        (tmp_path / name).mkdir()
    other = replace(FINDING, program=FINDING.program.replace("relu", "exp"))
    (tmp_path / "stored").write_text(f"{FINDING.id}\n{other.id}\n")
    kept = FINDING.program.replace("relu", "sin")
    rows = [{"class": "wrong", "text": text} for text in (FINDING.original, kept, "nowhere")]
    (own / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"class": "wr')
    with open_store(tmp_path / "ledger" / "ledger.db") as store:
        store.add(FINDING)
    Shelf(own).put(Suspect(parse(kept), FINDING.signature))
    running = Running(tmp_path)
    assert running.lost() == (1, 1)
    assert running.left_over() == (0, 0)
    (tmp_path / "own" / "pool-x").mkdir()
    assert running.left_over() == (0, 1)


def test_a_number_that_ran_to_its_end_again_is_counted_and_one_that_was_cut_off_is_not(tmp_path: Path) -> None:
    rows = [{"number": n} for n in (0, 1, 2, 1, 1)]
    (tmp_path / "flow").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"number": 2')
    assert Running(tmp_path).twice() == 1


def test_lines_are_told_once_without_those_about_findings(tmp_path: Path) -> None:
    running, said = Running(tmp_path), tmp_path / "said"
    said.write_text(f"{tmp_path}/x is full\na new fault, S1: wrong\n  | program(1)\n{tmp_path}/x is full\n")
    assert running.said() == "2 x /x is full"
    said.open("a").write("that is mended\n")
    assert running.said() == "that is mended"


def test_every_injection_of_a_campaign_of_its_own_is_run() -> None:
    names = [getattr(run, "func", run).__name__ for run in in_campaigns_of_their_own(1, 0)]
    assert {"set_clock_back", "two_on_one_ledger", "kill_part", "kill"} <= set(names)


_RUNTIME = """
#define ANSWER(name) int name() { return 0; }
ANSWER(cudaLaunchKernel) ANSWER(__cudaLaunchKernel) ANSWER(cudaGetLastError) ANSWER(cudaPeekAtLastError)
"""
_PROGRAM = """
#include <stdio.h>
typedef struct { unsigned x, y, z; } dim;
typedef int launch(void *, dim, dim, void **, long, void *);
launch cudaLaunchKernel, __cudaLaunchKernel;
int cudaGetLastError(void), cudaPeekAtLastError(void);
int main(void) {
    dim one = {1, 1, 1};
    printf("%d %d %d %d", cudaLaunchKernel(0, one, one, 0, 0, 0), __cudaLaunchKernel(0, one, one, 0, 0, 0),
        cudaGetLastError(), cudaPeekAtLastError());
}
"""


def test_each_way_to_launch_a_kernel_fails_while_the_trouble_lasts(tmp_path: Path) -> None:
    for name, code, how in (("libruntime.so", _RUNTIME, ["-shared", "-fPIC"]), ("main", _PROGRAM, ["-lruntime"])):
        source = tmp_path / f"{name}.c"
        source.write_text(code)
        subprocess.run(["gcc", source, "-o", tmp_path / name, f"-L{tmp_path}", *how], check=True)
    found = []
    trouble = tmp_path / "trouble"
    libraries = {"LD_PRELOAD": str(library(tmp_path, LAUNCHES)), "LD_LIBRARY_PATH": str(tmp_path)}
    for change in (trouble.touch, trouble.unlink):
        change()
        found.append(subprocess.check_output(tmp_path / "main", env=libraries | {"TROUBLE": str(trouble)}, text=True))
    assert found == ["719 719 719 719", "0 0 0 0"]


@pytest.mark.slow
def test_a_campaign_loses_nothing_whatever_befalls_it(tmp_path: Path) -> None:
    """The quickest of the injections; `scripts/bench injection` runs all."""
    place = new_places(tmp_path)
    assert {"SIGSEGV", "fork server stopped", "ledger deleted"} <= set(INJECTIONS)
    found = [*inject_each(["SIGKILL", "endless stderr", "fork server killed", "no compiler"], next(place))]
    assert "nothing new begins" in found[3].said
    assert max(row.seconds for row in found[:4]) < 10
    if can_mount(next(place)):
        found.append(trouble_disk(next(place), CAMPAIGN_FOLDER, "full"))
    found += [set_clock_back(next(place)), two_on_one_ledger(next(place))]
    found += [kill(whom, 1, next(place), 0) for whom in ("main process", "group")]
    assert {(row.lost_findings, row.lost_suspects, row.twice) for row in found} == {(0, 0, 0)}
    assert {(row.processes, row.folders) for row in found} == {(0, 0)}
