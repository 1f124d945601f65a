"""Faults injected into a running campaign: what is lost, how soon programs flow again, what is left over.

The campaign (`injected.py`) has real workers, shelf, ledger and loop; its programs take 20 ms, and each of them calls
the compiler. Each injection befalls one that runs. A disk that is filled, or that nobody may write to, is a small one
in memory. On a GPU the programs are drawn ones, eager against eager, and its runtime refuses each launch. The columns:

lost findings   that were stored, and are neither in the ledger nor beside it.
lost suspects   that were logged, and are neither on the shelf nor in the ledger.
twice           numbers of programs that ran to their end more than once.
seconds         from the injection, or the start of the next campaign, until programs flow.
processes, folders  that are left over once the campaign, or the next, ended; folders are pools' and temporary ones.
said            the campaign's lines about it.
"""

from __future__ import annotations

import contextlib
import itertools
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
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import psutil

from benches.options import module_path
from fuzzer.campaign.bounds import LEAST_FREE_BYTES
from fuzzer.campaign.suspects.patience import BESIDE
from fuzzer.campaign.suspects.shelf import Shelf
from fuzzer.judgement.verdict import Finding
from fuzzer.language.devices import HOST
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.store import open_store
from fuzzer.workers.accelerator import default_device_type

_ROOT = Path(__file__).resolve().parents[2]
_FLOWS = 5  # programs after which it flows again
_LOCKED_SECONDS = 3.0
_PATIENCE = 120.0
_TO_END = "seconds to its end"
_STOPPED_SECONDS = 60.0
_DAY = 86_400
# A disk of this size in memory, for the process that it is given to and its children; it goes with them. Between what a
# campaign wants free and this there is room for what it writes.
_SMALL_DISK = LEAST_FREE_BYTES + 96 * 2**20
_ON_SMALL_DISK = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    f'mount -t tmpfs -o size={_SMALL_DISK} tmpfs "$0" && exec "$@"',
)
# A library that makes the clock of a process that has loaded it differ by so many seconds as the file in TROUBLE
# says: the time of day alone, as whoever sets a clock changes it.
_CLOCK = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long off(void) {
    long seconds = 0;
    FILE *file = fopen(getenv("TROUBLE"), "r");
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += off();
    return done;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


# The same for CUDA's runtime: while the file in TROUBLE is there, no launch of a kernel succeeds, and that is the error
# which torch asks for after each. What CUDA 13 compiled launches by the second name. Triton launches by the driver,
# which is left alone: eager's kernels all fail.
LAUNCHES = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#define FAILURE 719
static int broken(void) { return access(getenv("TROUBLE"), F_OK) == 0; }
typedef struct { unsigned x, y, z; } dim;
typedef int launch(const void *, dim, dim, void **, size_t, void *);
#define REFUSED(name) \
    int name(const void *kernel, dim grid, dim block, void **arguments, size_t memory, void *stream) { \
        if (broken()) return FAILURE; \
        return ((launch *)dlsym(RTLD_NEXT, #name))(kernel, grid, block, arguments, memory, stream); \
    }
REFUSED(cudaLaunchKernel)
REFUSED(__cudaLaunchKernel)
int cudaGetLastError(void) {
    int real = ((int (*)(void))dlsym(RTLD_NEXT, "cudaGetLastError"))();
    return broken() ? FAILURE : real;
}
int cudaPeekAtLastError(void) {
    int real = ((int (*)(void))dlsym(RTLD_NEXT, "cudaPeekAtLastError"))();
    return broken() ? FAILURE : real;
}
"""


@dataclass(frozen=True)
class Injected:
    """What came of an injection, or of several of a kind, summed and the longest."""

    injection: str
    times: int
    lost_findings: int = 0
    lost_suspects: int = 0
    twice: int = 0
    seconds: float = 0.0
    processes: int = 0
    folders: int = 0
    said: str = ""


_COUNTS = ("lost_findings", "lost_suspects", "twice", "processes", "folders")
CAMPAIGN_FOLDER, LEDGER_FOLDER, TEMPORARY = "own", "ledger", "tmp"
# How lines begin that a campaign says about what it found.
_ABOUT_FINDINGS = ("  ", "a new fault", "a new variant", "unconfirmed", "known", "wrong ")


class Running:
    """A campaign in a folder of its own.

    small_disk  which of its folders is on a small disk: CAMPAIGN_FOLDER, LEDGER_FOLDER or TEMPORARY; "" none.
    ledger      a ledger that it shares; None: it has its own.
    preloaded   a library that its processes load; the file in their TROUBLE is "trouble" in its folder.
    device      on which its programs run.
    """

    def __init__(
        self,
        folder: Path,
        small_disk: str = "",
        ledger: Path | None = None,
        preloaded: Path | None = None,
        device: str = HOST.type,
    ):
        self.folder, self.small_disk, self.shared, self.preloaded = folder, small_disk, ledger, preloaded
        self.device = device
        self.process: subprocess.Popen[bytes] | None = None
        self.heard = 0  # characters of `said`

    def at(self, name: str) -> Path:
        """One of its folders, as seen from here."""
        if self.small_disk != name:
            return self.folder / name
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/root/{self.folder / name}")

    @property
    def ledger(self) -> Path:
        return self.shared or self.at(LEDGER_FOLDER) / "ledger.db"

    def remount(self, how: str) -> None:
        """Mount its small disk anew, "ro" or "rw"."""
        assert self.process is not None
        inside = ("nsenter", "--target", str(self.process.pid), "--user", "--mount", "--preserve-credentials")
        command = [*inside, "mount", "-o", f"remount,{how}", str(self.folder / self.small_disk)]
        until = time.monotonic() + _PATIENCE
        while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
            if time.monotonic() > until:
                raise RuntimeError(f"the small disk is not {how}: {done.stderr}")
            time.sleep(0.01)  # somebody writes just now

    def said(self) -> str:
        """The lines that it said since the last time, each once; without those about findings."""
        text = (self.folder / "said").read_text()
        lines = [line for line in text[self.heard :].splitlines() if not line.startswith(_ABOUT_FINDINGS)]
        self.heard = len(text)
        told = Counter(line.replace(str(self.folder), "")[:160] for line in lines if line.strip())
        return "; ".join(f"{count} x {line}" if count > 1 else line for line, count in told.items())

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def start(self, seconds: float = 600.0, resume: bool = False) -> None:
        """Begin it, and wait until programs flow."""
        environment = os.environ | {"PYTHONPATH": module_path(), "INJECTED": str(self.folder)}
        compiler = self.folder / "g++"
        environment |= {"TMPDIR": str(self.folder / TEMPORARY), "CXX": str(compiler)}
        # Importing torch's compiler makes this folder, by default in TMPDIR, where it would count as left over.
        environment |= {"TORCHINDUCTOR_CACHE_DIR": str(self.folder / "torch")}
        environment |= {"INJECTED_LEDGER": str(self.shared)} if self.shared else {}
        trouble = {"LD_PRELOAD": str(self.preloaded), "TROUBLE": str(self.folder / "trouble")}
        environment |= (trouble if self.preloaded else {}) | {"INJECTED_DEVICE": self.device}
        for made in (CAMPAIGN_FOLDER, LEDGER_FOLDER, TEMPORARY):
            (self.folder / made).mkdir(exist_ok=True)
        if not compiler.exists():
            compiler.symlink_to(shutil.which("g++") or "/bin/true")
        # the fork server first, as in every command: it imports torch beside this process
        code = "from fuzzer.workers.server import start_server; start_server(); from benches.injected import run; "
        code += f"run({seconds}, {resume})"
        before = len(self.rows())
        with (self.folder / "said").open("a") as out:
            disk = [*_ON_SMALL_DISK, str(self.folder / self.small_disk)] if self.small_disk else []
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
        own = sorted(self.at(CAMPAIGN_FOLDER).glob("campaigns/*"))
        for log in [log for path in own for log in path.glob("trials.jsonl*")]:
            rows = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
            logged |= {row["text"] for row in rows if row["class"] == "wrong"}
        for path in own:
            texts |= {suspect.text for suspect in Shelf(path).suspects()}
        for path in (self.ledger, *(path / BESIDE for path in own)):
            if path.exists():
                found = self._findings(path)
                kept |= {finding.id for finding in found}
                texts |= {finding.original for finding in found}
        return len(stored - kept), len(logged - texts)

    def _findings(self, path: Path) -> list[Finding]:
        """Those of a ledger, which may be written to; on the small disk of a copy, since SQLite follows the links that
        lead there by their names, which lead elsewhere from here."""
        if not str(path).startswith("/proc/"):
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

    def twice(self) -> int:
        """How many programs ran to their end more than once."""
        return sum(count > 1 for count in Counter(row["number"] for row in self.rows()).values())

    def left_over(self) -> tuple[int, int]:
        """How many processes, and folders, should be gone."""
        folders = [*(self.folder / CAMPAIGN_FOLDER).glob("pool-*"), *(self.folder / TEMPORARY).iterdir()]
        until = time.monotonic() + 5
        while (found := list(self.processes())) and time.monotonic() < until:
            time.sleep(0.05)
        return len(found), len(folders)

    def row(self, injection: str, seconds: float, times: int = 1) -> Injected:
        """What came of an injection, while the campaign runs on."""
        findings, suspects = self.lost()
        return Injected(injection, times, findings, suspects, self.twice(), round(seconds, 2), said=self.said())

    def ended(self, row: Injected) -> Injected:
        """The row, with what is left over now that the campaign has ended."""
        processes, folders = self.left_over()
        return replace(row, processes=processes, folders=folders)

    def processes(self) -> Iterator[int]:
        """Those of the campaign that run."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("INJECTED") == str(self.folder) and process.pid != os.getpid():
                    yield process.pid


Injection = Callable[[Running], None]


def into_worker(name: str) -> Injection:
    """What befalls the worker that takes it."""

    def inject(running: Running) -> None:
        path = running.folder / "inject"
        path.with_suffix(".new").write_text(name)
        path.with_suffix(".new").rename(path)
        until = time.monotonic() + _PATIENCE
        while path.exists() and time.monotonic() < until:
            time.sleep(0.01)

    return inject


def to_process(which: str, number: int) -> Callable[[Running], None]:
    """A signal to a worker or the fork server."""

    def inject(running: Running) -> None:
        until = time.monotonic() + _PATIENCE
        while not (alive := [pid for pid in running.rows()[-1][which] if psutil.pid_exists(pid)]):
            if time.monotonic() > until:
                raise RuntimeError(f"no {which} runs")
            time.sleep(0.02)  # the one that was killed before has no successor yet
        os.kill(alive[0], number)

    return inject


def full_disk(running: Running) -> None:
    """The disk seems full, for a while."""
    (running.folder / "full").touch()
    time.sleep(_LOCKED_SECONDS)
    (running.folder / "full").unlink()


def no_compiler(running: Running) -> None:
    """The compiler is gone, for a while."""
    compiler = running.folder / "g++"
    compiler.rename(compiler.with_name("aside"))
    time.sleep(_LOCKED_SECONDS)
    compiler.with_name("aside").rename(compiler)


def stopped(running: Running) -> None:
    """All of its processes are stopped for a minute, as by a laptop's lid."""
    pids = list(running.processes())
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(_STOPPED_SECONDS if number == signal.SIGSTOP else 0)


def ledger(how: str) -> Injection:
    """The ledger is locked, damaged, of a newer schema or deleted, and mended after a while."""

    def inject(running: Running) -> None:
        path = running.ledger
        until = time.monotonic() + _PATIENCE
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.05)
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

    return inject


INJECTIONS: dict[str, Injection] = {
    **{name: into_worker(name) for name in ("SIGSEGV", "SIGABRT", "SIGKILL", "SIGSTOP", "exit 0", "SystemExit")},
    **{name: into_worker(name) for name in ("C hang", "memory balloon", "flood of stderr", "endless stderr")},
    "fork server killed": to_process("server", signal.SIGKILL),
    "fork server stopped": to_process("server", signal.SIGSTOP),
    "idle worker killed": to_process("workers", signal.SIGKILL),
    "disk full": full_disk,
    "no compiler": no_compiler,
    "all stopped for a minute": stopped,
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
        INJECTIONS[name](running)
        yield running.row(name, running.until_flow(max(before, len(running.rows()))))
    for name, number in (("SIGTERM", signal.SIGTERM), ("SIGHUP", signal.SIGHUP)):
        took = running.end(number)
        yield running.ended(running.row(f"campaign {name}, {_TO_END}", took))
        running.start(resume=True)
    into_worker("C hang")(running)
    took = running.end(signal.SIGINT)
    yield running.ended(running.row(f"SIGINT while one hangs, {_TO_END}", took))


def can_mount(folder: Path) -> bool:
    """Whether a small disk can be had here."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_ON_SMALL_DISK, str(folder), "true"], capture_output=True).returncode == 0


def trouble_disk(folder: Path, name: str, how: str) -> Injected:
    """The disk of one of a campaign's folders is "full" to the last byte, or "read-only", for a while."""
    with Running(folder, small_disk=name) as running:
        running.start()
        running.said()
        filler = running.at(name) / "filler"
        if how == "full":
            with filler.open("wb") as out:
                for size in (2**20, 2**12):
                    with contextlib.suppress(OSError):
                        while True:
                            os.posix_fallocate(out.fileno(), out.seek(0, os.SEEK_END), size)
        else:
            running.remount("ro")
        time.sleep(_LOCKED_SECONDS)
        before = len(running.rows())
        filler.unlink(missing_ok=True) if how == "full" else running.remount("rw")
        flows = running.until_flow(before)
        time.sleep(2 * _LOCKED_SECONDS)  # suspects and findings catch up
        row = running.row(f"disk of {name}/ {how}", flows)
        running.end()
        return running.ended(row)


def kill(whom: str, times: int, folder: Path, seed: int) -> Injected:
    """kill -9 of a campaign's main process, or of the whole "group", at random moments, each time resumed; in the end
    it is told to end. The seconds are those of the longest resumed start."""
    running, rng, longest = Running(folder), random.Random(seed), 0.0
    findings = suspects = 0
    running.start()
    for _ in range(times):
        time.sleep(rng.uniform(0, 3))
        assert running.process is not None
        for pid in running.processes() if whom == "group" else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.end(signal.SIGKILL)
        lost = running.lost()
        findings, suspects = max(findings, lost[0]), max(suspects, lost[1])
        running.said()
        started = time.monotonic()
        running.start(resume=True)
        longest = max(longest, time.monotonic() - started)
    running.end()
    row = running.ended(running.row(f"kill -9 of the {whom}", longest, times))
    return replace(row, lost_findings=max(findings, row.lost_findings), lost_suspects=max(suspects, row.lost_suspects))


def kill_part(which: str, times: int, folder: Path, seed: int) -> Injected:
    """kill -9 of one of the "workers" or the fork "server" of a running campaign, at random moments."""
    rng, longest = random.Random(seed), 0.0
    with Running(folder) as running:
        running.start()
        for _ in range(times):
            time.sleep(rng.uniform(0, 1))
            to_process(which, signal.SIGKILL)(running)
            longest = max(longest, running.until_flow(len(running.rows())))
        row = running.row(
            f"kill -9 of the fork {which}" if which == "server" else "kill -9 of a worker", longest, times
        )
        running.end()
        return running.ended(row)


def library(folder: Path, code: str) -> Path:
    """The library of this C code, to be preloaded."""
    source, built = folder / "preloaded.c", folder / "preloaded.so"
    source.write_text("#define _GNU_SOURCE\n" + code)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True)
    return built


def fail_launches(folder: Path, device: str, for_good: bool = False) -> Injected:
    """Every launch on the accelerator fails for a while; or for good, until the campaign has ended and is resumed."""
    how = "for good, then resumed" if for_good else f"for {_LOCKED_SECONDS:.0f} s"
    with Running(folder, preloaded=library(folder, LAUNCHES), device=device) as running:
        running.start()
        running.said()
        trouble, before = running.folder / "trouble", len(running.rows())
        trouble.touch()
        assert running.process is not None
        if for_good:
            running.process.wait(_PATIENCE)
        else:
            time.sleep(_LOCKED_SECONDS)
        trouble.unlink()
        meanwhile = Counter(row["class"] for row in running.rows()[before:])
        if meanwhile["agree"] > 2 * _FLOWS:  # those that were under way, and a batch that was told late
            raise RuntimeError(f"launches on {device} did not fail: {dict(meanwhile)}")
        began = time.monotonic()
        if for_good:
            running.start(resume=True)
        else:
            running.until_flow(len(running.rows()))
        flows = time.monotonic() - began
        time.sleep(2 * _LOCKED_SECONDS)
        row = running.row(f"every launch on {device} fails {how}", flows)
        running.end()
        stored = len(running._findings(running.ledger)) if running.ledger.exists() else 0
        said = f"{stored} findings stored; meanwhile {dict(meanwhile)}; {row.said}"
        return running.ended(replace(row, said=said))


def set_clock_back(folder: Path) -> Injected:
    """The time of day is a day earlier from one moment on."""
    with Running(folder, preloaded=library(folder, _CLOCK)) as running:
        running.start()
        running.said()
        (running.folder / "trouble.new").write_text(str(-_DAY))
        (running.folder / "trouble.new").rename(running.folder / "trouble")
        flows = running.until_flow(len(running.rows()))
        time.sleep(2 * _LOCKED_SECONDS)
        row = running.row("clock set back by a day", flows)
        running.end()
        running.start(resume=True)
        running.end()
        return running.ended(replace(row, twice=running.twice()))


def two_on_one_ledger(folder: Path) -> Injected:
    """Two campaigns store in one ledger; what either lost is counted."""
    both = []
    for name in ("first", "second"):
        (folder / name).mkdir()
        both.append(Running(folder / name, ledger=folder / "shared.db"))
    with both[0], both[1]:
        for running in both:
            running.start()
        flows = max(running.until_flow(len(running.rows())) for running in both)
        time.sleep(4 * _LOCKED_SECONDS)
        for running in both:
            running.end()
        rows = [running.ended(running.row("two campaigns on one ledger", flows)) for running in both]
        return replace(
            rows[0],
            **{name: sum(getattr(row, name) for row in rows) for name in _COUNTS},
            said="; ".join(filter(None, (row.said for row in rows))),
        )


@click.command("injection")
@click.option("--only", multiple=True, type=click.Choice([*INJECTIONS]), help="One failure; repeatable. Default: all.")
@click.option(
    "--kills", type=click.IntRange(0), default=20, show_default=True, help="How often each process is killed (kill -9)."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The moments of the kills are drawn from it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each.")
def injection_command(only: tuple[str, ...], kills: int, seed: int, as_json: bool) -> None:
    """What does a campaign lose when a part of it fails, how soon do programs flow again, and what is left over?"""
    if not as_json:
        click.echo(" | ".join(name.replace("_", " ") for name in Injected.__dataclass_fields__))
    with tempfile.TemporaryDirectory(prefix="inj-") as folder:
        place = new_places(Path(folder))
        for row in inject_each(list(only or INJECTIONS), next(place)):
            click.echo(_shown(row, as_json))
        for run in () if only else in_campaigns_of_their_own(kills, seed, default_device_type()):
            click.echo(_shown(run(next(place)), as_json))


def new_places(folder: Path) -> Iterator[Path]:
    """Empty folders, one after the other."""
    for n in itertools.count():
        (folder / str(n)).mkdir()
        yield folder / str(n)


def in_campaigns_of_their_own(kills: int, seed: int, device: str = HOST.type) -> Iterator[Callable[[Path], Injected]]:
    """The injections that each need a campaign, or two, of their own."""
    with tempfile.TemporaryDirectory() as trial:
        mounts = can_mount(Path(trial))
    if not mounts:
        click.echo("no small disk can be mounted here: none is filled", err=True)
    for name in (CAMPAIGN_FOLDER, LEDGER_FOLDER, TEMPORARY) if mounts else ():
        yield partial(trouble_disk, name=name, how="full")
    if mounts:
        yield partial(trouble_disk, name=LEDGER_FOLDER, how="read-only")
    yield set_clock_back
    if device != HOST.type:
        yield partial(fail_launches, device=device)
        yield partial(fail_launches, device=device, for_good=True)
    yield two_on_one_ledger
    for which in ("workers", "server") if kills else ():
        yield partial(kill_part, which, kills, seed=seed)
    for whom in ("main process", "group") if kills else ():
        yield partial(kill, whom, kills, seed=seed)


def _shown(row: Injected, as_json: bool) -> str:
    return json.dumps(asdict(row)) if as_json else " | ".join(map(str, asdict(row).values()))
