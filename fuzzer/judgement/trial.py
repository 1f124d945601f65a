"""A trial: code, the place where it ran and the observations made there (Place, Subject, Observation, Trial)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from fuzzer.language.devices import DEVICES, HOST, device_row
from fuzzer.language.errors import UsageError
from fuzzer.language.program import Attributes, Program

if TYPE_CHECKING:  # they need torch
    from fuzzer.rounding.floors import Model
    from fuzzer.rounding.trace import Ref, Trace

RAN, RAISED, DIED, TIMED_OUT, PENDING = "ran", "raised", "died", "timed out", "not run yet"


# Backends that compile nothing: eager, and eager with FlagGems' Triton operators in place of ATen's.
UNCOMPILED = ("eager", "flag_gems")
# With this a result that is a view of an input comes from as_strided, and so does its gradient.
_AS_STRIDED = ("functorch.view_replay_for_aliased_outputs", False)


@dataclass(frozen=True)
class Subject:
    """One side of a comparison: a torch.compile backend, a stage of one, or one of UNCOMPILED, on a device.

    backend   "inductor"; or "inductor:ir" (`fuzzer.stages`): the compiler, and the stage at which it stops.
    threads   that torch's CPU operators may use (`torch.set_num_threads`); only the side under test may have more than
              1.
    """

    backend: str = "inductor"
    device: str = "cpu"
    threads: int = 1

    @property
    def compiler(self) -> str:
        """The backend without its stage."""
        return self.backend.partition(":")[0]

    @property
    def stage(self) -> str:
        """The stage at which the backend stops; "" for a full compile."""
        return self.backend.partition(":")[2]

    def at(self, stage: str) -> Subject:
        """The same compiler, stopped at this stage."""
        return replace(self, backend=f"{self.compiler}:{stage}")

    def __str__(self) -> str:
        return f"{self.backend}@{self.device}" + (f"/{self.threads}" if self.threads > 1 else "")


def parse_subject(text: str, device: str) -> Subject:
    """`backend`, `backend@device` or `backend@device/threads`. Raises UsageError."""
    backend, separator, where = text.partition("@")
    where, divided, threads = (where if separator else device).partition("/")
    if not backend or where.split(":")[0] not in DEVICES or (divided and not threads.isdecimal()):
        raise UsageError(f"{text!r} is not a backend or backend@device with a device of {', '.join(DEVICES)}")
    return Subject(backend, where, max(1, int(threads or 1)))


@dataclass(frozen=True)
class Place:
    """Where a trial runs: the reference side (eager by default) and the subject, the side under test."""

    reference: Subject = Subject("eager", "cpu")
    subject: Subject = Subject("inductor", "cpu")

    def at(self, stage: str) -> Place:
        """The same place with the subject stopped at this stage."""
        return replace(self, subject=self.subject.at(stage))

    def on(self, backend: str) -> Place:
        """The same place with another backend on trial."""
        return replace(self, subject=replace(self.subject, backend=backend))

    @property
    def devices(self) -> list[str]:
        """The devices of both sides."""
        return [self.reference.device, self.subject.device]


class Code(Protocol):
    """The code that a trial runs: a Program, or a Function (`fuzzer.language.function`).

    settings  of the compiler, by name;  result_names  of its results, in the order of `Observation.outputs`.
    size      the number of its operations.
    """

    @property
    def settings(self) -> Attributes: ...

    @property
    def result_names(self) -> tuple[str, ...]: ...

    @property
    def size(self) -> int: ...

    def role(self, name: str) -> str:
        """The kind of an input by name: `leaf` or `cotangent`, of a Function also `parameter` or `buffer`."""
        ...


@dataclass(frozen=True)
class Raised:
    """An exception: its type, message, the innermost torch functions of its traceback, and the traceback, whose paths
    begin at their package."""

    kind: str
    message: str
    frames: tuple[str, ...] = ()
    traceback: str = ""


@dataclass
class Observation:
    """The record of one run. Tensors stay on the device that made them; gradients by leaf name, None kept.

    outputs  by the place of their name in `Code.result_names`; None where this side has no such result.

    outcome  ran, raised, died, timed out, or not run yet;  phase  the last one entered: forward or backward.
    written  the final values of the leaves that the program may write to, by name.
    touched  leaves and cotangents (`x0`, `c1`) whose storage has changed, or in whose guard bands something was written
             (`around x0`), with the phase in which that was first seen.
    again    a second run of the same compiled code on the same inputs; None where there was none.
    cpu_seconds  of the run, compiling included: this process and its children.
    peak     bytes of memory at the run's peak beyond those in use before; None where not measured.
    atomics  whether generated code adds with atomics, in no fixed order; None where no code was seen.
    admitted  where `again` differs: torch's own statement that it may (`trial.pipeline`); "" where there is none.
    fired    planted faults that changed the compiled code (scripts/benches/rare.py).
    built    why the program was compiled in full although a stage was requested (`fuzzer.stages`); "" where it was not.
    structure  of a Function's results: by the name of each, `tensor` or the value that is no tensor, as text.
    aliases    of a Function's results: by the name of each, the inputs, parameters and buffers whose memory it shares.
    graphs     that torch.compile made of a Function;  breaks  the reasons of its graph breaks.
    """

    outcome: str
    outputs: list[Any] = field(default_factory=list)
    gradients: dict[str, Any] = field(default_factory=dict)
    phase: str = ""
    raised: Raised | None = None
    signal: str = ""
    frame: str = ""
    stderr: str = ""
    seconds: float = 0.0
    written: dict[str, Any] = field(default_factory=dict)
    touched: dict[str, str] = field(default_factory=dict)
    again: Observation | None = None
    cpu_seconds: float = 0.0
    peak: int | None = None
    atomics: bool | None = None
    admitted: str = ""
    fired: tuple[str, ...] = ()
    built: str = ""
    structure: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    graphs: int = 0
    breaks: tuple[str, ...] = ()


@dataclass
class Trial:
    """The code, the place where it ran, and the observations made there.

    reference  the reference side's observation, with its trace and the Refs of outputs then gradients.
    subject    the observation of the compiled run.
    final      whether a verdict must survive the rounding model's final look, or the second is enough (a suspect).
    also       names of oracles that are checked only on request (`oracles.ASKED`).
    bare       the observation of a compiled run without the program's settings, for a requested oracle that needs it.
    kept       that of a compiled run that drops no rounding to half precision, likewise (`narrowing.KEPT`).
    unmodelled  by the name of a target, the operations on which it depends and whose rounding the model does not know.
    """

    code: Code
    place: Place
    reference: Observation
    subject: Observation
    trace: Trace | None = None
    targets: dict[str, Ref] = field(default_factory=dict)
    final: bool = True
    also: tuple[str, ...] = ()
    bare: Observation | None = None
    kept: Observation | None = None
    unmodelled: dict[str, tuple[str, ...]] = field(default_factory=dict)
    known: dict[Any, Any] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        """The code, which is a Program."""
        assert isinstance(self.code, Program)
        return self.code

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """compute() the first time, afterwards its stored result: oracles share what they derive from one trial."""
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    @functools.cached_property
    def model(self) -> Model:
        """The rounding model of the reference's trace. Raises Unreplayable."""
        from fuzzer.rounding.arithmetic import adding_narrow
        from fuzzer.rounding.floors import Model

        assert self.trace is not None
        devices = (self.place.reference.device, self.place.subject.device)
        device = next((d for d in devices if device_row(d) is not HOST), devices[0])
        trace = adding_narrow(self.trace) if _AS_STRIDED in self.code.settings else self.trace
        return Model(trace, list(self.targets.values()), device)

    @functools.cached_property
    def draws_apart(self) -> bool:
        """Whether eager draws random numbers where compiled code may draw others: an operator takes its random samples
        as an operand, and draws them itself if a shrunk program leaves them out. Then no numbers can be compared."""
        from fuzzer.language.settings import SAME_DRAWS

        assert self.trace is not None
        return SAME_DRAWS not in self.code.settings and any(step.recorded for step in self.trace.steps)

    def with_subject(self, other: Observation) -> Trial:
        """The same trial with another observation of the subject; results that depend on the reference alone are
        kept."""
        known = {key: v for key, v in self.known.items() if not (isinstance(key, tuple) and key[0] == "judged")}
        trial = replace(self, subject=other, known=known)
        trial.__dict__["model"] = self.model
        return trial

    def named(self, observation: Observation) -> dict[str, Any]:
        """The observation's tensors by name: `v3` for an output, `x0` for a leaf that is written to, `x0.grad` for a
        gradient (None if there is none)."""
        outputs = dict(zip(self.code.result_names, observation.outputs, strict=True))
        return outputs | observation.written | {f"{name}.grad": t for name, t in observation.gradients.items()}
