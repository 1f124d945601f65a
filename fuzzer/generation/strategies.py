"""Programs as a Hypothesis strategy: `@given(programs())`. Only Hypothesis' documented surface is used."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import reject
from hypothesis import strategies as st

from fuzzer.generation.draft import Rejected
from fuzzer.generation.generate import generate
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.language.infer import IllTyped
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import FLOATS, Program, Route


def programs(
    *,
    max_nodes: int = 6,
    max_size: int = 16,
    ops: Sequence[str] | None = None,
    routes: Sequence[str] = (Route().name,),
    dtypes: Sequence[str] = FLOATS,
) -> st.SearchStrategy[Program]:
    """Programs as `generate` draws them, each of which ran in eager on the CPU.

    ops     names of the ops to draw from; none means all. Raises ValueError for a name in no table.
    dtypes  floating and complex dtypes of leaves.
    """
    unknown = sorted(set(ops or ()) - set(OPS))
    if unknown:
        raise ValueError(f"no op {', '.join(unknown)}; `backfuzz ops` lists the known ones")
    limits = Limits(max_nodes=max_nodes, max_size=max_size, dtypes=tuple(dtypes))
    known = vocabulary(limits, ops or ())

    @st.composite
    def drawn(draw: st.DrawFn) -> Program:
        try:
            return generate(draw(st.randoms(use_true_random=False)), known, limits, routes)
        except (Rejected, IllTyped):
            reject()

    return drawn()
