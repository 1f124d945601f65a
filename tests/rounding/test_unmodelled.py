"""Operations that the rounding model does not know: which they are, what depends on them, and how they are replayed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.library import custom_op

from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.nodes import draw_node
from fuzzer.generation.vocabulary import complex_form
from fuzzer.language.interpret import apply
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import COMPLEX, DIFFERENTIABLE, FLOATS, writes
from fuzzer.language.values import DTYPE_NAMES
from fuzzer.rounding.floors import FIRST_LOOK, Model
from fuzzer.rounding.kernels import KERNELS
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.replay import Replay, Unreplayable
from fuzzer.rounding.trace import Step
from fuzzer.rounding.unmodelled import dependent, unmodelled
from tests.rounding.recorded import recorded, same, tensor

Run = Callable[..., list[torch.Tensor]]
F64, F32, BF16 = torch.float64, torch.float32, torch.bfloat16

# ---------------------------------------------------------------- a library of operations


@custom_op("backfuzz_tests::tripled", mutates_args=())
def tripled(x: torch.Tensor) -> torch.Tensor:
    """A kernel without float64, as many of Triton's and C++'s are."""
    assert x.dtype in (F32, BF16)
    return x * 3


@custom_op("backfuzz_tests::grow_", mutates_args=("x",))
def grow_(x: torch.Tensor, by: torch.Tensor, factor: float) -> torch.Tensor:
    """x += factor * by, which refuses float64 when it has begun to write; returns twice the sum."""
    x.add_(by * factor)
    if x.dtype == F64:
        raise KeyError("no kernel for float64")
    return x * 2


@custom_op("backfuzz_tests::relu", mutates_args=())
def relu(x: torch.Tensor) -> torch.Tensor:
    """Of the name of an ATen kernel that has a row."""
    return x.clamp(min=0)


@custom_op("backfuzz_tests::places", mutates_args=())
def places(x: torch.Tensor) -> torch.Tensor:
    return x.argsort()


@custom_op("backfuzz_tests::noisy", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(x.shape)


@custom_op("backfuzz_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    assert x.dtype == F32
    assert bool((x > 0).all())
    return x.sqrt()


def names(run: Run, *given: torch.Tensor) -> list[str]:
    """The operations of run(*given) that the model does not know."""
    return [name for step in recorded(run, *given)[0].steps if (name := unmodelled(step))]


# ---------------------------------------------------------------- which they are


def steps_of(name: str, number: int, dtype: str) -> Iterator[Step]:
    """The steps of one draw of an op, forward and backward; those before a refusal, where torch refuses it."""
    spec = complex_form(name) if dtype in COMPLEX else OPS[name]
    limits = Limits(max_size=12, max_numel=512, dtypes=DIFFERENTIABLE if dtype in COMPLEX else FLOATS)
    draft = Draft(random.Random(f"{name} {number}"), limits, dtype if spec.takes_complex else "f32")
    recorder = Recorder()
    try:
        node = draw_node(draft, spec)
        env = {leaf.name: draft.env[leaf.name].detach() for leaf in draft.leaves}
        leaves = [t.requires_grad_() for t in env.values() if DTYPE_NAMES[t.dtype] in DIFFERENTIABLE]
        if writes(node):
            env[writes(node)] = env[writes(node)].clone()
        with recorder:
            apply(node, env)
            results = [env[out] for out in node.outs if env[out].requires_grad]
            if results:
                torch.autograd.grad(results, leaves, [torch.ones_like(r) for r in results], allow_unused=True)
    except (Rejected, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        pass
    yield from recorder.trace.steps


# No draw on the CPU shows these: they need many rows, other dtypes or forward-mode AD.
ELSEWHERE = {"_euclidean_dist", "_embedding_bag_forward_only", "_new_zeros_with_same_feature_meta"}


@pytest.mark.slow
def test_the_model_knows_every_kernel_that_an_op_of_the_tables_calls() -> None:
    met: set[str] = set()
    lacking: set[tuple[str, str]] = set()
    for name in OPS:
        for number, dtype in enumerate(DIFFERENTIABLE):
            for step in steps_of(name, number, dtype):
                met.add(step.name)
                lacking |= {(name, told)} if (told := unmodelled(step)) else set()
    assert lacking == set()
    tried = {name for name, row in KERNELS.items() if row.unstated}  # a row that says no more than this
    assert tried - met == ELSEWHERE


def packed(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2, 1])).data


MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "masked_select": lambda x: torch.masked_select(x, x > 1),
    "_unique2": lambda x: torch.unique(x),
    "unique_dim": lambda x: torch.unique(x, dim=0),
    "unique_consecutive": lambda x: torch.unique_consecutive(x),
    "_pack_padded_sequence": packed,
    "heaviside": lambda x: torch.heaviside(x - x[0], x),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_that_only_a_function_calls_are_exact(name: str) -> None:
    trace, refs, results = recorded(lambda x: [MOVES[name](x)], tensor(3, 3))
    assert name in {step.name for step in trace.steps}
    assert {unmodelled(step) for step in trace.steps} == {""}
    model = Model(trace, refs)
    assert same(model.reference[0], results[0].double())
    assert not bool(model.spread(*FIRST_LOOK[:1]).deviation[0].any())


def test_an_aten_kernel_without_a_row_is_named() -> None:
    assert names(ctc_loss, *of_ctc()) == ["aten._ctc_loss", "aten._ctc_loss_backward"]


def test_an_operation_outside_aten_has_no_row_whatever_its_name() -> None:
    assert names(lambda x: [relu(x).relu()], tensor(3)) == ["backfuzz_tests.relu"]


def test_a_view_in_place_and_the_copy_of_a_view_are_known() -> None:
    run: Run = lambda x: [torch.view_copy(x, (4, 3)), x.clone().unsqueeze_(0)]  # noqa: E731
    assert names(run, tensor(3, 4)) == []


def test_an_operation_that_fills_nothing_rounded_needs_no_model() -> None:
    assert names(lambda x: [x[places(x)]], tensor(3)) == []


def test_numbers_drawn_without_operands_are_known() -> None:
    assert names(lambda x: [torch.rand(3) + x.clone().uniform_() + torch.randn_like(x)], tensor(3)) == []
    assert names(lambda x: [noisy(x)], tensor(3)) == ["backfuzz_tests.noisy"]


# ---------------------------------------------------------------- what depends on them


def depends(run: Run, *given: torch.Tensor) -> list[tuple[str, ...]]:
    """The unknown operations on which each result of run(*given) depends, without their namespace."""
    trace, refs, _ = recorded(run, *given)
    told = dependent(trace, {str(at): ref for at, ref in enumerate(refs)})
    return [tuple(name.split(".")[1] for name in found) for found in told.values()]


def test_a_result_depends_on_the_operations_that_made_its_operands() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        a, b = tripled(x), relu(x)
        return [x * 2, a.exp(), b + a, a.t()[1:], x[places(x[:, 0])] * b]

    assert depends(run, tensor(3, 3)) == [(), ("tripled",), ("tripled", "relu"), ("tripled",), ("relu",)]


def test_a_write_adds_to_all_that_shares_the_memory() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y, z = x * 1, x * 1
        row = y[0]
        y[1].copy_(tripled(x[1]))
        grown = grow_(z[2], x[0], 1.5)
        return [row, y * 2, grown, z]

    assert depends(run, tensor(3, 4)) == [("tripled",), ("tripled",), ("grow_",), ("grow_",)]


def test_a_result_that_reads_only_sizes_depends_on_nothing() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = tripled(x)
        return [torch.zeros_like(y), torch.rand_like(y), y.new_full((2,), 3.0)]

    assert depends(run, tensor(3)) == [(), (), ()]


def test_drawn_numbers_depend_on_what_they_are_drawn_beside() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.native_dropout(tripled(x), 0.5, True)[0], torch.rand(3) * x]

    assert depends(run, tensor(3)) == [("tripled",), ()]


def test_gradients_depend_on_the_operations_of_the_backward() -> None:
    def run(x: torch.Tensor, *labels: torch.Tensor) -> list[torch.Tensor]:
        loss, gradient = ctc_loss(x, *labels)
        return [x.exp(), loss, gradient]

    assert depends(run, *of_ctc()) == [(), ("_ctc_loss",), ("_ctc_loss", "_ctc_loss_backward")]


def of_ctc() -> tuple[torch.Tensor, ...]:
    """Logits of 5 times, 2 sequences and 3 classes, labels, and the lengths of both."""
    return tensor(5, 2, 3), torch.tensor([[1, 2], [2, 1]]), torch.tensor([5, 5]), torch.tensor([2, 2])


def ctc_loss(x: torch.Tensor, *labels: torch.Tensor) -> list[torch.Tensor]:
    """The loss and its gradient."""
    y = x.detach().requires_grad_()
    loss = torch.nn.functional.ctc_loss(y.log_softmax(-1), *labels)
    return [loss.detach(), *torch.autograd.grad(loss, y)]


# ---------------------------------------------------------------- how they are replayed


def test_a_kernel_without_a_row_is_replayed_in_float64_where_it_has_that() -> None:
    trace, refs, results = recorded(ctc_loss, *of_ctc())
    replay = Replay(trace).run()
    x, *labels = of_ctc()
    # the logits as they were recorded, in float32
    for ref, exact, eager in zip(refs, ctc_loss(x.double(), *labels), results, strict=True):
        torch.testing.assert_close(replay.value(ref), exact, rtol=1e-12, atol=1e-12)
        assert not same(replay.value(ref), eager.double())


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_kernel_that_refuses_float64_runs_in_its_own_dtype(dtype: torch.dtype) -> None:
    x = tensor(3, 4).t().to(dtype)
    trace, (ref, end), (y, _) = recorded(lambda x: [y := tripled(x / 7), y.exp()], x)
    replay = Replay(trace).run()
    # the operand is the exact quotient, rounded once: as in eager, so the result has eager's bits
    assert same(replay.value(ref), y.double())
    assert torch.equal(replay.value(end), y.double().exp())
    spread = Model(trace, [end]).spread(*FIRST_LOOK[:1])
    assert bool((spread.deviation[0] > 0).all())


def test_a_kernel_that_writes_and_refuses_float64_writes_once() -> None:
    def run(x: torch.Tensor, by: torch.Tensor) -> list[torch.Tensor]:
        y = x * 1
        twice = grow_(y.t()[1:], by[:, None], 0.1)
        return [y, twice, y + 1]

    x, by = tensor(3, 4), tensor(3)
    trace, refs, results = recorded(run, x, by)
    replay = Replay(trace).run()
    for ref, result in zip(refs[:2], results[:2], strict=True):
        assert replay.value(ref).dtype == F64
        assert same(replay.value(ref), result.double())
    assert torch.equal(replay.value(refs[2]), results[0].double() + 1)
    spread = Model(trace, refs).spread(*FIRST_LOOK[:1])
    assert bool((spread.deviation[0] > 0)[:, 1:].all())
    assert not bool((spread.deviation[0] > 0)[:, 0].any())


def test_the_layers_of_onednn_are_replayed_in_float32() -> None:
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(4, 5, num_layers=2)

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.detach().requires_grad_()
        out, _ = lstm(y)
        return [out.detach(), *torch.autograd.grad(out.sum(), [y, *lstm.parameters()])]

    x = tensor(3, 2, 4)
    assert set(names(run, x)) == {"aten.mkldnn_rnn_layer", "aten.mkldnn_rnn_layer_backward"}
    trace, refs, results = recorded(run, x)
    replay = Replay(trace).run()
    lstm.double()
    for ref, eager, exact in zip(refs, results, run(x.double()), strict=True):
        assert replay.value(ref).dtype == F64
        torch.testing.assert_close(replay.value(ref), eager.double(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(replay.value(ref), exact, rtol=1e-5, atol=1e-6)


def test_a_kernel_that_refuses_both_cannot_be_replayed() -> None:
    """Its operand underflows in some replica: whatever a library raises is told in a sentence."""
    x = torch.full((4,), 1e-38)
    trace, (ref,), _ = recorded(lambda x: [positive(x / 64)], x)
    with pytest.raises(Unreplayable, match=r"positive\.default: AssertionError"):
        Model(trace, [ref]).spread(*FIRST_LOOK[:1])
