"""Knobs: the probabilities by which programs are generated. A knob is a field here and a row of CHOICES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fuzzer.language.program import Value
from fuzzer.language.settings import PROFILES


@dataclass(frozen=True)
class Knobs:
    """The probabilities by which programs are generated; the defaults are those of a blind campaign.

    nodes     k nodes are drawn as often as 1 / k ** nodes. Known backward faults need one to three, often next to a
              leaf, and small programs compile sooner.
    dtype     of the floating leaves; "": by DTYPE_WEIGHTS.
    dense     the share of leaves that are dense; others are permuted, have gaps, are broadcast or overlap.
    reuse     the share of operands that are earlier values, where one fits; others are new leaves.
    closed    the share of loose results that end in an op whose backward passes on a cotangent of a particular layout.
    family    of half of the nodes; "": every family is as likely.
    settings  a profile of compiler settings (`settings.PROFILES`).
    histories the share of programs that begin with a history of one value's memory (`history.py`).
    """

    nodes: float = 1.0
    dtype: str = ""
    dense: float = 0.6
    reuse: float = 0.6
    closed: float = 0.75
    family: str = ""
    settings: str = "usual"
    histories: float = 0.06

    def non_default(self) -> dict[str, Value]:
        """The knobs that do not stand at their defaults."""
        return {name: value for name, value in asdict(self).items() if value != getattr(USUAL, name)}


USUAL = Knobs()

# Values worth trying beside the default; those of dtype and family depend on the dtypes and ops in use.
CHOICES: dict[str, tuple[Any, ...]] = {
    "nodes": (3.0, 0.0),
    "dense": (0.9, 0.3),
    "reuse": (0.3, 0.9),
    "closed": (0.25, 1.0),
    "settings": tuple(name for name in PROFILES if name != USUAL.settings),
    "histories": (0.5,),
}


def choices(dtypes: Sequence[str], families: Sequence[str]) -> Mapping[str, tuple[Any, ...]]:
    """The values of every knob, its default first."""
    tried = CHOICES | {"dtype": tuple(dtypes), "family": tuple(families)}
    return {name: (default, *tried[name]) for name, default in asdict(USUAL).items()}
