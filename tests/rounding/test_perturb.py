"""Replicas and what they spread over: what the rounding model lets pass, and what it flags."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch

from fuzzer.judgement.comparison import first_spread
from fuzzer.judgement.trial import RAN, Observation, Place, Subject, Trial
from fuzzer.language.text import parse
from fuzzer.rounding.floors import FACTOR, SCALE, Model
from fuzzer.rounding.kernels import named
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.trace import Step
from fuzzer.trial.pipeline import record_reference
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.rounding.modelled import (
    BF16,
    F16,
    F32,
    F64,
    FINAL_REPLICAS,
    FIRST_FACTOR,
    FIRST_REPLICAS,
    Run,
    floor,
    floors,
    gradient,
    modelled,
    normal,
)

F = torch.nn.functional


def integers(*shape: int, dtype: torch.dtype = F32, low: int = -4, high: int = 5) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


# ---------------------------------------------------------------- exactness: floor zero, and one unit more is wrong

EXACT: list[tuple[str, Run, tuple[torch.Tensor, ...]]] = [
    ("add, mul, sub", lambda x: [x * x + x - 3 * x], (integers(4, 5),)),
    ("sum", lambda x: [x.sum(0)], (integers(40, 5),)),
    ("matmul", lambda x: [x @ x.t()], (integers(6, 30),)),
    ("cumsum", lambda x: [x.cumsum(1)], (integers(3, 30),)),
    ("scatter_add", lambda x: [torch.zeros(4).index_add(0, torch.tensor([0, 1, 1, 2, 2, 2]), x)], (integers(6),)),
    ("convolution", lambda x: [torch.nn.functional.conv1d(x, x[:, :, :3])], (integers(2, 3, 9),)),
    ("gradient of a matmul", gradient(lambda x: x @ x.t()), (integers(4, 9),)),
    ("gradient of slice_scatter", gradient(lambda x: x.slice_scatter(x[:2] * 3, 0, 1, 3)), (integers(5, 3),)),
    ("gradient of amax, no ties", gradient(lambda x: x.amax()), (torch.arange(9.0),)),
    ("gradient of max_pool", gradient(lambda x: torch.nn.functional.max_pool1d(x, 3, 2)), (integers(1, 2, 9),)),
    ("gradient of index_put", gradient(lambda x: x[torch.tensor([0, 0, 1])] * 2), (integers(4, 3),)),
    ("halves", lambda x: [x * 0.5 + x / 4], (integers(5, 5),)),
    ("relu of integers", gradient(lambda x: x.relu() * x), (integers(9),)),
    ("bfloat16 small sums", lambda x: [x.sum(0)], (integers(9, 5, dtype=BF16),)),
    ("float16 products", lambda x: [x * x + 1], (integers(9, 5, dtype=F16),)),
    ("float64 sums", lambda x: [x.sum(1)], (integers(9, 50, dtype=F64),)),
    ("moves", lambda x: [x.flip(0).t().contiguous().roll(1)], (normal(4, 5),)),
    ("selections", lambda x: [torch.where(x > 0, x, x.amin()).clamp(-1, 0.5)], (normal(4, 5),)),
    ("widening", lambda x: [x.double()], (normal(4, 5),)),
]


@pytest.mark.parametrize(("run", "given"), [e[1:] for e in EXACT], ids=[e[0] for e in EXACT])
def test_exact_arithmetic_has_floor_zero_and_one_unit_more_is_outside(
    run: Run, given: tuple[torch.Tensor, ...]
) -> None:
    model, results = modelled(run, *(t.clone() for t in given))
    for i, limit in enumerate(model.spread(FINAL_REPLICAS // 4, scale=SCALE).floors(FACTOR)):
        assert float(limit.max()) == 0.0
        assert torch.equal(results[i].double(), model.reference[i])
        assert bool(((results[i].double() + 1 - model.reference[i]).abs() > limit).all())


# ---------------------------------------------------------------- the floor covers legal results and little more

LEGAL: list[tuple[str, Run, Run, torch.Tensor]] = [
    ("a sum in another order", lambda x: [x.sum()], lambda x: [x.flip(0).cumsum(0)[-1]], normal(3000)),
    ("a sum in halves", lambda x: [x.sum()], lambda x: [x[:1500].sum() + x[1500:].sum()], normal(3000)),
    (
        "a matmul as a sum of outer products",
        lambda x: [x @ x.t()],
        lambda x: [sum(c[:, None] * c for c in x.t())],
        normal(9, 70),
    ),
    ("a mean in another order", lambda x: [x.mean(0)], lambda x: [x.flip(0).sum(0) / 90], normal(90, 3)),
    (
        "a fused multiply-add",
        lambda x: [x * x + x],
        lambda x: [(x.double() * x.double() + x.double()).float()],
        normal(99),
    ),
    (
        "softmax by hand",
        lambda x: [x.softmax(0)],
        lambda x: [(x - x.max()).exp() / (x - x.max()).exp().sum()],
        normal(50),
    ),
    (
        "bfloat16 computed in float32",
        lambda x: [x.sigmoid() * x],
        lambda x: [(x.float().sigmoid() * x.float()).bfloat16()],
        normal(99, dtype=BF16),
    ),
    (
        "a compound function in place, near its zeros",
        lambda x: [x.clone().sinc_()],
        lambda x: [(x.double() * torch.pi).float().sin() / (x * torch.pi)],
        1 + normal(99) / 1000,
    ),
    ("variance by two passes", lambda x: [x.var(0)], lambda x: [((x - x.mean(0)) ** 2).sum(0) / 49], normal(50, 4)),
]


@pytest.mark.parametrize(("run", "legal", "x"), [e[1:] for e in LEGAL], ids=[e[0] for e in LEGAL])
def test_another_legal_evaluation_lies_inside_and_one_per_cent_does_not(run: Run, legal: Run, x: torch.Tensor) -> None:
    model, results = modelled(run, x)
    limit = model.spread(FINAL_REPLICAS, scale=SCALE).floors(FACTOR)[0]
    for found in (results[0], legal(x)[0]):
        assert bool(((found.double() - model.reference[0]).abs() <= limit).all())
    wrong = model.reference[0] * (1.3 if x.dtype == BF16 else 1.01)
    assert bool(((wrong - model.reference[0]).abs() > limit).any())


def test_the_same_expression_rounds_equally_only_under_consistent_rounding() -> None:
    def difference(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 3.7 - x * 3.7]

    x = normal(64)
    assert floor(difference, x, consistent=True) == 0
    assert floor(difference, x, consistent=False) > 0


def test_a_softmax_may_round_what_it_reads_twice_otherwise_each_time() -> None:
    # x / s - max is a fused multiply-add where the maximum was rounded: up to 1e4 * 2**-24 in the exponent
    x = torch.tensor([[1.7, 1.2], [0.3, 1.9]])
    scaled = lambda t: [torch.softmax(t / 1e-4, dim=-1)]  # noqa: E731
    assert 1e-4 < floor(scaled, x) < 1e-1
    assert floor(scaled, x, consistent=True) < 1e-5
    assert floor(lambda t: [torch.softmax(t, dim=-1)], x * 1e4) < 1e-5
    assert 1e-4 < floor(lambda t: [torch.log_softmax(t / 1e-4, dim=-1)], x[:, :1] + torch.zeros(1, 2)) < 1e-1


def test_consistent_rounding_is_still_rounding() -> None:
    assert floor(lambda x: [x * 3.7 - x * 3.6], normal(64), consistent=True) > 0


def test_replicas_differ_and_each_can_be_had_again() -> None:
    model, _ = modelled(lambda x: [x.exp()], normal(50))
    for consistent in (False, True):
        first, again, other = (model.replica(seed, consistent, 1.0)[0].clone() for seed in (4, 4, 6))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


TIED = [
    ("amax", gradient(lambda x: x.amax(1))),
    ("amin", gradient(lambda x: x.amin(0))),
    ("max", gradient(lambda x: x.max(dim=1).values)),
    ("maximum", gradient(lambda x: torch.maximum(x, x.flip(0)))),
    ("clamp at its limit", gradient(lambda x: x.clamp(-1, 1))),
    ("relu at 0", gradient(lambda x: x.relu())),
    ("abs at 0", gradient(lambda x: x.abs())),
]


@pytest.mark.parametrize("run", [t[1] for t in TIED], ids=[t[0] for t in TIED])
def test_ties_stay_ties(run: Run) -> None:
    """Powers of two share a gradient exactly, so nothing rounds at all."""
    x = torch.tensor([[1.0, 1, 0, -1], [1, 0, 0, 1], [1, 1, 1, 1], [-1, -1, 1, 0]])
    assert floor(run, x) == 0


def test_a_decision_that_rounding_could_flip_shows_as_spread() -> None:
    near = torch.full((8,), 0.1)
    flips = gradient(lambda x: (x * 3 - 0.3).relu())
    assert floor(flips, near) >= 3
    assert floor(flips, near + 1) < 1e-5


def test_a_number_drawn_in_a_range_is_rounded_and_a_mask_is_not() -> None:
    """rrelu draws lower + uniform * (upper - lower), which a compiler may fuse; the slope of what is positive is 1."""
    below, above = -torch.ones(16), torch.ones(16)
    unit = torch.finfo(torch.float32).eps
    drawn = floors(lambda x: [torch.nn.functional.rrelu(x, training=True)], below)[0]
    assert bool((drawn > unit / 8).all() and (drawn < 32 * unit).all())
    assert floor(lambda x: [torch.nn.functional.dropout(x, 0.5)], below) == 0
    assert floor(lambda x: [torch.nn.functional.rrelu(x, training=True)], above) < 32 * unit


def test_the_floor_of_a_long_bfloat16_sum_grows_with_its_length() -> None:
    found = [
        floor(lambda x: [x.cumsum(0)[-1:] - x.cumsum(0)[-1:].round()], normal(n, dtype=BF16).abs()) for n in (8, 4096)
    ]
    assert found[1] > 4 * found[0]
    relative = [floor(lambda x: [x.cumsum(0)[-1:]], torch.full((n,), 0.3, dtype=BF16)) / (0.3 * n) for n in (8, 4096)]
    assert relative[1] > 1.5 * relative[0]


UNITS = [(F64, 1e-14), (F32, 1e-5), (BF16, 0.2), (F16, 0.03)]


@pytest.mark.parametrize(("dtype", "most"), UNITS, ids=str)
def test_the_floor_is_of_the_size_of_the_dtypes_unit(dtype: torch.dtype, most: float) -> None:
    x = normal(200, dtype=dtype).abs() + 0.5
    limit = floors(lambda x: [x.exp().log() * x], x)[0] / (x.double() * x.double()).abs()
    assert 0 < float(limit.max()) < most


@pytest.mark.parametrize("n", [10, 1000, 4000])
def test_float64_sums_have_a_floor_that_holds_eagers_error_and_stays_tiny(n: int) -> None:
    x = normal(n, dtype=F64)
    model, _ = modelled(lambda x: [x.sum()], x)
    limit = float(model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0])
    exact = sum(map(Fraction, x.tolist()))
    assert abs(float(exact - Fraction(float(x.flip(0).cumsum(0)[-1])))) <= limit
    worst_case = n * torch.finfo(F64).eps * float(x.abs().sum())  # Higham, Accuracy and Stability, section 4.2
    assert 0 < limit < 4 * worst_case


OVERFLOWING: list[tuple[str, Run, torch.Tensor]] = [
    ("a product", lambda x: [(x * x) / x], torch.tensor([300.0, 1.0], dtype=F16)),
    ("a sum", lambda x: [x.sum(0, keepdim=True) / 4], torch.full((4,), 30000.0, dtype=F16)),
    ("exp", lambda x: [x.exp().log()], torch.tensor([12.0, 1.0], dtype=F16)),
]


@pytest.mark.parametrize(("run", "x"), [o[1:] for o in OVERFLOWING], ids=[o[0] for o in OVERFLOWING])
def test_an_overflow_that_a_wider_intermediate_avoids_has_an_infinite_floor(run: Run, x: torch.Tensor) -> None:
    model, results = modelled(run, x)
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert not bool(torch.isfinite(results[0][0]))
    assert bool(torch.isinf(limit[0]))
    if len(limit) > 1:
        assert bool(torch.isfinite(limit[1]))


def test_what_is_near_no_limit_has_a_finite_floor() -> None:
    assert floor(lambda x: [(x * x).sum()], torch.full((4,), 9.0, dtype=F16)) < 1


def test_integer_results_that_cannot_change_have_floor_zero_and_those_that_can_an_infinite_one() -> None:
    x = torch.tensor([0.1, 5.0, 2.0])
    assert floor(lambda x: [(x * 3).argmax()], x) == 0
    near = torch.tensor([0.1, 0.1, 0.1]) * torch.tensor([3.0, 3.0000002, 3.0])
    assert floor(lambda x: [(x * 0.3).argmax()], near) == float("inf")


# ---------------------------------------------------------------- what campaigns taught


def test_many_equal_summands_that_are_off_alike_lie_inside_the_floor() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.div(35).half().float().sum()]

    model, (eager,) = modelled(run, torch.ones(1024, 175))
    error = abs(float(eager) - float(model.reference[0]))
    assert 0 < error <= float(model.spread(32).floors(FIRST_FACTOR)[0])


def test_an_infinite_mask_stays_infinite_in_every_replica() -> None:
    masked = torch.tensor([1.0, 2.0, -float("inf")])
    assert float(floors(lambda x: [x.logcumsumexp(0)[:2]], masked)[0].max()) < 1e-5


def test_the_median_of_all_is_a_value_and_no_choice() -> None:
    x = torch.tensor([1.0, 2.0, 2.0, 3.0], dtype=F16)
    assert floor(gradient(torch.median), x) == 0


def test_half_precision_convolutions_add_up_in_float32_but_transposed_ones_may_not() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(s, generator=generator).to(BF16) for s in ((1, 8, 9, 9), (8, 8, 3, 3)))
    plain = floor(lambda x, w: [torch.nn.functional.conv2d(x, w)], x, w)
    transposed = floor(lambda x, w: [torch.nn.functional.conv_transpose2d(x, w)], x, w)
    assert plain < transposed / 2


def test_accumulations_are_counted_by_what_meets_in_one_element() -> None:
    index = torch.arange(64).repeat(2)
    ones = torch.ones(128, dtype=BF16)
    assert floor(lambda y: [torch.zeros(64, dtype=BF16).index_add(0, index, y)], ones) == 0


def test_a_bias_may_be_added_after_the_product_was_rounded() -> None:
    x, w = torch.tensor([[[-0.8]]], dtype=BF16), torch.tensor([[[3.0]]], dtype=BF16)
    bias = torch.tensor([2.0], dtype=BF16)
    product = torch.nn.functional.conv1d(x, w)
    limit = floor(lambda x, w, b: [torch.nn.functional.conv1d(x, w, b)], x, w, bias)
    assert limit >= float(product.abs()) * 2**-9  # half a unit of the product, not of the small sum


def test_a_negative_or_small_factor_hides_no_summands() -> None:
    a, b = torch.full((1, 64), 15.0, dtype=BF16), torch.full((64, 1), 15.0, dtype=BF16)
    start = torch.full((1, 1), 14336.0, dtype=BF16)
    limits = [floor(lambda c, a, b, f=f: [torch.addmm(c, a, b, alpha=f)], start, a, b) for f in (1, -1)]
    assert limits[1] > 0  # 14336 - 64 * 225 = -64, but sums of 14400 are no bfloat16 integers
    assert limits[0] > 0


def test_small_elements_of_a_factorisation_are_off_by_as_much_as_large_ones() -> None:
    x = torch.diag(torch.tensor([1.0, 2.0, 1000.0])) + 1e-3
    found = floors(lambda x: [torch.linalg.inv(x)], x)[0]
    assert float(found[0, 0]) > 1e-5  # a row of 1000 stands beside
    assert floor(lambda x: [x.reciprocal()], x) < 1e-2


def test_complex_numbers_move_in_both_their_parts() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.view_as_real(torch.fft.fft(x))]

    model, results = modelled(run, torch.randn(16, generator=torch.Generator().manual_seed(1)))
    found = model.spread(32).floors(FIRST_FACTOR)[0]
    assert bool((found > 0).all())
    assert bool(((results[0].double() - model.reference[0]).abs() <= found).all())


def test_a_cast_from_bfloat16_to_float16_rounds_what_is_too_small_for_it_and_nothing_else() -> None:
    def sign(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.to(F16).sign()]

    assert floor(lambda x: [x.to(F16)], torch.tensor([0.5, 3.0, 0.0], dtype=BF16)) == 0
    assert floor(sign, torch.tensor([2.0**-30], dtype=BF16)) >= 1
    assert floor(sign, torch.tensor([2.0**-10], dtype=BF16)) == 0


def test_an_intermediate_below_float16s_subnormals_may_be_zero() -> None:
    def quotient(x: torch.Tensor) -> list[torch.Tensor]:
        square = x * x
        return [square / square]

    assert floor(quotient, torch.tensor([1e-6], dtype=F16)) == float("inf")  # 0 / 0
    assert floor(quotient, torch.tensor([1e-2], dtype=F16)) < 1


def test_the_gradient_of_a_tiny_norm_in_float16_may_be_nan() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.requires_grad_()
        return list(torch.autograd.grad(torch.linalg.vector_norm(y, ord=3.0), y, torch.zeros((), dtype=F16)))

    model, (found,) = modelled(run, torch.full((2,), 1e-6, dtype=F16))
    assert bool(found.isnan().all())  # 0 / underflown square
    assert bool(model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0].isinf().all())


def test_a_label_named_often_is_summed_as_often() -> None:
    labels = torch.zeros(19, dtype=torch.int64)

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.requires_grad_()
        return list(torch.autograd.grad(torch.nn.functional.multilabel_margin_loss(y, labels), y))

    model, (found,) = modelled(run, torch.ones(19))
    off = (found.double() - model.reference[0]).abs()
    assert float(off[0]) > 16 * torch.finfo(F32).eps
    assert bool((off <= model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]).all())


@pytest.mark.parametrize("seed", range(3))
def test_what_a_kernel_multiplies_inside_is_rounded_as_autocast_says(seed: int) -> None:
    theta = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(seed))

    def grid(t: torch.Tensor) -> list[torch.Tensor]:
        with torch.autocast("cpu", dtype=BF16):
            return [torch.nn.functional.affine_grid(t, [2, 1, 3, 2], align_corners=False)]

    model, _ = modelled(grid, theta)
    off = (grid(theta)[0].double() - model.reference[0]).abs()  # without a recording, as a person sees it
    assert float(off.max()) > 1e-4
    assert bool((off <= model.spread(32).floors(FIRST_FACTOR)[0]).all())
    plain, _ = modelled(lambda t: [torch.nn.functional.affine_grid(t, [2, 1, 3, 2], align_corners=False)], theta)
    assert float(plain.spread(32).floors(FIRST_FACTOR)[0].max()) < 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_the_product_inside_a_pseudoinverse_is_rounded_as_autocast_says(seed: int) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))

    def inverse(x: torch.Tensor) -> list[torch.Tensor]:
        with torch.autocast("cpu", dtype=F16):
            return [torch.linalg.pinv(x)]

    model, _ = modelled(inverse, x)
    off = (inverse(x)[0].double() - model.reference[0]).abs()  # without a recording
    assert float(off.max()) > 1e-5
    assert bool((off <= model.spread(32).floors(FIRST_FACTOR)[0]).all())


def test_a_kernel_that_calls_products_is_recorded_with_the_dtype_that_autocast_gives_its_result() -> None:
    def gradient_of_grid(theta: torch.Tensor) -> list[torch.Tensor]:
        y = theta.detach().requires_grad_()
        with torch.autocast("cpu", dtype=F16):
            grid = torch.nn.functional.affine_grid(y, [2, 1, 3, 2], align_corners=False)
        return list(torch.autograd.grad(grid.sum(), y))

    theta = normal(2, 2, 3)
    model, (found,) = modelled(gradient_of_grid, theta)
    plain = gradient_of_grid(theta)[0]
    assert torch.equal(found, plain)
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert bool(((plain.double() - model.reference[0]).abs() <= limit).all())


def test_what_a_kernel_multiplies_inside_overflows_as_autocast_says() -> None:
    """Operands that float16 cannot hold, and products; in bfloat16 both are held."""
    for size in (1e9, 1e3):
        x, y = torch.full((1, 1), 0.75), torch.full((1, 1), size)

        def run(x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
            with torch.autocast("cpu", dtype=dtype):
                return [torch.nn.functional.bilinear(x, y, torch.full((1, 1, 1), 99.0))]

        held = {d: modelled(lambda *given, d=d: run(*given, d), x, y)[0].spread(32) for d in (F16, BF16)}
        assert run(x, y, F16)[0].isinf().all()
        assert held[F16].floors(FIRST_FACTOR)[0].isinf().all()
        assert held[BF16].floors(FIRST_FACTOR)[0].isfinite().all()


# ---------------------------------------------------------------- partial sums that overflow

HUGE = torch.tensor([200.0, -200.0, 200.0, 1.0, 1.0, 1.0], dtype=F16)
SPILLING: list[tuple[str, Run, tuple[torch.Tensor, ...], tuple[int, ...]]] = [
    ("cumsum", lambda x: [x.cumsum(0)], (200 * HUGE,), (2, 3, 4, 5)),
    ("conv_transpose", lambda x: [F.conv_transpose1d(x[None, None], 200 * x.new_ones(1, 1, 3))[0, 0]], (HUGE,), (2,)),
    ("index_add", lambda x: [x.new_zeros(4).index_add(0, torch.tensor([0, 0, 0, 1, 2, 3]), 200 * x)], (HUGE,), (0,)),
]


@pytest.mark.parametrize(("run", "given", "spilled"), [s[1:] for s in SPILLING], ids=[s[0] for s in SPILLING])
def test_a_partial_sum_kept_in_float16_may_overflow_though_the_sum_does_not(
    run: Run, given: tuple[torch.Tensor, ...], spilled: tuple[int, ...]
) -> None:
    model, _ = modelled(run, *given)
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert bool(torch.isfinite(model.reference[0]).all())
    assert tuple(torch.isinf(limit).nonzero().flatten().tolist()) == spilled
    beside = torch.isfinite(limit)
    assert bool((limit[beside] < 16 * 2.0**-10 * 40000).all())


def test_partial_sums_may_overflow_upwards_though_the_sum_leaves_the_range_downwards() -> None:
    x = torch.finfo(F32).max * torch.tensor([1.0, 1.0, -1.0, -1.0, -0.75, -0.75])
    one_by_one = sum(x, start=torch.tensor(0.0))  # in float32; the CPU's cumsum adds up in float64
    model, eager = modelled(lambda x: [x.cumsum(0).tanh()], x)
    assert (float(one_by_one), float(eager[0][-1])) == (math.inf, -1)
    assert bool(model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0][-1].isinf())


def test_the_sum_that_a_mean_divides_may_overflow_though_the_mean_does_not() -> None:
    most = 0.9 * torch.finfo(F32).max
    limit = floors(lambda x: [x.mean(1)], torch.tensor([[most, most / 2], [most / 2, -most], [1e30, 1e30]]))[0]
    assert limit.isinf().tolist() == [True, False, False]
    assert floor(lambda x: [x.mean()], torch.full((4,), 60000.0, dtype=F16)) < 100, "it adds up in float32"


def test_a_sum_kept_in_float32_does_not_overflow_as_float16() -> None:
    assert floor(lambda x: [x.sum()], torch.tensor([60000.0, 60000.0, -60000.0], dtype=F16)) == 0


def test_quotients_are_inexact_where_either_side_runs_on_cuda() -> None:
    def mean(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.mean(0)]

    recorder = Recorder()
    x = torch.arange(7.0)
    recorder.ref(x)
    with recorder:
        (value,) = mean(x)
    program = parse('program(1)\nroute("autograd")\nx0 = leaf(f32[7])\nv0 = mean(x0)\nbackward(v0, cotangent(f32[()]))')
    limits = []
    for device in ("cpu", "cuda"):
        place = Place(Subject("eager"), Subject("eager", device))
        trial = Trial(program, place, Observation(RAN), Observation(RAN), recorder.trace, {"v0": recorder.ref(value)})
        limits.append(float(trial.model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]))
    assert limits[0] == 0 < limits[1] < 1e-5


def test_a_half_precision_softmax_backward_may_round_its_product_before_it_adds_up() -> None:
    """As ATen does on CUDA, and decompositions do."""

    def backward(g: torch.Tensor, p: torch.Tensor) -> list[torch.Tensor]:
        return [torch.ops.aten._softmax_backward_data(g, p, 1, g.dtype)]

    def rounded(g: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        product = (g * p).double()
        return (product - p.double() * product.sum(1, keepdim=True)).to(g.dtype).double()

    g, p = (normal(24, 88)[:, i::2].to(BF16) for i in range(2))
    p = p.abs() / 16
    model, _ = modelled(backward, g, p)
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert bool(((rounded(g, p) - model.reference[0]).abs() <= limit).all())
    assert float((limit / (g * p).double().abs().amax(1, keepdim=True)).max()) < 0.05
    wide = floors(backward, g.float(), p.float())[0]
    assert float((wide / (g * p).double().abs().amax(1, keepdim=True)).max()) < 1e-5


def test_an_interpolation_may_add_what_is_not_finite_with_a_weight_of_zero() -> None:
    def backward(g: torch.Tensor) -> list[torch.Tensor]:
        return [torch.ops.aten.upsample_bilinear2d_backward(g, [6, 3], [1, 1, 6, 3], False)]

    def forward(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.ops.aten.upsample_bilinear2d(x, [6, 6], False)]

    field = normal(1, 1, 6, 3)
    field[0, 0, 2, 0] = float("nan")
    for run in (backward, forward):
        limit = floors(run, field)[0][0, 0]
        assert bool(limit[1, 0].isinf())
        assert bool(limit[3, 0].isinf())
        assert float(limit[4:].max()) < 1e-4


def test_the_square_of_a_subnormal_norm_underflows_where_the_norm_does_not() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.detach().requires_grad_()
        return list(torch.autograd.grad(F.normalize(y, p=3.0, dim=0, eps=1e-3).sum(), y))

    model, (found,) = modelled(run, torch.tensor([[1e-39, 0.5]], dtype=BF16))
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert bool(found[0, 0].isnan())  # 0 / the square
    assert bool(limit[0, 0].isinf())
    assert float(limit[0, 1]) < 0.5


def test_a_complex_number_whose_squared_modulus_underflows_may_have_no_sign() -> None:
    x = torch.complex(torch.tensor([3e-30, 3.0]), torch.tensor([4e-30, 4.0]))
    for run in (lambda z: [torch.view_as_real(z.sgn())], lambda z: [torch.view_as_real(1 / z)]):
        limit = floors(run, x)[0]
        assert bool(limit[0].isinf().all())
        assert float(limit[1].max()) < 1e-4
    limit = floors(lambda z: [z.abs()], x)[0]
    assert float(limit[0]) >= 5e-30
    assert float(limit[1]) < 1e-4


def test_a_pivot_of_a_singular_matrix_may_be_zero() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.detach().requires_grad_()
        q, r = torch.linalg.qr(y)
        return [*torch.autograd.grad(q.sum() + r.sum(), y), r.detach()]

    singular = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    limits = floors(run, singular)
    assert bool(limits[0].isinf().any())
    assert float(limits[1].max()) < 1e-3  # the factor itself is known
    regular = floors(run, singular + torch.eye(3))[0]
    assert float(regular.max()) < 1e-2


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_samples_gradients_lie_inside_the_floor_and_an_error_beside_them_does_not(
    mode: str, dtype: torch.dtype
) -> None:
    """Half precision computes coordinates and weights, and adds up over channels, in half precision on the CPU."""
    field, grid, cotangent = (normal(*s, dtype=dtype) for s in ((2, 24, 5, 7), (2, 6, 8, 2), (2, 24, 6, 8)))

    def run(x: torch.Tensor, g: torch.Tensor) -> list[torch.Tensor]:
        y = g.detach().requires_grad_()
        found = F.grid_sample(x, y, mode=mode, align_corners=False)
        return [found.detach(), *torch.autograd.grad(found, y, cotangent)]

    model, results = modelled(run, field, 0.5 * grid)
    planted = 1e-3 if dtype == F32 else 0.5
    for value, r, limit in zip(results, model.reference, model.spread(32).floors(FIRST_FACTOR), strict=True):
        assert bool(((value.double() - r).abs() <= limit).all())
        told = (planted * r.abs() > limit) | limit.isinf() | (r.abs() < r.abs().mean())
        assert float(told.double().mean()) > 0.9


# ---------------------------------------------------------------- floors element by element


def test_an_operand_at_the_threshold_of_a_kernel_that_compares_it_is_on_its_side() -> None:
    for f in (F.hardswish, F.hardsigmoid):
        x = torch.tensor([-3.0, 3.0, -1.5, 0.0], dtype=BF16)
        found = floors(gradient(f), x)[0]
        assert float(found.max()) < 0.1
        assert floor(gradient(lambda x, f=f: f(x * 0.7)), x / 0.7) > 0.4  # a rounded one may lie on either


@pytest.mark.parametrize("transposed", [False, True])
def test_a_half_precision_bias_gradient_and_what_no_rounded_terms_make_are_known_to_a_unit(transposed: bool) -> None:
    x, w, b = normal(4, 3, 9, dtype=BF16), normal(3, 3, 3, dtype=BF16), normal(3, dtype=BF16)
    conv = F.conv_transpose1d if transposed else F.conv1d
    cotangent = normal(*conv(x, w, b).shape, dtype=BF16)

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        leaves = [t.detach().requires_grad_() for t in given]
        found = conv(*leaves)
        return [found.detach(), *torch.autograd.grad(found, leaves, cotangent)]

    model, results = modelled(run, x, w, b)
    limits = model.spread(32).floors(FIRST_FACTOR)
    wide = []
    for value, r, limit in zip(results, model.reference, limits, strict=True):
        assert bool(((value.double() - r).abs() <= limit).all())
        wide.append(float((limit / r.abs().clamp_min(1)).max()) > 4.1 * 2.0**-8)
    assert wide[1:] == [not transposed, True, False]


def test_an_intermediate_of_one_kernel_may_overflow_though_its_result_does_not() -> None:
    x = torch.tensor([300.0, 1.0, 1.0, 1.0], dtype=F16)
    zero = torch.zeros(4, dtype=F16)
    assert floor(lambda x: [F.mse_loss(x, zero)], x) == float("inf")  # 90,000 / 4
    assert floor(lambda x: [F.mse_loss(x, zero)], x / 2) < 100
    for run in (
        lambda x: [torch.addcmul(zero, x, x, value=0.125)],
        lambda x: [torch.addcdiv(zero, x, 1 / x, value=0.125)],
    ):
        limit = floors(run, x)[0]
        assert bool(limit[0].isinf())
        assert float(limit[1:].max()) < 0.01


def test_a_probability_that_is_rounded_beyond_1_is_not_refused() -> None:
    ones, targets = torch.ones(64), torch.full((64,), 0.5)
    (limit,) = floors(lambda x: [F.binary_cross_entropy(x, targets, reduction="none")], ones)
    assert bool((limit > 0).all())


def test_the_powers_that_renorm_adds_up_may_overflow() -> None:
    x = torch.tensor([[1e30, 1e30], [3.0, 4.0]])

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.renorm(2.0, 0, 1.0)]

    model, eager = modelled(run, x)
    assert eager[0][0].tolist() == [0, 0]
    assert float(model.reference[0][0, 0]) == pytest.approx(0.5**0.5, rel=1e-6)
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert bool(limit[0].isinf().all())
    assert float(limit[1].max()) < 1e-5
    assert bool(torch.isfinite(floors(lambda x: [x.renorm(math.inf, 0, 1.0)], x)[0]).all())  # no sum of powers


POWERS: list[Run] = [
    lambda x: [x.std()],
    lambda x: [torch.linalg.vector_norm(x)],
    lambda x: [torch.dist(x, torch.zeros_like(x))],
    lambda x: [torch.cdist(x[:1], torch.zeros(1, 4))],
    lambda x: [torch.pdist(torch.cat([x, torch.zeros(1, 4)]))],
]


@pytest.mark.parametrize("run", POWERS)
def test_the_powers_of_which_a_norm_or_a_deviation_is_the_root_may_overflow(run: Run) -> None:
    x = torch.tensor([[3.0, 1.0, 4.0, -1.0]])
    assert 0 <= floor(run, x) < 1e-4
    assert floor(run, x * 1e19) == math.inf  # squares of 2^64


def test_the_powers_of_half_precision_are_float32() -> None:
    assert floor(lambda x: [torch.linalg.vector_norm(x)], torch.full((2,), 300.0, dtype=F16)) < 10


@pytest.mark.parametrize("f", [torch.cosh, torch.sinh])
def test_hyperbolic_functions_are_finite_where_half_of_exp_is(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.tensor([709.8, -710.4, 711.0, 709.1, 1.0] * 4, dtype=F64)
    model, _ = modelled(lambda x: [f(x)], x)
    right = torch.tensor([getattr(math, f.__name__)(v) if abs(v) < 711 else math.inf for v in x.tolist()], dtype=F64)
    torch.testing.assert_close(model.reference[0], right, rtol=1e-13, atol=0)


def test_mish_may_underflow_where_exp_does() -> None:
    limit = floors(lambda x: [F.mish(x)], torch.tensor([-744.0, -1.0], dtype=F64))[0]
    assert float(limit[0]) >= 744 * torch.finfo(F64).smallest_normal
    assert float(limit[1]) < 1e-14


def test_a_scaled_operand_may_overflow_though_the_sum_does_not() -> None:
    x = torch.tensor([60000.0, 1.0] * 8, dtype=F16)
    limit = floors(lambda x: [torch.add(x, x, alpha=-1.25)], x)[0]
    assert bool(limit[0].isinf())
    assert float(limit[1]) < 0.01
    assert math.isfinite(floor(lambda x: [torch.add(x, x, alpha=-1.0)], x))


@pytest.mark.parametrize("f", [torch.i0, torch.special.i1])
def test_exp_inside_a_bessel_function_may_overflow(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    limit = floors(lambda x: [f(x)], torch.tensor([91.0, 2.0]))[0]
    assert bool(limit[0].isinf())
    assert float(limit[1]) < 1e-3


@pytest.mark.parametrize(
    "picks",
    [
        lambda x: x.amax(1),
        lambda x: x.min(1)[0],
        lambda x: torch.maximum(x[:, 0], x[:, 1]),
        lambda x: torch.clamp(x[:, 0], x[:, 1], x[:, 1]),
        lambda x: torch.nn.functional.adaptive_max_pool1d(x[None], 1).view(1),
        lambda x: torch.nn.functional.max_pool2d(x[None, None], (1, 2)).view(1),
    ],
)
def test_the_sign_of_an_extremum_is_either_where_zeros_of_both_signs_meet(
    picks: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """A copied sign shows it. Where all zeros are positive, so is the extremum."""
    for zeros, may_differ in (([[0.0, -0.0]], True), ([[-0.0, 0.0]], True), ([[0.0, 0.0]], False)):
        limit = floors(lambda x: [torch.ones(1).copysign(picks(x))], torch.tensor(zeros))[0]
        assert bool((limit > 0).all()) is may_differ


def test_the_sign_of_nan_is_not_defined_and_that_of_a_number_is() -> None:
    limit = floors(lambda x: [torch.ones(2).copysign(x)], torch.tensor([math.nan, -2.0]))[0]
    assert float(limit[0]) >= 2.0
    assert float(limit[1]) == 0.0


def test_a_weight_of_0_may_also_leave_a_number_where_the_reference_has_nan() -> None:
    x = torch.tensor([[[[math.inf, 1.0], [-1.0, -math.inf]]]])
    limit = floors(lambda x: [F.interpolate(x, size=(6, 3), mode="bilinear")], x)[0]
    assert bool(limit.isinf().all())


def test_a_sample_of_fractional_pooling_at_an_edge_is_rounded_as_its_dtype_is() -> None:
    x = torch.arange(1, 11, dtype=F16).reshape(1, 10, 1)

    def pooled(sample: float) -> Run:
        samples = torch.full((1, 1, 2), sample, dtype=F16)
        return lambda x: [F.fractional_max_pool2d(x, 1, (8, 1), _random_samples=samples)]

    # (5 + s) 9 / 7 = 7 at s = 4 / 9
    at_the_edge, beside = (floors(pooled(s), x)[0].flatten().tolist() for s in (4 / 9, 0.6))
    assert at_the_edge[5] >= 1
    assert max(beside) < 0.1


def test_each_window_of_fractional_pooling_rounds_its_own_place() -> None:
    """(1 + s) 2 rounds to 4 for s = 0.9961, and s 2 stays below 2: the second of three windows starts one later."""
    x = torch.arange(6, dtype=BF16).reshape(1, 1, 6)
    samples = torch.tensor([[[0.9961, 0.5]]], dtype=BF16)
    model, found = modelled(lambda x: [F.fractional_max_pool2d(x, (1, 2), (1, 3), _random_samples=samples)], x)
    off = (found[0].double() - model.reference[0]).abs()
    assert off.flatten().tolist() == [0, 1, 0]
    assert bool((off <= model.spread(FINAL_REPLICAS).floors(FIRST_FACTOR)[0]).all())


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_fractional_pooling_by_a_sample_a_window_is_the_kernels(dims: int, batched: bool) -> None:
    numbers = torch.Generator().manual_seed(dims)
    pool = getattr(torch.ops.aten, f"fractional_max_pool{dims}d").default
    rule = named(f"fractional_max_pool{dims}d").mended
    assert rule is not None
    for _ in range(20):
        sizes = [int(n) for n in torch.randint(4, 9, (dims,), generator=numbers)]
        window = [int(n) for n in torch.randint(1, 3, (dims,), generator=numbers)]
        windows = [int(torch.randint(1, n - k + 1, (), generator=numbers)) for n, k in zip(sizes, window, strict=True)]
        x = torch.randint(-9, 9, (*(2, 3)[1 - batched :], *sizes), generator=numbers).double()
        x[..., 1] = torch.where(x[..., 1] > 5, math.nan, x[..., 1])
        samples = torch.rand((2 if batched else 1, 3, dims), generator=numbers, dtype=F64)
        each = samples[..., None].expand(-1, -1, -1, max(windows) + 1)
        own = rule(Step(pool, (), {}, None, ()), (x, window, windows, each), {})
        torch.testing.assert_close(own, pool(x, window, windows, samples), rtol=0, atol=0, equal_nan=True)


def test_a_multivariate_gamma_function_beside_a_pole_is_off_by_what_the_difference_is() -> None:
    x = torch.tensor([2e-4, 3.5])
    model, eager = modelled(lambda x: [x.mvlgamma(5)], x)
    off = (eager[0].double() - model.reference[0]).abs()
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert bool((off <= limit).all())
    assert float(limit[1]) < 1e-4 < float(limit[0])


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_an_embedding_bag_scales_each_row_by_its_own_count(mode: str) -> None:
    """The CPU's kernel takes another row's (pytorch #190063), so that floors of CUDA's right gradients were wrong."""
    program = parse(
        'program(1)\nroute("autograd")\nx0 = leaf(f64[5, 1], seed=3)\n'
        "x1 = leaf(i64[3, 2], values=data([0, 1, 1, 2, 1, 3]))\n"
        f'v0 = embedding_bag(x0, x1, mode="{mode}", scale_grad_by_freq=True)\n'
        'backward(v0, cotangent(f64[3, 1], values="ones"))\n'
    )
    trial = record_reference(program, Task(Place(Subject("eager"), Subject("eager"))), Journal(None))
    found = Replay(trial.trace).run().value(trial.targets["x0.grad"])
    share = 1.0 if mode == "sum" else 0.5
    assert found.flatten().tolist() == [share, share, share, share, 0.0]


@pytest.mark.parametrize(("device", "legal"), [("cpu", False), ("cuda", True)])
def test_a_depthwise_weight_gradient_adds_up_in_half_precision_on_cuda(device: str, legal: bool) -> None:
    """-0.2265625 is what an H200 returned for -0.22375, of terms that sum to 70 without their signs."""
    program = parse(
        'program(1)\nroute("autograd")\nx0 = leaf(f16[1, 8, 6, 4, 4], seed=215)\n'
        'x1 = leaf(f16[8, 1, 1, 3, 1], stride=(3, 3, 3, 1, 0), values="corners", seed=231)\n'
        "v0 = conv3d(x0, x1, stride=(1, 3, 1), padding=(1, 3, 3), dilation=(2, 1, 1), groups=8)\n"
        "v1 = sum(v0, dim=(0, 1, -3, 4), keepdim=True, dtype=bf16)\n"
        'backward(v1, cotangent(bf16[1, 1, 1, 3, 1], values="integers", seed=446))\n'
    )
    trial = record_reference(program, Task(Place(Subject("eager"), Subject("eager"))), Journal(None))
    model = Model(trial.trace, [trial.targets["x1.grad"]], device)
    floor = model.spread(16).floors(6.0)[0]
    assert (abs(-0.2265625 - model.reference[0][7, 0, 0, 2, 0]) <= floor[7, 0, 0, 2, 0]) == legal
    assert floor[7, 0, 0, 2, 0] < 0.2237, "a gradient of zero would still be seen"


@pytest.mark.parametrize(("at", "free"), [(-1.0, False), (-1.0 + 2.0**-24, True)])
def test_a_coordinate_that_is_not_rounded_lies_on_one_side_of_an_edge(at: float, free: bool) -> None:
    """Of five elements, nearest, the coordinate of -1 is -0.5: the first element, for all that rounding can do."""
    program = parse(
        'program(1)\nroute("autograd")\nx0 = leaf(f32[1, 1, 1, 5], seed=1)\n'
        f"x1 = leaf(f32[1, 1, 1, 2], values=data([{at!r}, 0.0]), requires_grad=False)\n"
        'v0 = grid_sample2d(x0, x1, mode="nearest", align_corners=False)\n'
        'backward(v0, cotangent(f32[1, 1, 1, 1], values="ones"))\n'
    )
    trial = record_reference(program, Task(Place(Subject("eager"), Subject("eager"))), Journal(None))
    floor = Model(trial.trace, [trial.targets["x0.grad"]]).spread(16).floors(6.0)[0]
    assert bool(floor.max() >= 1) == free


def test_a_kernel_that_goes_by_the_strides_of_an_operand_finds_them_in_every_replica() -> None:
    """Eager's batch_norm takes x.t()[None, :, :, None] for channels_last in its backward, and is wrong."""
    weights = normal(1, 3, 7, 1)
    run = gradient(lambda x: F.batch_norm(x, None, None, training=True) * weights)
    twisted = normal(7, 3).t()[None, :, :, None]
    [eager], [right] = run(twisted), run(twisted.contiguous())
    assert floor(run, twisted) < 1e-3 < float((eager - right).abs().max())


def test_numbers_that_hardly_differ_are_rounded_alike() -> None:
    """Each probability is 1/7 but for its last bits in float64, and float16 rounds all to one number: their errors
    add up."""
    x = normal(12, 7, 9).half() * 1e-6
    model, (found,) = modelled(lambda x: [torch.softmax(x, 1).double().sum()], x)
    off = abs(float(found) - float(model.reference[0]))
    floor = float(model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0])
    assert off > 12 * 9 * 7 * (1 / 7) * 2.4e-4  # as one of them is off, times all
    assert off <= floor < 8 * off


def test_a_product_may_overflow_before_small_factors_come() -> None:
    x = torch.tensor([300.0, 300.0, 1e-3], dtype=F16)
    limit = floors(lambda x: [x.prod(), x.flip(0)[:2].prod()], x)
    assert bool(limit[0].isinf())
    assert not bool(limit[1].isinf())


# ---------------------------------------------------------------- ranges, cutoffs, padding

BESIDE = torch.tensor([1 / 0.79], dtype=F32)  # times beta that is 1, the threshold, but for a rounding
RANK_ONE = torch.tensor([[3.0], [1.7], [-0.3]], dtype=F32).mul(1e20).expand(3, 2)
TAPS = torch.tensor([[[1.0, 2.0, math.inf]]], dtype=F32)  # beside one element the last meets padding

UNBOUNDED: dict[str, tuple[Callable[..., list[torch.Tensor]], torch.Tensor]] = {
    "pi x of sinc overflows": (lambda x: [x.sinc()], torch.tensor([3.3e38], dtype=F32)),
    "a sum into bfloat16 casts first": (lambda x: [x.sum(dtype=BF16)], torch.tensor([1e39, -1e39], dtype=F64)),
    "partial sums overflow beside a NaN": (
        lambda x: [x.sum(1)[:1]],
        torch.tensor([[3e38, 3e38, -3e38, -1e38], [math.nan, 0, 0, 0]], dtype=F32),
    ),
    "a singular value that is rounding is kept": (lambda x: [torch.pinverse(x)], RANK_ONE),
    "padding meets an infinite weight": (
        lambda x: [F.conv1d(x, TAPS.to(x.dtype), padding=1)],
        torch.ones(1, 1, 1, dtype=F32),
    ),
    "1 / the singular value overflows": (
        lambda x: [torch.linalg.pinv(x)],
        torch.tensor([[-1.8e-39, 1e-40]], dtype=F32),
    ),
    "what overflows is interpolated with a weight of 0": (
        lambda x: [F.interpolate(x.lgamma(), size=(1, 1), mode="bilinear")],
        torch.full((1, 1, 1, 2), 65504.0, dtype=F16),
    ),
    "1 / a zero of either sign": (
        lambda x: [F.avg_pool2d(x, (1, 2), divisor_override=-1).reciprocal()],
        torch.tensor([[[3.0, -3.0]]], dtype=F32),
    ),
    "exp overflows inside cosh": (lambda x: [x.cosh()], torch.tensor([89.0], dtype=F32)),
    "Q of columns that depend on each other": (lambda x: [torch.linalg.qr(x).Q], torch.ones(3, 2, dtype=F32)),
    "trigamma at a pole": (gradient(torch.digamma), torch.tensor([-1205.0], dtype=F16)),
    "a sum beside a pole of lgamma": (
        lambda x: [torch.mvlgamma(torch.cat([x[:1], x[:1] * 0.4 + x[1:] * 0.6]), 1)[1:]],
        torch.tensor([3.0, -2.0 + 1e-7], dtype=F32),
    ),
}
BOUNDED: dict[str, tuple[Callable[..., list[torch.Tensor]], torch.Tensor]] = {
    "sinc": (lambda x: [x.sinc()], torch.tensor([1e38], dtype=F32)),
    "a sum into bfloat16 of small numbers": (lambda x: [x.sum(dtype=BF16)], torch.tensor([1e9, -1e5], dtype=F64)),
    "no partial sum overflows": (
        lambda x: [x.sum(1)[:1]],
        torch.tensor([[1e38, 1e38, -1e38, -1e38], [math.nan, 0, 0, 0]], dtype=F32),
    ),
    "all singular values are large": (lambda x: [torch.pinverse(x)], torch.eye(3, dtype=F32)),
    "the cutoff is above what rounding makes": (lambda x: [torch.linalg.pinv(x, rtol=1e-3)], RANK_ONE),
    "1 / the singular value": (lambda x: [torch.linalg.pinv(x)], torch.tensor([[-1.8e-36, 1e-37]], dtype=F32)),
    "1 / an average": (
        lambda x: [F.avg_pool2d(x, (1, 2), divisor_override=-1).reciprocal()],
        torch.tensor([[[3.0, -2.0]]], dtype=F32),
    ),
    "cosh": (lambda x: [x.cosh()], torch.tensor([88.0], dtype=F32)),
    "Q of columns that do not": (lambda x: [torch.linalg.qr(x).Q], torch.eye(3, dtype=F32)[:, :2] + 0.5),
    "trigamma": (gradient(torch.digamma), torch.tensor([-3.5], dtype=F16)),
    "a sum that is no pole of lgamma": (
        lambda x: [torch.mvlgamma(torch.cat([x[:1], x[:1] * 0.4 + x[1:] * 0.6]), 1)[1:]],
        torch.tensor([3.0, -1.5], dtype=F32),
    ),
    "no padding": (lambda x: [F.conv1d(x, TAPS[..., :2].to(x.dtype), padding=1)], torch.ones(1, 1, 1, dtype=F32)),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_such_a_result_has_no_bound(name: str) -> None:
    assert floor(*UNBOUNDED[name]) == math.inf


@pytest.mark.parametrize("name", BOUNDED)
def test_its_twin_has_one(name: str) -> None:
    assert floor(*BOUNDED[name]) < math.inf


@pytest.mark.parametrize(
    "choose",
    [
        lambda x: x.quantile(0.0, interpolation="higher"),
        lambda x: x.kthvalue(300, dim=0).values,
        lambda x: x.sort(dim=0).values[5],
        lambda x: x.topk(2, dim=0).values,
    ],
)
def test_any_of_many_equal_elements_may_have_the_gradient_and_no_other(
    choose: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Random orders alone leave out each of a thousand in most looks."""
    x = torch.cat([torch.zeros(1000), torch.ones(1000), torch.arange(2.0, 5.0)])
    x = x[torch.randperm(2003, generator=torch.Generator().manual_seed(3))]
    model, (found,) = modelled(gradient(choose), x)
    floor = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    met = x[found != 0].unique()
    many = torch.isin(x, met[met < 2])
    assert bool(floor[many].isinf().all())
    assert bool((floor[~many] == 0).all())


def test_few_equal_elements_are_bounded_by_random_orders() -> None:
    x = torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0])
    limit = floors(gradient(lambda x: x.kthvalue(2, dim=0).values), x)[0]
    assert bool((limit[:3] > 0).all() & (limit[:3] < math.inf).all() & (limit[3:] == 0).all())


def test_a_gradient_that_is_divided_by_a_zero_of_a_triangular_matrix_is_infinite_or_nan_as_the_order_has_it() -> None:
    rows = [[-1, 0, 0, -1, 0], [1, 0, -1, -1, -1], [0, -1, 0, 1, -1], [1, -1, 0, 0, 1], [0, 0, 0, 0, 0]]

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.detach().requires_grad_()
        weights = torch.arange(1, 26, dtype=x.dtype).reshape(5, 5)
        return list(torch.autograd.grad(torch.linalg.qr(y).Q, y, weights))

    model, (found,) = modelled(run, torch.tensor(rows, dtype=F32) / 2)
    otherwise = torch.isinf(found) & torch.isnan(model.reference[0])
    assert bool(otherwise.any())
    assert bool(model.spread(FINAL_REPLICAS).floors(FIRST_FACTOR)[0][otherwise].isinf().all())


@pytest.mark.parametrize("run", [lambda x: [F.softplus(x, 0.79, 1.0)], gradient(lambda x: F.softplus(x, 0.79, 1.0))])
def test_beside_its_threshold_softplus_may_be_linear_or_not(run: Callable[..., list[torch.Tensor]]) -> None:
    jump = abs(float(run(BESIDE + 1e-5)[0] - run(BESIDE - 1e-5)[0]))
    assert jump > 0.2
    assert floor(run, BESIDE) > jump
    assert floor(run, BESIDE + 1e-5) < 1e-4


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_backward_may_divide_a_kept_result_by_one_computed_anew(direction: str) -> None:
    """copysign's divides its result, rounded to half precision and kept, by its input, which a fused kernel computes
    without that rounding. A forward has both from the same kernel."""
    odd = "values=data([1.0009765625, 3.001953125, -5.00390625])"  # no product of two is a number of float16
    calls = "v1 = copysign(v0, v0)" if direction == "backward" else "v1 = div(v0, v0)"
    program = parse(
        f'program(1)\nroute("autograd")\nx0 = leaf(f16[3], requires_grad=False, {odd})\nx1 = leaf(f16[3], {odd})\n'
        f'v0 = mul(x0, x1)\n{calls}\nbackward(v1, cotangent(f16[3], values="ones"))\n'
    )
    trial = record_reference(program, Task(Place(Subject("eager"), Subject("eager"))), Journal(None))
    name = "x1.grad" if direction == "backward" else "v1"
    at = list(trial.targets).index(name)
    value, floor = trial.model.reference[at].abs(), first_spread(trial).floor(at, FACTOR)
    unit = torch.finfo(torch.float16).eps
    assert bool((floor >= unit * value).all()) is (direction == "backward")
    # five operations round by half a unit each: two products, two readings, and the quotient
    assert bool((floor <= FACTOR * SCALE * 5 * unit / 2 * value).all())
