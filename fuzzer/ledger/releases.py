"""Releases of torch in their order, and those on which a fault lives."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fuzzer.ledger.faults import Fault


@dataclass(frozen=True)
class Span:
    """Among the releases that were tried: the first and the last with a fault, and the first without it after the
    last."""

    first_bad: str = ""
    last_bad: str = ""
    fixed_in: str = ""


_BEFORE = {"dev": 0, "a": 1, "b": 2, "rc": 3}  # suffixes of pre-releases, oldest first


def numbers(release: str) -> tuple[int, ...]:
    """A release as a sort key. A nightly build (`2.14.0.dev20261122`) comes before its release."""
    found = re.match(r"(\d+(?:\.\d+)*)(?:\.?(dev|a|b|rc)(\d*))?", release)
    if found is None:
        return ()
    parts = [*map(int, found[1].split(".")), 0, 0]
    return *parts[:3], _BEFORE.get(found[2], len(_BEFORE)), int(found[3] or 0)


def span(fault: Fault, device: str) -> Span:
    """The releases on which a fault lives, for one device."""
    bad, good = (
        sorted((place.split(" ")[0] for place in places if place.split(" ")[1] == device), key=numbers)
        for places in (fault.lives_on, fault.gone_on)
    )
    after = [release for release in good if not bad or numbers(release) > numbers(bad[-1])]
    return Span(bad[0] if bad else "", bad[-1] if bad else "", after[0] if bad and after else "")
