"""The rows of `kernels` say what torch does: every ATen call that draws of our ops show, against float64."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.nodes import draw_node
from fuzzer.language.interpret import apply
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import DIFFERENTIABLE, FLOATS, writes
from fuzzer.language.values import DTYPE_NAMES, real_parts
from fuzzer.rounding import arithmetic
from fuzzer.rounding.accumulations import Accumulations
from fuzzer.rounding.floors import FINAL_LOOK, FIRST_LOOK, SECOND_LOOK, Model, kind
from fuzzer.rounding.kernels import KERNELS, kernel, named
from fuzzer.rounding.kernels.row import ACCUMULATION, COPY, EXACT, PRIMITIVE, Kind
from fuzzer.rounding.perturb import Rounder
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.scalars import round_to
from fuzzer.rounding.trace import Ref, Step, Trace, mapped, show_step

CPU = torch.device("cpu")
DRAWS = 6  # of each op, each as it is and on small integers; each floating dtype in turn
MANY = ("interpolate", "padding", "reduction")  # families whose ops stand for a kernel each number of dimensions
MORE = 20
ALIKE = 3  # calls kept of one overload, dtype and kind of values
LIMITS = Limits(max_size=12, max_numel=512)


@dataclass(frozen=True)
class Alone:
    """One ATen call as a trace of its own, and what eager's kernel made of it."""

    trace: Trace
    values: tuple[tuple[Ref, torch.Tensor], ...]

    @property
    def step(self) -> Step:
        return self.trace.steps[0]

    def __str__(self) -> str:
        return show_step(self.step)


class Listener(TorchDispatchMode):
    """Records calls, each by itself: its operands are then what eager really had, and exactly representable."""

    def __init__(self, met: Counter[Any], integers: bool) -> None:
        super().__init__()
        self.heard: list[Alone] = []
        self.met, self.integers = met, integers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [*tensors([args, kwargs])]
        key = func, self.integers, given[0].dtype if given else None
        self.met[key] += 1
        if self.met[key] > ALIKE or "empty" in func._schema.name:
            return func(*args, **(kwargs or {}))
        recorder = Recorder()
        with recorder:
            out = func(*args, **(kwargs or {}))
        held = {recorder.ref(t, True): t for t in tensors([out, args, kwargs])}
        for step in recorder.trace.steps:
            # not what is drawn at random, and not squeeze_ and its like: views, in place
            if set(step.results) <= set(held) and not step.recorded:
                values = tuple((ref, held[ref].detach().clone()) for ref in step.results)
                self.heard.append(Alone(recorder.trace, values))
        return out


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    found: list[torch.Tensor] = []
    mapped(tree, lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None)
    return iter(found)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor with small integers in it."""
    if not tensor.dtype.is_floating_point:
        return tensor
    drawn = torch.randint(-3, 4, tensor.shape, generator=torch.Generator().manual_seed(1))
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(drawn)


def run(name: str, number: int, listener: Listener) -> list[Alone]:
    """The calls of one draw of an op, forward and backward; those before a refusal, where torch refuses it."""
    draft = Draft(random.Random(f"{name} {number}"), LIMITS, FLOATS[number % len(FLOATS)])
    try:
        node = draw_node(draft, OPS[name])
        env: dict[str, Any] = {
            leaf.name: (whole(draft.env[leaf.name]) if listener.integers else draft.env[leaf.name]).detach()
            for leaf in draft.leaves
        }
        leaves = [t.requires_grad_() for t in env.values() if DTYPE_NAMES[t.dtype] in DIFFERENTIABLE]
        if writes(node):
            env[writes(node)] = env[writes(node)].clone()
        with listener:
            apply(node, env)
            results = [env[out] for out in node.outs if env[out].requires_grad]
            if results:
                torch.autograd.grad(results, leaves, [whole(r) for r in results], allow_unused=True)
    except (Rejected, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        pass
    return listener.heard


@functools.cache
def calls() -> tuple[Alone, ...]:
    met = Counter[Any]()
    return tuple(
        call
        for name, spec in OPS.items()
        for number, integers in product(range(MORE if spec.family in MANY else DRAWS), (False, True))
        for call in run(name, number, Listener(met, integers))
    )


# four fifths of the calls that torch 2.13 made, by what the tables take them for
LEAST = {"exact": 2638, "primitive": 1713, "accumulating": 722, "compound": 1467}


def of(*kinds: str) -> list[Alone]:
    found = [call for call in calls() if table(call.step) in kinds]
    assert len(found) >= sum(LEAST[kind] for kind in kinds), "there was little to check"
    return found


def table(step: Step) -> str:
    """What the rows take a step for."""
    if arithmetic.is_exact(step):
        return "exact"
    if arithmetic.rounds_once(step):
        return "primitive"
    return "accumulating" if arithmetic.accumulates(step) else "compound"


class InItsOwnDtype(Accumulations):
    """Reads scalars in the tensors' dtype, as some kernels do, where others read them in float32."""

    def scalar(self, value: float, dtype: torch.dtype) -> float:
        return round_to(value, dtype)


def readings(call: Alone) -> Iterator[tuple[Replay, Accumulations]]:
    """The call in float64, its scalars read in either way."""
    for found in (Accumulations(), InItsOwnDtype()):
        yield Replay(call.trace, found).run(), found


def same(value: torch.Tensor, expected: torch.Tensor) -> bool:
    wide = value.to(expected.dtype)
    return bool(((wide == expected) | (wide != wide) & (expected != expected)).all())


def narrowed(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 values rounded to the dtype that eager has."""
    return value if dtype in (torch.float64, torch.complex128) or not value.dtype.is_floating_point else value.to(dtype)


# ---------------------------------------------------------------- names

# Met where no draw on the CPU looks: on CUDA, on some releases, or in functions (`test_unmodelled`).
ELSEWHERE = frozenset(
    """
    native_dropout rrelu_with_noise_functional _index_put_impl _embedding_bag_dense_backward aminmax
    masked_select _unique2 unique_dim unique_consecutive _pack_padded_sequence heaviside
    """.split()
)


def of_kind(*kinds: Kind) -> frozenset[str]:
    return frozenset(name for name, row in KERNELS.items() if row.kind in kinds)


@pytest.mark.slow
def test_what_a_row_calls_exact_or_accurate_is_checked_here() -> None:
    met = {call.step.name for call in calls()}
    claimed = of_kind(EXACT, COPY, PRIMITIVE, ACCUMULATION)
    unmet = sorted(n for n in claimed - met - ELSEWHERE if not KERNELS[n].uninitialised)
    assert unmet == []


def test_no_row_contradicts_a_tag_of_torch() -> None:
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        row = named(name)
        for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
            tags = getattr(packet, overload).tags
            if torch.Tag.nondeterministic_seeded in tags:
                assert row.kind not in (EXACT, COPY, ACCUMULATION), name
            if torch.Tag.pointwise in tags:
                assert row.kind is not ACCUMULATION, name
                assert not row.factorises, name
            if torch.Tag.reduction in tags:
                assert row.kind not in (PRIMITIVE, COPY), name


# ---------------------------------------------------------------- figures


@pytest.mark.slow
def test_exact_steps_return_the_very_bits() -> None:
    told = [
        str(call)
        for call in of("exact")
        if not any(
            all(same(value, narrowed(replay.value(ref), ref.dtype)) for ref, value in call.values)
            for replay, _ in readings(call)
        )
    ]
    assert told == []


@pytest.mark.slow
def test_accumulations_on_coarse_grids_are_rounded_once_at_most() -> None:
    met, told = Counter[str](), []
    for call in of("accumulating"):
        replay, found = next(readings(call))
        if 0 in found.exact:
            met[call.step.name] += 1
            if not all(same(value, narrowed(replay.value(ref), ref.dtype)) for ref, value in call.values):
                told.append(str(call))
    assert told == []
    assert len(met) > len(of_kind(ACCUMULATION)) * 3 / 4  # or there was little to check


class Furthest(Rounder):
    """The replica in which every rounding is as large as the rows say."""

    def noise(self, value: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(value)

    def scalar(self, value: float, dtype: torch.dtype) -> float:
        return self.found.scalar(value, dtype)


@pytest.mark.slow
def test_functions_of_one_rounding_lie_within_their_unit() -> None:
    told = []
    for call in of("primitive"):
        for replay, found in readings(call):
            moved = Replay(call.trace, Furthest(0, found, CPU)).run()
            off = [
                _off(value, replay.value(ref), moved.value(ref))
                for ref, value in call.values
                if ref.dtype != torch.float64
            ]
            if max(off, default=0) <= 1:
                break
        else:
            told.append(f"{max(off):.3g} units: {call}")
    assert told == []


def _off(value: torch.Tensor, r: torch.Tensor, moved: torch.Tensor) -> float:
    """The largest error in units of the allowed one, where all is finite."""
    value, r, moved = (real_parts(t).double() for t in (value, r, moved))
    ratio = (value - r).abs() / ((moved - r).abs() * (1 + 2**-10))  # a second rounding, of a float32 number
    ratio = torch.where((value == r) | ~(torch.isfinite(value) & torch.isfinite(r)), 0.0, ratio)
    return float(ratio.max()) if ratio.numel() else 0.0


# Asks whether a rounded distance equals the difference that it came from (p=inf): not where both are given.
UNSOUND_ALONE = ("_cdist_backward",)


def is_miscomputed(step: Step) -> bool:
    """Whether it is a scaled gradient of embedding_bag: the kernel here is wrong (`Kernel.mended`)."""
    return kernel(step).mended is not None and arithmetic.divides_by_frequency(step)


@pytest.mark.slow
def test_every_kernel_lies_inside_the_floor_of_its_own_call() -> None:
    told = []
    for call in of("accumulating", "compound"):
        if call.step.name in UNSOUND_ALONE or is_miscomputed(call.step):
            continue
        values = [real_parts(value).double() for ref, value in call.values]
        model = Model(call.trace, [ref for ref, _ in call.values])
        if all(map(torch.equal, values, model.reference)):
            continue  # inside a floor of 0
        for replicas, scale, factor in (FIRST_LOOK, SECOND_LOOK, FINAL_LOOK):
            floors = model.spread(replicas, scale=scale).floors(factor)
            excess = [
                outside(v, r.double(), f)
                for v, r, f in zip(values, model.reference, floors, strict=True)
                if v.shape == r.shape  # workspaces depend on the dtype
            ]
            if not any(excess):
                break
        else:
            told.append(str(call))
    assert told == []


def outside(value: torch.Tensor, r: torch.Tensor, floor: torch.Tensor) -> bool:
    both = torch.isfinite(value) & torch.isfinite(r)
    return bool(torch.where(both, (value - r).abs() > floor, (kind(value) != kind(r)) & torch.isfinite(floor)).any())
