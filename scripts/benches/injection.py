"""Faults injected into a running campaign: what is lost, how soon programs flow again, what is left over.

The campaign (`injected.py`) has real workers, shelf, ledger and loop; its programs take 20 ms, and each of them calls
the compiler. Each injection befalls one that runs; the disk that is filled is a small one of its own. *Lost findings*
were stored and are not in the ledger (or beside it); *lost suspects* were logged and are neither on the shelf nor in
the ledger; *seconds* pass from the injection, or the start of the next campaign, until programs flow; *left over* are
processes, pools' folders and temporary folders once the campaign, or the next, ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import psutil

from fuzzer.campaign.bounds import LEAST_FREE_BYTES
from fuzzer.campaign.suspects.patience import BESIDE
from fuzzer.campaign.suspects.shelf import Shelf
from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.store import open_store

_ROOT = Path(__file__).resolve().parents[2]
_FLOWS = 5  # programs after which it flows again
_LOCKED_SECONDS = 3.0
_PATIENCE = 120.0
_TO_END = "seconds to its end"
# A disk of this size in memory, for the process that it is given to and its children; it goes with them. Between what a
# campaign wants free and this there is room for what it writes.
_SMALL_DISK = LEAST_FREE_BYTES + 96 * 2**20
_ON_SMALL_DISK = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    f'mount -t tmpfs -o size={_SMALL_DISK} tmpfs "$0" && exec "$@"',
)


@dataclass(frozen=True)
class Injected:
    """What came of an injection, or of several of a kind, summed and the longest."""

    injection: str
    times: int
    lost_findings: int
    lost_suspects: int
    seconds: float
    left_over: int
    note: str = ""


class Running:
    """A campaign in a folder of its own; on a small disk, where that is wanted, its own files and the ledger."""

    def __init__(self, folder: Path, small_disk: bool = False):
        self.folder, self.small_disk = folder, small_disk
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> Path:
        """Where the campaign's own files and the ledger are, as seen from here."""
        disk = self.folder / "disk"
        assert self.process is not None or not self.small_disk
        return Path(f"/proc/{self.process.pid}/root/{disk}") if self.small_disk and self.process else disk

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def start(self, seconds: float = 600.0, resume: bool = False) -> None:
        """Begin it, and wait until programs flow."""
        environment = os.environ | {"PYTHONPATH": f"{_ROOT}:{_ROOT / 'scripts'}", "INJECTED": str(self.folder)}
        compiler = self.folder / "g++"
        environment |= {"TMPDIR": str(self.folder / "tmp"), "CXX": str(compiler)}
        for made in ("tmp", "disk"):
            (self.folder / made).mkdir(exist_ok=True)
        if not compiler.exists():
            compiler.symlink_to(shutil.which("g++") or "/bin/true")
        code = f"from benches.injected import run; run({seconds}, {resume})"
        before = len(self.rows())
        with (self.folder / "said").open("a") as out:
            disk = [*_ON_SMALL_DISK, str(self.folder / "disk")] if self.small_disk else []
            command = [*disk, sys.executable, "-W", "ignore", "-c", code]
            self.process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=out, cwd=_ROOT, start_new_session=True
            )
        self.until_flow(before)

    def rows(self) -> list[dict[str, Any]]:
        """What flowed so far."""
        path = self.folder / "flow"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]

    def until_flow(self, before: int) -> float:
        """Seconds until some more programs ran than so many."""
        started = time.monotonic()
        while len(self.rows()) < before + _FLOWS:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"the campaign ended: {(self.folder / 'said').read_text()[-2000:]}")
            if time.monotonic() - started > _PATIENCE:
                raise RuntimeError(f"nothing flows: {(self.folder / 'said').read_text()[-2000:]}")
            time.sleep(0.02)
        return time.monotonic() - started

    def end(self, number: int = signal.SIGTERM) -> float:
        """Tell it to end; the seconds that it takes."""
        assert self.process is not None
        started = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(_PATIENCE)
        return time.monotonic() - started

    # ------------------------------------------------------------ what is lost

    def lost(self) -> tuple[int, int]:
        """Findings and suspects that are nowhere. What is moved on meanwhile is in the later of two places."""
        stored = set((self.folder / "stored").read_text().split()) if (self.folder / "stored").exists() else set()
        logged, kept, texts = set[str](), set[str](), set[str]()
        own = sorted((self.place / "own").glob("campaigns/*"))
        for log in [log for path in own for log in path.glob("trials.jsonl*")]:
            rows = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
            logged |= {row["text"] for row in rows if row["class"] == "wrong"}
        for path in own:
            texts |= {suspect.text for suspect in Shelf(path).suspects()}
        for path in (self.place / "ledger.db", *(path / BESIDE for path in own)):
            if path.exists():
                found = self._findings(path)
                kept |= {finding.id for finding in found}
                texts |= {finding.original for finding in found}
        return len(stored - kept), len(logged - texts)

    def _findings(self, path: Path) -> list[Finding]:
        """Those of a ledger, which may be written to; on the small disk of a copy, since SQLite follows the links that
        lead there by their names, which lead elsewhere from here."""
        if not self.small_disk:
            with open_store(path, create=False) as store:
                return store.list()
        copy = self.folder / "copy.db"
        for patience in range(100, -1, -1):
            shutil.copyfile(path, copy)
            try:
                with open_store(copy, create=False) as store:
                    return store.list()
            except StoreError:  # it was written to meanwhile
                if not patience:
                    raise
                time.sleep(0.05)
        raise AssertionError("unreachable")

    def left_over(self) -> int:
        """Processes, and folders that should be gone."""
        folders = [*(self.folder / "disk" / "own").glob("pool-*"), *(self.folder / "tmp").iterdir()]
        until = time.monotonic() + 5
        while (found := list(self._processes())) and time.monotonic() < until:
            time.sleep(0.05)
        return len(folders) + len(found)

    def _processes(self) -> Iterator[int]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("INJECTED") == str(self.folder) and process.pid != os.getpid():
                    yield process.pid


def into_worker(name: str) -> Callable[[Running], str]:
    """What befalls the worker that takes it."""

    def inject(running: Running) -> str:
        path = running.folder / "inject"
        path.with_suffix(".new").write_text(name)
        path.with_suffix(".new").rename(path)
        until = time.monotonic() + _PATIENCE
        while path.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return ""

    return inject


def to_process(which: str, number: int) -> Callable[[Running], str]:
    """A signal to a worker or the fork server."""

    def inject(running: Running) -> str:
        os.kill(running.rows()[-1][which][0], number)
        return ""

    return inject


def full_disk(running: Running) -> str:
    """For a while; one line is told."""
    (running.folder / "full").touch()
    time.sleep(_LOCKED_SECONDS)
    (running.folder / "full").unlink()
    said = (running.folder / "said").read_text()
    return f"{said.count('nothing new begins')} line(s)"


def no_compiler(running: Running) -> str:
    """For a while; one line is told."""
    compiler = running.folder / "g++"
    compiler.rename(compiler.with_name("aside"))
    time.sleep(_LOCKED_SECONDS)
    compiler.with_name("aside").rename(compiler)
    said = (running.folder / "said").read_text()
    return f"{said.count(f'there is no {compiler}: nothing new begins')} line(s)"


def ledger(how: str) -> Callable[[Running], str]:
    """The ledger is locked, damaged, of a newer schema or deleted, and mended after a while."""

    def inject(running: Running) -> str:
        path = running.place / "ledger.db"
        until = time.monotonic() + _PATIENCE
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.05)
        before = len(running.rows())
        if how == "deleted":
            path.unlink()
            time.sleep(_LOCKED_SECONDS)
        elif how == "locked":
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as other:
                other.execute("begin exclusive")
                time.sleep(2 * _LOCKED_SECONDS)
                other.execute("rollback")
        else:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as other:
                other.execute("begin exclusive")  # nobody writes while it is taken away
                whole = path.read_bytes()
                aside = path.with_suffix(".aside")
                path.rename(aside)
                changed = b"flipped!" + whole[8:] if how == "damaged" else whole[:60] + b"\0\0\x99\x99" + whole[64:]
                path.with_suffix(".new").write_bytes(changed)
                path.with_suffix(".new").rename(path)
                other.execute("rollback")
            time.sleep(_LOCKED_SECONDS)
            aside.rename(path)
        return f"{len(running.rows()) - before} programs meanwhile"

    return inject


INJECTIONS: dict[str, Callable[[Running], str]] = {
    **{name: into_worker(name) for name in ("SIGSEGV", "SIGABRT", "SIGKILL", "SIGSTOP", "exit 0", "SystemExit")},
    **{name: into_worker(name) for name in ("C hang", "memory balloon", "flood of stderr")},
    "fork server killed": to_process("server", signal.SIGKILL),
    "fork server stopped": to_process("server", signal.SIGSTOP),
    "idle worker killed": to_process("workers", signal.SIGKILL),
    "disk full": full_disk,
    "no compiler": no_compiler,
    **{f"ledger {how}": ledger(how) for how in ("locked", "damaged", "newer", "deleted")},
}  # fmt: skip


def inject_each(names: list[str], folder: Path) -> Iterator[Injected]:
    """Each injection into one campaign that runs on, then the end of it."""
    with Running(folder) as running:
        yield from _inject_each(running, names)


def _inject_each(running: Running, names: list[str]) -> Iterator[Injected]:
    running.start()
    for name in names:
        before = len(running.rows())
        note = INJECTIONS[name](running)
        flows = running.until_flow(max(before, len(running.rows())))
        yield Injected(name, 1, *running.lost(), round(flows, 2), 0, note)
    for name, number in (("SIGTERM", signal.SIGTERM), ("SIGHUP", signal.SIGHUP)):
        took = running.end(number)
        yield Injected(f"campaign {name}", 1, *running.lost(), round(took, 2), running.left_over(), _TO_END)
        running.start(resume=True)
    into_worker("C hang")(running)
    took = running.end(signal.SIGINT)
    yield Injected("SIGINT while one hangs", 1, *running.lost(), round(took, 2), running.left_over(), _TO_END)


def can_mount(folder: Path) -> bool:
    """Whether a small disk can be had here."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_ON_SMALL_DISK, str(folder), "true"], capture_output=True).returncode == 0


def fill_disk(folder: Path) -> Injected:
    """The disk with the campaign's files and the ledger is full to the last byte, for a while."""
    with Running(folder, small_disk=True) as running:
        running.start()
        filler = running.place / "filler"
        with filler.open("wb") as out:
            for size in (2**20, 2**12):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(out.fileno(), out.seek(0, os.SEEK_END), size)
        time.sleep(_LOCKED_SECONDS)
        before = len(running.rows())
        filler.unlink()
        flows = running.until_flow(before)
        time.sleep(_LOCKED_SECONDS)  # suspects and findings catch up
        lost, said = running.lost(), (running.folder / "said").read_text()
        running.end()
        note = f"{said.count('nothing new begins')} line(s)"
        return Injected("disk filled", 1, *lost, round(flows, 2), running.left_over(), note)


def kill_parent(times: int, folder: Path, seed: int) -> Injected:
    """kill -9 of the campaign at random moments, each time resumed; in the end it is told to end."""
    running, rng, longest = Running(folder), random.Random(seed), 0.0
    findings = suspects = 0
    for n in range(times):
        started = time.monotonic()
        running.start(resume=n > 0)
        longest = max(longest, time.monotonic() - started)
        time.sleep(rng.uniform(0, 3))
        running.end(signal.SIGKILL)
        lost = running.lost()
        findings, suspects = max(findings, lost[0]), max(suspects, lost[1])
    running.start(resume=True)
    running.end()
    with open_store(running.place / "ledger.db", create=False) as store:
        note = f"{len(store.list())} findings, {len(running.rows())} programs"
    return Injected("kill -9 of the campaign", times, findings, suspects, round(longest, 2), running.left_over(), note)


@click.command("injection")
@click.option("--only", multiple=True, type=click.Choice([*INJECTIONS]), help="One failure; repeatable. Default: all.")
@click.option(
    "--kills", type=click.IntRange(0), default=50, show_default=True, help="How often the campaign is killed (kill -9)."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The moments of the kills are drawn from it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each.")
def injection_command(only: tuple[str, ...], kills: int, seed: int, as_json: bool) -> None:
    """What does a campaign lose when a part of it fails, how soon do programs flow again, and what is left over?"""
    with tempfile.TemporaryDirectory(prefix="inj-") as folder:
        places = Path(folder) / "each", Path(folder) / "kills", Path(folder) / "full"
        for place in places:
            place.mkdir()
        if not as_json:
            click.echo("injection | times | findings lost | suspects lost | seconds | left over |")
        for row in inject_each(list(only or INJECTIONS), places[0]):
            click.echo(_shown(row, as_json))
        if not only and can_mount(places[2]):
            click.echo(_shown(fill_disk(places[2]), as_json))
        elif not only:
            click.echo("no small disk can be mounted here, and none is filled", err=True)
        if kills:
            click.echo(_shown(kill_parent(kills, places[1], seed), as_json))


def _shown(row: Injected, as_json: bool) -> str:
    return json.dumps(asdict(row)) if as_json else " | ".join(map(str, asdict(row).values()))
