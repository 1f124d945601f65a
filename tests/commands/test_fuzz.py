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
from fuzzer.judgement.trial import Place, Subject
from fuzzer.workers.messages import Task
from tests.commands.calls import EAGER, call, fuzz, refused, wait_until

KEYS = {
    *("programs", "programs_per_s", "detectable_share", "detectable_elements_share", "rejected_share", "findings"),
    "seconds",
}


@pytest.mark.slow
def test_fuzz_ends_with_one_json_object_and_leaves_nothing_but_its_folder(tmp_path: Path) -> None:
    # test_wheel.py has the canaries; programs of this seed agree
    running = fuzz("--programs", "3", "--seed", "2", "--routes", "autograd", "--json", canaries=False)
    out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    totals = json.loads(out.splitlines()[-1])
    assert totals.keys() >= KEYS
    assert totals["findings"] == {}
    assert totals["programs"] == round(3 * (1 - totals["rejected_share"]))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "onward", "end", "left", "sent"),
    [
        ((), "its corpus", "--seed 7 --resume\n", ["campaigns", "corpus"], signal.SIGINT),
        (("--unguided",), "another seed", "--unguided --seed 8\n", ["campaigns"], signal.SIGTERM),
    ],
    ids=["guided, Ctrl-C", "unguided, SIGTERM"],
)
def test_the_first_ctrl_c_stops_cleanly_and_says_how_to_go_on_and_one_of_nohup_outlives_its_terminal(
    tmp_path: Path, options: tuple[str, ...], onward: str, end: str, left: list[str], sent: int
) -> None:
    ignored = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    running = fuzz("--seed", "7", *options, canaries=False, preexec_fn=ignored)
    wait_for(running, "0 canaries rang")
    if sent == signal.SIGTERM:
        os.kill(running.pid, signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(timeout=1)
    os.killpg(running.pid, sent)  # what a terminal does: every process of the group gets it
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "stopping" in out
    assert "programs in" in out
    assert err.startswith(f"stopped; go on with {onward}: backfuzz fuzz ")
    assert err.endswith(end)
    assert sorted(path.name for path in (tmp_path / ".backfuzz").iterdir()) == left


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize(("backend", "asked", "share"), [("inductor", None, STAGED), ("inductor", 0.25, 0.25),
                         ("aot_eager", None, 0.0)])  # fmt: skip
def test_programs_are_judged_at_a_stage_where_the_backend_has_one(
    backend: str, asked: float | None, share: float
) -> None:
    assert _share_staged(asked, Task(place=Place(Subject("eager"), Subject(backend)))) == share


def test_a_share_at_a_stage_is_refused_for_a_backend_without_one() -> None:
    assert "--staged goes with inductor" in refused(call("fuzz", "--programs", "1", "--staged", "0.5", *EAGER))


@pytest.mark.slow
def test_the_log_of_a_campaign_with_mutants_gives_the_very_programs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fuzzer.campaign.loop.require_canaries", lambda *_: None)
    ran = list[str]()
    monkeypatch.setattr("fuzzer.campaign.loop.Campaign._take", lambda self, n, report, log: ran.append(report.text))
    fuzzed = ("fuzz", *EAGER, "--db", tmp_path / "ledger.db", "--batch", "2")
    assert call(*fuzzed, "--guidance", "mutants", "--programs", "8", "--seed", "6").exit_code == 0
    (log,) = tmp_path.glob(".backfuzz/campaigns/*/choices.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    mutants = [row for row in rows if row.get("mutator")]
    assert mutants
    assert {row["text"] for row in mutants} <= set(ran)
    first, ran[:] = sorted(ran), []
    assert call(*fuzzed, "--again", log).exit_code == 0
    assert sorted(ran) == first
    ran.clear()
    done = call(*fuzzed, "--resume", "--programs", "2")
    assert done.exit_code == 0
    assert "goes on from .backfuzz/campaigns/" in done.output
    later = next(path for path in tmp_path.glob(".backfuzz/campaigns/*/choices.jsonl") if path != log)
    assert sorted(json.loads(line)["number"] for line in later.read_text().splitlines()[1:]) == [8, 9]
