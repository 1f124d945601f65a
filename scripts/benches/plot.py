"""The ratios of legal results and of faults as one picture: an SVG, written by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from benches.calibrate import BINS_PER_DECADE
from fuzzer.rounding.floors import FACTOR

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 860, 320, 50, 50, 30
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
    shown = (
        (columns(legal["ratios"]["subject"].values()), _LEGAL),
        (columns(planted["ratios"]["planted"].values()), _FAULT),
    )
    top = max(max(shares) for shares, _ in shown)
    bars = [bar for shares, colour in shown for bar in _drawn(shares, top, colour)]
    line = _x_of(math.log10(FACTOR) - _FIRST)
    counts = sum(sum(h.values()) for h in legal["ratios"]["subject"].values()), sum(planted["faults"].values())
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
            'font-size="12">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            *bars,
            *_axis(top),
            f'<line x1="{line:.1f}" x2="{line:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="black" '
            'stroke-dasharray="4 3"/>',
            f'<text x="{line + 4:.1f}" y="{_TOP + 12}">factor {FACTOR:g}: '
            "beyond it the first look is suspicious</text>",
            f'<text x="{_LEFT}" y="18" fill="{_LEGAL}">legal results, {counts[0]} tensors</text>',
            f'<text x="{_LEFT + 220}" y="18" fill="{_FAULT}">planted faults, {counts[1]} tensors</text>',
            f'<text x="{_LEFT}" y="{_HEIGHT - 12}">|value - reference| / largest deviation of the first look; the '
            "first column holds exact results, the last errors where no rounding is legal</text>",
            "</svg>\n",
        ]
    )


def _x_of(decades: float) -> float:
    return _LEFT + decades / (_LAST - _FIRST) * (_WIDTH - _LEFT - 20)


def _drawn(shares: list[float], top: float, colour: str) -> Iterable[str]:
    width = _PER_COLUMN / BINS_PER_DECADE
    for at, share in enumerate(shares):
        if share:
            x, wide = _x_of(at * width), _x_of(width) - _x_of(0)
            high = share / top * (_HEIGHT - _BOTTOM - _TOP)
            yield (
                f'<rect x="{x:.1f}" y="{_HEIGHT - _BOTTOM - high:.1f}" width="{wide - 0.5:.1f}" height="{high:.1f}" '
                f'fill="{colour}" fill-opacity="0.6"/>'
            )


def _axis(top: float) -> Iterable[str]:
    base = _HEIGHT - _BOTTOM
    yield f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{base}" y2="{base}" stroke="black"/>'
    for decade in range(_FIRST, _LAST + 1, 2):
        yield f'<text x="{_x_of(decade - _FIRST):.1f}" y="{base + 16}" text-anchor="middle">1e{decade}</text>'
    yield f'<text x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{100 * top:.0f} %</text>'
