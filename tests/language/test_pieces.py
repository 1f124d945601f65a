"""A function in pieces: programs of a few ops with the values that they met."""

from __future__ import annotations

import pytest
import torch

from fuzzer.generation.dry_run import dry_gradients
from fuzzer.language.pieces import pieces
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.language.transcribe import Inexpressible


def ops(program: Program) -> list[str]:
    return [node.op for node in program.nodes]


def test_a_long_function_is_cut_and_each_piece_runs_on_what_it_met() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(15):
            x = torch.cos(x) + 1
        return x

    found = pieces(long, (torch.zeros(2),))
    assert [len(program.nodes) for program in found] == [12, 12, 6]
    first, second, _ = found
    assert first.leaves[0].values.args == (0.0, 0.0)
    x = torch.zeros(2)
    for _ in range(6):
        x = torch.cos(x) + 1
    assert torch.equal(torch.tensor(second.leaves[0].values.args), x)
    for program in found:
        assert parse(show(program)) == program
        gradients = dry_gradients(program)
        assert gradients is not None
        assert gradients["x0"] is not None


def test_a_call_that_no_op_says_is_a_place_to_cut_and_its_result_a_leaf() -> None:
    first, second = pieces(lambda x: torch.special.bessel_j0(x.exp()).sin() * 2, (torch.full((3,), 0.5),))
    assert (ops(first), ops(second)) == (["exp"], ["sin", "mul_scalar"])
    met = torch.special.bessel_j0(torch.full((3,), 0.5).exp())
    assert second.leaves[0].values.args == tuple(met.tolist())


def test_inputs_and_their_memory_are_left_as_they_were() -> None:
    x = torch.randn(80)
    before = x.clone()
    found = pieces(lambda x: (x.detach().mul_(2) + x).exp(), (x,))
    assert torch.equal(x, before)
    assert not x.requires_grad
    assert found[0].leaves[0].values.name == "normal", "larger leaves keep their type and layout alone"


def test_a_module_brings_its_parameters() -> None:
    found = pieces(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU()), (torch.randn(2, 3),))
    assert list(map(ops, found)) == [["linear", "gelu"]]
    assert [leaf.shape for leaf in found[0].leaves] == [(2, 3), (4, 3), (4,)]
    assert all(leaf.requires_grad for leaf in found[0].leaves)


def test_where_no_piece_has_a_gradient_what_stood_in_the_way_is_named() -> None:
    with pytest.raises(Inexpressible, match="special_bessel_j0"):
        pieces(torch.special.bessel_j0, (torch.ones(3),))
    with pytest.raises(ZeroDivisionError):
        pieces(lambda x: x / (1 // 0), (torch.ones(3),))
