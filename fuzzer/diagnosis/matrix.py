"""Findings on another release of torch, each run as it was found, in a process of that release's environment.

The whole judgement runs there. The result of a finding is SHOWS, GONE, or a reason for neither.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fuzzer.judgement.verdict import VALUES, Finding, Signature, follows, parse_signature, strip_digits
from fuzzer.ledger import checkout
from fuzzer.ledger.cause import raised
from fuzzer.ledger.faults import GONE, SHOWS
from fuzzer.ledger.releases import numbers
from fuzzer.workers.server import server_environment

_EACH = 60.0  # seconds for one finding: caches are off, and a compile takes 2 to 5 s on a free core
_START = 120.0  # seconds to import torch, in processes that wait for each other


def find_python(release: str, places: Iterable[Path] = ()) -> Path | None:
    """The Python of the environment that `scripts/fuzz --torch RELEASE` made: in this checkout, in the main checkout of
    this work tree, or in one of these folders."""
    folders = [*places, Path.cwd(), *_checkouts()]
    found = (folder / f".venv-{release}" / "bin" / "python" for folder in folders)
    return next((python for python in found if python.exists()), None)


def every_python() -> list[Path]:
    """The Pythons of all other releases' environments, oldest release first."""
    others = [python for folder in _checkouts()[1:] for python in sorted(folder.glob(".venv-*/bin/python"))]
    return list(dict.fromkeys([*environments(), *others]))


def _checkouts() -> list[Path]:
    """This checkout, and the main checkout if this is a work tree."""
    if checkout.ROOT is None:
        return []
    asked = ["git", "-C", str(checkout.ROOT), "rev-parse", "--path-format=absolute", "--git-common-dir"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return list(dict.fromkeys([checkout.ROOT, *([Path(told).parent] if told else [])]))


def environments() -> list[Path]:
    """The Pythons of the checkout's environments (folders `.venv-X`) except the running one, oldest release first."""
    folders = checkout.ROOT.glob(".venv-*") if checkout.ROOT is not None else ()
    found = [path / "bin" / "python" for path in folders if (path / "bin" / "python").exists()]
    return sorted((p for p in found if p.parents[1] != Path(sys.prefix)), key=lambda p: numbers(_release(p)))


def _release(python: Path) -> str:
    return python.parents[1].name.removeprefix(".venv-")


def release_of(python: Path) -> str:
    """The version of torch that this Python imports; "" where it has none."""
    asked = [str(python), "-c", "from importlib.metadata import version; print(version('torch'))"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=_START)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip()


Asked = Mapping[tuple[str, str], Sequence[Finding]]  # by (fault, device): its variants in running order


def ask_of(
    variants: Mapping[str, Sequence[Finding]], device: str | None = None
) -> dict[tuple[str, str], list[Finding]]:
    """By (fault, device), the variants to run there; those of a fault are given simplest first.

    Without `device` each variant runs on the device where it was found. With it all run on that device, those found
    there first. A finding that compares two devices always runs where it was found.
    """
    found: dict[tuple[str, str], list[Finding]] = {}
    for fault, own in variants.items():
        for finding in own:
            where = device_of(finding)
            if device is None or where == device or "@" not in finding.place.get("against", ""):
                found.setdefault((fault, device or where), []).append(finding)
    return {key: sorted(own, key=lambda f: device_of(f) != key[1]) for key, own in found.items()}


def device_of(finding: Finding) -> str:
    """The type of device on which a finding was made."""
    return finding.place.get("device", "cpu").split(":")[0]


def where_live(
    python: Path, asked: Asked, db: Path, workers: int | None = None
) -> dict[tuple[str, str], dict[str, str]]:
    """The result of each fault's variants, by id, under this Python. The simplest runs first, the others of a fault
    only if it does not reproduce: a cause may be gone from one operator and live in another."""
    told: dict[tuple[str, str], dict[str, str]] = {key: {} for key in asked}
    for first in (True, False):
        for device in sorted({device for _, device in asked}):
            keys = [key for key in asked if key[1] == device and SHOWS not in told[key].values()]
            some = {key: asked[key][:1] if first else asked[key][1:] for key in keys}
            outcomes = run_there(python, [f for own in some.values() for f in own], db, device, workers)
            for key, own in some.items():
                told[key] |= {f.id: outcomes[f.id] for f in own}
    return told


def together(outcomes: Mapping[str, str]) -> str:
    """A fault's result from its variants' results: SHOWS if one reproduces, GONE if none does and at least one could
    run."""
    told = list(outcomes.values())
    strange = [outcome for outcome in told if outcome.startswith(_STRANGE)]
    return SHOWS if SHOWS in told else strange[0] if strange else GONE if GONE in told else told[0]


def run_there(
    python: Path, findings: Sequence[Finding], db: Path, device: str | None = None, workers: int | None = None
) -> dict[str, str]:
    """The result of each finding, by id, under this Python: SHOWS, GONE or a reason for neither. If the minimal program
    does not reproduce, the natural one runs: a shrunk difference may be too small on another release.

    device   where they run; None: where they were found.
    """
    told: dict[str, str] = {}
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:  # one that cannot run at all must not stop the others
        place = finding.place
        key = tuple(place.get(name, "") for name in ("backend", "against", "device", "threads"))
        groups.setdefault(key, []).append(finding)
    options = ["--workers", str(workers)] if workers else []
    for group in groups.values():
        limit, asked = _START + _EACH * len(group), {finding.id: finding for finding in group}
        moved = ["--device", device] if device not in (None, device_of(group[0])) else []
        told |= _replay(python, asked, db, limit, *options, *moved)
        grown = {name: f.grown for name, f in asked.items() if f.grown is not f and told[name] != SHOWS}
        if grown:
            natural = _replay(python, grown, db, limit, *options, *moved, "--natural")
            told |= {name: outcome for name, outcome in natural.items() if outcome == SHOWS}
    return told


def _replay(python: Path, findings: Mapping[str, Finding], db: Path, seconds: float, *options: str) -> dict[str, str]:
    """The results of findings, by their ids in the ledger."""
    command = [str(python), "-m", "backfuzz", "replay", *findings, *options, "--db", str(db.resolve()), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(command, cwd=folder, env=server_environment(), capture_output=True, text=True,
                                  timeout=seconds, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            return dict.fromkeys(findings, f"ran out of its {seconds:.0f} s")
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("["):
        last = (done.stderr.strip().splitlines() or ["nothing told"])[-1]
        return dict.fromkeys(findings, f"not run: {last[:200]}")
    rows = {row["program"]: row for row in json.loads(lines[-1])}
    return {name: _outcome(finding, rows[name]) for name, finding in findings.items()}


_STRANGE = "shows something else"


def _outcome(finding: Finding, row: dict[str, object]) -> str:
    if row["rejected"]:
        return f"not run: {str(row['rejected'])[:200]}"
    verdicts = row["verdicts"]
    assert isinstance(verdicts, list)
    if any(_same(finding, parse_signature(v["signature"]), v["detail"]) for v in verdicts):
        return SHOWS
    return GONE if row["class"] == "agree" else f"{_STRANGE}: {row['class']}"


def _same(finding: Finding, shown: Signature, detail: str) -> bool:
    """Whether a result elsewhere is the same finding as where it was made.

    Another release has other functions in a traceback, and another device other numbers in a wrong result.
    """
    own = finding.signature
    if follows(own, shown):
        return True
    if (own.oracle, own.direction) != (shown.oracle, shown.direction):
        return False
    said, says = (raised(f) for f in (finding, replace(finding, detail=detail)))
    if said and says:
        return [strip_digits(text) for text in said.groups()] == [strip_digits(text) for text in says.groups()]
    return own.verdict == shown.verdict and own.pattern in VALUES and shown.pattern in VALUES
