"""Nodes that join values of common origin: residuals, x - x.max(), masks.

Such a node makes the compiler decide about fusion and about the accumulation of the two gradients.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch

from fuzzer.generation.draft import Draft
from fuzzer.language.ops.spec import OpSpec
from fuzzer.language.program import Shape

_PLAIN = ("add", "sub", "mul", "div")
_OTHERS = ("binary", "ternary", "comparison")  # families; all but these broadcast
_NARROW = ("dist", "ldexp", "floor_divide")
_EQUAL = ("cat", "stack")  # families whose operands have equal sizes


def meeting(draft: Draft) -> tuple[str, str] | None:
    """Two live values whose sizes broadcast, one of which depends on the other or both on a third; later ones first."""
    origins = _origins(draft)
    live = [name for name in draft.types if name not in draft.dead]
    for name in reversed([name for name in live if name.startswith("v")]):
        related = [other for other in live if other != name and not origins[name].isdisjoint(origins[other])]
        fitting = [other for other in related if fits(draft, draft.types[name].shape, draft.types[other].shape)]
        if fitting:
            pair = [name, draft.rng.choice(fitting)]
            draft.rng.shuffle(pair)
            return pair[0], pair[1]
    return None


def joining(rng: random.Random, groups: Mapping[str, Sequence[OpSpec]], alike: bool) -> OpSpec | None:
    """An op that joins two values, half of the time a plain one; `alike`: they have the same sizes, at least one
    dimension."""
    known = {spec.name: spec for specs in groups.values() for spec in specs}
    plain = [known[name] for name in _PLAIN if name in known]
    others = [spec for family in _OTHERS for spec in groups.get(family, ()) if spec.name not in _NARROW]
    others = [spec for spec in others if len(spec.operands) > 1]
    others += [known[name] for name in _EQUAL if name in known and alike]
    chosen = plain if plain and rng.random() < 0.5 else others
    return rng.choice(chosen) if chosen else None


def _origins(draft: Draft) -> dict[str, set[str]]:
    """For each name, the leaves and results from which it was computed, itself among them."""
    found = {leaf.name: {leaf.name} | ({leaf.base} if leaf.base else set()) for leaf in draft.leaves}
    for node in draft.nodes:
        sources = set[str]().union(*(found[name] for name in node.uses))
        found.update({out: {out, *sources} for out in node.outs})
    return found


def fits(draft: Draft, a: Shape, b: Shape) -> bool:
    """Whether these shapes broadcast to no more elements than a long leaf may have."""
    try:
        together = torch.broadcast_shapes(a, b)
    except RuntimeError:
        return False
    return together.numel() <= draft.limits.max_numel * draft.limits.long
