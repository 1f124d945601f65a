"""torch's promises and their limits: a difference without a promise is `unsupported`, however it looks.

torch makes no promise in five cases. Settings that exist for torch's own tests (`Setting.promised`). Internal operators
(a torch function whose name begins with an underscore) that torch.nn.functional does not call. Control flow that torch
calls a prototype, where it raises.
Autograd's complaint about a write before the backward to a value that the compiled graph saved and eager's did not.
dynamo's refusal to trace, with dynamic sizes, a call that holds both directions: `torch.func.vjp`, or Python that
autograd's graph of an eager forward calls (a checkpoint's).
Some of eager's errors are promised.
"""

from __future__ import annotations

import functools
import inspect
import re

import torch

from fuzzer.judgement.trial import Code, Raised
from fuzzer.language.ops import OPS
from fuzzer.language.program import Program, Region, between, statements
from fuzzer.language.regions import REGIONS
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import SETTINGS

# The exception of a compiled graph's Function when a saved value was overwritten (torch 2.11 to 2.15).
_SAVED = r"RuntimeError < (_compiled_backward < )?backward < apply"


def why_unsupported(code: Code, pattern: str) -> str:
    """Why torch makes no promise about code that differs with this pattern; "" where it does. Of a Function only the
    settings are known.

    "setting NAME", "operator NAME", "region NAME", "what a compiled graph saves", "route NAME with dynamic sizes",
    "route NAME over an eager forward".
    """
    of_tests = {s.name for s in SETTINGS if not s.promised}
    for name, _ in code.settings:
        if name in of_tests:
            return f"setting {name}"
    return _why_unsupported(code, pattern) if isinstance(code, Program) else ""


def _why_unsupported(program: Program, pattern: str) -> str:
    """The reason that a program gives, apart from its settings."""
    for node in program.nodes:
        source = OPS[node.op].source if node.op in OPS else ""
        if _is_internal(source) and not _called_by_public_functions(source):
            return f"operator {source}"
    for s in statements(program.body):
        if " < " in pattern and isinstance(s, Region) and s.kind in REGIONS and REGIONS[s.kind].prototype:
            return f"region {s.kind}"
    if between(program) and re.match(_SAVED, pattern):
        return "what a compiled graph saves"
    untraced = pattern.startswith(("Unsupported", "TorchRuntimeError < unimplemented"))
    route, options = ROUTES[program.route.name], dict(program.route.options)
    if untraced and route.joint and route.torch_compile and options.get("dynamic"):
        return f"route {program.route.name} with dynamic sizes"
    if untraced and options.get("eager_forward"):
        return f"route {program.route.name} over an eager forward"
    return ""


def _is_internal(source: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in source.split("."))


@functools.cache
def _called_by_public_functions(source: str) -> bool:
    """Whether torch.nn.functional calls an internal operator by its name: then people reach it, as they reach
    `_upsample_bilinear2d_aa` by `interpolate(antialias=True)`."""
    (name,) = re.findall(r"\._(\w+)", source)[:1]
    return re.search(rf"\b_{name}\(", inspect.getsource(torch.nn.functional)) is not None


# Errors by which torch protects from wrong numbers: type, message, its name here. A compiler may run everything else
# that eager refuses (a dtype that a kernel lacks, say).
_ERRORS = (
    ("RuntimeError", r"modified by an inplace operation", "a saved tensor is modified in place"),
    ("RuntimeError", r"leaf Variable that requires grad", "a leaf that requires grad is modified in place"),
    ("IndexError|RuntimeError", r"index \S+ is out of bounds|index out of range", "an index is out of range"),
    ("RuntimeError", r"must match the size of tensor|shapes cannot be multiplied", "shapes do not fit"),
)  # fmt: skip


def promised_error(raised: Raised) -> str:
    """The name of an exception of eager's that torch promises to raise; "" for any other."""
    for kind, words, name in _ERRORS:
        if re.fullmatch(kind, raised.kind) and re.search(words, raised.message):
            return name
    return ""
