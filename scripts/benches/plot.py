"""The ratios of legal results and of faults as one picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from benches.calibrate import BINS_PER_DECADE
from fuzzer.rounding.floors import FACTOR

_SIZE = 9.0, 3.6  # inches
_FIRST, _LAST = -4, 10  # decades shown; what lies beyond stands in the outermost columns
_PER_COLUMN = 2  # bins
_LEGAL, _FAULT = "#4477aa", "#cc3311"


def columns(histograms: Iterable[dict[str, int]]) -> list[float]:
    """Shares of all tensors by column; the first also holds what is exact, the last what no rounding explains."""
    counted: Counter[int] = Counter()
    last = (_LAST - _FIRST) * BINS_PER_DECADE // _PER_COLUMN - 1
    for histogram in histograms:
        for name, count in histogram.items():
            at = {"exact": 0, "inf": last}.get(name)
            if at is None:
                at = (int(name) - _FIRST * BINS_PER_DECADE) // _PER_COLUMN
            counted[min(max(at, 0), last)] += count
    total = max(counted.total(), 1)
    return [counted[at] / total for at in range(last + 1)]


def picture(legal: dict[str, Any], planted: dict[str, Any]) -> str:
    """The SVG of two JSON objects: of `calibrate` (its side on trial) and of `calibrate --planted`."""
    from fuzzer.export.plots import draw

    tensors = sum(sum(h.values()) for h in legal["ratios"]["subject"].values()), sum(planted["faults"].values())
    shown = (
        (columns(legal["ratios"]["subject"].values()), _LEGAL, f"legal results, {tensors[0]} tensors"),
        (columns(planted["ratios"]["planted"].values()), _FAULT, f"planted faults, {tensors[1]} tensors"),
    )
    width = _PER_COLUMN / BINS_PER_DECADE

    def fill(axes: Any) -> None:
        for shares, colour, label in shown:
            bars = [(_FIRST + at * width, 100 * share) for at, share in enumerate(shares) if share]
            axes.bar(*zip(*bars, strict=True), width=width, align="edge", color=colour, alpha=0.6, label=label)
        axes.axvline(math.log10(FACTOR), color="black", linestyle="--", linewidth=1)
        axes.annotate(
            f"factor {FACTOR:g}: beyond it the first look is suspicious",
            (math.log10(FACTOR), 0.95),
            (4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
        )
        axes.set_xticks(range(_FIRST, _LAST + 1, 2), [f"1e{decade}" for decade in range(_FIRST, _LAST + 1, 2)])
        axes.set(xlim=(_FIRST, _LAST), ylabel="% of tensors")
        axes.set_xlabel(
            "|value - reference| / largest deviation of the first look;\n"
            "the first column holds exact results, the last errors where no rounding is legal"
        )
        axes.legend(loc="center right", bbox_to_anchor=(0.97, 0.5))

    return draw("ratios", _SIZE, fill, paper=True) + "\n"
