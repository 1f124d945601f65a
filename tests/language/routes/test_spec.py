"""A route as a row: names, options and what it may be asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.language.program import Route
from fuzzer.language.routes import (
    ROUTES,
    UnknownRoute,
    route_of,
)
from fuzzer.language.text import parse
from tests.language.routes.runs import HEAD

WRONG = [
    (Route("detour"), f"no route 'detour'; known are {', '.join(ROUTES)}"),
    (Route("vjp", (("mode", "fast"),)), "route vjp has no option 'mode'; it has dynamic"),
]


@pytest.mark.parametrize(("route", "words"), WRONG)
def test_an_unknown_route_or_option_is_refused_by_name(route: Route, words: str) -> None:
    with pytest.raises(UnknownRoute) as caught:
        route_of(replace(parse(HEAD), route=route))
    assert str(caught.value) == words


def test_options_have_defaults() -> None:
    assert route_of(parse('program(1)\nroute("vjp")\n'))[1] == {"dynamic": False}
    assert route_of(parse('program(1)\nroute("vjp", dynamic=True)\n'))[1] == {"dynamic": True}
