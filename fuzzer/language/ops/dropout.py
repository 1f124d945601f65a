"""Ops that draw random numbers: dropout and similar ops, noise as an operand of other ops.

Compiled code draws the same numbers as eager only where inductor falls back to eager's kernels
(`inductor.fallback_random`) and both sides start from one seed: a program with one of these ops has that setting, and
the worker seeds every run.
alpha_dropout shows two faults of torch 2.11 and 2.13: functionalization replaces its in-place bernoulli_ by one on a
contiguous tensor, so that on permuted operands eager's numbers go to other elements; and torch.func.vjp cannot trace
it with symbolic sizes ("Cannot call numel()"). Left out: attention's dropout (a fused kernel on CUDA, whose mask no
trace shows).
"""

from __future__ import annotations

from fuzzer.language.ops.spec import FROM_SOURCE, Attribute, Operand, OpSpec, choice, flag, real
from fuzzer.language.program import FLOATS

FAMILY = "dropout"

_CHANCE = real("p", 0.1, 0.9, (0.5, 0.0), 0.5)
_TRAINING = choice("training", True, False, default=False)  # their default is False
_TRAINED = flag("training", True)
_FEATURES = "nn.functional.feature_alpha_dropout"


def _random(
    name: str,
    *attributes: Attribute,
    source: str = "",
    rank: tuple[int, int] = (0, 5),
    dtypes: tuple[str, ...] = FLOATS,
    differentiable: bool = True,
    entries: tuple[str, ...] = FROM_SOURCE,
) -> OpSpec:
    operand = Operand(dtypes=dtypes, rank=rank)
    source = source or f"torch.nn.functional.{name}"
    return OpSpec(
        name, FAMILY, source, (operand, *attributes), differentiable=differentiable, entries=entries, random=True
    )


TABLE = (
    _random("dropout", _CHANCE, _TRAINED),
    _random("dropout1d", _CHANCE, _TRAINED, rank=(2, 3)),
    _random("dropout2d", _CHANCE, _TRAINED, rank=(4, 4)),
    _random("dropout3d", _CHANCE, _TRAINED, rank=(5, 5)),
    _random("alpha_dropout", _CHANCE, _TRAINING),
    _random("feature_alpha_dropout", _CHANCE, _TRAINING, rank=(2, 5), entries=(f"{_FEATURES}.with_train",)),
    OpSpec(
        "feature_alpha_dropout_off",
        FAMILY,
        f"torch.{_FEATURES}",
        (Operand(rank=(2, 5)), _CHANCE),
        entries=(f"{_FEATURES}.without_train",),
    ),
    # eager on the CPU has no kernel for float16
    _random("rrelu_training", _TRAINING, source="torch.nn.functional.rrelu", dtypes=("f64", "f32", "bf16")),
    _random("gumbel_softmax", real("tau", 0.3, 3, (1.0,), 1.0), flag("hard", False), rank=(1, 5)),
    _random("rand_like", source="torch.rand_like", differentiable=False),
    _random("randn_like", source="torch.randn_like", differentiable=False),
)
