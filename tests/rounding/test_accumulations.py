"""Long sums, scans, products, convolutions and scatters: eager lies inside the floor, and the floor is not wide."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch.nn import functional as F

from fuzzer.rounding.floors import FACTOR, FIRST_LOOK, SCALE, Model
from fuzzer.rounding.record import Recorder
from tests.rounding.modelled import FIRST_FACTOR, FIRST_REPLICAS, floor, modelled, normal

Run = Callable[[torch.Tensor], torch.Tensor]
F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16


def gradient(f: Run) -> Run:
    """x -> the gradient of f(x).sum() in x."""

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.detach().requires_grad_()
        return torch.autograd.grad(f(y).sum(), y)[0]

    return run


def of_weight(f: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *shape: int) -> Run:
    """x -> the gradient of (f(x, w) * numbers of x).sum() in w, whose every element meets many numbers."""

    def run(x: torch.Tensor) -> torch.Tensor:
        w = torch.ones(shape, dtype=x.dtype, requires_grad=True)
        y = f(x, w)
        return torch.autograd.grad(y, w, x.flatten()[: y.numel()].reshape(y.shape))[0]

    return run


def halves(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.numel()) % 2


SUMS: dict[str, Run] = {
    "sum": lambda x: x.sum(),
    "sum over rows": lambda x: x.reshape(-1, 4).sum(0),
    "mean": lambda x: x.mean(),
    "cumsum": lambda x: x.cumsum(0)[-8:],
    "cumsum_": lambda x: x.clone().cumsum_(0)[-8:],  # reads what it writes alone
    "logcumsumexp": lambda x: x.logcumsumexp(0)[-8:],
    "logsumexp": lambda x: x.logsumexp(0),
    "cumprod": lambda x: (1 + x / x.numel()).cumprod(0)[-4:],
    "matmul": lambda x: x.reshape(4, -1) @ x.reshape(4, -1).t(),
    "bmm": lambda x: x.reshape(2, 2, -1) @ x.reshape(2, 2, -1).transpose(1, 2),
    "dot": lambda x: x.dot(x.flip(0)),
    "index_add": lambda x: torch.zeros(2, dtype=x.dtype).index_add(0, halves(x), x),
    "scatter_add": lambda x: torch.zeros(2, dtype=x.dtype).scatter_add(0, halves(x), x),
    "index_put": lambda x: torch.zeros(2, dtype=x.dtype).index_put((halves(x),), x, accumulate=True),
    "gradient of index": gradient(lambda x: x[:2][halves(x)] * x.detach()),
    "gradient of embedding": of_weight(lambda x, w: F.embedding(torch.arange(x.numel() // 2) % 3, w), 3, 2),
    "gradient of expand": of_weight(lambda x, w: w.expand(2, x.numel() // 2), 2, 1),
    "gradient of conv1d": of_weight(lambda x, w: F.conv1d(x.reshape(-1, 1, 8), w), 1, 1, 3),
    "conv1d": lambda x: F.conv1d(x.reshape(1, -1, 16), x.reshape(1, -1, 16)),
    "softmax": lambda x: x.softmax(0)[:8],
    "log_softmax": lambda x: x.log_softmax(0)[:8],
    "var": lambda x: x.var(),
    "norm": lambda x: x.norm(),
    "layer_norm": lambda x: F.layer_norm(x, (x.numel(),))[:8],
    "batch_norm": lambda x: F.batch_norm(x.reshape(-1, 4), None, None, training=True)[:8],
    "avg_pool1d": lambda x: F.avg_pool1d(x.reshape(1, 1, -1), x.numel() // 2),
    "mse_loss": lambda x: F.mse_loss(x, x.flip(0)),
    "gradients accumulated": gradient(lambda x: sum((x[:4].mul(c).sum() for c in x.detach()[:4]), x[0])),
}
VALUES: dict[str, Callable[[int], torch.Tensor]] = {
    "normal": lambda n: torch.randn(n, generator=torch.Generator().manual_seed(1), dtype=F64),
    "positive": lambda n: torch.rand(n, generator=torch.Generator().manual_seed(2), dtype=F64),
    "equal": lambda n: torch.full((n,), 1 / 3, dtype=F64),
    "a ramp through zero": lambda n: torch.linspace(-1, 1, n, dtype=F64),
    "rising, then falling": lambda n: VALUES["positive"](n) * (1 - 2 * (torch.arange(n) >= n // 2)),
}


def judged(run: Run, x: torch.Tensor) -> tuple[float, float]:
    """Eager's largest error in floors of the first look; and the floor, relative to the reference (the median)."""
    recorder = Recorder()
    recorder.ref(x)
    with recorder:
        value = run(x)
    model = Model(recorder.trace, [recorder.ref(value)])
    (floor,), (r,) = model.spread(FIRST_LOOK[0], scale=SCALE).floors(FACTOR), model.reference
    error = (value.double() - r).abs()
    finite = torch.isfinite(error) & torch.isfinite(floor)
    share = torch.where(finite & (error > 0), error / floor, 0.0)
    width = (floor / r.abs()).flatten().nan_to_num(0, 0, 0)
    return float(share.max()), float(width.median())


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_eager_lies_inside_the_floor_of_a_long_sum(name: str, dtype: torch.dtype) -> None:
    told = {}
    for values, n in (*((values, 4096) for values in VALUES), ("normal", 256)):
        share, _ = judged(SUMS[name], VALUES[values](n).to(dtype))
        if share > 1:
            told[values, n] = share
    assert told == {}


VERY_LONG = ("sum", "matmul", "index_add", "gradient of conv1d", "batch_norm")


@pytest.mark.slow
@pytest.mark.parametrize("name", VERY_LONG)
def test_eager_lies_inside_the_floor_of_a_sum_of_a_million_terms(name: str) -> None:
    shares = {
        (values, dtype): judged(SUMS[name], VALUES[values](2**20).to(dtype))[0]
        for values, dtype in (("positive", F32), ("equal", F32))
    }
    assert max(shares.values()) <= 1, shares


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SUMS) - {"gradients accumulated"}))
def test_eager_lies_inside_the_floor_of_a_very_long_sum(name: str) -> None:
    shares = {
        (values, dtype): judged(SUMS[name], VALUES[values](2**17).to(dtype))[0]
        for values in ("positive", "equal", "a ramp through zero")
        for dtype in (F32, BF16)
    }
    assert max(shares.values()) <= 1, shares


# Relative floors of positive summands: sqrt(n) units of float32, once for the summands and once for the sum, times the
# factor, and twice the unit of a half-precision result.
NARROW_ENOUGH = ("sum", "mean", "matmul", "dot", "softmax", "var", "norm", "avg_pool1d", "conv1d", "gradient of expand")


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
@pytest.mark.parametrize("name", NARROW_ENOUGH)
def test_the_floor_of_a_long_sum_is_not_absurdly_wide(name: str, dtype: torch.dtype) -> None:
    n = 4096
    _, width = judged(SUMS[name], VALUES["positive"](n).to(dtype))
    unit = 4 * math.sqrt(n) * torch.finfo(F32).eps + (0 if dtype == F32 else 4 * torch.finfo(dtype).eps)
    assert 0 < width < SCALE * FACTOR * unit


def test_floors_grow_as_the_root_of_the_length_and_as_the_length_where_summands_are_equal() -> None:
    def growth(values: str) -> float:
        short, long = (judged(SUMS["sum"], VALUES[values](n).to(F32))[1] for n in (2**10, 2**16))
        return long / short

    assert 2 < growth("positive") < 32  # 8, but for chance
    assert 16 < growth("equal") < 256  # 64


def test_a_half_precision_sum_that_swallows_its_summands_is_not_judged_by_them() -> None:
    """8,192 ones in bfloat16, one by one, are 256: eager's own kernel loses the rest."""
    ones = torch.full((8192,), 1.01, dtype=BF16)
    total = torch.zeros(1, dtype=BF16).index_add(0, torch.zeros(8192, dtype=torch.int64), ones)
    assert float(total) < 8192 / 2
    share, width = judged(lambda x: torch.zeros(1, dtype=BF16).index_add(0, torch.zeros_like(x).long(), x), ones)
    assert share <= 1
    assert width < 64


@pytest.mark.parametrize("values", VALUES)
def test_the_references_own_rounding_is_small_beside_a_float64_floor(values: str) -> None:
    x = VALUES[values](4096)
    recorder = Recorder()
    recorder.ref(x)
    with recorder:
        total = x.sum()
    model = Model(recorder.trace, [recorder.ref(total)])
    floor = float(model.spread(FIRST_LOOK[0], scale=SCALE).floors(FACTOR)[0])
    exact = sum(map(Fraction, x.tolist()))
    error = abs(Fraction(float(model.reference[0])) - exact) + abs(Fraction(float(total)) - exact)
    assert float(error) <= floor


def test_summands_with_equal_last_digits_are_rounded_alike() -> None:
    """Numbers of float32 less one of float64, added one by one in float64: off by more than by chance."""
    x = normal(6293).double() - 9.2103403719761836
    model, _ = modelled(lambda x: [x.sum()], x)
    exact = math.fsum(x.tolist())
    off = abs(float(x.cumsum(0)[-1]) - exact)
    limit = float(model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0])
    by_chance = modelled(lambda x: [x.sum()], normal(6293, dtype=F64) - 9.2103403719761836)[0]
    plain = float(by_chance.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0])
    assert plain / 4 < off < limit < 64 * plain


@pytest.mark.parametrize(("second", "exact"), [(2168.0, False), (2176.0, True)])  # a multiple of 8, and of 16
def test_a_sum_into_half_precision_may_round_its_operands_first(second: float, exact: bool) -> None:
    floor, reference = bf16_sum(torch.tensor([-688.0, second]))
    assert reference == second - 688
    assert (floor == 0) == exact
    assert floor >= abs(float(torch.tensor(second, dtype=BF16)) - second)


def bf16_sum(x: torch.Tensor) -> tuple[float, float]:
    """The floor of a sum in bfloat16, and the reference."""
    recorder = Recorder()
    recorder.ref(x)
    with recorder:
        value = x.sum(dtype=BF16)
    model = Model(recorder.trace, [recorder.ref(value)])
    (floor,) = model.spread(FIRST_LOOK[0], scale=SCALE).floors(FACTOR)
    return float(floor), float(model.reference[0])


def test_a_sum_below_the_smallest_digit_has_a_floor() -> None:
    """A unit of the accumulator times so small a sum is zero."""
    x = torch.linspace(1, 9, 4096, dtype=F64) * 5e-324
    assert 0 <= floor(lambda x: [(x * 1.5).sum()], x) < 1e-300
