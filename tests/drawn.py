"""Programs to test with: as many as were asked for, but for few that the generator rejects."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

from fuzzer.generation.draft import Rejected
from fuzzer.generation.generate import generate
from fuzzer.language.program import Program

# 400 draws of all ops and of one family each: at most 3 in a hundred were rejected.
LEAST = 0.9


def drawn(seeds: Collection[str | int], *given: Any, least: float = LEAST, **named: Any) -> list[Program]:
    """What `generate` draws from each of these seeds with these arguments, without those that it rejects.

    A test that looks at what is left would pass if nothing were: AssertionError below the least share.
    """
    found: list[Program] = []
    reasons: list[str] = []
    for seed in seeds:
        try:
            found.append(generate(random.Random(seed), *given, **named))
        except Rejected as error:
            reasons.append(str(error))
    assert len(found) >= least * len(seeds), f"{len(reasons)} of {len(seeds)} draws were rejected: {reasons}"
    return found
