"""Ops that draw random numbers: dropout and its kin, noise that other ops take.

Compiled code draws what eager draws only where inductor falls back to eager's kernels (`inductor.fallback_random`)
and both sides start from one seed: a program with one of these has that setting, and the worker seeds every run.
alpha_dropout shows two faults of torch 2.11 and 2.13: functionalization takes its in-place bernoulli_ for one into a
contiguous tensor, so that on permuted operands eager's numbers land on other elements; and torch.func.vjp cannot trace
it with symbolic sizes ("Cannot call numel()"). Not here: attention's dropout (a fused kernel on CUDA, whose mask no
trace shows).
"""

from __future__ import annotations

from fuzzer.ops.spec import FROM_SOURCE, Attribute, Operand, OpSpec, choice, flag, real
from fuzzer.program import FLOATS

FAMILY = "dropout"

CHANCE = real("p", 0.1, 0.9, (0.5, 0.0), 0.5)
TRAINING = choice("training", True, default=False)  # False is what these take where nothing is said
FEATURES = "nn.functional.feature_alpha_dropout"


def random(
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
    random("dropout", CHANCE),
    random("dropout1d", CHANCE, rank=(2, 3)),
    random("dropout2d", CHANCE, rank=(4, 4)),
    random("dropout3d", CHANCE, rank=(5, 5)),
    random("alpha_dropout", CHANCE, TRAINING),
    random("feature_alpha_dropout", CHANCE, TRAINING, rank=(2, 5), entries=(f"{FEATURES}.with_train",)),
    OpSpec(
        "feature_alpha_dropout_off",
        FAMILY,
        f"torch.{FEATURES}",
        (Operand(rank=(2, 5)), CHANCE),
        entries=(f"{FEATURES}.without_train",),
    ),
    # eager on the CPU has no kernel for float16
    random("rrelu_training", TRAINING, source="torch.nn.functional.rrelu", dtypes=("f64", "f32", "bf16")),
    random("gumbel_softmax", real("tau", 0.3, 3, (1.0,), 1.0), flag("hard", False), rank=(1, 5)),
    random("rand_like", source="torch.rand_like", differentiable=False),
    random("randn_like", source="torch.randn_like", differentiable=False),
)
