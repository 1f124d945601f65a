"""Fourier transforms and other functions with complex results, which programs use as real and imaginary parts."""

from __future__ import annotations

from fuzzer.language.ops.linalg import is_square, square
from fuzzer.language.ops.reduction import some
from fuzzer.language.ops.spec import (
    SAME,
    WIDE,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    choice,
    computed,
    dims,
    flag,
    like,
)
from fuzzer.language.program import Recipe, Shape, TensorType, Value

FAMILY = "fourier"

PARTS = ("torch.resolve_conj", "torch.view_as_real")  # a conjugation may be pending
_REAL_RESULT = ("hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")
_NORM = choice("norm", None, "backward", "ortho", "forward", default=None)


def _length(d: Draw) -> Value:
    """None, or a length that cuts or pads the signal, sometimes odd."""
    return None if d.rng.random() < 0.5 else d.rng.randint(2, 12)


def _last_dim(d: Draw) -> Value:
    return d.rng.randrange(-d.x.rank, d.x.rank)


def _lengths(d: Draw) -> Value:
    """None, or a length for each of the transformed dimensions."""
    if d.rng.random() < 0.5:
        return None
    return tuple(d.rng.randint(2, 8) for _ in d.attrs["dim"])  # type: ignore[union-attr]


def _two(d: Draw) -> Value:
    return tuple(d.rng.sample(range(-d.x.rank, 0), 2))


def _signal(d: Draw) -> Shape:
    """A signal of at least two elements along each dimension: from one element, a real result would be empty."""
    return tuple(d.rng.randint(2, 8) for _ in range(d.rng.randint(2, 3)))


def _is_signal(t: TensorType) -> bool:
    return min(t.shape) >= 2


def _long(d: Draw) -> Shape:
    """A signal longer than any window, or a batch of them."""
    return (*((d.size(1, 3),) if d.rng.random() < 0.3 else ()), d.rng.randint(12, 32))


def _window(d: Draw) -> Shape:
    return (int(d.attrs["n_fft"]),)  # type: ignore[arg-type]


def _transform(name: str) -> OpSpec:
    """A transform over one dimension, the last two or several."""
    several: tuple[Attribute, ...]
    if name.endswith("n"):
        several = (dims(), computed("s", "shape", _lengths, None))
    elif name.endswith("2"):
        several = (computed("dim", "dims", _two, (-2, -1)), computed("s", "shape", _lengths, None))
    else:
        several = (computed("n", "integer", _length, None), computed("dim", "dim", _last_dim, -1))
    operand = Operand(dtypes=WIDE, rank=(2, 4), accepts=_is_signal, fresh=_signal)
    then = () if name in _REAL_RESULT else PARTS
    return OpSpec(name, FAMILY, f"torch.fft.{name}", (operand, *several, _NORM), then=then)


def _shift(name: str) -> OpSpec:
    return OpSpec(name, FAMILY, f"torch.fft.{name}", (Operand(rank=(1, 4)), some()))


def _complex_valued(name: str, *params: Operand | Attribute, source: str = "") -> OpSpec:
    return OpSpec(f"{name}_parts", FAMILY, source or f"torch.{name}", params, then=PARTS)


_NUMBER = Operand(dtypes=WIDE)

TABLE = (
    *(
        _transform(name + dimensions)
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for dimensions in ("", "2", "n")
    ),
    *map(_shift, ("fftshift", "ifftshift")),
    _complex_valued("complex", _NUMBER, Operand("imag", SAME, shape=like)),
    _complex_valued("polar", Operand("abs", WIDE, values=("positive",)), Operand("angle", SAME, shape=like)),
    _complex_valued(
        "view_as_complex",
        Operand(
            dtypes=WIDE,
            shape=lambda d: (*(d.size(1, 8) for _ in range(d.rng.randint(0, 3))), 2),
            recipe=lambda d: Recipe("normal"),
        ),
    ),
    _complex_valued("cdouble", _NUMBER, source="torch.Tensor.cdouble"),
    _complex_valued("cfloat", _NUMBER, source="torch.Tensor.cfloat"),
    _complex_valued("chalf", Operand(dtypes=("f16", "f32")), source="torch.Tensor.chalf"),
    _complex_valued(
        "eigvals",
        Operand(dtypes=WIDE, rank=(2, 3), accepts=is_square, fresh=square, values=("definite",)),
        source="torch.linalg.eigvals",
    ),
    _complex_valued(
        "stft",
        Operand(dtypes=WIDE, rank=(1, 2), accepts=lambda t: t.shape[-1] >= 12, fresh=_long),
        computed("n_fft", "integer", lambda d: d.rng.randint(4, 8)),
        Operand("window", SAME, shape=_window, absent=0.4, keyword="window"),
        computed("hop_length", "integer", lambda d: d.rng.choice((None, 1, 2, 3)), None),
        flag("center", True),
        flag("normalized", False),
        choice("onesided", None, True, False, default=None),
        choice("return_complex", True),
    ),
)
