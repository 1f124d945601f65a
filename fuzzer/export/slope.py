"""The script for an eager gradient that is no derivative: it compares with a difference quotient of the forward."""

from __future__ import annotations

from fuzzer.export.sides import Sides
from fuzzer.language.program import Output, Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.routes.writing import input_names
from fuzzer.language.values import TORCH_DTYPES

_STEP = 2.0**-12  # makes the quotient right to about 1e-7 of a smooth derivative


def compare_with_quotient(sides: Sides, widened: str) -> list[str]:
    """The lines: eager's gradient along a random direction of a leaf must equal float64's central difference.

    The direction is normal, not of signs: with signs a wrong multiple of a gradient whose signed sum is 0 would go
    unseen.

    widened   the expression of the inputs in float64, in which each is called t.
    """
    names = input_names(sides.program)
    leaf = sides.finding.detail.partition(".grad")[0]
    at = names.index(leaf) if leaf in names else _first(sides.program)
    name, times = names[at], ROUTES[sides.program.route.name].times
    weighed = [(o.value, names.index(f"c{i}")) for i, o in enumerate(_seeded(sides.program))]
    products = " + ".join(f'(seen["{value}"].detach() * given[{c}]).sum()' for value, c in weighed)
    return [
        "seeded = torch.Generator().manual_seed(0)",
        f"along = torch.randn({sides.inputs(sides.base)}[{at}].shape, dtype=torch.float64, generator=seeded)",
        "",
        "def total(step):",
        f"    given = {widened}",
        f"    given[{at}] = (given[{at}].detach() + step * along.to(given[{at}].device)).requires_grad_()",
        f"    seen = gradients({sides.given(sides.against)}, *given)",
        f"    return ({products}).item()",
        "",
        f"derivative = {f'{times} * ' * (times != 1)}(total({_STEP}) - total(-{_STEP})) / {2 * _STEP}",
        f'gradient = {sides.eager}["{name}.grad"].detach().cpu()',
        f"eager, unit = (gradient.double() * along).sum().item(), {_unit(sides)}",
        'print(f"along a random direction: {derivative:.9g} by a central difference; eager has {eager:.9g}")',
        "sys.exit(int(not abs(eager - derivative) <= 64 * unit * gradient.double().abs().sum().item() + 1e-6))",
    ]


def _unit(sides: Sides) -> str:
    """The check's unit: that of the gradient's dtype, or of a half precision that the program names."""
    named = sorted(str(TORCH_DTYPES[name]) for name in sides.named & {"f16", "bf16"})
    if not named:
        return "torch.finfo(gradient.dtype).eps"
    return f"max(torch.finfo(dtype).eps for dtype in (gradient.dtype, {', '.join(named)}))"


def _seeded(program: Program) -> list[Output]:
    return [o for o in program.outputs if o.cotangent is not None]


def _first(program: Program) -> int:
    """The position of the first leaf that requires grad."""
    return next(i for i, leaf in enumerate(program.leaves) if leaf.requires_grad)
