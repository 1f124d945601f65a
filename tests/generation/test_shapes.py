"""Every class of layout is drawn, for leaves, intermediates and cotangents, and survives text and script."""

from __future__ import annotations

import functools
import math
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
import torch

from fuzzer.export.script import repro
from fuzzer.generation.draft import Rejected
from fuzzer.generation.generate import generate
from fuzzer.generation.shapes import draw_layout, draw_shape
from fuzzer.judgement.verdict import Finding, Signature
from fuzzer.language.interpret import apply, cotangents, materialise, run_each, to_function
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import Program, Shape, TensorType, contiguous, extent, writable
from fuzzer.language.routes import ROUTES, Call
from fuzzer.language.text import parse, show

DRAWN = 3000  # programs at most, until every class has been met; it takes about 600
FLIPS = frozenset("flip fliplr flipud".split())


@dataclass(frozen=True)
class Place:
    """Where a tensor lies, and how it came there: `of` is leaf, intermediate or cotangent; read or made by a flip."""

    of: str
    shape: Shape
    stride: Shape
    offset: int
    flipped: bool = False

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def writable(self) -> bool:
        return writable(TensorType("f32", self.shape, self.stride))

    @property
    def dense(self) -> bool:
        """No gaps, in any order of dimensions."""
        return self.writable and extent(self.shape, self.stride) == self.numel

    def ordered(self, *order: int) -> bool:
        """Dense, with the dimensions in this order in memory, and in no other."""
        if len(self.shape) != len(order) or not self.numel:
            return False
        inner = contiguous(tuple(self.shape[i] for i in order))
        found = tuple(inner[order.index(i)] for i in range(len(order)))
        return self.stride == found != contiguous(self.shape)

    def zero_at(self, *dims: int) -> bool:
        found = {i - len(self.shape) for i, step in enumerate(self.stride) if step == 0 and self.shape[i] > 1}
        return not found.isdisjoint(dims)


CLASSES: dict[str, Callable[[Place], bool]] = {
    "contiguous": lambda p: p.numel > 1 and p.stride == contiguous(p.shape) and not p.offset,
    "permuted": lambda p: p.numel > 1 and p.dense and p.stride != contiguous(p.shape),
    "channels last, 2d": lambda p: p.ordered(0, 2, 3, 1),
    "channels last, 3d": lambda p: p.ordered(0, 2, 3, 4, 1),
    "stride 0 in the last dim": lambda p: p.zero_at(-1),
    "stride 0 in the last but one": lambda p: p.zero_at(-2),
    "stride 0 further out": lambda p: p.zero_at(-3, -4, -5),
    "gaps": lambda p: p.numel > 1 and p.writable and not p.dense,
    "offset": lambda p: p.offset > 0 and p.numel > 0,
    "gaps and offset": lambda p: p.numel > 1 and p.writable and not p.dense and p.offset > 0,
    "overlapping": lambda p: p.numel > 1 and not p.writable and 0 not in p.stride,
    "no dim": lambda p: p.shape == (),
    "no element": lambda p: p.numel == 0,
    "flipped": lambda p: p.flipped,
}
# Of whole programs: which leaves there are, and which of them require grad.
PROGRAMS: dict[str, Callable[[Program], bool]] = {
    "a leaf that views another": lambda p: any(leaf.base for leaf in p.leaves),
    "the same leaf twice": lambda p: any(
        len(read := [u for u in n.uses if u.startswith("x")]) > len(set(read)) for n in p.nodes
    ),
    "one leaf read by two nodes": lambda p: any(sum(leaf.name in n.uses for n in p.nodes) > 1 for leaf in p.leaves),
    "every leaf requires grad": lambda p: len(p.leaves) > 1 and all(leaf.requires_grad for leaf in p.leaves),
    "the first alone requires grad": lambda p: [x.requires_grad for x in p.leaves if x.type.is_float] == [True, False],
    "the last alone requires grad": lambda p: [x.requires_grad for x in p.leaves if x.type.is_float] == [False, True],
    "a view of a leaf without grad": lambda p: any(
        leaf.base and leaf.requires_grad and not base.requires_grad
        for leaf in p.leaves
        for base in p.leaves
        if base.name == leaf.base
    ),
}
CASES = [f"{of}: {name}" for of in ("leaf", "intermediate", "cotangent") for name in CLASSES]


def places(program: Program) -> Iterator[Place]:
    """Where the program's leaves, results and cotangents lie in eager."""
    env = dict(materialise([replace(leaf, requires_grad=False) for leaf in program.leaves]))
    with torch.no_grad():
        run_each(program, env, lambda node: apply(node, env))
    flips = [node for node in program.nodes if node.op in FLIPS]
    read, made = {u for n in flips for u in n.uses}, {out for n in flips for out in n.outs}
    for leaf in program.leaves:
        yield Place("leaf", leaf.shape, leaf.stride, leaf.offset, leaf.name in read)
    for name in [out for node in program.nodes for out in node.outs]:
        yield where("intermediate", env[name], name in made)
    if ROUTES[program.route.name].shows_layouts:
        named = [o.value for o in program.outputs if o.cotangent is not None]
        for name, tensor in zip(named, cotangents(program), strict=True):
            yield where("cotangent", tensor, name in made)


def where(of: str, t: torch.Tensor, flipped: bool) -> Place:
    return Place(of, tuple(t.shape), tuple(t.stride()), t.storage_offset(), flipped)


def runs(program: Program) -> bool:
    """Whether eager has the gradients on the program's route."""
    try:
        function, leaves = to_function(program), materialise(program.leaves)
        ROUTES[program.route.name].run(Call(program, function, leaves, cotangents(program)))
    except RuntimeError:
        return False
    return True


@functools.cache
def drawn() -> dict[str, list[Program]]:
    """The drawn programs of each class: so many that each has one."""
    found: dict[str, list[Program]] = {name: [] for name in (*CASES, *PROGRAMS)}
    for number in range(DRAWN):
        if all(found.values()):
            break
        with suppress(Rejected), warnings.catch_warnings(action="ignore"):
            route = "vjp" if number % 2 else "autograd"
            program = generate(random.Random(f"layouts {number}"), routes=(route,))
            if not runs(program):
                continue  # eager refuses its backward
            shown = {f"{p.of}: {name}" for p in places(program) for name, has in CLASSES.items() if has(p)}
            for name in (*shown, *(name for name, has in PROGRAMS.items() if has(program))):
                found[name].append(program)
    return found


@pytest.mark.slow
def test_every_class_of_layout_is_drawn() -> None:
    counts = Counter({name: len(programs) for name, programs in drawn().items()})
    assert not [name for name, count in counts.items() if not count], counts


def covering() -> list[Program]:
    """Few programs that have every class between them."""
    left: set[str] = set(drawn())
    chosen: list[Program] = []
    while left:
        program = min(drawn()[min(left)], key=lambda p: len(p.nodes))
        chosen.append(program)
        left = {name for name in left if program not in drawn()[name]}
    return chosen


@pytest.mark.slow
def test_a_program_of_each_class_comes_back_from_its_text() -> None:
    for program in covering():
        assert parse(show(program)) == program


def script(program: Program) -> str:
    """The repro script of a program, with eager in the place of the compiler and without its settings."""
    text = show(replace(program, settings=()))
    place = {"backend": "eager", "against": "eager", "device": "cpu"}
    return repro(Finding(Signature("gradients_agree", "wrong", "backward", "other"), "", text, text, place, 3, 3))


@pytest.mark.slow
def test_a_script_of_each_class_rebuilds_its_inputs_and_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in covering():
        monkeypatch.setattr("sys.excepthook", None)
        space: dict[str, object] = {}
        with pytest.raises(SystemExit) as ended, warnings.catch_warnings(action="ignore"):
            exec(script(program), space)
        assert ended.value.code == 0, show(program)
        built = space["inputs"]()  # type: ignore[operator]
        wanted = [*materialise(program.leaves).values(), *cotangents(program)]
        for ours, theirs in zip(built, wanted, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            if theirs.numel():
                assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())
            assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())
    assert capsys.readouterr().out


def test_sizes_are_log_uniform_up_to_the_limit() -> None:
    rng = random.Random(1)
    sizes = [s for _ in range(3000) for s in draw_shape(rng, Limits(max_numel=10**9), (1, 2))]
    assert max(sizes) == 64
    small, large = sum(s <= 8 for s in sizes), sum(s >= 9 for s in sizes)
    assert 0.6 < small / large < 1.9


def test_layouts_describe_the_shape_they_were_drawn_for() -> None:
    rng = random.Random(3)
    for _ in range(300):
        shape = draw_shape(rng, Limits(), (0, 4))
        stride, offset = draw_layout(rng, shape)
        torch.as_strided(torch.empty(extent(shape, stride, offset)), shape, stride, offset)


def test_images_are_laid_out_channels_last_now_and_then() -> None:
    rng = random.Random(4)
    for shape, layout in (((2, 3, 4, 5), torch.channels_last), ((2, 3, 4, 5, 6), torch.channels_last_3d)):
        layouts = [draw_layout(rng, shape) for _ in range(200)]
        strided = [torch.empty_strided(shape, stride) for stride, offset in layouts if not offset]
        assert sum(t.is_contiguous(memory_format=layout) for t in strided) >= 5
