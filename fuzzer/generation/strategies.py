"""Programs as a Hypothesis strategy: `@given(programs())`. Only Hypothesis' documented surface is used."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from hypothesis import reject
from hypothesis import strategies as st

from fuzzer.generation.draft import Rejected
from fuzzer.generation.generate import generate
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.language.infer import IllTyped
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import FLOATS, Program, Route

_SEEDS = 1 << 16
_ATTEMPTS = 8  # for a seed; one in twenty is rejected


def programs(
    *,
    max_nodes: int = 6,
    max_size: int = 16,
    ops: Sequence[str] | None = None,
    routes: Sequence[str] = (Route().name,),
    dtypes: Sequence[str] = FLOATS,
) -> st.SearchStrategy[Program]:
    """Programs as `generate` makes them, each of which ran in eager on the CPU.

    Hypothesis chooses the size of a program and a seed: a failing program is shrunk to few nodes and small sizes, and
    printed as its text. `backfuzz minimize` shrinks further.

    ops     names of the ops to draw from; none means all. Raises ValueError for a name in no table.
    dtypes  floating and complex dtypes of leaves.
    """
    unknown = sorted(set(ops or ()) - set(OPS))
    if unknown:
        raise ValueError(f"no op {', '.join(unknown)}; `backfuzz ops` lists the known ones")
    limits = Limits(max_nodes=max_nodes, max_size=max_size, dtypes=tuple(dtypes), long=1)
    known = vocabulary(limits, ops or ())

    @st.composite
    def drawn(draw: st.DrawFn) -> Program:
        nodes = draw(st.integers(1, max_nodes))
        own = replace(limits, max_nodes=nodes, max_size=draw(st.integers(min(2, max_size), max_size)))
        seed = draw(st.integers(0, _SEEDS - 1))
        for attempt in range(_ATTEMPTS):
            with suppress(Rejected, IllTyped):
                return generate(random.Random(f"{seed}/{attempt}"), known, own, routes)
        reject()

    return drawn()
