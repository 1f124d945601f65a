"""Padding at the ends of the last dimensions."""

from __future__ import annotations

from collections.abc import Callable

from fuzzer.language.ops.spec import Draw, Operand, OpSpec, choice, computed, nonempty
from fuzzer.language.program import Shape, Value

FAMILY = "padding"


def constant_pad(d: Draw) -> Value:
    """Pairs for some of the last dimensions, the last one first; negative ones crop (never below size 0)."""
    pairs: list[int] = []
    for size in reversed(d.x.shape[d.x.rank - d.rng.randint(min(d.x.rank, 1), min(d.x.rank, 3)) :]):
        low = d.rng.choice((0, 0, 1, 2, 3, -min(1, size)))
        pairs += [low, d.rng.choice((0, 0, 1, 2, 5, -min(1, size + min(low, 0))))]
    return tuple(pairs)


def _bounded_pad(most: Callable[[int], int], crops: bool) -> Callable[[Draw], Value]:
    """Pairs for the 1, 2 or 3 last dimensions, as torch pads in this mode; each at most `most(size)`.

    `crops`: sometimes a negative one.
    """

    def draw(d: Draw) -> Value:
        # torch requires one or two dimensions before the padded ones, and supports ranks 2 to 5
        padded = d.rng.choice([n for n in (1, 2, 3) if d.x.rank in (n + 1, n + 2)])
        pairs: list[int] = []
        for size in reversed(d.x.shape[-padded:]):
            pairs += [d.rng.choice((0, 1, most(size), 2)) for _ in range(2)]
            pairs[-2:] = [min(pad, most(size), 6) for pad in pairs[-2:]]
            if crops and size > 1 and d.rng.random() < 0.2:
                pairs[-d.rng.randint(1, 2)] = -1
        return tuple(pairs)

    return draw


def _small(d: Draw) -> Shape:
    return tuple(d.size(1, 8) for _ in range(d.rng.randint(2, 5)))


def _pad(mode: str, most: Callable[[int], int], *also: str, crops: bool = False) -> OpSpec:
    operand = Operand(rank=(2, 5), accepts=nonempty, fresh=_small)
    attributes = (computed("pad", "shape", _bounded_pad(most, crops)), choice("mode", mode, default="constant"))
    name = f"pad_{mode}"
    return OpSpec(
        name, FAMILY, "torch.nn.functional.pad", (operand, *attributes), entries=(f"nn.functional.pad.{mode}", *also)
    )


TABLE = (
    OpSpec(
        "pad",
        FAMILY,
        "torch.nn.functional.pad",
        (
            Operand(rank=(1, 5)),
            computed("pad", "shape", constant_pad),
            choice("value", None, 0.0, 1.0, -2.5, default=None),
        ),
        entries=("nn.functional.pad.constant",),
    ),
    _pad("reflect", lambda size: size - 1, crops=True),
    _pad("replicate", lambda size: 4, "nn.functional.pad.replicate_negative", crops=True),
    _pad("circular", lambda size: size),
)
