"""What holds for any program that the strategy draws."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import find, given, settings

from fuzzer.generation.draft import Rejected
from fuzzer.generation.generate import generate
from fuzzer.generation.strategies import programs
from fuzzer.language.infer import check_cotangents, infer, type_of
from fuzzer.language.interpret import apply, cotangents, materialise, run_each, to_function
from fuzzer.language.ops import OPS
from fuzzer.language.program import FLOATS, Program, canonical, contiguous, rename
from fuzzer.language.text import identify, parse, show

ROOT = Path(__file__).parents[2]


@given(programs())
@settings(max_examples=15)
def test_any_program_comes_back_from_its_text_and_its_canonical_form_and_id_do_not_depend_on_names(
    program: Program,
) -> None:
    assert program.nodes
    assert {node.op for node in program.nodes} <= set(OPS)
    assert parse(show(program)) == program
    assert show(parse(show(program))) == show(program)
    plain = canonical(program)
    renamed = rename(program, lambda name: f"other_{name}")
    assert canonical(plain) == plain
    assert canonical(renamed) == plain
    assert renamed != program
    assert identify(renamed) == identify(plain) == identify(program)


# torch's fake kernels differ from its real ones: in the layout of a permuted operand's result, in promotion, or (addmv
# by a matrix without columns) in the size.
UNLIKE_EAGER = {name for name in OPS if "batch_norm" in name or name.startswith("conv")}
UNLIKE_EAGER |= {"im2col", "block_diag", "cat", "addmv"}


@given(programs(ops=tuple(sorted(set(OPS) - UNLIKE_EAGER))))
@settings(max_examples=15)
def test_inferred_types_are_what_eager_computes(program: Program) -> None:
    types = infer(program)
    check_cotangents(program, types)
    env: dict[str, Any] = dict(materialise(program.leaves))
    with torch.no_grad():
        run_each(program, env, lambda node: apply(node, env))
    for name, inferred in types.items():
        real = type_of(env[name])
        assert (inferred.dtype, inferred.shape) == (real.dtype, real.shape), name
        if real.stride == contiguous(real.shape):
            dense = [s for s, n in zip(inferred.stride, inferred.shape, strict=True) if n > 1]
            assert dense == [s for s, n in zip(real.stride, real.shape, strict=True) if n > 1], name


@given(programs(max_nodes=4))
@settings(max_examples=15)
def test_any_program_runs_in_eager_and_each_cotangent_fits_its_output(program: Program) -> None:
    outputs = to_function(program)(*materialise(program.leaves).values())
    assert len(outputs) == len(program.outputs)
    differentiated = [out for out, o in zip(outputs, program.outputs, strict=True) if o.cotangent is not None]
    assert differentiated
    for out, seed in zip(differentiated, cotangents(program), strict=True):
        assert (out.dtype, out.shape) == (seed.dtype, seed.shape)
        assert out.requires_grad


@given(programs(max_nodes=3, max_size=4, ops=("relu", "sum", "matmul"), routes=("vjp",), dtypes=("f32", "f64")))
@settings(max_examples=10)
def test_the_strategy_keeps_to_what_it_was_asked_for(program: Program) -> None:
    assert {node.op for node in program.nodes} <= {"relu", "sum", "matmul"}
    assert len(program.nodes) <= 3
    assert program.route.name == "vjp"
    assert {leaf.dtype for leaf in program.leaves if leaf.dtype in FLOATS} <= {"f32", "f64"}
    assert all(size <= 4 for leaf in program.leaves for size in leaf.shape)


def test_hypothesis_finds_a_small_program_with_the_op_that_is_looked_for() -> None:
    found = find(programs(ops=("relu", "exp", "add")), lambda p: any(n.op == "exp" for n in p.nodes))
    assert len(found.nodes) <= 2


def test_the_strategy_passes_every_health_check_and_a_failing_program_is_printed_as_its_text() -> None:
    """Under Hypothesis' own settings but for its deadline: torch's first calls take longer."""

    @given(programs())
    @settings(max_examples=50, suppress_health_check=())
    def without_sum(program: Program) -> None:
        assert all(node.op != "sum" for node in program.nodes)

    with pytest.raises(AssertionError) as caught:
        without_sum()
    told = "\n".join(caught.value.__notes__)
    text = re.findall(r'program=parse\("""\\\n(.*?)"""\)', told, re.DOTALL)[0]
    assert show(parse(text)) == text
    assert any(node.op == "sum" for node in parse(text).nodes)


def test_an_unknown_op_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no op frobnicate"):
        programs(ops=("relu", "frobnicate"))


SEEDED = """
import json, torch
from tests.generation.test_strategies import seeded
torch.set_num_threads(1)
print(json.dumps(seeded()))
"""


def seeded() -> list[str]:
    """The programs of 25 seeds, or why they were rejected."""
    found = []
    for seed in range(25):
        try:
            found.append(show(generate(random.Random(f"7/{seed}"))))
        except Rejected as error:
            found.append(str(error))
    return found


@pytest.mark.slow
def test_a_seed_gives_the_same_program_in_every_process() -> None:
    other = {**os.environ, "PYTHONHASHSEED": "1", "MALLOC_PERTURB_": "165", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SEEDED], cwd=ROOT, env=other,
                          capture_output=True, text=True, check=True)  # fmt: skip
    here = seeded()
    assert json.loads(done.stdout.splitlines()[-1]) == here
    assert sum(text.startswith("program(1)") for text in here) > 20
