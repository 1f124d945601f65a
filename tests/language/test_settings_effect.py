"""Every setting of the table does something: it changes the code of some program, and programs agree under it.

The tests print tables (`pytest -s`): one of keys, values and the program whose code changed, one of verdicts.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from fuzzer import stages
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.interpret import cotangents, materialise, to_function
from fuzzer.language.private import CONFIGS, output_code, reset_compiler
from fuzzer.language.program import Attributes, Program, Route, Value
from fuzzer.language.routes import ROUTES, Call, Compile, Results, no_compile
from fuzzer.language.settings import SETTINGS, Setting, exists, in_force
from fuzzer.workers.messages import Task
from tests.language.witnesses import PROGRAMS, SHOWN_BY
from tests.together import examined_together

UNCACHED: Attributes = (("inductor.force_disable_caches", True),)


class Idle:
    """A kernel that is never compiled and does nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        pass

    run = __call__


class Written(Exception):
    """The code is written: it need not be built."""


@contextlib.contextmanager
def idle_kernels(written: list[str]) -> Iterator[None]:
    """Compile no kernels, for speed; the flags with which a C++ kernel would be compiled are written down."""
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.cpp_builder import CppTorchDeviceOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    def flags(*args: Any, **kwargs: Any) -> Idle:
        options = CppTorchDeviceOptions(device_type="cpu", vec_isa=pick_vec_isa())
        written.append(" ".join(options.get_cflags()))
        return Idle()

    kinds = {"cpp_pybinding": flags, "triton": lambda *a, **k: Idle(), "multi_kernel": lambda *a, **k: Idle()}
    with contextlib.ExitStack() as stack:
        for name, stub in kinds.items():
            stack.enter_context(patch.object(AsyncCompile, name, stub))
        yield


def ancestry(t: torch.Tensor) -> str:
    """The autograd graph behind a tensor, as text."""

    def walk(node: Any) -> str:
        return "" if node is None else f"{node.name()}({', '.join(walk(n) for n, _ in node.next_functions)})"

    return walk(t.grad_fn)


def run(program: Program, device: str, compile: Compile = no_compile) -> Results:
    """The outputs and gradients of a program by its own route."""
    leaves, seeds = materialise(program.leaves, device), cotangents(program, device)
    torch.manual_seed(0)
    return ROUTES[program.route.name].run(Call(program, to_function(program), leaves, seeds, compile))


def generated(program: Program, settings: Attributes, device: str) -> tuple[str, Results]:
    """What the compiler makes of a program: its code, the flags of the C++ compiler, how outputs come back. And what a
    run of that gives, which holds nothing where kernels are idle."""
    written: list[str] = []
    # its C++ code holds the addresses of real kernels; what would build it comes after what writes it
    stops = bool(dict(settings).get("inductor.cpp_wrapper"))

    def note(code: str) -> None:
        written.append(code)
        if stops:
            raise Written

    def compile(f: Any) -> Any:
        compiled = torch.compile(f, fullgraph=True, dynamic=False)

        def run(*args: Any) -> Any:
            outputs = compiled(*args)
            written.extend(ancestry(t) for t in outputs if isinstance(t, torch.Tensor))
            return outputs

        return run

    reset_compiler()
    kernels = contextlib.nullcontext() if stops else idle_kernels(written)
    results = Results((), {})
    with in_force((*settings, *UNCACHED)), output_code(note), kernels:
        try:
            results = run(program, device, compile)
        except Exception:  # the compiler wraps ours
            if not (stops and written):
                raise
    # names of temporary files, hashes and counters are no effect
    return re.sub(r"/tmp/\S+|[0-9a-z]{40,}|# AOT ID.*", "", "\n".join(written)), results


def lowered(program: Program, settings: Attributes, device: str) -> tuple[str, Results]:
    """What the compiler makes of a program before it writes code: the loops of its kernels, and what calls them. And
    the results, for which the stage evaluates these loops."""
    from fuzzer.stages.kernels import KERNELS

    with in_force(settings), stages.in_force("ir") as reasons:
        calls, results = generated(program, (), device)
        assert not reasons, reasons
        nodes = [
            (kernel.results, kernel.outer, node.nest, sorted(node.names.items()), node.body.debug_str())
            for kernel in KERNELS.values()
            for node in kernel.nodes
        ]
    return "\n".join([re.sub(r"run_kernel\(\d+", "run_kernel(", calls), *map(str, nodes)]), results


def first_look(setting: Setting) -> str:
    """The name of the program that is likely to show a setting."""
    return SHOWN_BY.get(setting.name, "pointwise and reductions")


def changed(setting: Setting, value: Value) -> Attributes:
    """A setting's value, and the settings that it needs."""
    return tuple(sorted({**dict(setting.needs), setting.name: value}.items()))


@functools.cache
def plainly_lowered(name: str, settings: Attributes, device: str) -> tuple[str, set[str]]:
    """What is made of a program before code is written, and the settings of torch that are read meanwhile."""
    with settings_read() as read:
        return lowered(PROGRAMS[name], settings, device)[0], read


@functools.cache
def in_eager(name: str, device: str) -> Results:
    return run(PROGRAMS[name], device)


def difference(results: Results, expected: Results) -> str:
    """How outputs and gradients differ by more than rounding, "" where they do not: 4 eps of an element and of the
    largest. The longest program rounds to half precision about eight times in a row, by half an eps each. Where its
    terms cancel, the rounding of the largest is left."""
    found, right = ((*side.outputs, *side.gradients.values()) for side in (results, expected))
    try:
        for ours, theirs in zip(found, right, strict=True):
            eps = torch.finfo(theirs.dtype).eps
            torch.testing.assert_close(ours, theirs, rtol=4 * eps, atol=4 * eps * float(theirs.abs().max()))
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


@contextlib.contextmanager
def settings_read() -> Iterator[set[str]]:
    """The names of torch's settings that are read in the block, each by itself; hashes and copies of a whole config are
    not seen. Private torch API: torch.utils._config_module.ConfigModule (tried on torch 2.13.0)."""
    from torch.utils._config_module import ConfigModule

    read: set[str] = set()
    before, prefixes = ConfigModule.__getattr__, {module: prefix for prefix, module in CONFIGS.items()}

    def noting(module: Any, name: str) -> Any:
        read.add(f"{prefixes.get(module.__name__)}.{name}")
        return before(module, name)

    with patch.object(ConfigModule, "__getattr__", noting):
        yield read


def is_ours(setting: Setting) -> bool:
    """Whether the setting is in a module of ours, where `settings_read` does not see it."""
    return not CONFIGS[setting.name.partition(".")[0]].startswith("torch.")


def looks_before_code(setting: Setting, device: str) -> Iterator[tuple[str, Value, str, str]]:
    """Rows of a setting until one of its values changes what is made of a program before code is written: the name, the
    value, the program if that changed, and how its results differ from eager's. A program whose compile does not read
    the setting until then is not compiled under it: that would be the same compile. What a setting needs is in force
    where that is asked of its first program, not of the others."""
    first = first_look(setting)
    for name in (first, *(name for name in PROGRAMS if name != first)):
        program = PROGRAMS[name]
        if not ROUTES[program.route.name].takes(setting):
            continue
        _, read = plainly_lowered(name, setting.needs if name == first else (), device)
        if not (setting.name in read or is_ours(setting)):
            continue
        without, _ = plainly_lowered(name, setting.needs, device)
        for value in setting.values:
            found, results = lowered(program, changed(setting, value), device)
            yield setting.name, value, "-" if found == without else name, difference(results, in_eager(name, device))
            if found != without:
                return


@functools.cache
def plain(name: str, settings: Attributes, device: str) -> str:
    return generated(PROGRAMS[name], settings, device)[0]


def witness(setting: Setting, value: Value, names: list[str], device: str) -> str:
    """The first of these programs whose code a value changes, "" if there is none."""
    for name in names:
        program = PROGRAMS[name]
        if not ROUTES[program.route.name].takes(setting):
            continue
        if generated(program, changed(setting, value), device)[0] != plain(name, setting.needs, device):
            return name
    return ""


def show(title: str, rows: list[tuple[Any, ...]]) -> None:
    print(f"\n{title}")
    for row in rows:
        print("  " + "  ".join(f"{cell!s:<{width}}" for cell, width in zip(row, (52, 12, 28), strict=False)).rstrip())


def tried(device: str) -> list[tuple[Setting, Value]]:
    """Every value of every setting that acts on this device, in this torch."""
    known = [s for s in SETTINGS if device in s.devices and exists(s.name)]
    return [(setting, value) for setting in known for value in setting.values]


def look(device: str, setting: Setting, value: Value, names: list[str]) -> tuple[str, Value, str]:
    try:
        return setting.name, value, witness(setting, value, names, device) or "-"
    except Exception as error:  # told in the table, with all others
        return setting.name, value, f"raised {type(error).__name__}: {str(error)[:200]}"


def looks(device: str, setting: Setting) -> Iterator[tuple[str, Value, str]]:
    """Rows of a setting until one of its values changes code: first the program that most likely shows it, then all."""
    for names in ([first_look(setting)], list(PROGRAMS)):
        for value in setting.values:
            yield (row := look(device, setting, value, names))
            if row[2] in PROGRAMS:
                return


def inert(device: str) -> list[str]:
    """The settings none of whose values changes any code on this device, or under which a compile raises until one
    does; but for those of every program, which change what is built of it (`test_tuning`), and those that change what
    is made before code is written (`amiss_before_code` tries these)."""
    late = [setting for setting, _ in tried(device) if setting.code or stages.built_under(setting.name)]
    asked = {setting.name: setting for setting in late if not setting.always}
    rows = {name: list(looks(device, setting)) for name, setting in asked.items()}
    told = [row for own in rows.values() for row in own]
    show(f"settings, values and the program whose code changes on {device}", told)
    raised = {name for name, _, what in told if what.startswith("raised")}
    return [name for name, own in rows.items() if own[-1][2] not in PROGRAMS or name in raised]


def disagreeing(device: str) -> list[str]:
    """Build a program under the first value of every setting that acts in code alone; the ones that do not agree with
    eager. Campaigns draw all values. Those of one program stand beside each other: where values change few kernels, the
    others are built once."""
    rows = [(s, value) for s, value in tried(device) if value == s.values[0] and (s.code or stages.built_under(s.name))]
    rows = sorted(dict.fromkeys(rows), key=lambda row: first_look(row[0]))
    assert len(rows) > 5, "there was little to check"
    asked: list[Program] = []
    for setting, value in rows:
        program = PROGRAMS[first_look(setting)]
        if not ROUTES[program.route.name].takes(setting):
            program = replace(program, route=Route(next(name for name, spec in ROUTES.items() if spec.takes(setting))))
        asked.append(replace(program, settings=changed(setting, value)))
    place = Place(Subject("eager", device), Subject("inductor", device))
    reports = examined_together(Task(place=place), asked)
    # None: another program's death took the worker
    told = [(s.name, v, r.verdict if r else "lost", r and r.rejected) for (s, v), r in zip(rows, reports, strict=True)]
    show(f"settings, values and verdicts on {device}: {Counter(verdict for _, _, verdict, _ in told)}", told)
    return [f"{name}={value}: {verdict}" for name, value, verdict, _ in told if verdict != "agree"]


def amiss_before_code(device: str) -> tuple[list[str], list[str]]:
    """The settings whose mark `code` is not what they do on this device; and those under whose first values, before
    code, a program's results differ from eager's by more than rounding."""
    asked = {setting.name: setting for setting, _ in tried(device) if not stages.built_under(setting.name)}
    rows = {name: list(looks_before_code(setting, device)) for name, setting in asked.items()}
    told = [row for own in rows.values() for row in own]
    show(f"settings, values, the program that changes before code and what differs on {device}", told)
    acting = {name for name, own in rows.items() if own and own[-1][2] in PROGRAMS}
    wrongly = [name for name, setting in asked.items() if setting.code == (name in acting)]
    return wrongly, [f"{name}={value}: {differs}" for name, value, _, differs in told if differs]


@pytest.fixture
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.mark.slow
def test_every_setting_changes_the_code_of_a_program() -> None:
    assert plain("a chain", (), "cpu") == generated(PROGRAMS["a chain"], (), "cpu")[0]
    assert not inert("cpu")


@pytest.mark.slow
def test_built_programs_agree_under_every_setting_that_acts_in_code_alone() -> None:
    assert not disagreeing("cpu")


@pytest.mark.slow
def test_settings_that_act_in_code_alone_are_those_marked_so_and_programs_agree_under_the_others() -> None:
    assert amiss_before_code("cpu") == ([], [])


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_settings_that_act_in_code_alone_are_those_marked_so_and_programs_agree_under_the_others_on_the_gpu() -> None:
    assert amiss_before_code("cuda") == ([], [])


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_every_setting_changes_the_code_of_a_program_on_the_gpu() -> None:
    assert not inert("cuda")


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_built_programs_agree_under_every_setting_that_acts_in_code_alone_on_the_gpu() -> None:
    assert not disagreeing("cuda")
