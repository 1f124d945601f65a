"""The two sides of a finding, and the script's expressions for them."""

from __future__ import annotations

import functools

from fuzzer.judgement.trial import UNCOMPILED
from fuzzer.judgement.verdict import Finding
from fuzzer.language.devices import accelerator
from fuzzer.language.ops import OPS, REAL
from fuzzer.language.program import COMPLEX, Dtype, Program, statements
from fuzzer.language.routes import ROUTES
from fuzzer.language.routes.writing import runner
from fuzzer.rounding.kernels import named as kernel_row


class Sides:
    """A finding's two sides; the script's expression for each, and the facts about the program that the script needs.

    drawn   whether normal values come from torch.randn and layouts from views, as people write them.
    moves   the type of device to which tensors are moved, if any;  needs  lines before anything runs.
    """

    def __init__(self, finding: Finding, program: Program, drawn: bool = False):
        self.finding, self.program, self.drawn = finding, program, drawn
        here = finding.place.get("device", "cpu")
        backend, self.device = _side(finding.place.get("backend", "inductor"), here)
        self.backend = backend.partition(":")[0]  # a script has no stages: it runs the whole compiler
        self.against, self.base = _side(finding.place.get("against", "eager"), here)
        self.moves = accelerator((self.device, self.base))
        # as in the trial: TF32 keeps 10 bits of the factors
        convolves = any(node.op.startswith("conv") for node in program.nodes)
        switches = self.moves.tf32 if self.moves and convolves else ()
        self.needs = [f"torch.{switch} = False" for switch in switches]
        if self.moves:
            kind = self.moves.type
            self.needs.insert(0, f'assert torch.{kind}.is_available(), "it cannot be told here: no {kind} device"')
        self.gems = self.backend == "flag_gems"

    @property
    def compiled(self) -> str:
        """The compiled side's run."""
        return self.compiled_on(self.inputs(self.device))

    def compiled_on(self, inputs: str) -> str:
        """The compiled side's run on these inputs."""
        start = f"in_flag_gems({self.runner}, " if self.gems else f"{self.runner}("
        return f"{start}{self.given(self.backend)}, *{inputs})"

    @property
    def eager(self) -> str:
        """The reference side's run."""
        return f"{self.runner}({self.given(self.against)}, *{self.inputs(self.base)})"

    def inputs(self, device: str) -> str:
        return f'inputs("{device}")' if self.moves else "inputs()"

    def given(self, backend: str) -> str:
        """The first argument of the runner: the function as this backend runs it, or the backend's compiler."""
        route = self.program.route
        given = ROUTES[route.name].script.given
        if backend in UNCOMPILED:
            return given(self.program, None)
        options = ("" if backend == "inductor" else f', backend="{backend}"') + ", fullgraph=True"
        return given(self.program, options + (", dynamic=True" if dict(route.options).get("dynamic") else ""))

    @property
    def runner(self) -> str:
        """The script's function that runs a side."""
        return runner(self.program)

    @functools.cached_property
    def complex(self) -> bool:
        """Whether complex numbers occur."""
        found = {leaf.dtype for leaf in self.program.leaves} | self.named
        found |= {o.cotangent.dtype for o in self.program.outputs if o.cotangent is not None}
        return not found.isdisjoint(COMPLEX) or any(node.op not in REAL for node in self.program.nodes)

    @functools.cached_property
    def draws(self) -> bool:
        """Whether random numbers are drawn."""
        return any(OPS[node.op].random for node in self.program.nodes)

    @functools.cached_property
    def depends_on_dtype(self) -> bool:
        """Whether a result means something else in float64: a neighbour on the grid, or a decision on a number that the
        dtype rounds."""
        rows = [kernel_row(node.op.removesuffix("_").removesuffix("_scalar")) for node in self.program.nodes]
        return any(row.on_its_grid or row.decides for row in rows)

    @functools.cached_property
    def named(self) -> set[str]:
        """The dtypes that the program's nodes and regions name."""
        return {value.name for s in statements(self.program.body) for _, value in s.attrs if isinstance(value, Dtype)}


def _side(text: str, device: str) -> tuple[str, str]:
    backend, _, own = text.partition("@")
    return backend, (own or device).partition(":")[0]
