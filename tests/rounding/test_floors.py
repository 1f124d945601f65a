"""Floors as the looks take them: eager lies inside its own, and what one replica moves stays moved."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch

from fuzzer.language import interpret, routes
from fuzzer.language.program import Program, between
from fuzzer.language.text import show
from fuzzer.rounding.floors import FINAL_LOOK, FIRST_LOOK, SCALE, SECOND_LOOK, Model, Spread
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.replay import Unreplayable
from tests.drawn import drawn
from tests.rounding.modelled import (
    BF16,
    F32,
    FINAL_REPLICAS,
    FIRST_FACTOR,
    gradient,
    modelled,
    normal,
)


def faulty_in_eager(program: Program) -> bool:
    """A known fault of eager on the CPU: baddbmm in bfloat16 with alpha or beta of 0, the gradient of embedding_bag by
    frequency (pytorch #190063)."""
    if any(n.op == "embedding_bag" and dict(n.attrs).get("scale_grad_by_freq") for n in program.nodes):
        return True
    half = any(leaf.dtype == "bf16" for leaf in program.leaves)
    return half and any(
        n.op == "baddbmm" and 0 in (dict(n.attrs).get("alpha"), dict(n.attrs).get("beta")) for n in program.nodes
    )


PROGRAMS = 40


def outside(program: Program) -> list[str]:
    """Outputs and gradients of an eager run that lie outside the floor at every look, as the oracles ask for."""
    leaves, seeds = interpret.materialise(program.leaves), interpret.cotangents(program)
    spec, _ = routes.route_of(program)
    recorder = Recorder()
    for t in (*leaves.values(), *seeds):
        recorder.ref(t)
    with recorder:
        found = spec.run(routes.Call(program, interpret.to_function(program), leaves, seeds))
    named = {o.value: t for o, t in zip(program.outputs, found.outputs, strict=True)}
    named |= {f"{name}.grad": t for name, t in found.gradients.items() if t is not None}
    model = Model(recorder.trace, [recorder.ref(t) for t in named.values()])
    suspects = list(named)
    for replicas, scale, factor in (FIRST_LOOK, SECOND_LOOK, FINAL_LOOK):
        limits = dict(zip(named, model.spread(replicas, scale=scale).floors(factor), strict=True))
        r = dict(zip(named, model.reference, strict=True))
        suspects = [n for n in suspects if bool(_apart(named[n].double(), r[n].double(), limits[n]).any())]
        if not suspects:
            return []
    return suspects


def _apart(value: torch.Tensor, reference: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    both = torch.isfinite(value) & torch.isfinite(reference)
    lost = (torch.isfinite(value) != torch.isfinite(reference)) & torch.isfinite(limit)
    return torch.where(both, (value - reference).abs() > limit, lost)


@pytest.mark.parametrize("block", range(2))
def test_eager_lies_inside_its_own_floor(block: int) -> None:
    told, looked = [], 0
    numbers = range(block * PROGRAMS // 2, (block + 1) * PROGRAMS // 2)
    for program in (p for p in drawn([f"floor/{number}" for number in numbers]) if not between(p)):
        with suppress(Unreplayable, RuntimeError):  # eager refuses some programs
            suspects = outside(program)
            looked += 1
            if suspects and not faulty_in_eager(program):
                told.append(f"{suspects} of\n{show(program)}")
    assert not told, "\n".join(told)
    assert looked >= 0.9 * len(numbers)


def test_almost_every_program_can_be_modelled() -> None:
    lost = []
    for program in drawn([f"model/{number}" for number in range(60)]):
        try:
            leaves = interpret.materialise(program.leaves)
            modelled(lambda *given: list(interpret.to_function(program)(*given)), *leaves.values())  # noqa: B023
        except Unreplayable as error:
            lost.append(str(error))
    assert not lost


def test_a_position_that_one_replica_moves_stays_moved_in_the_floor() -> None:
    near = torch.tensor([0.1, 0.1, 0.1]) * torch.tensor([3.0, 3.0000002, 3.0])
    model, _ = modelled(lambda x: [(x * 0.3).argmax()], near)
    told = [bool(model.replica(seed, False, 1.0)[0] != model.reference[0]) for seed in range(32)]
    count = 32 - told[::-1].index(False)  # or the last replica alone would explain it
    assert any(told[:count])
    assert float(model.spread(count).floors(FIRST_FACTOR)[0]) == float("inf")


def test_a_position_of_many_equal_elements_is_not_judged_and_one_alone_is() -> None:
    x = torch.ones(300)
    x[7] = 2.0
    model, _ = modelled(lambda t: [t.sort(descending=True).indices], x)
    spread = model.spread(8)
    lacking = spread.lack(0, torch.arange(300.0).double() - 300)  # nowhere
    assert lacking.tolist() == [True] + [False] * 299


def test_what_rounding_makes_equal_or_whole_is_so_in_a_replica() -> None:
    """Equal maxima share a gradient, a number equals the one that was rounded to it, a base has a whole power."""
    x = torch.full((54,), 1e-4, dtype=BF16).cumsum(0)
    for run in (
        gradient(lambda t: torch.nn.functional.logsigmoid(t).amax()),
        lambda t: [(t + 1 == torch.ones_like(t)).float()],
        lambda t: [torch.full_like(t, -2.0).pow(t + 1)],
    ):
        model, seen = modelled(run, x)
        spread = model.spread(8, scale=SCALE)
        for value, r, limit in zip(seen, spread.reference, spread.floors(FIRST_FACTOR), strict=True):
            assert not bool(_apart(value.double(), r, limit).any())


def test_no_floor_of_a_later_look_is_lower() -> None:
    """Jumps do not grow with the unit: a kink's floor is the jump times the factor, which all looks share."""
    kinks = torch.tensor([-3.0, 0.0, 3.0], dtype=F32).repeat(64) * (1 + torch.finfo(F32).eps)
    model, _ = modelled(gradient(torch.nn.functional.hardswish), kinks * normal(192).sign())
    looks = (FIRST_LOOK, SECOND_LOOK, FINAL_LOOK)
    floors = [model.spread(replicas, scale=scale).floors(factor)[0] for replicas, scale, factor in looks]
    assert float(floors[0].max()) > 0
    assert bool((floors[0] <= floors[1]).all())
    assert bool((floors[1] <= floors[2]).all())


def test_an_integer_is_explained_only_by_alternatives_that_replicas_show() -> None:
    near = torch.tensor([1.0, 3.0, 6.0])

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x * 0.1 * 10
        return [y.to(torch.int32), y > x, (y * 1e7).to(torch.int32), x.to(torch.int32)]

    model, _ = modelled(run, near)
    spread = model.spread(FINAL_REPLICAS, scale=SCALE)
    below, above = near.double() - 1, near.double()
    assert not bool(spread.lack(0, above).any())
    assert not bool(spread.lack(0, below).any())
    assert bool(spread.lack(0, above + 1).all() & spread.lack(0, below - 1).all())
    for flag in (0.0, 1.0):
        assert not bool(spread.lack(1, torch.full((3,), flag).double()).any())
    large = model.reference[2].double()  # many alternatives: what lies between two of them is one
    assert not bool(spread.lack(2, large + 1).any())
    assert bool(spread.lack(2, large + 10**6).all())
    assert bool(spread.lack(3, above + 1).all())


def test_a_spread_that_goes_on_from_another_is_that_of_all_their_replicas() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [(x / 3).exp(), x.argsort(), x.sum()]

    model, _ = modelled(run, torch.cat([normal(6), torch.tensor([3 * 88.722839])]))  # the end of float32's range
    first = model.spread(8, scale=SCALE)
    held = [mask.clone() for mask in first.unstable]
    on = model.spread(24, scale=SCALE, start=8, before=first)
    whole, few = model.spread(32, scale=SCALE), model.spread(8, scale=SCALE)
    assert on.coherent is not None
    assert whole.coherent is not None
    for one, other in ((on, whole), (on.coherent, whole.coherent), (first, few)):
        assert all(map(torch.equal, one.deviation, other.deviation))
        assert all(map(torch.equal, one.unstable, other.unstable))
    assert all(map(torch.equal, first.unstable, held))
    assert bool(on.unstable[0].any())
    assert torch.equal(on.lack(1, torch.arange(7)), whole.lack(1, torch.arange(7)))
    assert any(not torch.equal(a, b) for a, b in zip(first.deviation, on.deviation, strict=True))


def test_models_of_equal_traces_share_what_they_computed_and_no_others_do() -> None:
    asked: list[str] = []

    def known(model: Model, name: str) -> Spread:
        return model.known(8, lambda: (asked.append(name), model.spread(8))[1])

    x = normal(5)
    one, other = modelled(lambda x: [x.exp()], x)[0], modelled(lambda x: [x.exp()], x + 1)[0]
    found = known(one, "one")
    assert known(modelled(lambda x: [x.exp()], x.clone())[0], "equal") is found
    known(other, "other values")
    known(modelled(lambda x: [x.sin()], x)[0], "another op")
    assert asked == ["one", "other values", "another op"]
    known(modelled(lambda x: [x.exp()], x)[0], "forgotten")
    assert asked[-1] == "forgotten"
