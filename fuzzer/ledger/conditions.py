"""The conditions of a fault in the words of a title: what its program is made of, and what its scope found out.

A minimal program needs its dtypes, layouts, values and options: reducers tried it without them. A scope says more: one
dtype or layout may stand for all.
"""

from __future__ import annotations

import math
import re

from fuzzer.judgement.verdict import ELEMENTS, SUMS
from fuzzer.language.program import DIFFERENTIABLE, Leaf, Program, Route, Shape, contiguous, writable
from fuzzer.ledger.scope import Scope, dtypes, listed
from fuzzer.ledger.severity import numbers_of

DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "c64": "complex64",
          "c128": "complex128"}  # fmt: skip
# Recipes of values that nobody has by chance.
_VALUES = {
    "nonfinite": "a non-finite input",
    "huge": "huge numbers",
    "subnormal": "subnormal numbers",
    "signed_zeros": "zeros of either sign",
}
_RELATIONS = {"=": "of {}", ">=": "of {} or more", "<=": "of {} or fewer", "!=": "other than {}"}


def dtype_needed(program: Program, scope: Scope | None) -> str:
    """`float64`, or `float16 and bfloat16`; "" where float32 fails alone or any dtype does."""
    fails, agrees = dtypes(scope) if scope is not None else ([], [])
    if agrees and fails:
        return listed([DTYPES.get(name, name) for name in fails])
    own = {leaf.dtype for leaf in program.leaves if leaf.dtype in DIFFERENTIABLE}
    return "" if fails or own == {"f32"} or len(own) != 1 else DTYPES[own.pop()]


def compiled_with(program: Program) -> list[str]:
    """The options of `torch.compile` and the way to the gradient, where they are not the usual ones."""
    options = [f"{name}={value}" for name, value in program.route.options]
    name = program.route.name
    return [*([] if name == Route().name else [name.replace("_", " ")]), *options]


def inputs_needed(program: Program, scope: Scope | None) -> list[str]:
    """The layouts, sizes and values of the inputs: `an expanded dimension of 9 or more`, `a non-finite input`."""
    sized = sorted(_sizes(program, scope), key=lambda text: "expanded" not in text)
    laid = _layouts(program) if scope is None or _one_layout(scope) else []
    laid = [text for text in laid if text != _EXPANDED or not any("expanded" in one for one in sized)]
    leaves = [leaf for leaf in program.leaves if leaf.base is None]
    values = [_VALUES.get(leaf.values.name if all(map(math.isfinite, numbers_of(leaf))) else "nonfinite", "")
              for leaf in leaves]  # fmt: skip
    empty = ["an empty input"] if any(0 in leaf.shape for leaf in leaves) else []
    return list(dict.fromkeys(filter(None, [*sized, *laid, *values, *empty])))


# ---------------------------------------------------------------- layouts

_EXPANDED = "an expanded input"


def _one_layout(scope: Scope) -> bool:
    """Whether some layout was tried in which the fault is gone."""
    return bool(scope.said("layout")[1]) or not scope.along("layout")


def _layouts(program: Program) -> list[str]:
    conjugated = ["a conjugated input"] if any(leaf.conj for leaf in program.leaves) else []
    return [*map(_layout, program.leaves), *conjugated]


def _layout(leaf: Leaf) -> str:
    """The layout of a leaf, as torch names it; "" where it is contiguous."""
    if leaf.base is not None:
        return "inputs that share memory"
    if 0 in leaf.shape or leaf.stride == contiguous(leaf.shape):
        return "an input with a storage offset" if leaf.offset else ""
    walked = [(size, step) for size, step in zip(leaf.shape, leaf.stride, strict=True) if size > 1]
    if any(step == 0 for _, step in walked):
        return _EXPANDED
    if not writable(leaf.type):
        return "an overlapping input"
    if len(leaf.shape) in (4, 5) and leaf.stride == _channels_last(leaf.shape):
        return "a channels_last input"
    if not _dense(walked):
        return "a non-contiguous input"
    steps = [step for _, step in walked]
    if steps == sorted(steps, reverse=True):
        return "an input with an odd stride in a dimension of 1"
    return "a transposed input" if len(leaf.shape) == 2 else "a permuted input"


def _channels_last(shape: Shape) -> Shape:
    _, channels, *spatial = shape
    inner = contiguous((*spatial, channels))
    return (math.prod(shape[1:]), inner[-1], *inner[:-1])


def _dense(walked: list[tuple[int, int]]) -> bool:
    """Whether these (size, stride) leave no gaps."""
    reach = 1
    for size, step in sorted(walked, key=lambda one: one[1]):
        if step != reach:
            return False
        reach *= size
    return True


# ---------------------------------------------------------------- sizes and ratios


def _sizes(program: Program, scope: Scope | None) -> list[str]:
    """The conditions on sizes and attributes: `an expanded dimension of 9 or more`, `shape[1] >= 9`, `step=1`."""
    told = scope.sizes.split(" and ") if scope is not None else []
    return list(filter(None, (_size(program, text) for text in told)))


def _size(program: Program, condition: str) -> str:
    """One condition on one number; "" for others, and for a size of one of several inputs, which have no names."""
    told = re.fullmatch(r"(.+) (=|>=|<=|!=) (\d+)", condition)
    if told is None:
        return ""
    name, relation, number = told.groups()
    sized = re.fullmatch(r"(\w+)\.shape\[(\d+)\]", name)
    if sized is None:
        return f"{name}{relation}{number}" if relation == "=" else f"{name} {relation} {number}"
    axis = int(sized[2])
    if any(leaf.name == sized[1] and leaf.stride[axis : axis + 1] == (0,) for leaf in program.leaves):
        return f"an expanded dimension {_RELATIONS[relation].format(number)}"
    return f"shape[{axis}] {relation} {number}" if len(program.leaves) == 1 else ""


def ratio(program: Program, scope: Scope | None) -> str:
    """The wrong numbers as a multiple of the right ones: `is 1/n of itself`; "" where the scope has no formula."""
    formula = scope.formula if scope is not None else None
    if scope is None or formula is None or scope.told_by not in _RATIOS:
        return ""
    # the title tells these numbers elsewhere
    conditioned = [text.split(" ")[0] for text in scope.sizes.split(" and ") if _size(program, text)]
    where = [f"{letter} = {name}" for name, letter in formula.letters.items() if name not in conditioned]
    text = formula.text.replace(" / ", "/")
    return _RATIOS[scope.told_by].format(text) + (f" ({', '.join(where)})" if where else "")


_RATIOS = {ELEMENTS: "is {} of itself", SUMS: "sums to {} of its sum"}
