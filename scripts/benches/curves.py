"""What campaigns found over CPU time as one picture: faults and features of each arm."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benches.rows import Told

SIZE = 9.0, 3.4  # inches
_STEPS = 100
COLOURS = ("#444444", "#4477aa", "#228833", "#ccbb44", "#cc3311", "#aa3377")

_Count = Callable[[Told, float], float]


def picture(runs: Sequence[Told], seconds: float) -> str:
    """The SVG: left planted faults, right features; a line is an arm's median, a band its range."""
    from fuzzer.export.plots import draw

    def panel(title: str, count: _Count) -> Callable[[Any], None]:
        return lambda axes: _panel(axes, title, runs, seconds, count)

    faults = panel("faults", lambda run, cpu: len(run.faults(cpu)))
    features = panel("features", lambda run, cpu: run.at(cpu)[0])
    return draw("curves", SIZE, faults, features, paper=True) + "\n"


def _panel(axes: Any, title: str, runs: Sequence[Told], seconds: float, count: _Count) -> None:
    """One of the two diagrams, on matplotlib's axes."""
    moments = [seconds * step / _STEPS for step in range(_STEPS + 1)]
    for number, arm in enumerate(dict.fromkeys(run.arm for run in runs)):
        columns = [[count(run, cpu) for run in runs if run.arm == arm] for cpu in moments]
        colour = COLOURS[number % len(COLOURS)]
        axes.fill_between(moments, [min(c) for c in columns], [max(c) for c in columns], color=colour, alpha=0.1)
        axes.plot(moments, [statistics.median(c) for c in columns], color=colour, label=arm, gid=f"{title}-{arm}")
    axes.set(title=title, xlabel="CPU s", xlim=(0, seconds), ylim=(0, None))
    axes.legend(loc="lower right")
