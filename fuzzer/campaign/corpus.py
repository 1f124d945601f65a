"""The programs that a campaign keeps: a folder of `.prog` files, an index of their features, and the state to go on
from.

index.jsonl   first the place where the features were seen, then a line for each kept program
state.json    the seed and the options of drawing, and the number of the next program
ID.prog       a program that showed a feature which no program before it showed
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Self

from fuzzer.campaign.bounds import MOST_KEPT
from fuzzer.campaign.told.written import append_line, replace_file
from fuzzer.coverage.frontier import Frontier, KeptProgram, packed, set_cover
from fuzzer.language.errors import UsageError
from fuzzer.language.text import identify, parse
from fuzzer.workers.messages import Report

INDEX_FILE, STATE_FILE = "index.jsonl", "state.json"


class Corpus:
    """An open corpus: its kept programs and its frontier.

    place: versions, backend and device; features that were seen at different places are not compared.
    most:  programs that it keeps.
    """

    def __init__(self, folder: Path, place: dict[str, str], most: int = MOST_KEPT):
        self.folder, self.place, self.most = folder, place, most
        self.kept: list[KeptProgram] = []
        self.frontier = Frontier()

    def start(self) -> Self:
        """Begin an empty corpus. Files that are in the folder are moved aside, under the first free name."""
        if self.folder.exists():
            aside = (self.folder.with_name(f"{self.folder.name}-{n}") for n in range(1, 1 << 20))
            self.folder.rename(next(path for path in aside if not path.exists()))
        self.folder.mkdir(parents=True)
        self._append({"place": self.place})
        return self

    @property
    def full(self) -> bool:
        """Whether it keeps no more: a larger `fuzz --keep`, or `backfuzz cmin`, makes room."""
        return len(self.kept) >= self.most

    def learn(self, report: Report) -> Counter[str]:
        """Count a program; keep it if it shows something new. How many features were new, by family; none once it is
        full."""
        self.frontier.count()
        if self.full:
            return Counter()
        new = self.frontier.new(report.features)
        if new:
            program = parse(report.text)
            seconds = round(report.seconds.get("subject", 0.0), 3)
            features = {
                name: packed(self.frontier.countable(name, numbers)) for name, numbers in report.features.items()
            }
            self.keep(KeptProgram(len(program.nodes), seconds, identify(program), features), report.text)
        return new

    def text(self, kept: KeptProgram) -> str:
        return (self.folder / f"{kept.id}.prog").read_text()

    def keep(self, kept: KeptProgram, text: str) -> None:
        """Write a program and its line of the index."""
        replace_file(self.folder / f"{kept.id}.prog", text.encode())
        self.enter(kept)
        self._append(index_row(kept))

    def enter(self, kept: KeptProgram) -> None:
        """Count in a program that is in the folder already."""
        self.kept.append(kept)
        self.frontier.add(kept)

    def _append(self, line: dict[str, Any]) -> None:
        append_line(self.folder / INDEX_FILE, json.dumps(line))

    def save(self, state: dict[str, Any]) -> None:
        """Write the state from which the campaign goes on, whole or not at all: a new file takes the place of the old
        one."""
        counted = {"programs": self.frontier.programs, "moved": self.frontier.last_new}
        replace_file(self.folder / STATE_FILE, json.dumps(state | counted).encode())

    def state(self) -> dict[str, Any]:
        """What was saved last; the counts are taken over. Raises UsageError."""
        try:
            state: dict[str, Any] = json.loads((self.folder / STATE_FILE).read_text())
            self.frontier.programs, self.frontier.last_new = state.pop("programs"), state.pop("moved")
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"{self.folder} cannot be resumed: {error!r}; fuzz without --resume begins anew") from None
        return state


def index_row(kept: KeptProgram) -> dict[str, Any]:
    """A line of the index."""
    features = {family: numbers.tolist() for family, numbers in kept.features.items()}
    return {"program": kept.id, "nodes": kept.nodes, "seconds": kept.seconds, "features": features}


def load_corpus(folder: Path) -> Corpus:
    """The corpus in this folder. A last line that was cut off is left out. Raises UsageError."""
    try:
        lines = (folder / INDEX_FILE).read_text().splitlines(keepends=True)
        found = Corpus(folder, json.loads(lines[0])["place"])
        for line in lines[1:]:
            if line.endswith("\n"):
                read = json.loads(line)
                features = {family: packed(numbers) for family, numbers in read["features"].items()}
                found.enter(KeptProgram(read["nodes"], read["seconds"], read["program"], features))
    except OSError as error:
        raise UsageError(f"no corpus in {folder} ({error.strerror}); fuzz makes one") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise UsageError(f"{folder / INDEX_FILE} is not the index of a corpus: {error!r}") from None
    return found


def resume_corpus(folder: Path, place: dict[str, str], most: int = MOST_KEPT) -> tuple[Corpus, dict[str, Any]]:
    """The corpus in this folder, which may keep so many programs, and its state, to go on with at this place.
    UsageError where that is another."""
    found = load_corpus(folder)
    found.most = most
    for name in found.place.keys() | place.keys():
        then, now = found.place.get(name, "none"), place.get(name, "none")
        if then != now:
            raise UsageError(
                f"{folder} was made with {name} {then}, this is {now}: what programs exercise does not compare. "
                f"Go on with {then}, or begin a new corpus without --resume (this one is put aside)"
            )
    return found, found.state()


def distil(corpus: Corpus, out: Path) -> list[KeptProgram]:
    """Write those programs into a corpus at `out` that together show every feature; it may be the same folder.

    Raises UsageError where something else is there.
    """
    if out.exists() and out.resolve() != corpus.folder.resolve():
        raise UsageError(f"{out} exists already; --out names a folder that does not")
    chosen = set_cover(corpus.kept)
    fresh = out.with_name(f"{out.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    reduced = Corpus(fresh, corpus.place).start()
    for kept in chosen:
        reduced.keep(kept, corpus.text(kept))
    for path in corpus.folder.iterdir():  # what else a campaign goes on with
        if path.suffix != ".prog" and path.name != INDEX_FILE:
            shutil.copy(path, fresh)
    if out.exists():
        shutil.rmtree(out)
    fresh.rename(out)
    return chosen
