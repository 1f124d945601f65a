"""Which cells a campaign's programs met, and which are empty, of those that the table of ops says there can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fuzzer.campaign.corpus import Corpus
from fuzzer.coverage.features import feature_id
from fuzzer.language.ops.spec import Limits

_NAMED = 6  # empty cells that a line names


@dataclass(frozen=True)
class Family:
    """The cells of a family that there can be.

    empty   those that no program met, in order.
    beside  cells that were met and of which the table does not say that they can be.
    untold  operands or attributes of which it does not say what they can be.
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
    """The families of a corpus whose programs told their cells, of which it is known how many there can be; none of
    another. state: of the campaign (`Corpus.state`)."""
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
