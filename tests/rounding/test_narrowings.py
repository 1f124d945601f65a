"""Chains whose roundings to half precision are dropped, and replays with and without these."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuzzer.rounding.narrowings import FusedChain, Nearest, fused_chains
from fuzzer.rounding.replay import Replay
from tests.rounding.recorded import recorded, same, tensor

HALF = tensor(4, 4, dtype=torch.float16)
Run = Callable[[torch.Tensor], list[torch.Tensor]]


def there_and_back(x: torch.Tensor) -> list[torch.Tensor]:
    return [(x.float().cos().to(torch.bfloat16).float() * 3).sum()]


def written(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.cos()
    y[0].mul_(1.3)
    return [y, y.floor()]


@pytest.mark.parametrize(
    ("run", "casts", "moves"),
    [
        (lambda x: [x.cos().floor()], ["cos"], []),
        (lambda x: [x.cos().clone().floor()], ["cos"], ["clone"]),
        (lambda x: [x.cos().sum(0)], ["cos"], []),
        (there_and_back, ["_to_copy"], []),
        (written, ["cos", "mul"], []),
        (lambda x: [x.cos()], [], []),  # what is returned is stored
        (lambda x: [x.cos() @ x], [], []),  # and so is what a product reads
        (lambda x: [x.sum(0).cos()], [], []),  # and the result of a reduction
        (lambda x: [x.float().cos().floor()], [], []),
    ],
)
def test_a_chain_ends_where_results_are_stored(run: Run, casts: list[str], moves: list[str]) -> None:
    trace, _, _ = recorded(run, HALF)
    found = fused_chains(trace.steps)
    assert [trace.steps[n].name for chain in found for n in chain.casts] == casts
    assert [trace.steps[n].name for chain in found for n in chain.moves] == moves


def test_forward_and_backward_are_chains_of_their_own() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        leaf = x.clone().requires_grad_()
        y = leaf.cos().sin().mul(leaf)
        return [y, *torch.autograd.grad(y, leaf, torch.ones_like(y))]

    trace, _, _ = recorded(run, HALF)
    assert len(fused_chains(trace.steps)) == 2


def results(run: Run, drop: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Eager's results and those of a replay, with all roundings or without those of the only chain."""
    trace, refs, eager = recorded(run, HALF)
    chain: FusedChain
    (chain,) = fused_chains(trace.steps)
    dropped = frozenset(chain.casts) | chain.moves if drop else frozenset[int]()
    replay = Replay(trace, Nearest(chain, dropped)).run()
    return eager, [replay.value(ref).to(t.dtype) for ref, t in zip(refs, eager, strict=True)]


@pytest.mark.parametrize("run", [there_and_back, written, lambda x: [x.exp().exp().sub(3).reciprocal()]])
def test_with_all_roundings_a_replay_is_eager(run: Run) -> None:
    eager, replayed = results(run, drop=False)
    assert all(same(a, b) for a, b in zip(eager, replayed, strict=True))


def test_without_them_members_alone_read_what_was_not_rounded() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.cos()
        return [y.sub(x), y @ x, y]

    eager, replayed = results(run, drop=True)
    assert same(replayed[0], (HALF.float().cos() - HALF.float()).half())
    assert not same(replayed[0], eager[0])
    assert all(same(a, b) for a, b in zip(eager[1:], replayed[1:], strict=True))


def test_it_holds_what_its_steps_decided() -> None:
    trace, _, _ = recorded(lambda x: [x.cos().floor(), x > 1], HALF)
    rounding = Nearest()
    Replay(trace, rounding).run()
    assert list(rounding.decided) == [1, 2]
