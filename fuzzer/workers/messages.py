"""The messages between the campaign and its workers: Task and Report."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuzzer.coverage.features import Features
from fuzzer.judgement.trial import Place
from fuzzer.judgement.verdict import Verdict
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import Attributes, Recipe, Route


@dataclass(frozen=True)
class Task:
    """The options of a campaign that hold for all its programs."""

    place: Place = Place()
    seed: int = 0
    limits: Limits = Limits()
    routes: tuple[str, ...] = (Route().name,)
    fixed: Attributes = ()
    ops: tuple[str, ...] = ()  # names; none means all
    fresh: bool = False  # inductor's caches off, for verification and canaries
    canary: str = ""  # the name of a planted fault (`judgement.planted`), which acts on one side's run
    final: bool = True  # verdicts survive the rounding model's final look; exploration is content with suspects
    also: tuple[str, ...] = ()  # oracles that speak only where they are asked (`oracles.ASKED`)
    features: bool = False  # report what each program exercises
    lines: float = 0.0  # the share of programs for which features include the compiler's lines (`lines.record_lines`)
    campaign: str = ""  # its name: a worker reports a line of the compiler once for each
    forward: float = 0.0  # the share of programs without a gradient
    staged: float = 0.0  # the share of programs that are judged at STAGE and not built
    cells: bool = False  # programs are asked for cells by their numbers (`coverage.wishes`), and report theirs
    lacking: tuple[str, ...] = ()  # parts that inductor lacks (`private.without_part`), to find the part at fault


@dataclass(frozen=True)
class Report:
    """What a worker sends back of a trial: plain values, no tensors.

    text       the program; "" where none was drawn (reason says why).
    verdicts   what the oracles said, worst first; none means agree.
    rejected   why torch or the generator refused the program; "" where it ran.
    detectable, elements   gradient elements in which an error would exceed the floor, of all compared;  deaf   those
               whose floor is infinite or more than half of the value.
    gradients  that were compared and are not zero everywhere.
    seconds    by phase: generate, reference, subject; of judge those of the CPU, as of build, its share of what was
               built for several at once; cpu: the CPU's of all together.
    redrawn    programs drawn before this one without a detectable gradient; they were not compiled.
    recorded   what the program's values held, by name, where that was asked for.
    notes      results of diagnosis, one line each by name;  files  longer texts of it (`dissect`).
    stderr     the tail of the worker's stderr, for deaths.
    features   ids of what it exercises, by family, where that was asked for.
    candidate  which of several drawings of its number this is.
    mutator    that made it of a kept program; "" where it was drawn.
    fired      planted faults that changed what was compiled.
    stage      of the compiler at which it was judged; "" where it was built.
    built      why it was built although a stage was on trial; "" where it was not.
    forward    whether the program has no gradient.
    """

    text: str
    verdicts: tuple[Verdict, ...] = ()
    rejected: str = ""
    detectable: int = 0
    elements: int = 0
    deaf: int = 0
    gradients: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    stderr: str = ""
    redrawn: int = 0
    recorded: dict[str, Recipe] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    features: Features = field(default_factory=dict)
    candidate: int = 0
    mutator: str = ""
    fired: tuple[str, ...] = ()
    stage: str = ""
    built: str = ""
    forward: bool = False

    @property
    def verdict(self) -> str:
        """The trial's class: the worst that any oracle gave."""
        if self.rejected:
            return "rejected"
        return self.verdicts[0].signature.verdict if self.verdicts else "agree"
