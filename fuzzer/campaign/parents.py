"""Programs around which a campaign looks, by cause: programs that people wrote, reported, or found before.

A cause is a fault of a ledger, with all its programs; of files and functions, the programs of the same ops in the same
order. Of those that are shipped also a reported fault, and an entry of torch's own database of ops with its samples
(`scripts/harvest-opinfo` writes both).
"""

from __future__ import annotations

import json
import lzma
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fuzzer.judgement.verdict import Finding
from fuzzer.language.errors import UsageError
from fuzzer.language.program import Program
from fuzzer.language.text import ParseError, parse, show
from fuzzer.ledger.shipped import SHIPPED
from fuzzer.ledger.store import open_store

PARENTS_FILE = "parents.json"
WRITTEN = Path(__file__).with_name("parents.json.xz")  # reported faults, and torch's own samples
_LEDGER = b"SQLite format 3\0"  # how such a file begins


@dataclass(frozen=True)
class Parents:
    """The texts of programs, by cause: no cause is empty."""

    causes: Mapping[str, tuple[str, ...]]

    def of(self, seed: int, number: int) -> tuple[str, str]:
        """(cause, text) of the parent of a number: in each round of as many numbers as there are causes, every cause
        has its turn."""
        many = len(self.causes)
        turn, place = divmod(number, many)
        rng = random.Random(f"{seed}/{turn}/causes")
        first, step = rng.randrange(many), rng.choice([n for n in range(1, many + 1) if math.gcd(n, many) == 1])
        cause = sorted(self.causes)[(first + place * step) % many]
        return cause, random.Random(f"{seed}/{number}/parent").choice(self.causes[cause])

    def __or__(self, other: Parents) -> Parents:
        """The parents of both; programs of the same cause stand together."""
        both: dict[str, dict[str, None]] = {}
        for name, texts in (*self.causes.items(), *other.causes.items()):
            both.setdefault(name, {}).update(dict.fromkeys(texts))
        return Parents({name: tuple(texts) for name, texts in both.items()})

    def write(self, folder: Path) -> None:
        """Keep them beside a campaign's corpus, which goes on with the same ones."""
        (folder / PARENTS_FILE).write_text(json.dumps(dict(self.causes)))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Those that `write` kept. Raises UsageError."""
        try:
            kept = json.loads((folder / PARENTS_FILE).read_text())
            return cls({name: tuple(texts) for name, texts in kept.items()})
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise UsageError(f"{folder / PARENTS_FILE}: no parents to go on with: {error!r}") from None


def shipped_parents() -> Parents:
    """Reported faults, torch's own samples, and the faults of the shipped ledger. Raises StoreError."""
    return Parents(json.loads(lzma.decompress(WRITTEN.read_bytes()))) | _of_ledger(SHIPPED)


def by_ops(programs: Iterable[Program]) -> Parents:
    """Programs of the same ops in the same order are of one cause."""
    found: dict[str, dict[str, None]] = {}
    for program in programs:
        found.setdefault(" ".join(node.op for node in program.nodes), {})[show(program)] = None
    return Parents({name: tuple(texts) for name, texts in found.items() if name})


def parents_in(path: Path) -> Parents:
    """Those of a .prog file, of the .prog files below a folder, or of a ledger. Raises UsageError, StoreError."""
    if path.is_dir():
        found = by_ops(_parsed(file) for file in sorted(path.rglob("*.prog")))
    elif _is_ledger(path):
        found = _of_ledger(path)
    else:
        found = by_ops([_parsed(path)])
    if not found.causes:
        raise UsageError(f"{path}: it holds no program")
    return found


def _is_ledger(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_LEDGER)) == _LEDGER
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; --around takes a .prog file, a folder of such files, a ledger, or "
                         "FILE.py:FUNCTION") from None  # fmt: skip


def _parsed(path: Path) -> Program:
    try:
        return parse(path.read_text())
    except (OSError, UnicodeDecodeError, ParseError) as error:
        raise UsageError(f"{path}: {error}") from None


def _of_ledger(path: Path) -> Parents:
    """The minimal and natural programs of its faults, but of those that a person ruled to be none."""
    with open_store(path, create=False) as store:
        faults = [fault.id for fault in store.faults() if fault.state.name != "not-a-fault"]
        found = {fault: (text for each in store.variants(fault) for text in _texts(each)) for fault in faults}
        return Parents({fault: tuple(dict.fromkeys(texts)) for fault, texts in found.items()})


def _texts(finding: Finding) -> list[str]:
    return [finding.program, *([finding.natural.program] if finding.natural else [])]
