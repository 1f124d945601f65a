"""Exact operands stay where they are: the smallest step outside what a kernel's row states is outside the floor, and
what is legal is inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuzzer.rounding.floors import FACTOR, SCALE, SECOND_LOOK, Model
from fuzzer.rounding.kernels import KERNELS
from tests.rounding.modelled import modelled

F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16
Run = Callable[..., torch.Tensor]


def numbers(dtype: torch.dtype, *values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def floor_of(run: Run, *given: torch.Tensor, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Eager's result, the reference and the floor of the second look."""
    model, (value,) = modelled(lambda *t: [run(*t)], *given)
    model = model if device == "cpu" else Model(model.trace, model.targets, device)
    replicas, scale, factor = SECOND_LOOK
    return value.double(), model.reference[0], model.spread(replicas, scale=scale).floor(0, factor)


QUOTIENTS = {
    "floor_divide": torch.floor_divide,
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "in place": lambda a, b: a.clone().floor_divide_(b),
}


@pytest.mark.parametrize("dtype", [F64, F32, BF16], ids=str)
@pytest.mark.parametrize("name", QUOTIENTS)
def test_a_quotient_of_exact_operands_is_one_integer(name: str, dtype: torch.dtype) -> None:
    a, b = numbers(dtype, 1.0, 0.5, 6.0, -7.5, 3.0, 7.0), numbers(dtype, 0.3, 0.4, 0.7, 2.0, 0.75, 3.5)
    value, reference, floor = floor_of(QUOTIENTS[name], a, b)
    assert torch.equal(value, reference)
    assert float(floor.max()) == 0


def test_a_floored_quotient_just_below_an_integer_is_not_that_integer() -> None:
    value, reference, floor = floor_of(torch.floor_divide, numbers(F32, 1.0, 6.0), numbers(F32, 0.1, 0.2))
    assert value.tolist() == reference.tolist() == [9.0, 29.0]
    assert floor.tolist() == [0.0, 0.0]


def test_a_quotient_beyond_what_holds_a_fraction_may_be_the_next_number() -> None:
    _, reference, floor = floor_of(torch.floor_divide, numbers(F32, 2.0**25, 2.0**22), numbers(F32, 3.0, 3.0))
    assert reference.tolist() == [11184810.0, 1398101.0]
    assert floor[0] > 1
    assert floor[1] == 0


def test_behind_a_rounding_a_quotient_may_be_the_next_integer() -> None:
    run: Run = lambda a, b: torch.floor_divide(a * a, b)  # noqa: E731
    _, _, floor = floor_of(run, numbers(F32, 1.1, 1.1), numbers(F32, 0.121, 0.3))
    assert floor.tolist() == [pytest.approx(2.0), 0.0]


@pytest.mark.parametrize("name", QUOTIENTS)
def test_the_quotient_of_half_precision_tensors_may_be_rounded_to_them_before_it_is_an_integer(name: str) -> None:
    a, b = numbers(BF16, 235.0, 234.0), numbers(BF16, 2.0, 2.0)
    _, reference, floor = floor_of(QUOTIENTS[name], numbers(BF16, 200.0), numbers(BF16, 1.7))
    assert reference.tolist() == [117.0]  # of 117.66; the nearest number of the dtype is 117.5 or 118
    assert float(floor) >= 1
    assert floor_of(QUOTIENTS[name], a, b)[2].tolist() == [0.0, 0.0]


def test_an_accelerator_may_invert_the_divisor_of_a_truncated_quotient() -> None:
    given = numbers(F32, 6.0, 7.0), numbers(F32, 3.0, 3.0)
    assert floor_of(QUOTIENTS["div trunc"], *given)[2].tolist() == [0.0, 0.0]
    found = floor_of(QUOTIENTS["div trunc"], *given, device="cuda")[2]
    assert found[0] >= 1
    assert found[1] == 0
    assert floor_of(QUOTIENTS["div floor"], *given, device="cuda")[2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [F64, F32, F16], ids=str)
def test_a_remainder_may_be_off_by_a_unit_of_its_dividend_and_not_by_its_divisor(dtype: torch.dtype) -> None:
    a, b = numbers(dtype, 1.0, 10.3, -7.7, 5.0), numbers(dtype, 0.1, 0.3, 0.7, 3.0)
    value, reference, floor = floor_of(torch.remainder, a, b)
    documented = (a - torch.floor_divide(a, b) * b).double()
    assert bool(((value - reference).abs() <= floor).all())
    assert bool(((documented - reference).abs() <= floor).all())
    assert bool((floor <= SCALE * FACTOR * 3.1 * torch.finfo(dtype).eps * a.double().abs()).all())
    assert float(floor[3]) == 0  # no rounding in 5 - 1 * 3
    assert bool((floor < b.double() / 2).all())


@pytest.mark.parametrize("run", [torch.remainder, torch.fmod])
def test_a_python_number_is_read_as_eager_reads_it(run: Callable[[torch.Tensor, float], torch.Tensor]) -> None:
    x = numbers(BF16, 1.703125, -1.703125)
    value, reference, floor = floor_of(lambda t: run(t, 1.7), x)
    assert torch.equal(value, reference)
    assert bool(((run(x.double(), 1.7) - reference).abs() > floor).all())


@pytest.mark.parametrize("run", [torch.lt, torch.remainder, torch.floor_divide])
def test_operands_are_promoted_before_they_decide(run: Any) -> None:
    value, reference, _ = floor_of(run, torch.tensor([2**24 + 1, 2**24]), numbers(F32, 2.0**24, 2.0**24))
    assert torch.equal(value, reference.double())


def test_an_integer_that_the_promoted_dtype_does_not_hold_may_be_read_rounded() -> None:
    exponents = torch.tensor([275, 200])
    value, reference, floor = floor_of(torch.pow, numbers(BF16, 1.3046875, 1.3046875), exponents)
    assert float((value[0].double() / reference[0]).abs()) > 1.3, "eager takes 276"
    assert bool(((value.double() - reference).abs() <= floor).all())
    assert float(floor[1] / reference[1]) < 0.1


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64], ids=str)
def test_a_neighbour_is_one_of_its_dtype(dtype: torch.dtype) -> None:
    value, reference, floor = floor_of(torch.nextafter, numbers(dtype, 4.0, 1.0, 0.0), numbers(dtype, 0.0, 2.0, 1.0))
    assert torch.equal(value, reference)
    assert float(floor[:2].max()) == 0


def test_an_operand_beside_the_end_of_a_domain_does_not_reach_it() -> None:
    below = math.nextafter(1.0, 0.0)
    value, reference, floor = floor_of(torch.erfinv, numbers(F64, below))
    assert torch.equal(value, reference)
    assert float(floor) < 1e-13
    for run in (torch.special.ndtri, torch.logit):
        assert math.isfinite(float(floor_of(run, numbers(F32, 1 - 2**-24))[2]))
    poles = floor_of(torch.digamma, numbers(F64, -1.0, -2.5))
    assert poles[2].tolist()[0] == 0.0
    assert poles[0].isnan().tolist() == poles[1].isnan().tolist()


def test_a_number_that_an_integer_dtype_cannot_hold_may_become_any() -> None:
    run: Run = lambda x: x.to(torch.int8).float() * 2  # noqa: E731
    _, _, floor = floor_of(run, numbers(F32, 300.7, -4.5, 1e20))
    assert floor.tolist()[1] == 0
    assert float(floor[0]) >= 256
    assert float(floor[2]) >= 256


UNITS: dict[str, Run] = {
    "angle": lambda x: torch.angle(x - 2),
    "celu": torch.celu,
    "erfinv": lambda x: torch.erfinv(x),
    "glu": lambda x: torch.nn.functional.glu(x, 0),
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "i0": torch.special.i0,
    "mse_loss_backward": lambda x: torch.ops.aten.mse_loss_backward(x.new_tensor(1.0), x, x.flip(0), 1),
    "nll_loss_backward": lambda x: torch.ops.aten.nll_loss_backward(
        x.new_tensor(0.3), x[None], torch.tensor([1]), None, 1, -100, x.new_tensor(1.0)
    ),
    "sigmoid_backward": lambda x: torch.ops.aten.sigmoid_backward(x, x.flip(0)),
    "special_entr": torch.special.entr,
    "special_i0e": torch.special.i0e,
    "special_i1": torch.special.i1,
    "special_i1e": torch.special.i1e,
    "special_xlog1py": lambda x: torch.special.xlog1py(x, x.flip(0)),
}


@pytest.mark.parametrize("name", UNITS)
def test_a_floor_is_four_times_the_units_of_the_row_and_no_more(name: str) -> None:
    """A replica moves by twice the units at most, and the floor is twice the largest deviation."""
    x = numbers(F32, 0.3, 0.4375, 0.7, 0.81)
    _, reference, floor = floor_of(UNITS[name], x)
    units = KERNELS[name].units
    assert units is not None
    place = torch.ldexp(torch.ones_like(reference), torch.frexp(reference).exponent - 1) * torch.finfo(F32).eps
    stated = units[1] * place
    assert bool((floor[reference != 0] >= stated[reference != 0]).all())
    assert bool((floor <= SCALE * FACTOR * stated * (1 + 1e-6)).all())


def test_a_grid_of_nearest_neighbours_has_no_gradient() -> None:
    field, grid = (
        numbers(F32, *range(16)).reshape(1, 1, 4, 4),
        numbers(F32, *(0.1, -0.7, 0.33, 0.9)).reshape(1, 1, 2, 2),
    )
    run: Run = lambda f, g: torch.ops.aten.grid_sampler_2d_backward(  # noqa: E731
        torch.ones(1, 1, 1, 2), f, g, 1, 0, False, [True, True]
    )[1]
    _, reference, floor = floor_of(run, field, grid)
    assert not reference.any()
    assert not floor.any()


COMPLEX: dict[str, Run] = {
    "addcmul": torch.addcmul,
    "addcdiv": torch.addcdiv,
    "lerp": lambda a, b, c: torch.lerp(a, b, 0.3),
    "sinc": lambda a, b, c: torch.sinc(a),
    "tanh_backward": lambda a, b, c: torch.ops.aten.tanh_backward(a, b),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_an_absolute_error_of_complex_results_holds_for_both_parts(name: str) -> None:
    a, b, c = (torch.complex(numbers(F32, *x), numbers(F32, *y)) for x, y in (((0.3, 1.7), (0.9, 0.1)),
               ((2.3, 0.7), (0.4, 0.6)), ((1.1, 0.2), (0.3, 3.3))))  # fmt: skip
    model, (value,) = modelled(lambda *t: [COMPLEX[name](*t)], a, b, c)
    replicas, scale, factor = SECOND_LOOK
    floor = model.spread(replicas, scale=scale).floor(0, factor)
    error = (torch.view_as_real(value).double() - model.reference[0]).abs()
    assert bool((error <= floor).all())
    assert 0 < float(floor.max()) < 1e-4


@pytest.mark.parametrize("larger", [torch.maximum, torch.fmax])
def test_an_integer_beside_a_float_is_first_a_number_of_its_dtype(larger: Run) -> None:
    value, reference, floor = floor_of(larger, torch.tensor([2049, 3]), numbers(F16, 0.0, 7.0))
    assert value.tolist() == reference.tolist() == [2048.0, 7.0]
    assert floor.tolist() == [0.0, 0.0]


def test_a_scalar_tensor_of_a_wider_dtype_may_be_rounded_before_it_is_added() -> None:
    run: Run = lambda a, b: a + b.sum()  # noqa: E731
    value, reference, floor = floor_of(run, numbers(F16, -1.4296875), numbers(F32, 1.49))
    assert abs(float(value - reference)) > 1e-4
    assert bool((abs(value - reference) <= floor).all())
    assert float(floor) < 4e-3


def test_losses_of_half_precision_may_underflow_before_they_are_added() -> None:
    run: Run = lambda a, b: torch.nn.functional.mse_loss(a, b, reduction="sum")  # noqa: E731
    value, reference, floor = floor_of(run, torch.full((171,), 7e-5, dtype=F16), torch.zeros(171, dtype=F16))
    assert float(reference) > 0
    assert abs(float(value - reference)) <= float(floor) < 1e-4
