"""ROUTES: the ways a gradient gets compiled. A new route is one file here, with its row ROUTE, and its name below."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from typing import Any

from fuzzer.language.errors import UsageError, meant
from fuzzer.language.program import Program, Region, Route, has_gradient, statements
from fuzzer.language.regions import REGIONS, ambient_region, check_between
from fuzzer.language.routes.spec import Call, Compile, Results, RouteSpec, gradient_leaves, no_compile, no_phase
from fuzzer.language.settings import Setting

__all__ = [
    "ANY_BACKEND",
    "DEFAULT",
    "ROUTES",
    "Call",
    "Compile",
    "Results",
    "RouteSpec",
    "UnknownRoute",
    "acts",
    "check_backend",
    "draw_route",
    "gradient_leaves",
    "no_compile",
    "no_phase",
    "route_of",
]


class UnknownRoute(UsageError):
    """A program names a route that does not exist, or an option that the route does not have."""


# By the name of the file. Most programs take one of the two that differ most: with a partitioner between forward and
# backward, and without. The order is part of what a seed means.
ROUTES: dict[str, RouteSpec] = {
    name: importlib.import_module(f"{__name__}.{name}").ROUTE
    for name in (
        "autograd",
        "vjp",
        "backward_twice",
        "accumulate",
        "compiled_autograd",
        "aoti",
    )
}
DEFAULT = ROUTES[Route().name]
# The default routes of a campaign.
ANY_BACKEND = tuple(name for name, spec in ROUTES.items() if not spec.backends)
_DYNAMIC_SHARE = 0.1  # the share of programs compiled with symbolic sizes, where the route has this option
_EAGER_FORWARD_SHARE = 0.3  # the share of programs whose forward runs uncompiled, where the route has this option


def draw_route(rng: random.Random, names: Sequence[str]) -> Route:
    """One of the named routes by its weight, its options drawn."""
    (name,) = rng.choices(names, [ROUTES[name].weight for name in names])
    shares = {"dynamic": _DYNAMIC_SHARE, "eager_forward": _EAGER_FORWARD_SHARE}
    drawn = [option for option, share in shares.items() if option in ROUTES[name].options and rng.random() < share]
    return Route(name, tuple((option, True) for option in drawn))


def route_of(program: Program) -> tuple[RouteSpec, dict[str, Any]]:
    """The program's route and its options, defaults filled in. Raises UnknownRoute, and UnknownRegion for a region that
    the route does not allow."""
    spec = ROUTES.get(program.route.name)
    if spec is None:
        name = program.route.name
        raise UnknownRoute(f"no route {name!r}; known are {', '.join(ROUTES)}{meant(name, ROUTES)}")
    options = dict(program.route.options)
    for name in options:
        if name not in spec.options:
            known = ", ".join(spec.options) or "none"
            raise UnknownRoute(f"route {program.route.name} has no option {name!r}; it has {known}")
    if options.get("eager_forward") and not has_gradient(program):
        raise UnknownRoute(
            f"route {program.route.name} with eager_forward compiles nothing of a program without gradient"
        )
    held = [leaf.name for leaf in program.leaves if leaf.parameter]
    if held and not spec.module:
        raise UnknownRoute(f"route {program.route.name} has no module to hold the parameters {', '.join(held)}")
    for region in statements(program.body):
        if isinstance(region, Region) and region.kind in REGIONS and region.kind not in spec.regions:
            raise UnknownRoute(f"route {program.route.name} cannot hold a region {region.kind}")
    ambient_region(program)
    check_between(program)
    return spec, {**spec.options, **options}


def check_backend(route: str, backend: str) -> None:
    """Raise UnknownRoute where the backend cannot run the route."""
    backends = ROUTES[route].backends
    if backends and backend not in backends:
        raise UnknownRoute(f"route {route} is for the backend {' or '.join(backends)} alone, not {backend}")


def acts(setting: Setting, device: str, route: str) -> bool:
    """Whether a setting of the table is known to have an effect on this type of device in this route."""
    return device in setting.devices and ROUTES[route].takes(setting)
