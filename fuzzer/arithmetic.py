"""What each ATen operation may round: tables of their names, and what follows from them for a step of a trace.

Of the words here: an exact step moves, selects or compares; a primitive one is a single IEEE operation or library
function; an accumulation sums; everything else is compound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from fuzzer.trace import Ref, Step, is_rounded, once

# Deviation allowed to one rounding, in units of the last place (see `rounding`).
ULPS = {torch.float64: 1.0, torch.float32: 1.0, torch.bfloat16: 0.5, torch.float16: 0.5}
# Where it is more: units of results in float64, float32 and half precision. The largest that is documented of CUDA's
# functions (with the half that its guide does not count), SLEEF's and glibc's, vectorised ones included; Triton divides
# and takes roots approximately, inductor multiplies by reciprocals; the last six are sums of their parts. Sources and
# figures: docs/rounding.md. Half precision is float32 rounded once more, but for kernels that round in between.
UNITS: dict[str, tuple[float, float, float]] = {
    "exp": (1.5, 2.5, 0.5),
    "exp2": (1.5, 2.5, 0.5),
    "expm1": (1.5, 1.5, 0.5),
    "log": (1.5, 3.0, 0.5),
    "log2": (2.0, 1.5, 0.5),
    "log10": (2.0, 2.5, 0.5),
    "log1p": (1.5, 2.0, 0.5),
    "sin": (2.0, 3.5, 0.5),
    "cos": (2.0, 3.5, 0.5),
    "tan": (2.5, 4.5, 0.5),
    "asin": (2.5, 4.5, 0.5),
    "acos": (1.5, 3.5, 0.5),
    "atan": (2.5, 2.5, 0.5),
    "atan2": (3.0, 3.5, 0.5),
    "sinh": (2.0, 3.5, 0.5),
    "cosh": (2.0, 2.5, 0.5),
    "tanh": (2.0, 2.5, 0.5),
    "asinh": (2.5, 3.5, 0.5),
    "acosh": (2.5, 4.5, 0.5),
    "atanh": (2.5, 3.5, 0.5),
    "erf": (2.5, 2.5, 0.5),
    "erfc": (5.0, 4.5, 0.5),
    "lgamma": (4.5, 7.0, 0.5),
    "pow": (2.5, 8.5, 1.5),  # half: x * x is rounded
    "hypot": (2.5, 3.5, 0.5),
    "div": (1.5, 2.5, 0.5),
    "reciprocal": (1.0, 1.5, 0.5),
    "sqrt": (1.0, 1.5, 0.5),
    "rsqrt": (1.5, 2.5, 1.5),  # half: the root is rounded
    "sigmoid": (2.5, 5.0, 0.5),  # exp, a sum and a quotient
    "xlogy": (2.0, 3.5, 1.5),  # log and a product; half: the logarithm is rounded
    "rrelu_with_noise": (2.0, 2.0, 1.0),  # the slope and a product
    "native_dropout": (3.0, 3.0, 0.5),  # 1 - p, its reciprocal and a product
    "elu": (2.5, 3.5, 2.0),  # exp, a difference and two products
    "elu_backward": (2.5, 3.5, 2.0),
}

# Steps that move, select or compare floating numbers. Beside them: whatever returns no floating number at all
# (positions, flags, integers), and what torch tags as a view in place or the copy of a view.
EXACT = frozenset(
    """
    clone copy _to_copy cat stack gather index_select index _unsafe_masked_index take slice_scatter
    select_scatter diagonal_scatter as_strided_scatter scatter index_copy index_fill masked_fill masked_scatter
    masked_scatter_backward where max min amax amin aminmax maximum minimum fmax fmin clamp clamp_min
    clamp_max relu threshold threshold_backward hardtanh hardtanh_backward neg abs sign sgn floor ceil round trunc frac
    fmod flip roll rot90 constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d tril triu diag_embed block_diag sort topk kthvalue median nanmedian mode cummax
    cummin zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill zero empty empty_like
    empty_strided new_empty new_empty_strided arange scalar_tensor max_pool2d_with_indices max_pool3d_with_indices
    adaptive_max_pool2d adaptive_max_pool3d max_unpool2d max_unpool3d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d im2col embedding
    repeat nan_to_num select_backward slice_backward diagonal_backward copysign hardshrink hardshrink_backward
    softshrink_backward pixel_shuffle pixel_unshuffle channel_shuffle complex
    _conj_physical lu_unpack
    """.split()
)
VIEWS = frozenset((torch.Tag.view_copy, torch.Tag.inplace_view))
# One IEEE operation or one library function, accurate to about a unit of its result whatever its operands.
PRIMITIVE = frozenset(
    """
    add sub rsub mul div reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2
    sinh cosh tanh asinh acosh atanh erf erfc sigmoid pow hypot leaky_relu leaky_relu_backward ldexp deg2rad rad2deg
    softshrink _prelu_kernel _prelu_kernel_backward elu elu_backward xlogy native_dropout rrelu_with_noise
    rrelu_with_noise_functional
    """.split()
)
# Library functions whose implementations differ by more than their rounding even where the result is representable
# (log2(8) may come out as 2.9999998), or that draw a number in a range.
INEXACT = frozenset(
    """
    exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc
    sigmoid pow hypot rsqrt elu elu_backward xlogy rrelu_with_noise rrelu_with_noise_functional
    """.split()
)
# Triton divides and takes roots approximately (div.full.f32: 2 ulp; PTX ISA, "div"), exact quotients included.
INEXACT_ON_CUDA = INEXACT | {"div", "mean", "reciprocal", "sqrt"}
# Where equal elements may legally be ordered either way: the choice is left to chance in every replica.
UNORDERED = frozenset("sort topk kthvalue median nanmedian argsort".split())
# Accumulations whose result is divided, or is no sum at all: their length cannot be counted by summing ones.
DIVIDING = frozenset(
    """
    mean avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d scatter_reduce index_reduce
    embedding_dense_backward _embedding_bag_dense_backward
    """.split()
)
# Sums of products: exact on coarse grids. (Not the backward of average pooling, which divides before it sums.)
ACCUMULATING = frozenset(
    """
    sum mean mm bmm addmm addbmm baddbmm mv addmv dot vdot addr convolution convolution_backward cumsum scatter_add
    scatter_reduce index_add index_reduce index_put _index_put_impl embedding_dense_backward avg_pool2d
    avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d max_pool2d_with_indices_backward
    max_pool3d_with_indices_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward col2im
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward unfold_backward trace nansum put
    _embedding_bag_dense_backward
    """.split()
)
# Kernels that compute in float32 inside where their tensors are float16 or bfloat16, decomposed or not. Every other
# compound kernel may be decomposed into operations that each round to the tensor's dtype (lerp, addcdiv).
WIDE = frozenset(
    """
    sum mean mm bmm addmm baddbmm mv addmv dot vdot convolution convolution_backward _softmax _softmax_backward_data
    _log_softmax_backward_data var std var_mean std_mean linalg_vector_norm norm
    elu elu_backward gelu gelu_backward silu silu_backward mish mish_backward softplus softplus_backward
    hardswish hardswish_backward hardsigmoid hardsigmoid_backward native_layer_norm native_group_norm
    """.split()
)
# Accumulations that may keep their partial sums in the tensors' dtype: what is added one by one to memory, on some
# device or in some layout. Every other one adds up in float32 at least.
NARROW = frozenset(
    """
    scatter_add scatter_reduce index_add index_reduce index_put _index_put_impl put embedding_dense_backward
    _embedding_bag _embedding_bag_backward _embedding_bag_dense_backward _unsafe_masked_index_put_accumulate cumsum
    cumprod logcumsumexp prod segment_reduce max_pool2d_with_indices_backward max_pool3d_with_indices_backward
    adaptive_max_pool2d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward
    fractional_max_pool3d_backward avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward
    _adaptive_avg_pool3d_backward col2im unfold_backward reflection_pad1d_backward reflection_pad2d_backward
    reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
    upsample_linear1d_backward upsample_bilinear2d_backward upsample_trilinear3d_backward upsample_bicubic2d_backward
    _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward grid_sampler_2d_backward
    grid_sampler_3d_backward _cdist_backward _pdist_backward addbmm addr
    """.split()
)
# Those of them that are trees on CUDA and add up in float32 at least elsewhere: no partial sum grows large one by one.
SCANS = frozenset("cumsum cumprod logcumsumexp prod".split())
# Moves that round where they narrow.
COPIES = frozenset("clone copy _to_copy cat stack fill".split())
# Kernels that read an operand once for its maximum and sum and once more for their result.
REREADING = frozenset("_softmax _log_softmax".split())
# Roots of a sum of squares.
ROOTS = frozenset("std std_mean linalg_vector_norm norm".split())
# Functions of a complex argument's modulus, which may be the root of a sum of squares: which of the arguments.
MODULI = {"abs": 0, "sgn": 0, "div": 1, "reciprocal": 0}
# Products to which something is added.
ADDING = frozenset("addmm addmv baddbmm addbmm addr".split())
CONTRACTIONS = frozenset("mm bmm addmm addbmm baddbmm mv addmv dot vdot".split())
SCATTERING = frozenset(
    "scatter_add scatter_reduce index_add index_reduce index_put _index_put_impl embedding_dense_backward put".split()
)

# Kernels that subtract inside: x - mean(x); interpolation weights that sum to 0 or 1; a grid around 0; a logit's
# log(1 + exp(x)) - t x. (Those without sums: `rounding.POINTWISE`.)
CANCELLING = (
    "layer_norm",
    "batch_norm",
    "group_norm",
    "grid_sampler",
    "upsample",
    "affine_grid",
    "binary_cross_entropy_with_logits",
)

# grid_sample's interpolation modes are numbered; the cubic's coefficients ((a x - 5a) x + 8a) x - 4a with a = -3/4 pass
# through numbers up to 8 * 3/4 before they come out below 1 (Keys 1981).
BICUBIC, CUBIC_INNER = 2, 6.0

# Algorithms of many dependent steps on a matrix: their backward error is bounded by the whole matrix's size, not by
# each element's, and grows with the number of rows (Higham 2002, Accuracy and Stability of Numerical Algorithms).
FACTORISING = frozenset(
    """
    cholesky cholesky_solve cholesky_inverse linalg_cholesky_ex linalg_inv_ex linalg_lu linalg_lu_factor
    linalg_lu_factor_ex linalg_lu_solve _linalg_solve_ex _linalg_det _linalg_slogdet _linalg_svd _linalg_eigh linalg_qr
    linalg_pinv linalg_householder_product ormqr linalg_solve_triangular triangular_solve linalg_matrix_exp linalg_eig
    _linalg_eigvals
    """.split()
)
# Results that say yes or no, as 1 or 0 in the tensor's own dtype.
FLAGS = {"multilabel_margin_loss_forward": 1}
# Arguments that such a result is handed to.
FLAGGED = {"multilabel_margin_loss_backward": 4}
# Arguments that are compared with a constant as they are.
DECIDING = {"hardswish_backward": 1, "hardsigmoid_backward": 1}
# Factors that are unique only up to signs: which of the results they are, columns first, then rows.
SIGNED = {"_linalg_eigh": (1, None), "_linalg_svd": (0, 2), "linalg_eig": (1, None)}

# Eigenvalues that have no order: the algorithm's own differs from one precision to the next.
UNSORTED = frozenset("linalg_eig _linalg_eigvals".split())

# A label's gradient is summed over the classes, in a list of labels as often as it is named there: terms, as a power of
# the number of classes.
PER_LABEL = {"multi_margin_loss_backward": 1, "multilabel_margin_loss_backward": 2}

GRIDS = (1.0, 2.0, 4.0, 8.0, 16.0)  # an accumulation may be exact where every operand is a multiple of 1 / grid


@once
def is_exact(step: Step) -> bool:
    """Whether the step only moves, selects or compares, into a dtype that can hold what it moves."""
    takes_complex = any(ref.dtype.is_complex for ref in step.inputs)
    if step.name in ("linalg_vector_norm", "norm"):
        return not takes_complex and any(isinstance(a, float) and math.isinf(a) for a in step.args)  # a maximum
    if step.name in ("scatter_reduce", "index_reduce"):
        return any(a in ("amax", "amin") for a in step.args if isinstance(a, str))
    if not any(map(is_rounded, step.results)):
        return True
    if (step.name not in EXACT and VIEWS.isdisjoint(step.op.tags)) or (takes_complex and step.name in ("abs", "sgn")):
        return False
    if step.name == "round" and (step.kwargs.get("decimals") or len(step.args) > 1):
        return False
    return not narrows(step)


@once
def narrows(step: Step) -> bool:
    """Whether the step returns a coarser dtype than it takes: then it may have rounded its operands first.

    Coarser is also what reaches less far: bfloat16's small numbers underflow in float16, whose unit is finer.
    """
    taken, given = real_dtypes(step.inputs), real_dtypes(step.results)
    if not taken or not given:
        return False
    coarser = max(map(epsilon, given)) > min(map(epsilon, taken))
    return coarser or min(torch.finfo(d).max for d in given) < max(torch.finfo(d).max for d in taken)


@once
def is_primitive(step: Step) -> bool:
    """Whether the step is one IEEE operation or library function, accurate to about a unit of its result."""
    if step.name == "dist":  # of p = inf: the largest of differences, each rounded once
        return any(isinstance(a, float) and math.isinf(a) for a in step.args)
    scaled = step.name in ("add", "sub", "rsub") and (step.kwargs.get("alpha", 1) != 1 or len(step.args) > 2)
    whole = step.name == "div" and step.kwargs.get("rounding_mode") is not None  # the quotient decides, unseen
    # complex numbers are added part by part; a product of them is a sum of products
    plain = step.name in ("add", "sub", "rsub") or not any(ref.dtype.is_complex for ref in step.inputs)
    return step.name in PRIMITIVE and plain and not scaled and not whole


def epsilon(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


def accumulation_length(step: Step) -> float:
    """Terms that one result element may sum, at least 1; an upper bound where the step does not tell."""
    floats = [ref for ref in step.inputs if is_rounded(ref)]
    taken = max((ref.numel for ref in floats), default=1)
    given = max((ref.numel for ref in step.results if is_rounded(ref)), default=1)
    if step.name in CONTRACTIONS:
        # operands of m*k and k*n elements and m*n results: the geometric mean of k*k
        sizes = sorted(ref.numel for ref in floats)[-2:]
        return max(1.0, math.sqrt(math.prod(sizes) / max(given, 1)))
    if step.name in FACTORISING:  # the root of this is the number of rows
        return float(max((size for ref in floats for size in ref.shape[-2:]), default=1) ** 2)
    if step.name.startswith("convolution"):
        weight = floats[2 if step.name.endswith("_backward") else 1]
        taps = weight.numel / max(min(weight.shape[:2], default=1), 1)
        positions = floats[0].numel / max(floats[0].shape[1], 1) if step.name.endswith("_backward") else 1
        return max(taps, positions, 1.0)
    if step.name.startswith(("cum", "logcumsum", "_softmax", "_log_softmax")):
        dims = [a for a in step.args if isinstance(a, int) and not isinstance(a, bool)]
        shape = floats[0].shape if floats else ()
        return float(max(shape[dims[0]], 1)) if dims and shape else 1.0
    if step.name in SCATTERING:
        # how often one element may be met: at most once an index
        return float(max((ref.numel for ref in step.inputs if not is_rounded(ref)), default=1) or 1)
    if step.name in PER_LABEL:
        return float(max(max(floats[1].shape, default=1), 1) ** PER_LABEL[step.name])
    if torch.Tag.pointwise in step.op.tags:
        return 1.0
    if step.name.startswith(("_cdist", "_pdist")):
        return float(max(floats[0].shape[-1], 1))
    if step.name.endswith("_backward") or "_norm" in step.name:  # the smallest result is what is added up most
        return max(1.0, taken / max(min((r.numel for r in step.results if r.numel and is_rounded(r)), default=1), 1))
    return max(1.0, taken / max(given, 1))


def accumulator(step: Step) -> float:
    """The unit in which the step may keep its partial sums: float32's at least, but for NARROW ones."""
    coarsest = max(real_dtypes((*step.inputs, *step.results)), key=epsilon, default=torch.float64)
    own = epsilon(coarsest) * ULPS[coarsest]
    return own if step.name in NARROW else min(own, epsilon(torch.float32))


def growth(terms: float, unit: float) -> float:
    """Units by which a sum of so many terms is off: sqrt(n), for roundings that have nothing to do with each other.

    Where the partial sums grow so large that their unit swallows summands whole, all may be lost: 1 / unit at most.
    Before, the small ones are lost: a share of the sum that grows as the square of its unit.
    """
    return min(terms, 1 / unit) if terms * unit >= 0.5 else math.sqrt(terms) + terms * terms * unit / 16


def grid_operand(step: Step) -> int:
    """Which operand of a grid_sampler step is the grid; the one before it is what is sampled."""
    return 2 if step.name.endswith("_backward") else 1


def grid_terms(step: Step) -> float:
    """What grid_sample adds up: taps, and for the grid's gradient those of every channel."""
    backward = step.name.endswith("_backward")
    field = step.args[grid_operand(step) - 1]
    taps = (4 if interpolation(step) == BICUBIC else 2) ** (len(field.shape) - 2)
    return float(taps * (field.shape[1] if backward else 1))


def interpolation(step: Step) -> int:
    """The interpolation mode of a grid_sampler step: its first integer."""
    return next((a for a in step.args if isinstance(a, int) and not isinstance(a, bool)), 0)


REFLECTION = 2  # grid_sample's padding mode, which divides too


def exact_coordinates(step: Step, grid: torch.Tensor) -> torch.Tensor:
    """Where grid_sample computes a coordinate without rounding, in whatever order: of numbers with so few bits that
    (1 + x) * size and a quarter of its last bit fit the coarsest dtype."""
    bits = 1 - math.log2(torch.finfo(max(real_dtypes(step.inputs), key=epsilon)).eps)
    field = step.args[grid_operand(step) - 1]
    largest = (1 + grid.abs()) * max(field.shape[2:])
    scaled = torch.ldexp(grid, bits - 2 - largest.log2().ceil())
    return scaled == scaled.round()


def narrow_part(step: Step) -> bool:
    """Whether a kernel that adds up in float32 may add to what it has rounded to half precision all the same."""
    if not step.name.startswith("convolution"):
        return step.name in ADDING
    biased = not step.name.endswith("_backward") and step.args[2] is not None
    return biased or max(narrow_terms(step)) > 1


def narrow_terms(step: Step) -> list[int]:
    """Of each result of a convolution (the input's, weight's and bias's gradient), how many rounded terms it adds.

    torch's own CPU convolutions multiply matrices in float32; then col2im adds the kernel's overlapping taps, and the
    weight's gradient is added up over the batch.
    """
    backward = step.name.endswith("_backward")
    transposed, weight = step.args[7 if backward else 6], step.args[2 if backward else 1]
    taps = math.prod(weight.shape[2:])
    if not backward:
        return [taps if transposed else 1]
    asked: list[bool] = step.args[10]
    terms = (1 if transposed else taps, step.args[0].shape[0], 1)
    return [n for n, wanted in zip(terms, asked, strict=True) if wanted]


def depthwise_weight(step: Step) -> int | None:
    """Which of its results is the weight's gradient of a depthwise convolution over three dimensions; None of others.

    CUDA's kernel adds up what its threads have summed in the tensors' own dtype (ATen/native/cuda/DepthwiseConv3d.cu).
    """
    if step.name != "convolution_backward" or len(step.args[1].shape) != 5:
        return None
    asked, groups, transposed = step.args[10], step.args[9], step.args[7]
    depthwise = groups > 1 and groups == step.args[1].shape[1] and not transposed
    return int(asked[0]) if depthwise and asked[1] else None


def narrow_units(terms: int, unit: float) -> float:
    """Units by which a sum of rounded terms, itself rounded, is off; none where there is nothing to add."""
    return 0.0 if terms <= 1 else 1.0 + growth(terms, unit)


@once
def rescales(step: Step) -> bool:
    """Whether the step multiplies by a factor that is itself rounded, so that a product may be off though it is
    representable: dropout's 1 / (1 - p), but for a power of two."""
    return step.name == "native_dropout" and math.frexp(1.0 - step.args[1])[0] != 0.5


def units(step: Step, dtype: torch.dtype) -> float:
    """How far the step's result of this dtype may be off, in units of the last place."""
    if step.name not in UNITS:
        return ULPS[dtype]
    return UNITS[step.name][{torch.float64: 0, torch.float32: 1}.get(dtype, 2)]


def real_dtypes(refs: Sequence[Ref]) -> list[torch.dtype]:
    """Those of the floating refs, and of complex ones' parts."""
    return [r.dtype.to_real() for r in refs if is_rounded(r)]
