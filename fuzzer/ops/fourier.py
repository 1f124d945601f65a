"""Fourier transforms and other functions with complex results, of which programs see the real and imaginary parts."""

from __future__ import annotations

from fuzzer.ops.linalg import is_square, square
from fuzzer.ops.reduction import some
from fuzzer.ops.spec import (
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
from fuzzer.program import Recipe, Shape, TensorType, Value

FAMILY = "fourier"

PARTS = ("torch.resolve_conj", "torch.view_as_real")  # a conjugation may be pending
REAL_RESULT = ("hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")
NORM = choice("norm", None, "backward", "ortho", "forward", default=None)


def length(d: Draw) -> Value:
    """None, or a length that cuts or pads; also an odd one."""
    return None if d.rng.random() < 0.5 else d.rng.randint(2, 12)


def last_dim(d: Draw) -> Value:
    return d.rng.randrange(-d.x.rank, d.x.rank)


def lengths(d: Draw) -> Value:
    """None, or one for each of the transformed dimensions."""
    if d.rng.random() < 0.5:
        return None
    return tuple(d.rng.randint(2, 8) for _ in d.attrs["dim"])  # type: ignore[union-attr]


def two(d: Draw) -> Value:
    return tuple(d.rng.sample(range(-d.x.rank, 0), 2))


def signal(d: Draw) -> Shape:
    """At least two elements along each dimension: of one, a real result would have none."""
    return tuple(d.rng.randint(2, 8) for _ in range(d.rng.randint(2, 3)))


def is_signal(t: TensorType) -> bool:
    return min(t.shape) >= 2


def long(d: Draw) -> Shape:
    """A signal longer than any window, or a batch of them."""
    return (*((d.size(1, 3),) if d.rng.random() < 0.3 else ()), d.rng.randint(12, 32))


def window(d: Draw) -> Shape:
    return (int(d.attrs["n_fft"]),)  # type: ignore[arg-type]


def transform(name: str) -> OpSpec:
    """One dimension, the last two or several."""
    several: tuple[Attribute, ...]
    if name.endswith("n"):
        several = (dims(), computed("s", "shape", lengths, None))
    elif name.endswith("2"):
        several = (computed("dim", "dims", two, (-2, -1)), computed("s", "shape", lengths, None))
    else:
        several = (computed("n", "integer", length, None), computed("dim", "dim", last_dim, -1))
    operand = Operand(dtypes=WIDE, rank=(2, 4), accepts=is_signal, fresh=signal)
    then = () if name in REAL_RESULT else PARTS
    return OpSpec(name, FAMILY, f"torch.fft.{name}", (operand, *several, NORM), then=then)


def shift(name: str) -> OpSpec:
    return OpSpec(name, FAMILY, f"torch.fft.{name}", (Operand(rank=(1, 4)), some()))


def complex_valued(name: str, *params: Operand | Attribute, source: str = "") -> OpSpec:
    return OpSpec(f"{name}_parts", FAMILY, source or f"torch.{name}", params, then=PARTS)


NUMBER = Operand(dtypes=WIDE)

TABLE = (
    *(
        transform(name + dimensions)
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for dimensions in ("", "2", "n")
    ),
    *map(shift, ("fftshift", "ifftshift")),
    complex_valued("complex", NUMBER, Operand("imag", SAME, shape=like)),
    complex_valued("polar", Operand("abs", WIDE, values=("positive",)), Operand("angle", SAME, shape=like)),
    complex_valued(
        "view_as_complex",
        Operand(
            dtypes=WIDE,
            shape=lambda d: (*(d.size(1, 8) for _ in range(d.rng.randint(0, 3))), 2),
            recipe=lambda d: Recipe("normal"),
        ),
    ),
    complex_valued("cdouble", NUMBER, source="torch.Tensor.cdouble"),
    complex_valued("cfloat", NUMBER, source="torch.Tensor.cfloat"),
    complex_valued("chalf", Operand(dtypes=("f16", "f32")), source="torch.Tensor.chalf"),
    complex_valued(
        "eigvals",
        Operand(dtypes=WIDE, rank=(2, 3), accepts=is_square, fresh=square, values=("definite",)),
        source="torch.linalg.eigvals",
    ),
    complex_valued(
        "stft",
        Operand(dtypes=WIDE, rank=(1, 2), accepts=lambda t: t.shape[-1] >= 12, fresh=long),
        computed("n_fft", "integer", lambda d: d.rng.randint(4, 8)),
        Operand("window", SAME, shape=window, absent=0.4, keyword="window"),
        computed("hop_length", "integer", lambda d: d.rng.choice((None, 1, 2, 3)), None),
        flag("center", True),
        flag("normalized", False),
        choice("onesided", None, True, False, default=None),
        choice("return_complex", True),
    ),
)
