"""`backfuzz fuzz`: how it ends, and what it leaves behind."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import STAGED
from fuzzer.campaign.told.logs import HEARTBEAT_FILE
from fuzzer.campaign.told.totals import Totals
from fuzzer.commands.fuzz import _share_staged
from fuzzer.commands.shared.exits import UNREAD
from fuzzer.guidance import CHOSEN_FROM, UNBUILT
from fuzzer.judgement.trial import Place, Subject
from fuzzer.trial import batch as execution_batch
from fuzzer.workers.messages import Task
from tests.commands.calls import EAGER, call, fuzz, wait_until

KEYS = {
    *("programs", "programs_per_s", "detectable_share", "detectable_elements_share", "rejected_share", "findings"),
    "seconds",
}


def test_fuzz_ends_with_one_json_object_and_leaves_nothing_but_its_folder(tmp_path: Path) -> None:
    # test_wheel.py has the canaries; programs of this seed agree
    running = fuzz("--programs", "6", "--seed", "2", "--routes", "autograd", "--json", canaries=False)
    out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    totals = json.loads(out.splitlines()[-1])
    assert totals.keys() >= KEYS
    assert totals["findings"] == {}
    assert totals["programs"] == round(6 * (1 - totals["rejected_share"]))
    assert "a new finding goes to new.db; everything else to .backfuzz\n" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == [".backfuzz", "new.db"]
    # the workers' folders are gone
    assert sorted(path.name for path in (tmp_path / ".backfuzz").iterdir()) == ["campaigns", "corpus"]


def wait_for(running: subprocess.Popen[str], text: str) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended before it said {text!r}: {running.communicate()}")


def stops_cleanly(running: subprocess.Popen[str], sent: int, onward: str, end: str) -> None:
    os.killpg(running.pid, sent)  # what a terminal does: every process of the group gets it
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "stopping" in out
    assert "programs in" in out
    assert err.startswith(f"stopped; go on with {onward}: backfuzz fuzz ")
    assert err.endswith(end)


def test_the_first_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    running = fuzz("--seed", "7", canaries=False)
    wait_for(running, "0 canaries rang")
    stops_cleanly(running, signal.SIGINT, "its corpus", "--seed 7 --resume\n")
    assert sorted(path.name for path in (tmp_path / ".backfuzz").iterdir()) == ["campaigns", "corpus"]


def test_a_campaign_that_nohup_started_outlives_its_terminal_and_stops_cleanly_when_it_is_asked_to(
    tmp_path: Path,
) -> None:
    ignored = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    running = fuzz("--seed", "7", "--unguided", canaries=False, preexec_fn=ignored)
    wait_for(running, "0 canaries rang")
    os.kill(running.pid, signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=1)
    stops_cleanly(running, signal.SIGTERM, "another seed", "--unguided --seed 8\n")
    assert [path.name for path in (tmp_path / ".backfuzz").iterdir()] == ["campaigns"]


def test_a_campaign_whose_terminal_is_closed_ends_and_keeps_everything(tmp_path: Path) -> None:
    running = fuzz("--seed", "7", canaries=False)
    wait_for(running, "0 canaries rang")
    wait_until(lambda: any(tmp_path.glob(f".backfuzz/campaigns/*/{HEARTBEAT_FILE}")), running)  # it explores
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    running.stderr.close()
    os.kill(running.pid, signal.SIGHUP)
    # the second where it writes a line before the signal comes
    assert running.wait(timeout=60) in (130, UNREAD)
    [own] = (tmp_path / ".backfuzz" / "campaigns").iterdir()
    assert json.loads((own / "summary.json").read_text())["seconds"] > 0
    assert call("status").exit_code == 0


def test_the_second_ctrl_c_kills_at_once() -> None:
    running = fuzz()
    wait_for(running, "a new finding goes to")  # the canaries come next: a clean stop would wait for them
    os.killpg(running.pid, signal.SIGINT)
    wait_for(running, "stopping")
    os.killpg(running.pid, signal.SIGINT)
    running.wait(timeout=5)
    assert running.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("options", "found", "code"), [((), 1, 0), (("--fail-on-finding",), 1, 1),
                                                         (("--fail-on-finding",), 0, 0)])  # fmt: skip
def test_fuzz_exits_1_only_when_asked_to_and_only_for_a_new_finding(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], found: int, code: int
) -> None:
    def run(self: Campaign, show_progress: Any) -> Totals:
        self.totals.new["wrong"] += found
        self.totals.known["wrong"] += 1
        return self.totals

    monkeypatch.setattr(Campaign, "run", run)
    done = call("fuzz", "--programs", "1", *EAGER, *options, "--json")
    assert done.exit_code == code, done.output
    assert json.loads(done.stdout)["findings"] == ({"wrong": 1} if found else {})


@pytest.mark.parametrize(("guidance", "asked", "share"), [(None, None, STAGED), ("code", None, UNBUILT),
                         ("code", 0.9, 0.9), ("trace", None, 0.0), ("blind", 0.25, 0.25)])  # fmt: skip
def test_the_share_that_is_not_built_is_by_what_chooses(
    guidance: str | None, asked: float | None, share: float
) -> None:
    task = Task(place=Place(Subject("eager"), Subject("inductor")))
    assert _share_staged(asked, task, guidance) == share


@pytest.mark.parametrize(("options", "said"), [(("--guidance", "code", *EAGER), "goes with inductor"),
                         (("--guidance", "trace", "--staged", "0.5"), "--staged goes with inductor")])  # fmt: skip
def test_what_goes_with_stages_alone_is_refused_without(options: tuple[str, ...], said: str) -> None:
    done = call("fuzz", "--programs", "1", *options)
    assert (done.exit_code, said in done.output) == (2, True)


@pytest.mark.parametrize(("asked", "batch"), [((), CHOSEN_FROM), (("--batch", "3"), 3)])
def test_where_programs_are_chosen_from_there_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], batch: int
) -> None:
    """Also on a device on which they are built one by one."""
    plans: list[int] = []

    def run(self: Campaign, show_progress: Any) -> Totals:
        plans.append(self.plan.batch)
        return self.totals

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Campaign, "run", run)
    monkeypatch.setattr(execution_batch, "usual_batch", lambda subject, staged: 1)
    done = call("fuzz", "--guidance", "code", "--device", "cpu", "--workers", "1", "--programs", "9", *asked)
    assert done.exit_code == 0, done.output
    assert plans == [batch]
