"""The script for an eager gradient that is no derivative: it compares with a difference quotient of the forward."""

from __future__ import annotations

import math

from fuzzer.export.sides import Sides
from fuzzer.language.program import Output, Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.routes.writing import input_names
from fuzzer.language.values import TORCH_DTYPES

_STEP = 2.0**-12  # makes the quotient right to about 1e-7 of a smooth derivative
_MOST_ELEMENTS = 256  # a leaf of at most so many is moved in each


def compare_with_quotient(sides: Sides, widened: str) -> list[str]:
    """The lines: eager's gradient of a leaf must equal float64's central differences, in each element; along one random
    direction where the leaf is large or complex.

    widened   the expression of the inputs in float64, in which each is called t.
    """
    names = input_names(sides.program)
    leaf = sides.finding.detail.partition(".grad")[0]
    at = names.index(leaf) if leaf in names else _first(sides.program)
    moved = sides.program.leaves[at]
    each = 0 < math.prod(moved.shape) <= _MOST_ELEMENTS and moved.type.is_float
    return (_in_each_element if each else _along_a_direction)(sides, widened, at)


def _in_each_element(sides: Sides, widened: str, at: int) -> list[str]:
    name = input_names(sides.program)[at]
    quotient = f"{_times(sides)}(total(i, {_STEP}) - total(i, -{_STEP})) / {2 * _STEP}"
    return [
        f'eager = {sides.eager}["{name}.grad"].detach().cpu()',
        "",
        "def total(i, step):  # of what is differentiated, in float64, with element i moved",
        "    move = torch.zeros(eager.numel(), dtype=torch.float64)",
        "    move[i] = step",
        *_total(sides, widened, at, "move.view(eager.shape)"),
        "",
        f"quotients = [{quotient} for i in range(eager.numel())]",
        "differences = torch.tensor(quotients, dtype=torch.float64).view(eager.shape)",
        f"unit = {_unit(sides, 'eager')}",
        "off = (eager.double() - differences).abs().nan_to_num(float('inf'))",
        "at = tuple(map(int, torch.unravel_index(off.argmax(), off.shape)))",
        f"name = f\"{name}.grad{{list(at) or ''}}\"",
        'print(f"{name}: eager {eager[at]:.9g}, by a central difference {differences[at]:.9g}")',
        "sys.exit(int((off > 64 * unit * differences.abs().max() + 1e-6).any()))",
    ]


def _along_a_direction(sides: Sides, widened: str, at: int) -> list[str]:
    """The direction is normal, not of signs: with signs a wrong multiple of a gradient whose signed sum is 0 would go
    unseen."""
    name = input_names(sides.program)[at]
    return [
        "seeded = torch.Generator().manual_seed(0)",
        f"along = torch.randn({sides.inputs(sides.base)}[{at}].shape, dtype=torch.float64, generator=seeded)",
        "",
        "def total(step):",
        *_total(sides, widened, at, "step * along"),
        "",
        f"derivative = {_times(sides)}(total({_STEP}) - total(-{_STEP})) / {2 * _STEP}",
        f'gradient = {sides.eager}["{name}.grad"].detach().cpu()',
        f"eager, unit = (gradient.double() * along).sum().item(), {_unit(sides, 'gradient')}",
        'print(f"along a random direction: {derivative:.9g} by a central difference; eager has {eager:.9g}")',
        "sys.exit(int(not abs(eager - derivative) <= 64 * unit * gradient.double().abs().sum().item() + 1e-6))",
    ]


def _total(sides: Sides, widened: str, at: int, move: str) -> list[str]:
    """The body of a function that returns the sum that the cotangents weigh, where input number `at` is moved."""
    names = input_names(sides.program)
    weighed = [(o.value, names.index(f"c{i}")) for i, o in enumerate(_seeded(sides.program))]
    products = " + ".join(f'(seen["{value}"].detach() * given[{c}]).sum()' for value, c in weighed)
    place = f".to(given[{at}].device)" if sides.moves else ""
    return [
        f"    given = {widened}",
        f"    given[{at}] = (given[{at}].detach() + {f'({move}){place}' if place else move}).requires_grad_()",
        f"    seen = gradients({sides.given(sides.against)}, *given)",
        f"    return ({products}).item()",
    ]


def _times(sides: Sides) -> str:
    """A factor: how often the route adds the gradient up."""
    times = ROUTES[sides.program.route.name].times
    return f"{times} * " * (times != 1)


def _unit(sides: Sides, gradient: str) -> str:
    """The check's unit: that of the gradient's dtype, or of a half precision that the program names."""
    named = sorted(str(TORCH_DTYPES[name]) for name in sides.named & {"f16", "bf16"})
    if not named:
        return f"torch.finfo({gradient}.dtype).eps"
    return f"max(torch.finfo(dtype).eps for dtype in ({gradient}.dtype, {', '.join(named)}))"


def _seeded(program: Program) -> list[Output]:
    return [o for o in program.outputs if o.cotangent is not None]


def _first(program: Program) -> int:
    """The position of the first leaf that requires grad."""
    return next(i for i, leaf in enumerate(program.leaves) if leaf.requires_grad)
