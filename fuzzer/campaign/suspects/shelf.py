"""Suspects as files in the campaign's folder, from the moment they are queued until they are decided: a kill loses
none."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from fuzzer.campaign.suspects.core import decode_core, encode_core
from fuzzer.campaign.suspects.suspect import Suspect
from fuzzer.campaign.told.written import replace_file
from fuzzer.judgement.verdict import parse_signature
from fuzzer.language.text import parse

_NAME, _SEEN_AT, _SOURCE, _CORE = "suspect-*.prog", "# seen at ", "# source ", "# core "


class Shelf:
    """The suspects in one folder: programs, each under a comment with its signature, once it is sorted also with its
    core, for `backfuzz minimize` too."""

    def __init__(self, folder: Path):
        self.folder = folder

    def put(self, suspect: Suspect) -> None:
        """Write a suspect, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stage = f"{_SEEN_AT}{suspect.stage}\n" if suspect.stage else ""
        source = f"{_SOURCE}{suspect.source}\n" if suspect.source else ""
        core = f"{_CORE}{encode_core(suspect.core)}\n" if suspect.core is not None else ""
        replace_file(self._path(suspect), f"# {suspect.signature}\n{stage}{source}{core}{suspect.text}".encode())

    def drop(self, suspect: Suspect) -> None:
        """Remove a suspect that is decided."""
        self._path(suspect).unlink(missing_ok=True)

    def suspects(self) -> list[Suspect]:
        """The suspects on the shelf, in no particular order."""
        found = []
        for path in sorted(self.folder.glob(_NAME)):
            with contextlib.suppress(FileNotFoundError):  # decided meanwhile
                found.append(read_suspect(path.read_text()))
        return found

    def take_over(self, other: Shelf) -> list[Suspect]:
        """Move the suspects of another shelf here, and return them."""
        found = other.suspects()
        for suspect in found:
            self.put(suspect)
            other.drop(suspect)
        return found

    def _path(self, suspect: Suspect) -> Path:
        name = hashlib.sha256(f"{suspect.signature}\n{suspect.stage}\n{suspect.text}".encode()).hexdigest()[:12]
        return self.folder / _NAME.replace("*", name)


def shelved(content: str) -> Suspect | None:
    """The suspect of a file on a shelf, where it has a core; None for any other text."""
    head = content.split("\n", 4)[1:4]
    return read_suspect(content) if any(line.startswith(_CORE) for line in head) else None


def read_suspect(content: str) -> Suspect:
    """The suspect of a file on a shelf. Raises ValueError (a ParseError is one) where it is none."""
    head, _, text = content.partition("\n")
    said = dict.fromkeys((_SEEN_AT, _SOURCE, _CORE), "")
    for what in said:
        if text.startswith(what):
            line, _, text = text.partition("\n")
            said[what] = line.removeprefix(what)
    core = decode_core(said[_CORE]) if said[_CORE] else None
    signature = parse_signature(head.removeprefix("# "))
    return Suspect(parse(text), signature, said[_SEEN_AT], core, source=said[_SOURCE])
