"""Triggers in regions: bodies that are mapped, differentiated or carried on, Functions and hooks."""

from __future__ import annotations

from benches.triggers.kinds import Trigger
from benches.triggers.sketch import RESHAPERS, Sketch
from fuzzer.language.program import Region, statements, walk

_PRODUCTS = ("mm", "matmul", "bmm", "linear", "mv", "addmm", "einsum")
_TOTALS = ("sum", "sum_all", "mean")
_NO_TANGENT = ("quantile", "nanquantile", "addr")  # whose derivative by forward mode the thread names


def _holds(outer: Region, kind: str) -> bool:
    """Whether a region holds another of this kind."""
    return any(isinstance(s, Region) and s.kind == kind for s in statements(outer.body))


def jacobian_under_vmap(s: Sketch) -> bool:
    """A Jacobian by reverse mode, mapped."""
    return any(_holds(region, "jacrev") for region in s.regions("vmap"))


def forward_jacobian_under_vmap(s: Sketch) -> bool:
    """A Jacobian by forward mode, mapped."""
    return any(_holds(region, "jacfwd") for region in s.regions("vmap"))


def forward_jacobian_of_products_in_float16(s: Sketch) -> bool:
    """A Jacobian by forward mode of matrix products in float16, of what is totalled twice, in one graph with the
    backward."""
    for region in s.regions("jacfwd") if s.program.route.name == "vjp" else ():
        inside = list(walk(region.body))
        totals = [node.uses for node in inside if node.op in _TOTALS]
        if len(totals) > len(set(totals)) and any(n.op in _PRODUCTS and s.dtype(n.uses[0]) == "f16" for n in inside):
            return True
    return False


def layers_within_a_scan(s: Sketch) -> bool:
    """A scan's body multiplies by two matrices that it closes over, the second time what came of the first."""
    for region in s.regions("scan"):
        inside = {out for node in walk(region.body) for out in node.outs} | set(region.args)
        products = [n for n in walk(region.body) if n.op in _PRODUCTS and len(n.uses) > 1 and n.uses[1] not in inside]
        made = {n.outs[0] for n in products}
        if any(a.outs[0] in made for n in products for a in s.ancestors(n.uses[0])):
            return True
    return False


def total_of_a_loop(s: Sketch) -> bool:
    """A sum or mean of what a while_loop made: its gradient is one number, expanded."""
    looped = s.inside("while_loop")
    makers = (s.maker.get(s.source(node.uses[0], RESHAPERS)) for node in s.of(*_TOTALS) if node.outs[0] not in looped)
    return any(maker is not None and maker.outs[0] in looped for maker in makers)


def function_under_func_grad(s: Sketch) -> bool:
    """A Function whose backward is scaled, in one graph of both directions: torch.func.vjp differentiates it."""
    scaled = any(dict(region.attrs).get("scale", 1.0) != 1.0 for region in s.regions("function"))
    return scaled and s.program.route.name == "vjp"


def hooked_intermediate(s: Sketch) -> bool:
    """A hook on an intermediate value."""
    return any(True for _ in s.regions("hook"))


def hessian_of_a_trace(s: Sketch) -> bool:
    """A Hessian, by forward over reverse mode, of what reads a trace."""
    return any(
        _holds(region, "jacrev") and any(node.op == "trace" for node in walk(region.body))
        for region in s.regions("jacfwd")
    )


def tangent_of_a_quantile(s: Sketch) -> bool:
    """The derivative by forward mode of a quantile or of addr."""
    return any(node.op in _NO_TANGENT for region in s.regions("jvp") for node in walk(region.body))


TABLE: dict[int, Trigger] = {
    154036: jacobian_under_vmap,
    151196: forward_jacobian_under_vmap,
    194706: forward_jacobian_of_products_in_float16,
    153679: layers_within_a_scan,
    183017: total_of_a_loop,
    193279: function_under_func_grad,
    91468: hooked_intermediate,
    190855: hessian_of_a_trace,
    197090: tangent_of_a_quantile,
}
