"""Which functions of the compiler, and which cells, the programs of a campaign reached: an audit of the generator, for
`backfuzz status`."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from fuzzer.campaign.corpus import Corpus
from fuzzer.coverage.features import LINES, feature_id
from fuzzer.coverage.lines import compiler_files, line_word
from fuzzer.language.errors import UsageError
from fuzzer.language.ops.spec import Limits


@dataclass(frozen=True)
class Function:
    """A function of a file: its qualified name, its first line, the number of lines of its body, and how many of these
    were reached. Functions inside it are listed by themselves and are no part of its body."""

    name: str
    line: int
    lines: int
    reached: int


@dataclass(frozen=True)
class File:
    """A file of the compiler. Lines outside of functions run on import, whoever imports, and are not counted."""

    name: str
    lines: int
    reached: int
    functions: tuple[Function, ...]

    @property
    def unreached(self) -> tuple[Function, ...]:
        """The functions of which no line was reached."""
        return tuple(function for function in self.functions if not function.reached)

    def row(self) -> dict[str, Any]:
        """As plain values."""
        never = [f"{function.name}:{function.line}" for function in self.unreached]
        counts = {"lines": self.lines, "lines_reached": self.reached, "functions": len(self.functions)}
        return {"file": self.name, **counts, "never": never}


def audit(corpus: Corpus) -> list[File]:
    """Every file of the compiler that has functions, and what the corpus' programs reached of it.

    Raises UsageError where no lines were recorded, or those of another torch.
    """
    import torch

    if (other := corpus.place.get("torch")) != torch.__version__:
        raise UsageError(f"{corpus.folder} was made with torch {other}, this is {torch.__version__}, of other lines")
    known = corpus.frontier.best
    if not any(corpus.frontier.families[family] for family in LINES):
        raise UsageError(f"no lines of the compiler were recorded for {corpus.folder}; fuzz --lines does that")
    every = (
        functions_of_file(Path(path), name, lambda text: feature_id(LINES[0], text) in known)
        for path, name in compiler_files().items()
    )
    return [file for file in every if file.functions]


def functions_of_file(path: Path, name: str, reached: Callable[[str], bool]) -> File:
    """The functions of a file. `reached` tells of a line, as a feature names it, whether it was reached."""
    found = list(_functions(compile(path.read_bytes(), str(path), "exec", dont_inherit=True)))
    hit = {line: reached(line_word(name, line)) for _, lines in found for line in lines}
    own = [(code, lines) for code, lines in found if not code.co_name.startswith("<")]  # lambdas and comprehensions
    functions = (
        Function(code.co_qualname.replace(".<locals>", ""), code.co_firstlineno, len(lines), sum(hit[n] for n in lines))
        for code, lines in own
    )
    return File(name, len(hit), sum(hit.values()), tuple(sorted(functions, key=lambda f: f.line)))


def _functions(code: CodeType) -> Iterator[tuple[CodeType, set[int]]]:
    """The functions inside, and the lines of their bodies."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & inspect.CO_OPTIMIZED:  # no body of a class
                lines = {line for _, _, line in inner.co_lines() if line}
                yield inner, lines - {inner.co_firstlineno} or lines  # the line of `def` is no part, unless it is all
            yield from _functions(inner)


def audit_totals(audited: Sequence[File]) -> dict[str, int]:
    """Lines, functions and files, and how many of each were reached."""
    return {
        "lines": sum(file.lines for file in audited),
        "lines_reached": sum(file.reached for file in audited),
        "functions": sum(len(file.functions) for file in audited),
        "functions_reached": sum(len(file.functions) - len(file.unreached) for file in audited),
        "files": len(audited),
        "files_reached": sum(file.reached > 0 for file in audited),
    }


_WIDTH = 120  # of the text, in columns


def report_lines(audited: Sequence[File]) -> Iterator[str]:
    """The audit as lines of text: what was reached of each file, and the functions that nobody reached."""
    total = audit_totals(audited)
    yield ", ".join(f"{total[f'{w}_reached']} of {total[w]} {w}" for w in ("lines", "functions", "files")) + " reached"
    for file in (file for file in audited if file.reached):
        functions = f"{len(file.functions) - len(file.unreached)} of {len(file.functions)} functions"
        yield f"{file.name}: {file.reached} of {file.lines} lines, {functions}" + "; never:" * bool(file.unreached)
        names = " ".join(f"{function.name}:{function.line}" for function in file.unreached)
        yield from textwrap.wrap(names, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
    for file in (file for file in audited if not file.reached):
        yield f"{file.name}: none of {len(file.functions)} functions"


_NAMED = 6  # empty cells that a line names


@dataclass(frozen=True)
class Family:
    """The possible cells of a family, and those that a campaign's programs filled.

    possible  how many the table of ops lists.  empty   those that no program filled, in order.
    beside    how many were filled that the table does not list.
    untold    operands or attributes whose possible values the table does not tell.
    """

    possible: int
    empty: tuple[str, ...]
    beside: int
    untold: int

    def row(self) -> dict[str, Any]:
        """Plain values."""
        told = {"possible": self.possible, "met": self.possible - len(self.empty)}
        return told | {"empty": list(self.empty), "beside": self.beside, "untold": self.untold}


def filled(corpus: Corpus, state: Mapping[str, Any]) -> dict[str, Family]:
    """The families of cells of which the corpus' programs told theirs and the table knows how many there can be. state:
    of the campaign (`Corpus.state`)."""
    if not state.get("cells"):
        return {}
    from fuzzer.coverage.cells import possible_cells  # what they need takes longer than all else that `status` does
    from fuzzer.generation.generate import drawable
    from fuzzer.generation.vocabulary import vocabulary

    bounds: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in state["limits"].items()}
    limits = Limits(**bounds)
    ops = drawable(vocabulary(limits, tuple(state["ops"])), tuple(state["routes"]), portable=False)
    found = {}
    for family, possible in possible_cells(ops, limits).items():
        empty = sorted(word for word in possible.known if feature_id(family, word) not in corpus.frontier.best)
        met = len(possible.known) - len(empty)
        beside = corpus.frontier.families[family] - met
        found[family] = Family(len(possible.known), tuple(empty), beside, possible.unknown)
    return found


def cell_lines(families: Mapping[str, Family]) -> Iterator[str]:
    """A line for each family."""
    for name, family in families.items():
        beside = f", {family.beside} beside them" if family.beside else ""
        more = len(family.empty) - _NAMED
        empty = "; ".join(family.empty[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        met = f"cells of {name}: {family.possible - len(family.empty)} of {family.possible} met{beside}"
        yield met + (f", empty: {empty}" if family.empty else "")
