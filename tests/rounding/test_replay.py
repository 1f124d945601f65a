"""The float64 replay of a recording."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, reject, settings

from fuzzer.generation.strategies import programs
from fuzzer.language import interpret, routes
from fuzzer.language.program import Program
from fuzzer.rounding.replay import Replay, Unreplayable
from fuzzer.rounding.trace import Ref, Step, Trace
from tests.rounding.recorded import recorded, replayed, same, tensor


def run_program(program: Program) -> tuple[Callable[..., list[torch.Tensor]], list[torch.Tensor], list[torch.Tensor]]:
    leaves = interpret.materialise(program.leaves)
    seeds = interpret.cotangents(program)

    def run(*_: torch.Tensor) -> list[torch.Tensor]:
        spec, _options = routes.route_of(program)
        found = spec.run(routes.Call(program, interpret.to_function(program), leaves, seeds))
        return [*found.outputs, *(g for g in found.gradients.values() if g is not None)]

    return run, list(leaves.values()), seeds


def stays_in_float64(program: Program) -> bool:
    floats = {leaf.dtype for leaf in program.leaves if leaf.type.is_float}
    return floats <= {"f64"} and not any("dtype" in dict(node.attrs) for node in program.nodes)


@given(programs(dtypes=("f64",), max_nodes=5).filter(stays_in_float64))
@settings(max_examples=40)
def test_the_replay_of_a_float64_program_is_eagers_float64_run(program: Program) -> None:
    run, leaves, seeds = run_program(program)
    for mine, theirs in replayed(run, *leaves, *seeds):
        if theirs.dtype == torch.float64:
            assert mine.shape == theirs.shape
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12, equal_nan=True)
        else:
            assert same(mine, theirs) or theirs.dtype.is_floating_point


@given(programs(max_nodes=5, routes=("autograd", "vjp")))
@settings(max_examples=25)
def test_any_program_can_be_replayed_twice_with_the_same_bits(program: Program) -> None:
    run, leaves, seeds = run_program(program)
    try:
        trace, refs, _ = recorded(run, *leaves, *seeds)
    except RuntimeError:  # eager refuses some of what it took in the generator's dry run (attention below autocast)
        reject()
    first, second = Replay(trace).run(), Replay(trace).run()
    for ref in refs:
        assert same(first.value(ref).clone(), second.value(ref))


def in_place_through_a_view(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.clone()
    y[1:].mul_(2)
    y.t()[0].add_(1)
    return [y]


def written_after_it_was_viewed(x: torch.Tensor) -> list[torch.Tensor]:
    y = x * 1
    seen = y.select(0, 1)
    y.zero_()
    return [seen, y]


def copied_into_a_hole(x: torch.Tensor) -> list[torch.Tensor]:
    y = torch.zeros(6, 4, dtype=x.dtype)
    y[::2, 1:3].copy_(x[:, :2])
    return [y]


def written_to_what_was_given(x: torch.Tensor) -> list[torch.Tensor]:
    x.add_(1)
    return [x * 2]


def swapped_by_index(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.clone()
    y.index_put_((torch.tensor([0, 2]),), x[[2, 0]])
    return [y]


def out_variant(x: torch.Tensor) -> list[torch.Tensor]:
    y = torch.empty_like(x)
    torch.add(x, x, out=y)
    return [y]


def accumulated(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.detach().requires_grad_()
    z = y.t()[1:] * y.t()[:-1] + y.expand(2, *y.shape).sum(0).t()[1:]
    return list(torch.autograd.grad(z.sum(), y))


ALIASING = [
    in_place_through_a_view,
    written_after_it_was_viewed,
    copied_into_a_hole,
    written_to_what_was_given,
    swapped_by_index,
    out_variant,
    accumulated,
]


@pytest.mark.parametrize("run", ALIASING, ids=lambda f: f.__name__)
def test_writes_and_views_meet_in_the_replay_as_they_met_in_eager(run: Callable[..., list[torch.Tensor]]) -> None:
    for mine, theirs in replayed(run, tensor(3, 4, dtype=torch.float64)):
        assert same(mine, theirs)


def test_a_replay_leaves_the_recording_as_it_was() -> None:
    trace, refs, _ = recorded(written_to_what_was_given, tensor(3, 4, dtype=torch.float64))
    first = Replay(trace).run().value(refs[0]).clone()
    assert same(first, Replay(trace).run().value(refs[0]))


RANDOM = [
    ("dropout", lambda x: [torch.nn.functional.dropout(x, 0.5)]),
    ("rrelu", lambda x: [torch.nn.functional.rrelu(-x, training=True)]),
    ("rand_like", lambda x: [x * torch.rand_like(x)]),
    ("normal_", lambda x: [x.clone().normal_() + x]),
    ("bernoulli", lambda x: [torch.bernoulli(x.sigmoid()) + x]),
    ("randint", lambda x: [x[torch.randint(3, (5,))]]),
    ("randperm", lambda x: [x[torch.randperm(3)]]),
]


@pytest.mark.parametrize("run", [r[1] for r in RANDOM], ids=[r[0] for r in RANDOM])
def test_random_draws_are_replayed_as_recorded(run: Callable[..., list[torch.Tensor]]) -> None:
    torch.manual_seed(1)
    pairs = replayed(run, tensor(3, 4, dtype=torch.float64))
    torch.manual_seed(2)
    for mine, theirs in pairs:
        assert same(mine, theirs)


def test_the_replay_is_more_exact_than_eager() -> None:
    x = tensor(1000).to(torch.bfloat16)
    ((mine, theirs),) = replayed(lambda x: [(x * x + x).cumsum(0)[-1]], x)
    exact = (x.double() * x.double() + x.double()).sum()
    assert mine.dtype == torch.float64
    assert abs(float(mine - exact)) < 1e-9 * float(exact) < abs(float(theirs.double() - exact))


CONSTANTS = [
    # the dtype that eager really used decides a default or a limit, not float64
    ("rms_norm's default eps", lambda x: [torch.nn.functional.rms_norm(x * 1e-4, (4,))], 1e-6),
    ("clamp's scalar limit", lambda x: [x.clamp(max=0.1)], 1e-9),
    ("the largest numbers that nan_to_num knows", lambda x: [(x / 0).nan_to_num(), (x / 0).nan_to_num_(1.5, 3.0)], 0.0),
    ("a mask of the smallest number", lambda x: [(x * 1e-30).nan_to_num(nan=1.0) + torch.finfo(x.dtype).eps], 1e-9),
]


@pytest.mark.parametrize(("run", "near"), [c[1:] for c in CONSTANTS], ids=[c[0] for c in CONSTANTS])
def test_constants_are_those_that_eager_used(run: Callable[..., list[torch.Tensor]], near: float) -> None:
    for mine, theirs in replayed(run, tensor(3, 4)):
        torch.testing.assert_close(mine, theirs.double(), rtol=near + 2e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_fused_kernel_takes_the_epsilon_of_the_precision_that_it_computed_in(dtype: torch.dtype) -> None:
    """CUDA records rms_norm as one step without an epsilon; the CPU records its parts, so the step is made here."""
    x = (tensor(3, 4) * 1e-3).to(dtype)
    out, scale = torch.ops.aten._fused_rms_norm(x, [4], None, None)
    refs = [Ref(number, t.dtype, tuple(t.shape), tuple(t.stride()), 0) for number, t in enumerate((x, out, scale))]
    step = Step(torch.ops.aten._fused_rms_norm.default, (refs[0], [4], None, None), {}, tuple(refs[1:]), ())
    sizes = {ref.storage: ref.numel for ref in refs}
    mine = Replay(Trace([step], {0: x.flatten()}, sizes)).run().value(refs[1])
    torch.testing.assert_close(mine, out.double(), rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_casts_are_replayed_without_rounding_and_integers_stay_integers() -> None:
    pairs = replayed(lambda x: [x.to(torch.bfloat16).float(), (x * 7).long(), x > 1], tensor(3, 4))
    assert same(pairs[0][0], tensor(3, 4).double())
    assert [p[0].dtype for p in pairs[1:]] == [torch.int64, torch.bool]
    assert all(same(*p) for p in pairs[1:])


def test_what_cannot_be_replayed_says_which_op_and_why() -> None:
    with pytest.raises(Unreplayable, match="quantize"):
        replayed(lambda x: [torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()], torch.zeros(3))


def test_complex_numbers_are_replayed_also_as_their_parts_and_conjugated() -> None:
    def parts(x: torch.Tensor) -> list[torch.Tensor]:
        z = torch.view_as_complex(x)
        return [torch.view_as_real(z * z.conj()), torch.view_as_real(torch.fft.fft(z).conj().resolve_conj())]

    for wide, eager in replayed(parts, torch.arange(8.0).reshape(4, 2)):
        assert wide.dtype == torch.float64
        torch.testing.assert_close(wide, eager.double())
