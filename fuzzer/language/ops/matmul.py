"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Callable

from fuzzer.language.ops.spec import (
    SAME,
    WIDE,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    choice,
    computed,
    dim,
    expandable,
    integer,
    like,
    nonempty,
    real,
)
from fuzzer.language.program import Shape

FAMILY = "matmul"

_ALPHA = real("alpha", -2, 2, (1.0, 0.0, 0.5), 1.0)
_BETA = real("beta", -2, 2, (1.0, 0.0, 0.5), 1.0)


def _factor(d: Draw) -> Shape:
    """A factor for x in `matmul`: a vector, a matrix, or a batch that broadcasts with x's."""
    inner = d.x.shape[-1]
    kind = d.rng.choice(("vector", "matrix", "batched")) if d.x.rank < 3 else d.rng.choice(("vector", "matrix", "same"))
    if kind == "vector":
        return (inner,)
    columns = d.size(1, 32)
    if kind == "matrix":
        return (inner, columns)
    if kind == "batched":
        return (d.size(1, 4), inner, columns)
    batch = tuple(1 if d.rng.random() < 0.25 else d.size(1, 3) if size == 1 else size for size in d.x.shape[:-2])
    return (*batch[d.rng.randint(0, len(batch)) if d.rng.random() < 0.3 else 0 :], inner, columns)


def _columns(d: Draw) -> Shape:
    """(k, m) for an x of (n, k)."""
    return (d.x.shape[1], d.size(1, 32))


def _batched_columns(d: Draw) -> Shape:
    return (d.x.shape[0], d.x.shape[2], d.size(1, 32))


def last(d: Draw) -> Shape:
    return (d.x.shape[-1],)


def _vector(d: Draw) -> Shape:
    return (d.size(0),)


def _weights(d: Draw) -> Shape:
    """linear's (out, in)."""
    return (d.size(1, 24), d.x.shape[-1])


def _out_features(d: Draw) -> Shape:
    return d.operands[1].shape[:-1]


def second(d: Draw) -> Shape:
    return d.operands[1].shape


_MATRIX = Operand(rank=(2, 2))


def _accumulating(name: str, of: Operand, other: Operand, input_shape: int, *also: str) -> OpSpec:
    """beta * input + alpha * (of @ other). The input broadcasts, so it is drawn last and passed by keyword."""

    def input_of(d: Draw) -> Shape:
        a, b = d.operands[0].shape, d.operands[1].shape
        return expandable(d, ((*a[:-1], b[-1]) if len(b) == len(a) else a[:-1])[-input_shape:])

    operands = (of, other, Operand("input", SAME, shape=input_of, keyword="input"))
    return OpSpec(name, FAMILY, f"torch.{name}", (*operands, _BETA, _ALPHA), entries=(name, *also))


def named(operand_name: str, **kwargs: object) -> Operand:
    """An operand passed by its own name."""
    return Operand(operand_name, keyword=operand_name, **kwargs)  # type: ignore[arg-type]


def _short(d: Draw) -> Shape:
    return tuple(d.size(1, 6) for _ in range(d.rng.randint(0, 2)))


def _chain(d: Draw) -> Shape:
    """A matrix that the one drawn before it can be multiplied with."""
    drawn = d.operands[-1] if d.operands else ()
    return (drawn[-1].shape[-1] if drawn else d.size(1, 12), d.size(1, 12))


_EQUATIONS = ("ij,jk->ik", "bij,bjk->bik", "ij,ij->", "ii,i->i", "i,j->ji", "bij,bkj->ikb", "ij,kl->il", "bij,j->b")


def _term(number: int) -> Callable[[Draw], Shape]:
    """The sizes of an equation's number-th term; a letter keeps its size from earlier terms."""

    def draw(d: Draw) -> Shape:
        terms = str(d.attrs["equation"]).split("->")[0].split(",")
        sizes = dict(zip(terms[0], d.x.shape, strict=True)) if number else {}
        for letter in terms[number]:
            sizes.setdefault(letter, d.size(1, 12))
        return tuple(sizes[letter] for letter in terms[number])

    return draw


TABLE = (
    OpSpec("matmul", FAMILY, "torch.matmul", (Operand(rank=(1, 5)), Operand("other", SAME, shape=_factor))),
    OpSpec("mm", FAMILY, "torch.mm", (_MATRIX, Operand("mat2", SAME, shape=_columns))),
    OpSpec("bmm", FAMILY, "torch.bmm", (Operand(rank=(3, 3)), Operand("mat2", SAME, shape=_batched_columns))),
    OpSpec("mv", FAMILY, "torch.mv", (_MATRIX, Operand("vec", SAME, shape=last))),
    OpSpec("dot", FAMILY, "torch.dot", (Operand(rank=(1, 1)), Operand("other", SAME, shape=like))),
    OpSpec("vdot", FAMILY, "torch.vdot", (Operand(rank=(1, 1)), Operand("other", SAME, shape=like))),
    OpSpec(
        "inner",
        FAMILY,
        "torch.inner",
        (Operand(rank=(1, 3)), Operand("other", SAME, shape=lambda d: (*_short(d), d.x.shape[-1]))),
    ),
    OpSpec(
        "rmatmul",
        FAMILY,
        "torch.Tensor.__rmatmul__",
        (
            Operand(rank=(1, 3)),
            Operand("other", SAME, shape=lambda d: (d.size(1, 16), d.x.shape[-2:][0])),
        ),
        entries=("__rmatmul__",),
    ),
    OpSpec(
        "einsum",
        FAMILY,
        "torch.einsum",
        (
            Attribute("equation", "choice", lambda d: d.rng.choice(_EQUATIONS), leads=True),
            Operand(shape=_term(0)),
            Operand("other", SAME, shape=_term(1)),
        ),
    ),
    OpSpec(
        "multi_dot",
        FAMILY,
        "torch.linalg.multi_dot",
        (Operand("tensors", SAME, rank=(2, 2), shape=_chain, count=(2, 4)),),
    ),
    OpSpec("outer", FAMILY, "torch.outer", (Operand(rank=(1, 1)), Operand("vec2", SAME, shape=_vector))),
    _accumulating(
        "addmm", named("mat1", rank=(2, 2)), named("mat2", dtypes=SAME, shape=_columns), 2, "addmm.decomposed"
    ),
    _accumulating("baddbmm", named("batch1", rank=(3, 3)), named("batch2", dtypes=SAME, shape=_batched_columns), 3),
    _accumulating("addmv", named("mat", rank=(2, 2)), named("vec", dtypes=SAME, shape=last), 1),
    _accumulating("addbmm", named("batch1", rank=(3, 3)), named("batch2", dtypes=SAME, shape=_batched_columns), 2),
    OpSpec(
        "addr",
        FAMILY,
        "torch.addr",
        (
            named("vec1", rank=(1, 1)),
            named("vec2", dtypes=SAME, shape=_vector),
            named("input", dtypes=SAME, shape=lambda d: expandable(d, (*d.x.shape, *second(d)))),
            _BETA,
            _ALPHA,
        ),
    ),
    OpSpec(
        "linear",
        FAMILY,
        "torch.nn.functional.linear",
        (
            Operand(rank=(1, 5)),
            Operand("weight", SAME, shape=_weights),
            Operand("bias", SAME, shape=_out_features, absent=0.4),
        ),
    ),
    OpSpec(
        "bilinear",
        FAMILY,
        "torch.nn.functional.bilinear",
        (
            Operand(rank=(2, 3), accepts=nonempty),
            Operand("input2", SAME, shape=lambda d: (*d.x.shape[:-1], d.size(1, 6))),
            Operand("weight", SAME, shape=lambda d: (d.size(1, 4), d.x.shape[-1], second(d)[-1])),
            Operand("bias", SAME, shape=lambda d: d.operands[2].shape[:1], absent=0.4),
        ),
    ),
    OpSpec(
        "kron",
        FAMILY,
        "torch.kron",
        (
            Operand(rank=(0, 2), accepts=lambda t: 0 < t.numel <= 512),
            Operand("other", SAME, shape=lambda d: tuple(d.size(1, 3) for _ in range(d.rng.randint(0, 2)))),
        ),
    ),
    OpSpec(
        "tensordot",
        FAMILY,
        "torch.tensordot",
        (
            Operand(rank=(1, 3), accepts=lambda t: t.numel <= 4096),
            integer("dims", 0, lambda d: min(d.x.rank, 2), 2),
            Operand(
                "b",
                SAME,
                shape=lambda d: (*d.x.shape[d.x.rank - int(d.attrs["dims"]) :], d.size(1, 6)),  # type: ignore[arg-type]
            ),
        ),
    ),
    OpSpec(
        "vecdot", FAMILY, "torch.linalg.vecdot", (Operand(rank=(1, 4)), Operand("y", SAME, shape=like), dim(default=-1))
    ),
    OpSpec(
        "cross",
        FAMILY,
        "torch.linalg.cross",
        (
            Operand(
                rank=(1, 4),
                accepts=lambda t: t.shape[-1] == 3,
                fresh=lambda d: (*(d.size(0, 8) for _ in range(d.rng.randint(0, 3))), 3),
            ),
            Operand("other", SAME, shape=like),
        ),
    ),
    OpSpec(
        "torch_cross",
        FAMILY,
        "torch.cross",
        (
            Operand(
                rank=(1, 4),
                accepts=lambda t: 3 in t.shape,
                fresh=lambda d: (*(d.size(1, 8) for _ in range(d.rng.randint(0, 2))), 3, *d.rng.choice(((), (4,)))),
            ),
            computed("dim", "dim", lambda d: d.rng.choice([i for i, size in enumerate(d.x.shape) if size == 3])),
            Operand("other", SAME, shape=like),
        ),
        entries=("cross",),
    ),
    OpSpec(
        "pdist",
        FAMILY,
        "torch.nn.functional.pdist",
        (
            Operand(
                dtypes=WIDE,
                rank=(2, 2),
                accepts=lambda t: t.shape[0] > 1 and t.shape[1] > 0,
                fresh=lambda d: (d.rng.randint(2, 8), d.size(1, 8)),
            ),
            choice("p", 2.0, 1.0, 3.0, 0.5, float("inf"), default=2.0),
        ),
    ),
    OpSpec(
        "cdist",
        FAMILY,
        "torch.cdist",
        (
            Operand("x1", WIDE, rank=(2, 3), accepts=lambda t: t.shape[-1] > 0, values=("normal", "integers", "ties")),
            Operand(
                "x2",
                SAME,
                shape=lambda d: (*d.x.shape[:-2], d.size(1, 12), d.x.shape[-1]),
                values=("normal", "integers", "ties"),
            ),
            choice("p", 2.0, 1.0, 3.0, 0.5, float("inf"), default=2.0),
        ),
    ),
)
