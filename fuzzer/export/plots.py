"""The plots of a page, as SVG that needs nothing else. Needs matplotlib (the extra `report`)."""

from __future__ import annotations

import datetime
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fuzzer.export.gather import Contents, Pair, moment
from fuzzer.judgement.verdict import CLASSES
from fuzzer.language.ops import OPS
from fuzzer.language.pairs import LEAF
from fuzzer.ledger.progress import Point

# From Paul Tol's palettes (https://sronpersonalpages.nl/~pault), which colour-blind readers can tell apart.
COLORS = {"crashes": "#332288", "hangs": "#aa4499", "wrong": "#cc3311", "raises": "#ee7733",
          "nondeterministic": "#009988", "eager-suspect": "#0077bb", "nonfinite-differs": "#882255",
          "rounding-sensitive": "#33bbee", "narrowing-sensitive": "#bbbbbb", "signed-zero": "#117733",
          "costly": "#999933", "unsupported": "#999999"}  # fmt: skip
_LINES = ("#0077bb", "#cc3311", "#009988", "#ee7733", "#332288", "#999933", "#aa4499", "#117733", "#33bbee", "#999999")
_SIZE = 4.6, 2.7  # inches: the width of a phone's screen at a readable size of text
_STYLE = {"svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
          "axes.grid": True, "grid.color": "#e3e3e3", "legend.frameon": False, "legend.fontsize": 8}  # fmt: skip


def draw(name: str, size: tuple[float, float], *fills: Callable[[Axes], None], paper: bool = False) -> str:
    """The SVG of one plot, or of several side by side, reproducible byte by byte; size: of all, in inches. `name` keeps
    its ids different from others on the page.  paper: with a white background, for a page of any colour."""
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        for place, fill in enumerate(fills, 1):
            fill(figure.add_subplot(1, len(fills), place))
        out = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=not paper, metadata=nothing)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    return re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', rf'<svg {_NAMESPACES} viewBox="\1" role="img">', svg, count=1)


_NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


def _times(axes: Axes) -> None:
    """Dates along x, as short as possible."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


# ---------------------------------------------------------------- discoveries


def discoveries(contents: Contents) -> str:
    """The number of known faults over time, by class; "" where no time is known."""
    seen = [(at, fault.verdict) for fault in contents.faults if (at := moment(fault.first_seen))]
    ends = [at for at, _ in seen]
    for campaign in contents.campaigns:
        if at := moment(campaign.started):
            ends += [at, at + datetime.timedelta(seconds=campaign.seconds)]
    if not seen:
        return ""
    first, last = min(ends), max(max(ends), min(ends) + _LEAST_TIME)

    def place(at: datetime.datetime) -> Any:
        return (at - first).total_seconds() / 60 if contents.one else at

    def fill(axes: Axes) -> None:
        for name in CLASSES:
            times = sorted(at for at, verdict in seen if verdict == name)
            if times:
                counts = [0, *range(1, len(times) + 1), len(times)]
                label = f"{name} ({len(times)})"
                axes.step(list(map(place, [first, *times, last])), counts, where="post", color=COLORS.get(name),
                          label=label)  # fmt: skip
        _name_counts(axes, "faults")
        axes.legend(loc="upper left")
        if contents.one:
            axes.set_xlabel("minutes")
        else:
            _times(axes)

    return draw("discoveries", _SIZE, fill)


_LEAST_TIME = datetime.timedelta(minutes=1)  # along x, so that a single fault makes a plot


def _name_counts(axes: Axes, name: str) -> None:
    """Whole numbers along y, from 0, with room above for a legend."""
    from matplotlib.ticker import MaxNLocator

    axes.set_ylabel(name)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_ylim(0, 1.1 * max(1, axes.get_ylim()[1]))


# ---------------------------------------------------------------- programs a second


def speed(contents: Contents) -> str:
    """Programs a second: of each campaign, or over the time of one; "" where none was measured."""
    if contents.one:
        (points,) = contents.points.values() or ((),)
        return _speed_over_time(points)
    shown = [(at, rate, c.place.get("device", "?")) for c in contents.campaigns
             if (rate := c.totals.get("programs_per_s")) and (at := moment(c.started))]  # fmt: skip
    return _speed_of_campaigns(shown) if shown else ""


def _speed_of_campaigns(shown: Sequence[tuple[datetime.datetime, float, str]]) -> str:
    def fill(axes: Axes) -> None:
        for color, device in zip(_LINES, sorted({device for _, _, device in shown}), strict=False):
            rows = [(at, rate) for at, rate, other in shown if other == device]
            axes.plot(*zip(*rows, strict=True), "o", color=color, label=device)  # type: ignore[arg-type]
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axes.set_ylabel("programs a second")
        axes.legend()
        _times(axes)

    return draw("speed", _SIZE, fill)


def _speed_over_time(points: Sequence[Point]) -> str:
    started = [Point(0.0, 0, {}, {}), *points]
    if len(points) > 1 and 2 * (points[-1].seconds - points[-2].seconds) < points[-2].seconds - started[-3].seconds:
        points = points[:-1]  # the campaign ended soon after: too short for a rate
    rates = [(b.seconds / 60, (b.programs - a.programs) / (b.seconds - a.seconds))
             for a, b in zip(started, points, strict=False) if b.seconds > a.seconds]  # fmt: skip
    if not rates:
        return ""

    def fill(axes: Axes) -> None:
        axes.plot(*zip(*rates, strict=True), color=_LINES[0])  # type: ignore[arg-type]
        axes.set_ylabel("programs a second")
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)

    return draw("speed", _SIZE, fill)


# ---------------------------------------------------------------- features


def features(contents: Contents) -> tuple[str, str]:
    """The number of features seen over time, by family, in the last campaign that recorded them, and its name; ""
    without any."""
    recorded = [(name, points) for name, points in contents.points.items() if any(p.features for p in points)]
    if not recorded:
        return "", ""
    name, points = recorded[-1]
    last = Counter(points[-1].features)

    def fill(axes: Axes) -> None:
        minutes = [0.0, *(p.seconds / 60 for p in points)]
        for color, (family, most) in zip(_LINES, last.most_common(), strict=False):
            shares = [0.0, *(p.features.get(family, 0) / most for p in points)]
            axes.plot(minutes, shares, color=color, label=f"{family} ({most})")
        axes.set_ylabel("share of those at the end")
        axes.set_xlabel("minutes")
        axes.set_ylim(0, 1.05)
        axes.legend(loc="lower right")

    return draw("features", _SIZE, fill), name


# ---------------------------------------------------------------- pairs


def pairs(contents: Contents) -> str:
    """By families: in how many programs one family made a value that another reads, and in how many faults; "" without
    any."""
    exercised, at_fault = by_family(contents.exercised), by_family(contents.at_fault)
    if not exercised and not at_fault:
        return ""
    known = Counter({family: n for (_, family), n in (exercised + at_fault).items()})
    readers = sorted(known)
    makers = [LEAF, *sorted({maker for maker, _ in exercised | at_fault} - {LEAF})]

    def fill(axes: Axes) -> None:
        import matplotlib.colors as colors

        counts = [[exercised[maker, reader] or float("nan") for reader in readers] for maker in makers]
        top = max([2, *exercised.values()])
        axes.pcolormesh(counts, cmap="Blues", norm=colors.LogNorm(0.3, top), edgecolors="white", linewidth=0.5)
        marks = [(readers.index(reader), makers.index(maker), n) for (maker, reader), n in at_fault.items()]
        for x, y, n in marks:
            axes.plot(x + 0.5, y + 0.5, "o", color=COLORS["wrong"], markersize=2.5 + min(n, 9) ** 0.5 * 1.6)
        axes.set_xticks([x + 0.5 for x in range(len(readers))], readers, rotation=90, fontsize=7)
        axes.set_yticks([y + 0.5 for y in range(len(makers))], makers, fontsize=7)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.set_xlabel("reads it")
        axes.set_ylabel("makes a value")
        axes.grid(False)

    side = 1.3 + 0.155 * max(len(readers), 12)
    return draw("pairs", (side, 1.3 + 0.155 * max(len(makers), 8)), fill)


def by_family(pairs: Any) -> Counter[Pair]:
    """Counts of pairs of operations, summed by their families; an unknown operation is its own family."""
    counted: Counter[Pair] = Counter()
    for (maker, reader), n in pairs.items():
        counted[_family(maker), _family(reader)] += n
    return counted


def _family(op: str) -> str:
    spec = OPS.get(op)
    return spec.family if spec else op
