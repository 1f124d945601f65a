"""Verdict (an oracle's result), Signature (preserved by the minimizer), Finding (stored in the ledger).

Plain values; no torch.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field, replace

# Worst first: a trial's class is the first of these among its verdicts.
CLASSES = ("crashes", "hangs", "wrong", "raises", "nondeterministic", "eager-suspect", "nonfinite-differs",
           "rounding-sensitive", "narrowing-sensitive", "signed-zero", "costly", "unmodelled", "unsupported", "agree",
           "rejected")  # fmt: skip
NARROWING = "narrowing-sensitive"  # a rounding to half precision was dropped (`narrowing`)
UNSUPPORTED = "unsupported"  # torch makes no promise (`promise`): listed apart, and not minimized by a campaign
# The classes that are stored as findings once verified.
FINDINGS = CLASSES[: CLASSES.index("agree")]

# Which side is wrong (`diagnosis.side`): the first words of a diagnosis' line `side`.
COMPILED, EAGER, BOTH = "compiled wrong", "eager wrong", "both wrong"
CHOICE, NEITHER, UNDECIDED = "subgradient choice", "neither wrong", "undecided"
# The side where numbers do not decide: eager ran, as it always does.
RAISES, DIES, HANGS, DIFFERS = "compiled raises", "compiled dies", "compiled hangs", "compiled differs"
EAGER_DIES, EAGER_RAISES = "eager dies", "eager alone raises"
_SIDES = {"raises": RAISES, "crashes": DIES, "hangs": HANGS, "nondeterministic": DIFFERS, "costly": DIFFERS}
UNASKED = "not diagnosed"  # numbers differ, and no diagnosis has decided which are wrong
OF_EAGER = "eager alone: "  # begins the pattern of a failure of eager that the compiled side does not share
NO_DERIVATIVE = "no derivative"  # the pattern of an eager gradient that contradicts its own forward
CORRUPT_HEAP = "a corrupt heap"  # the pattern of a death where malloc or free noticed a write made elsewhere
VALUES = ("all-zero", "constant-ratio", "scattered", "other", "nonfinite")  # patterns of wrong numbers


def side_by_class(signature: Signature) -> str:
    """The side at fault where numbers do not decide; "" where they do."""
    if signature.pattern.startswith(OF_EAGER):
        return EAGER_DIES if signature.verdict == "crashes" else EAGER_RAISES
    if signature.pattern == NO_DERIVATIVE:
        return EAGER
    if signature.verdict in _SIDES:
        return _SIDES[signature.verdict]
    if signature.verdict in ("nonfinite-differs", "signed-zero", NARROWING) or signature.pattern in VALUES:
        return ""
    return RAISES if signature.verdict == UNSUPPORTED else DIFFERS


# The quantities of which a ratio of wrong to right numbers is taken: all wrong elements, which share it; a tensor's
# sums; its worst element.
ELEMENTS, SUMS, WORST = "elements", "sums", "worst element"


@dataclass(frozen=True)
class Signature:
    """The provisional dedupe key, which the minimizer preserves. Never op names, shapes, dtypes or leaf numbers.

    oracle     the name of the oracle function.
    verdict    one of CLASSES.
    direction  "forward", "backward" or "".
    pattern    all-zero, constant-ratio, nonfinite, scattered or other for numeric differences; exception type and
               innermost torch functions for exceptions; signal and top native frame for deaths, or CORRUPT_HEAP.
               OF_EAGER and the same, where eager dies or raises.

    A verdict of class `agree` records a legal difference that is worth counting.
    """

    oracle: str
    verdict: str
    direction: str
    pattern: str

    def __str__(self) -> str:
        return "/".join((self.oracle, self.verdict, self.direction or "-", self.pattern))


def parse_signature(text: str) -> Signature:
    """The Signature whose `str` is this text."""
    oracle, verdict, direction, pattern = text.split("/", 3)
    return Signature(oracle, verdict, "" if direction == "-" else direction, pattern)


# The explicit rule for a change of pattern. With few elements every difference looks regular: one element is always a
# constant ratio of its reference. So an irregular pattern may become a regular one; never the reverse, never nonfinite.
_IRREGULAR = ("scattered", "other")
_MAY_BECOME = dict.fromkeys(_IRREGULAR, (*_IRREGULAR, "constant-ratio", "all-zero"))


def follows(target: Signature, shown: Signature) -> bool:
    """Whether a signature counts as the target: equal, or with a pattern to which the target's may shrink. For a
    corrupt heap oracle and direction may differ: they say only where it was noticed."""
    if target.pattern.endswith(CORRUPT_HEAP) and shown.pattern.endswith(CORRUPT_HEAP):
        return True
    if (target.oracle, target.direction) != (shown.oracle, shown.direction):
        return False
    if target.verdict != shown.verdict and UNSUPPORTED not in (target.verdict, shown.verdict):
        return False  # `unsupported` classifies the promise, not the difference
    return shown.pattern == target.pattern or shown.pattern in _MAY_BECOME.get(target.pattern, ())


def strip_digits(text: str) -> str:
    """The text with every run of digits replaced by '#': sizes, addresses and counters in messages vary."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text)


def without_paths(text: str) -> str:
    """The text with paths of this machine shortened to the file's name."""
    return re.sub(r"(?<![\w./~-])~?(?:/[\w.@+~-]+)+/([\w.@+~-]+)", r"\1", text)


@dataclass(frozen=True)
class Comparison:
    """One tensor at its worst element.

    name     "x0.grad" or "v1" (an output).
    index    position of the worst element.
    eager, compiled, float64   the values there; float64 is the trace's replay without rounding.
    floor    how far legal rounding can move this element (absolute, same unit as the values).
    wrong    elements outside their floor.
    total    elements in the tensor.
    """

    name: str
    index: tuple[int, ...]
    eager: float
    compiled: float
    float64: float
    floor: float
    wrong: int
    total: int

    @property
    def error(self) -> float:
        """The worse side's distance from float64, in floors; infinite for a floor of 0 and for values that are not
        finite."""
        off = max(abs(self.compiled - self.float64), abs(self.eager - self.float64))
        return off / self.floor if math.isfinite(off) and self.floor > 0 else math.inf


@dataclass(frozen=True)
class Verdict:
    """The result of an oracle: the signature, one line for people, and the numbers behind it.

    program  the text of a program that shows the same; "" where `check` found none, and from everybody else.
    """

    signature: Signature
    detail: str
    comparisons: tuple[Comparison, ...] = ()
    program: str = ""

    def __str__(self) -> str:
        about = f" [{self.signature}]" if self.signature.oracle else ""
        return f"{self.signature.verdict}: {self.detail}{about}"

    @property
    def agrees(self) -> bool:
        """Whether the verdict says nothing against the compiled side."""
        return self.signature.verdict == "agree"

    @property
    def error(self) -> float:
        """The largest error in thresholds (floors); infinite where nothing was measured or no rounding is legal."""
        return max((c.error for c in self.comparisons), default=math.inf)


@dataclass(frozen=True)
class Natural:
    """A minimal program grown into one that a person would write, and its results in the fields of `Finding`."""

    program: str
    signature: Signature
    detail: str
    comparisons: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A verified difference, ready to be posted. Texts are `.prog` texts.

    place        backend, device, and the versions it ran with: keys backend, against, device, torch, triton, python,
                 platform, compiler, gpu, threads (missing where they do not apply).
    reproduced   runs in fresh processes that showed the signature again, of `runs`.
    stages       backend -> class, in pipeline order (`diagnosis.ablation.STAGES`).
    ablation     "setting=value" -> class under that single change; the program's own settings set back one at a time.
    before       the oracle's numbers for the original program, whose error is not the minimal program's.
    diagnosis    the cause, a line each by name (`diagnose.FIELDS`); a part that did not run says why.
    attachments  longer texts by file name: graphs with strides, generated code, drawings of the wrong elements.
    unsupported  why torch makes no promise here (`promise.why_unsupported`); "" where it does.
    natural      the program for people; the minimal one where none is more natural; None: not grown yet.
    """

    signature: Signature
    detail: str
    original: str
    program: str
    place: dict[str, str]
    reproduced: int
    runs: int
    comparisons: tuple[Comparison, ...] = ()
    stages: dict[str, str] = field(default_factory=dict)
    ablation: dict[str, str] = field(default_factory=dict)
    campaign: str = ""
    created: str = ""
    note: str = ""
    before: str = ""
    diagnosis: dict[str, str] = field(default_factory=dict)
    attachments: dict[str, str] = field(default_factory=dict)
    unsupported: str = ""
    natural: Natural | None = None

    @property
    def grown(self) -> Finding:
        """The finding with its natural program in place of the minimal one; itself where they are the same."""
        if self.natural is None or self.natural.program == self.program:
            return self
        n = self.natural
        return replace(
            self, signature=n.signature, program=n.program, detail=n.detail, comparisons=n.comparisons, natural=None
        )

    @property
    def verdict(self) -> str:
        """The finding's class: the signature's, or `unsupported`."""
        return UNSUPPORTED if self.unsupported else self.signature.verdict

    @property
    def side(self) -> str:
        """Which side is wrong, raised or died, or that this is unknown: the first words of the diagnosis' line, else
        the class's own side. Never ""."""
        told = self.diagnosis.get("side", "")
        said = told.partition(":")[0]
        if said not in ("", "none", "not run"):
            return said
        legal = NEITHER if self.signature.verdict in ("rounding-sensitive", NARROWING) else ""
        return side_by_class(self.signature) or legal or (UNDECIDED if told else UNASKED)

    @property
    def id(self) -> str:
        """10 hex digits: signature and canonical minimal program. Equal text under an equal signature is one fault."""
        return hashlib.sha256(f"{self.signature}\n{self.program}".encode()).hexdigest()[:10]
