"""Does a short campaign run wherever a user may be? One on the CPU in each place: its exit code, its programs, and what
it said last.

A place is a Python with its torch, a working folder, a user, a locale, or a machine that lacks something. What is taken
away is taken from the campaign alone: by a mount namespace, a PATH of links, a cgroup, another user.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from benches.options import json_option

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 600.0
_GIBIBYTES = 4
_MEMORY = Path("/sys/fs/cgroup/memory/backfuzz-portability")
_NIGHTLY = "2.16.0.dev20261120+cpu"
_NOBODY = "65534"
_PRIVATE = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
# Found before all others when Python looks for `torch.version`: the installed one, with another version.
_OTHER_VERSION = """
import importlib.util, os, sys
from importlib.machinery import ModuleSpec, SourceFileLoader, PathFinder

class OtherVersion(SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        module.__version__ = type(module.__version__)({version!r})

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch.version":
            return None
        found = PathFinder.find_spec(name, path)
        return importlib.util.spec_from_file_location(name, found.origin, loader=OtherVersion(name, found.origin))

sys.meta_path.insert(0, Finder)
"""


@dataclass(frozen=True)
class Place:
    """Where a campaign runs.

    prefix   the command in front of it, in which `{folder}` is a folder of its own.
    added    variables of its environment.  folder  the name of its working folder.
    python   that runs it.  lacks  whether it cannot run there, and has to say so instead.
    """

    name: str
    prefix: tuple[str, ...] = ()
    added: dict[str, str] = field(default_factory=dict)
    folder: str = "work"
    python: str = sys.executable
    lacks: bool = False


@dataclass(frozen=True)
class Row:
    """What came of a place. passed: it ran programs, or said in few lines why it cannot, as was expected."""

    place: str
    python: str
    torch: str
    code: int
    programs: int
    said: str
    passed: bool


def places(pythons: tuple[str, ...], folder: Path) -> Iterator[Place]:
    """Those that this machine can offer; `folder` is for what they need."""
    for python in dict.fromkeys((sys.executable, *pythons)):
        yield Place("as it is", python=python)
    yield Place("a folder with a space", folder="with a space")
    yield Place("a folder with umlauts", folder="größer")
    yield Place("the locale C", added={"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"})
    yield Place("the version of a nightly", added={"PYTHONPATH": str(other_version(folder / "site", _NIGHTLY))})
    yield Place("no C++ compiler", added={"PATH": str(links(folder / "bin")), "CXX": ""}, lacks=True)
    if os.geteuid() == 0:
        yield Place(
            "another user than root", prefix=("setpriv", "--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups")
        )
        yield Place("no /dev/shm", prefix=(*_PRIVATE, 'mount -t tmpfs -o ro,size=4k tmpfs /dev/shm && exec "$@"', "sh"))
    if os.access(_MEMORY.parent, os.W_OK):
        yield Place(f"two cores and {_GIBIBYTES} GiB", prefix=small_machine(folder))


def other_version(folder: Path, version: str) -> Path:
    """A folder that gives torch another version, for whoever has it in PYTHONPATH."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_OTHER_VERSION.format(version=version))
    return folder


def links(folder: Path) -> Path:
    """A folder for PATH with all commands of this machine but compilers."""
    folder.mkdir()
    for path in map(Path, os.environ["PATH"].split(os.pathsep)):
        for command in path.iterdir() if path.is_dir() else ():
            link = folder / command.name
            if not any(name in command.name for name in ("g++", "c++", "gcc", "clang", "cc1")) and not link.exists():
                link.symlink_to(command)
    return folder


def small_machine(folder: Path) -> tuple[str, ...]:
    """The command in front of one that shall have two cores and little memory, and see no more."""
    _MEMORY.mkdir(exist_ok=True)
    (_MEMORY / "memory.limit_in_bytes").write_text(str(_GIBIBYTES * 2**30))
    seen = folder / "meminfo"
    kib = _GIBIBYTES * 2**20
    lines = Path("/proc/meminfo").read_text().splitlines()
    told = {"MemTotal": kib, "MemFree": kib * 7 // 8, "MemAvailable": kib * 7 // 8}
    names = [line.partition(":")[0] for line in lines]
    seen.write_text(
        "".join(f"{n}: {told[n]} kB\n" if n in told else f"{line}\n" for n, line in zip(names, lines, strict=True))
    )
    mounted = f'echo $$ > {_MEMORY}/cgroup.procs && mount --bind {seen} /proc/meminfo && exec taskset -c 0,1 "$@"'
    return (*_PRIVATE, mounted, "sh")


def run(place: Place, folder: Path, minutes: float) -> Row:
    """A campaign there."""
    work, home = folder / place.folder, folder / "home"
    for made in (folder, work, home):
        made.mkdir()
        made.chmod(0o777)  # another user writes there
    path = os.pathsep.join(filter(None, (place.added.get("PYTHONPATH"), str(_ROOT))))
    own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    environment = {k: v for k, v in (os.environ | place.added | own | {"PYTHONPATH": path}).items() if v}
    command = ("fuzz", "--device", "cpu", "--minutes", str(minutes), "--seed", "3", "--json")
    done = subprocess.run(
        [*place.prefix, place.python, "-W", "ignore", "-m", "backfuzz", *command],
        cwd=work, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace",
    )  # fmt: skip
    last = (done.stdout.strip().splitlines() or [""])[-1]
    programs = json.loads(last)["programs"] if last.startswith("{") else 0
    said = (done.stderr.strip().splitlines() or [""])[-1].replace(str(folder), "")
    refused = done.returncode not in (0, 1) and programs == 0 and "Traceback" not in done.stderr
    passed = refused if place.lacks else done.returncode == 0 and programs > 0
    return Row(place.name, *versions(place), done.returncode, programs, said[:160], passed)


def versions(place: Place) -> tuple[str, str]:
    """Of Python and torch there."""
    code = "import platform, torch; print(platform.python_version(), torch.__version__)"
    told = subprocess.run(
        [place.python, "-W", "ignore", "-c", code],
        env=os.environ | place.added,
        capture_output=True,
        text=True,
        check=True,
    )
    python, torch = told.stdout.split()
    return python, torch


@click.command("portability")
@click.option(
    "--python", "pythons", multiple=True, help="Another Python that has torch and what backfuzz needs (repeatable)."
)
@click.option("--only", multiple=True, help="Places with these words in their names (repeatable). Default: all.")
@click.option(
    "--minutes", default=0.3, show_default=True, type=click.FloatRange(0, min_open=True), help="Each campaign."
)
@json_option
def portability_command(pythons: tuple[str, ...], only: tuple[str, ...], minutes: float, as_json: bool) -> None:
    """Does a short campaign run wherever a user may be?"""
    if not as_json:
        click.echo(" | ".join(Row.__dataclass_fields__))
    failed = False
    with tempfile.TemporaryDirectory(prefix="port-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for number, place in enumerate(places(pythons, folder)):
            if only and not any(word in place.name for word in only):
                continue
            row = run(place, folder / str(number), minutes)
            failed |= not row.passed
            click.echo(json.dumps(asdict(row)) if as_json else " | ".join(map(str, asdict(row).values())))
    with contextlib.suppress(OSError):  # there is none, or it has processes
        _MEMORY.rmdir()
    sys.exit(failed)
