"""The campaign of `injection`: real workers, shelf, ledger and loop; programs and minimizing that take no time.

Every 20th program is wrong, each with a signature of its own, and becomes a finding. In the folder that the
environment's INJECTED names, `flow` tells programs, workers and fork server, `stored` each finding once it is stored;
`inject` names what befalls the worker that takes it next, `full` makes the disk full while it is there. The ledger is
that of the environment's INJECTED_LEDGER, or the campaign's own. On an accelerator (INJECTED_DEVICE) programs are
drawn, and suspects are decided, as in any campaign.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzzer.campaign import bounds, loop
from fuzzer.campaign.bounds import Bounds
from fuzzer.campaign.corpus import Corpus, resume_corpus
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.schedule import BySeedWithCorpus
from fuzzer.campaign.suspects import queue as triages
from fuzzer.campaign.suspects.core import Core
from fuzzer.campaign.suspects.patience import add_patiently
from fuzzer.campaign.suspects.suspect import Suspect, TriageOutcome
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Finding, Signature, Verdict
from fuzzer.language.devices import HOST
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.server import server_pids

FOLDER = Path(os.environ.get("INJECTED", "."))
DEVICE = os.environ.get("INJECTED_DEVICE", HOST.type)
WRONG_EVERY = 20
DEADLINE_SECONDS = 5.0
_SECONDS = 0.02  # of a program
_PLACE = {"torch": "0", "backend": "eager", "device": "cpu"}


def text_of(n: int) -> str:
    """Program number n, as a worker shows it: a seed of 0 is left out."""
    leaf = f"x0 = leaf(f32[4], seed={n + 1})"
    return f'program(1)\nroute("autograd")\n{leaf}\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))\n'


def befall(name: str) -> None:
    """What is injected into a worker."""
    if name == "SIGSEGV":
        ctypes.string_at(0)
    elif name == "C hang":
        ctypes.PyDLL(None).sleep(600)
    elif name == "exit 0":
        os._exit(0)
    elif name == "SystemExit":
        raise SystemExit(0)
    elif name == "memory balloon":
        held = []
        while True:
            held.append(bytearray(2**28))
    elif name == "flood of stderr":
        for _ in range(256):
            os.write(2, b"x" * 2**20)
        os.abort()
    elif name == "endless stderr":
        while True:
            os.write(2, b"x" * 2**16)
    else:
        os.kill(os.getpid(), getattr(signal, name))


def explore(task: Task, n: int) -> Report:
    """Program number n: it takes its time, and what is injected."""
    journal().begin(text_of(n))
    journal().phase("backward")
    asked = FOLDER / "inject"
    with contextlib.suppress(FileNotFoundError):
        taken = asked.rename(asked.with_name(f"taken-{os.getpid()}"))
        befall(taken.read_text())
    subprocess.run([os.environ["CXX"], "--version"], stdout=subprocess.DEVNULL, check=True)
    time.sleep(_SECONDS)
    if n % WRONG_EVERY:
        return Report(text_of(n), detectable=1, elements=1)
    verdict = Verdict(Signature("gradients_agree", "wrong", "backward", f"p{n}"), "planted")
    return Report(text_of(n), (verdict,), detectable=1, elements=1)


class Injected(BySeedWithCorpus):
    """Numbers in turn; what flows is written down."""

    together = False

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        own = list(map(self.number, numbers))
        if HOST.type != DEVICE:
            return super().submit(pool, task, *numbers)
        self.pending |= dict.fromkeys(own)
        return pool.submit(explore, task, own[0])

    def learn(self, n: int, report: Report) -> None:
        super().learn(n, report)
        told = {"programs": self.corpus.frontier.programs, "workers": CAMPAIGN[0].pool.executor.pids()}  # type: ignore[union-attr]
        told |= {"server": server_pids(), "number": self.number(n), "class": report.verdict}
        with (FOLDER / "flow").open("a") as out:
            out.write(json.dumps(told) + "\n")


def shown(suspect: Suspect, plan: Plan, pool: Pool) -> Core:
    """A suspect as its own core, without a build."""
    return Core(suspect.program, Verdict(suspect.signature, "planted"), plan.task.place.subject.backend, "", 1, 1)


def minimized(suspect: Suspect, plan: Plan, *rest: Any) -> TriageOutcome:
    """The stored finding of a suspect."""
    _, _, campaign, expired = rest
    finding = Finding(
        suspect.signature, "planted", suspect.text, suspect.text, _PLACE, 3, 3, campaign=campaign, created="x"
    )
    new = add_patiently(finding, plan, campaign, expired)
    with (FOLDER / "stored").open("a") as out:
        out.write(finding.id + "\n")
        out.flush()
        os.fsync(out.fileno())
    return TriageOutcome(finding, new, "")


CAMPAIGN: list[Campaign] = []


def run(seconds: float, resume: bool) -> None:
    """The campaign, until the time is up or a signal comes."""
    eager = Place(Subject("eager", DEVICE), Subject("eager", DEVICE))
    own, db = FOLDER / "own", Path(os.environ.get("INJECTED_LEDGER", FOLDER / "ledger" / "ledger.db"))
    plan = Plan(Task(eager), 2, seconds / 60, db=db, folder=own, resumed=resume)
    plan = replace(plan, bounds=Bounds(deadline=DEADLINE_SECONDS))
    if HOST.type == DEVICE:
        triages.whole_core = shown  # type: ignore[assignment]
        triages.triage_suspect = minimized  # type: ignore[assignment]
        triages.grow_stored = lambda finding, *_: finding  # type: ignore[assignment]
    loop.require_canaries = lambda *_: None  # type: ignore[assignment]
    loop.compiler_of = lambda subject: os.environ["CXX"]  # type: ignore[assignment]
    free = bounds.free_bytes
    bounds.free_bytes = lambda folder: 0 if (FOLDER / "full").exists() else free(folder)  # type: ignore[assignment]

    def schedule(_: Path) -> Injected:
        found, state = resume_corpus(plan.explored, _PLACE) if resume else (Corpus(plan.explored, _PLACE).start(), None)
        return Injected(plan.task, found, state)

    campaign = Campaign(plan, lambda line: print(line, flush=True), schedule)
    CAMPAIGN.append(campaign)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: campaign.stop())
    campaign.run()
