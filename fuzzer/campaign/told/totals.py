"""The counts of a campaign, and how fast it is now."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fuzzer.judgement.verdict import CLASSES, FINDINGS, parse_signature
from fuzzer.workers.messages import Report

BROUGHT = ("programs", "cpu", "suspects", "keys", "faults")  # `Totals.brought`


@dataclass
class Totals:
    """Counts of a campaign; `summary` is the JSON object that `fuzz --json` prints last."""

    drawn: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    redrawn: int = 0
    forward: int = 0  # programs without a gradient
    detectable: int = 0
    elements: int = 0
    elements_seen: int = 0
    elements_deaf: int = 0
    new: Counter[str] = field(default_factory=Counter)  # faults, by class
    severities: Counter[str] = field(default_factory=Counter)  # of the new faults, "S1" to "S5"
    last_new: str = ""  # the finding of the newest fault
    variants: Counter[str] = field(default_factory=Counter)  # new findings of faults that were known, by class
    known: Counter[str] = field(default_factory=Counter)  # suspects that ended at what was known, by class
    recognised: dict[str, Counter[str]] = field(default_factory=dict)  # keys that are a fault, and experiments for it
    minimized: int = 0  # suspects
    suspects: Counter[str] = field(default_factory=Counter)  # by class; drawn programs that differed
    slips: Counter[str] = field(default_factory=Counter)  # candidates that showed another finding than their suspect
    keys: int = 0  # clusters of sorted suspects
    joined: Counter[str] = field(default_factory=Counter)  # suspects whose key was there already, by class
    set_aside: Counter[str] = field(default_factory=Counter)  # suspects without a key, by why none is wanted
    dropped: int = 0  # suspects for which there was no room
    forgotten: int = 0  # keys that were decided, for which there was no room
    told: int = 0  # keys that no known fault explained and one build bore out
    explained: int = 0  # keys that are a known fault
    unexplained: int = 0  # keys that no known fault explained when they came
    open: dict[str, int] = field(default_factory=dict)  # drawn suspects without a key, keys without a verdict
    unconfirmed: dict[str, str] = field(default_factory=dict)  # lines that were told of keys, until these are settled
    first_unexplained: float | None = None  # seconds until the first wrong result that no known fault explains
    steps: Counter[str] = field(default_factory=Counter)  # CPU seconds of triage, by step
    legal: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0  # of exploring
    wall_seconds: float = 0.0  # from the start to the end of triage
    phases: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)  # programs judged at a stage and not built
    built: Counter[str] = field(default_factory=Counter)  # programs that a stage could not run, by why
    sources: dict[str, Counter[str]] = field(default_factory=dict)  # what programs of each source brought

    @property
    def programs(self) -> int:
        """Programs that ran."""
        return self.drawn - self.classes["rejected"]

    @property
    def differentiated(self) -> int:
        """Of these, those with a gradient."""
        return self.programs - self.forward

    def count(self, report: Report) -> None:
        self.drawn += 1
        self.classes[report.verdict] += 1
        if report.rejected:
            self.rejected[report.rejected.split(":")[0]] += 1
        self.legal.update(str(v.signature) for v in report.verdicts if v.signature.verdict == "agree")
        self.redrawn += report.redrawn
        self.forward += report.forward
        self.detectable += report.detectable > 0
        self.elements_seen += report.detectable
        self.elements_deaf += report.deaf
        self.elements += report.elements
        self.phases.update(report.seconds)
        if report.stage:
            self.stages[report.stage] += 1
        if report.built:
            self.built[report.built] += 1

    def brought(self, source: str, **counts: float) -> None:
        """Add to what programs of a source brought: programs that ran, their cpu seconds, suspects, keys that were the
        first of their kind, new faults."""
        self.sources.setdefault(source, Counter()).update(counts)  # type: ignore[arg-type]

    def legal_by_pattern(self) -> dict[str, int]:
        """Legal differences that were counted, by their patterns."""
        found = Counter[str]()
        for signature, count in self.legal.items():
            found[parse_signature(signature).pattern] += count
        return dict(found)

    def cpu_by_step(self) -> dict[str, float]:
        """CPU seconds by what they were spent on; their sum is all that the workers took since exploring began."""
        drawing = min(self.phases["generate"], self.phases["cpu"])
        found = {"drawing": drawing, "judging": self.phases["cpu"] - drawing, **self.steps}
        return {name: round(seconds, 1) for name, seconds in found.items()}

    def triage(self) -> dict[str, Any]:
        """How far suspects are, and what each step took."""
        return {
            "suspects": dict(self.suspects),
            "slips": dict(self.slips),
            "keys": self.keys,
            "joined": self.joined.total(),
            "set_aside": dict(self.set_aside),
            "dropped": self.dropped,
            "forgotten_keys": self.forgotten,
            "explained": self.explained,
            "unexplained": self.unexplained,
            "told": self.told,
            "unsettled": len(self.unconfirmed),
            **self.open,
            "first_unexplained_wrong_seconds": self.first_unexplained and round(self.first_unexplained, 1),
            "cpu_seconds": self.cpu_by_step(),
        }

    def summary(self) -> dict[str, Any]:
        phases = {name: round(spent, 1) for name, spent in sorted(self.phases.items())}
        return {
            "programs": self.programs,
            "programs_per_s": round(self.programs / self.seconds, 3) if self.seconds else 0.0,
            "detectable_share": round(self.detectable / max(self.differentiated, 1), 4),
            "without_gradient": self.forward,
            "detectable_elements_share": round(self.elements_seen / max(self.elements, 1), 4),
            "deaf_elements_share": round(self.elements_deaf / max(self.elements, 1), 4),
            "redrawn_share": round(self.redrawn / max(self.drawn + self.redrawn, 1), 4),
            "rejected_share": round(self.classes["rejected"] / max(self.drawn, 1), 4),
            "findings": {name: self.new[name] for name in FINDINGS if self.new[name]},
            "severities": dict(sorted(self.severities.items())),
            "variants": {name: self.variants[name] for name in FINDINGS if self.variants[name]},
            "known_findings": {name: self.known[name] for name in FINDINGS if self.known[name]},
            "recognised": {fault: dict(each) for fault, each in sorted(self.recognised.items())},
            "minimized": self.minimized,
            "unconfirmed": list(self.unconfirmed.values()),
            "triage": self.triage(),
            "classes": {name: self.classes[name] for name in CLASSES if self.classes[name]},
            "legal_differences": dict(self.legal),
            "stages": dict(self.stages),
            "built": dict(self.built),
            "sources": {
                name: {what: round(counts[what], 1) for what in BROUGHT}
                for name, counts in sorted(self.sources.items())
            },
            "seconds": round(self.seconds, 1),
            "wall_seconds": round(self.wall_seconds, 1),
            "cpu_seconds": phases.pop("cpu", 0.0),
            "worker_seconds": phases,
        }


# "Now": a worker of inductor has a batch of 32 programs at once, and tells of all of them when it ends, which takes it
# half a minute to a minute.
NOW_SECONDS = 120.0
_APART_SECONDS = 1.0  # between two moments that are kept
CODE = "code"  # the stage of programs that were built


@dataclass(frozen=True)
class Moment:
    """The programs that had run by then, by stage, in seconds since exploring began."""

    seconds: float
    programs: Mapping[str, int]


class Pace:
    """Looks at a campaign's totals now and then.

    last_new   when the last new fault came, in seconds since exploring began; None where there is none yet.
    """

    def __init__(self) -> None:
        self.moments: deque[Moment] = deque([Moment(0.0, {})])
        self.last_new: float | None = None
        self.new = 0

    def look(self, seconds: float, totals: Totals) -> None:
        """Note the counts, so many seconds after exploring began."""
        if (new := totals.new.total()) > self.new:
            self.new, self.last_new = new, seconds
        if seconds - self.moments[-1].seconds < _APART_SECONDS and len(self.moments) > 1:
            return
        self.moments.append(Moment(seconds, by_stage(totals)))
        while len(self.moments) > 2 and seconds - self.moments[1].seconds >= NOW_SECONDS:
            self.moments.popleft()

    def now(self) -> dict[str, float]:
        """Programs a second by stage, of late; of each stage at which programs ran by then."""
        first, last = self.moments[0], self.moments[-1]
        seconds = last.seconds - first.seconds
        return {s: (n - first.programs.get(s, 0)) / seconds if seconds else 0.0 for s, n in last.programs.items()}


def by_stage(totals: Totals) -> dict[str, int]:
    """How many programs ran at each stage: those that were judged at one and not built, and those that were built."""
    staged = dict(Counter(totals.stages))
    return staged | {CODE: max(0, totals.programs - sum(staged.values()))}
