"""What campaigns found over CPU time as one picture: faults and features of each arm, an SVG written by hand."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from benches.rows import Told

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _GAP = 860, 320, 50, 40, 30, 60
_STEPS = 100
_COLOURS = ("#444444", "#4477aa", "#228833", "#ccbb44", "#cc3311", "#aa3377")

_Count = Callable[[Told, float], float]


def picture(runs: Sequence[Told], seconds: float) -> str:
    """The SVG: left planted faults, right features; a line is an arm's median, a band its range."""
    arms = list(dict.fromkeys(run.arm for run in runs))
    wide = (_WIDTH - _LEFT - _GAP) / 2 - 10
    panels: tuple[tuple[str, float, _Count], ...] = (
        ("faults", _LEFT, lambda run, cpu: len(run.faults(cpu))),
        ("features", _LEFT + wide + _GAP, lambda run, cpu: run.at(cpu)[0]),
    )
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
             f'font-size="12"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>']  # fmt: skip
    for title, left, count in panels:
        parts += _panel(title, runs, arms, seconds, left, wide, count)
    for number, arm in enumerate(arms):
        parts.append(f'<text x="{_LEFT + 110 + 90 * number}" y="18" fill="{_COLOURS[number % 6]}">{arm}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    title: str, runs: Sequence[Told], arms: Sequence[str], seconds: float, left: float, wide: float, count: _Count
) -> Iterable[str]:
    """One of the two diagrams."""
    moments = [seconds * step / _STEPS for step in range(_STEPS + 1)]
    most = max([count(run, seconds) for run in runs] + [1])
    base, high = _HEIGHT - _BOTTOM, _HEIGHT - _BOTTOM - _TOP

    def points(values: Iterable[float]) -> list[str]:
        return [f"{left + wide * n / _STEPS:.1f},{base - high * v / most:.1f}" for n, v in enumerate(values)]

    for number, arm in enumerate(arms):
        columns = [[count(run, cpu) for run in runs if run.arm == arm] for cpu in moments]
        colour = _COLOURS[number % len(_COLOURS)]
        band = points(map(max, columns)) + points(map(min, columns))[::-1]
        yield f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity="0.1"/>'
        line = " ".join(points(map(statistics.median, columns)))
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    yield f'<path d="M{left} {_TOP}V{base}H{left + wide:.1f}" fill="none" stroke="black"/>'
    yield f'<text x="{left}" y="{_TOP - 12}">{title}</text>'
    yield f'<text x="{left - 6}" y="{_TOP + 8}" text-anchor="end">{most:g}</text>'
    yield f'<text x="{left + wide:.1f}" y="{base + 16}" text-anchor="end">{seconds:.0f} CPU s</text>'
