"""TRIGGERS: for each reported fault of docs/reach.md that a program can say, whether a program could show it.

A trigger reads a program's text alone. It asks for what the report names as decisive, and for no more: that a release
has the fault, a device, or values that only a run would show, is not its business.
"""

from __future__ import annotations

from benches.triggers import bodies, hearing, indexing, layers, memory, numbers, reductions, windows
from benches.triggers.kinds import Trigger
from benches.triggers.sketch import Sketch
from fuzzer.language.program import Program

# By the name of the program in corpus/reach that shows the fault.
TRIGGERS: dict[str, Trigger] = {
    f"pytorch_{number}": trigger
    for table in (
        memory.TABLE,
        indexing.TABLE,
        reductions.TABLE,
        numbers.TABLE,
        windows.TABLE,
        layers.TABLE,
        bodies.TABLE,
    )
    for number, trigger in table.items()
}

# By the name of the program in corpus/hearing, a fault that backfuzz did not draw or excused.
HEARING: dict[str, Trigger] = {f"pytorch_{name}": trigger for name, trigger in hearing.TABLE.items()}


def triggered(program: Program) -> set[str]:
    """The names of the faults that this program could show."""
    sketch = Sketch(program)
    return {name for name, trigger in (TRIGGERS | HEARING).items() if trigger(sketch)}
