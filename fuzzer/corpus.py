"""The programs that a guided campaign keeps: a folder of `.prog` files, an index of what they show, and where to go on.

index.jsonl   first the place where the features were seen, then a line for each kept program
state.json    what is drawn from, and the number of the next program
seen          how many programs showed each feature of a trace (`frontier.Seen`)
shown         the same of all features, with how often each was a goal
ID.prog       each showed a feature that none before it did
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fuzzer.execution.messages import Report, UsageError
from fuzzer.features import LINES
from fuzzer.frontier import Frontier, Kept, Seen, covering, packed
from fuzzer.text import identify, parse

INDEX, STATE, SEEN, SHOWN = "index.jsonl", "state.json", "seen", "shown"
GOALS = 16  # features, the rarest of which is the goal of a mutation


class Corpus:
    """An open corpus: its kept programs, its frontier and its counts.

    place: versions, backend and device; features that were seen at different places are not compared.
    """

    def __init__(self, folder: Path, place: dict[str, str]):
        self.folder, self.place = folder, place
        self.kept: list[Kept] = []
        self.frontier, self.seen, self.shown = Frontier(), Seen(), Seen()

    def start(self) -> Corpus:
        """Begin an empty one; what is in the folder is put aside, under the first free of its names."""
        if self.folder.exists():
            aside = (self.folder.with_name(f"{self.folder.name}-{n}") for n in range(1, 1 << 20))
            self.folder.rename(next(path for path in aside if not path.exists()))
        self.folder.mkdir(parents=True)
        self._append({"place": self.place})
        return self

    def learn(self, report: Report) -> Counter[str]:
        """Count a program; keep it if it shows something new. How many features were new, by family."""
        self.frontier.count()
        self.seen.add(report.features)
        self.shown.count(n for family, found in report.features.items() if family not in LINES for n in found)
        new = self.frontier.new(report.features)
        if new:
            program = parse(report.text)
            seconds = round(report.seconds.get("subject", 0.0), 3)
            features = {name: packed(self.frontier.told(name, numbers)) for name, numbers in report.features.items()}
            self.keep(Kept(len(program.nodes), seconds, identify(program), features), report.text)
        return new

    def parent(self, rng: random.Random) -> Kept:
        """A kept program by energy: the best one for a rare feature. Needs one kept program.

        The feature is the rarest of some; that it was a goal counts as one more program that showed it, so that goals
        from which nothing comes give way.
        """
        goals = (rng.choice(self.frontier.found) for _ in range(GOALS))
        goal = min(goals, key=self.shown.__getitem__)
        self.shown.count([goal])
        return self.frontier.best[goal]

    def text(self, kept: Kept) -> str:
        return (self.folder / f"{kept.id}.prog").read_text()

    def keep(self, kept: Kept, text: str) -> None:
        """Write a program and its line of the index."""
        (self.folder / f"{kept.id}.prog").write_text(text)
        self._enter(kept)
        self._append(row(kept))

    def _enter(self, kept: Kept) -> None:
        self.kept.append(kept)
        self.frontier.add(kept)

    def _append(self, line: dict[str, Any]) -> None:
        with (self.folder / INDEX).open("a") as index:
            index.write(json.dumps(line) + "\n")

    def save(self, state: dict[str, Any]) -> None:
        """Write down where to go on. Whole or not at all: a new file takes the place of the old one."""
        counted = {"programs": self.frontier.programs, "moved": self.frontier.moved}
        tables = (SEEN, self.seen.packed()), (SHOWN, self.shown.packed())
        for name, content in (*tables, (STATE, json.dumps(state | counted).encode())):
            (self.folder / f"{name}.new").write_bytes(content)
            (self.folder / f"{name}.new").replace(self.folder / name)

    def state(self) -> dict[str, Any]:
        """What was saved last; the counts are taken over. Raises UsageError."""
        try:
            state: dict[str, Any] = json.loads((self.folder / STATE).read_text())
            self.seen, self.shown = (Seen((self.folder / name).read_bytes()) for name in (SEEN, SHOWN))
            self.frontier.programs, self.frontier.moved = state.pop("programs"), state.pop("moved")
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"{self.folder} cannot be resumed: {error!r}; fuzz without --resume begins anew") from None
        return state


def row(kept: Kept) -> dict[str, Any]:
    """A line of the index."""
    features = {family: sorted(numbers) for family, numbers in kept.features.items()}
    return {"program": kept.id, "nodes": kept.nodes, "seconds": kept.seconds, "features": features}


def load(folder: Path) -> Corpus:
    """The corpus in this folder. A last line that was cut off is left out. Raises UsageError."""
    try:
        lines = (folder / INDEX).read_text().splitlines(keepends=True)
        found = Corpus(folder, json.loads(lines[0])["place"])
        for line in lines[1:]:
            if line.endswith("\n"):
                read = json.loads(line)
                features = {family: packed(numbers) for family, numbers in read["features"].items()}
                found._enter(Kept(read["nodes"], read["seconds"], read["program"], features))
    except OSError as error:
        raise UsageError(f"no corpus in {folder} ({error.strerror}); fuzz makes one") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise UsageError(f"{folder / INDEX} is not the index of a corpus: {error!r}") from None
    return found


def resumed(folder: Path, place: dict[str, str]) -> tuple[Corpus, dict[str, Any]]:
    """The corpus in this folder and its state, to go on with at this place. UsageError where that is another."""
    found = load(folder)
    for name in found.place.keys() | place.keys():
        then, now = found.place.get(name, "none"), place.get(name, "none")
        if then != now:
            raise UsageError(
                f"{folder} was made with {name} {then}, this is {now}: what programs exercise does not compare. "
                f"Go on with {then}, or begin a new corpus without --resume (this one is put aside)"
            )
    return found, found.state()


def reduce(corpus: Corpus, out: Path) -> list[Kept]:
    """Write those programs into a corpus at `out` that together show every feature; it may be the same folder.

    Raises UsageError where something else is there.
    """
    if out.exists() and out.resolve() != corpus.folder.resolve():
        raise UsageError(f"{out} exists already; --out names a folder that does not")
    chosen = covering(corpus.kept)
    fresh = out.with_name(f"{out.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    reduced = Corpus(fresh, corpus.place).start()
    for kept in chosen:
        reduced.keep(kept, corpus.text(kept))
    _copy((corpus.folder / name for name in (STATE, SEEN, SHOWN)), fresh)
    if out.exists():
        shutil.rmtree(out)
    fresh.rename(out)
    return chosen


def _copy(paths: Iterable[Path], folder: Path) -> None:
    for path in paths:
        if path.exists():
            shutil.copy(path, folder)
