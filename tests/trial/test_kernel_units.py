"""Kernels of several programs in one unit: who shares one, and what is left of a unit that does not build."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from fuzzer.language.private import build_unit, cpp_kernels
from fuzzer.language.program import Attributes
from fuzzer.trial import kernel_units as units
from fuzzer.trial.kernel_units import Kernel, NotBuilt, Units, seconds_of

ADDING = '#include <cmath>\nextern "C" void kernel(const float* x, float* y, const int64_t n) {{ *y = *x + {0}; }}'
TYPES = ["const float*", "float*", "const int64_t"]
NO_VECTORS: Attributes = (("inductor.cpp.simdlen", 1),)


def ask(found: Units, *sources: str, settings: Attributes = ()) -> list[Kernel]:
    """What inductor gets when it asks for kernels under these settings."""
    from torch._inductor.async_compile import AsyncCompile

    with found.collecting(settings, set()), units.in_force(settings):
        return [AsyncCompile().cpp_pybinding(TYPES, source) for source in sources]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The sources of each unit that is built: with a compiler that refuses those that say `wrong`."""
    asked: list[list[str]] = []

    def build(kernels: Sequence[tuple[Sequence[str], str]]) -> list[object] | None:
        asked.append([source for _, source in kernels])
        return None if any("wrong" in source for _, source in kernels) else [print] * len(kernels)

    monkeypatch.setattr(units, "build_unit", build)
    return asked


def test_a_kernel_that_is_not_built_ends_who_calls_it_and_nobody_on_the_way_takes_that_for_an_error() -> None:
    (kernel,) = ask(Units(), "a")
    with pytest.raises(NotBuilt):
        kernel(torch.zeros(1))
    assert not issubclass(NotBuilt, Exception)


def test_equal_kernels_are_one_and_what_is_built_is_not_built_again(built: list[list[str]]) -> None:
    found = Units()
    first, second, again = ask(found, "a", "b", "a")
    assert first is again
    found.build()
    (later,) = ask(found, "c")
    found.build()
    assert built == [["a", "b"], ["c"]]
    assert None not in (first.function, second.function, later.function)


def test_programs_with_other_flags_never_share_a_unit(built: list[list[str]]) -> None:
    found = Units()
    plain = ask(found, "a", "b")
    fast: Attributes = (("inductor.cpp.enable_floating_point_contract_flag", "fast"),)
    others = [*ask(found, "a", "c", settings=NO_VECTORS), *ask(found, "a", settings=fast)]
    more = ask(found, "d", settings=(("inductor.cpp.max_horizontal_fusion_size", 1),))  # changes no flag
    found.build()
    assert sorted(built) == [["a"], ["a", "b", "d"], ["a", "c"]]
    assert len({id(kernel) for kernel in (*plain, *others, *more)}) == 6


def test_a_unit_that_does_not_build_is_halved_until_the_kernel_at_fault_is_alone(built: list[list[str]]) -> None:
    found = Units()
    kernels = ask(found, "a", "b", "c", "wrong", "d", "e", "f")
    found.build()
    assert [kernel.source for kernel in kernels if kernel.broken] == ["wrong"]
    assert [kernel.source for kernel in kernels if kernel.function is None] == ["wrong"]
    assert ["wrong"] in built
    found.build()
    assert built.count(["wrong"]) == 1, "what is broken is not tried again"


def test_a_kernels_share_is_by_its_length_and_it_may_have_cost_all_of_its_unit(
    built: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 6.0])
    monkeypatch.setattr(units, "cpu_seconds", lambda: next(clock))
    found = Units()
    short, long = ask(found, "a", "bb")
    found.build()
    assert (short.share, long.share) == (2.0, 4.0)
    assert seconds_of([short, long]) == seconds_of([short]) == (0.0, 6.0)


def test_a_long_kernel_has_a_unit_to_itself_so_that_its_cost_is_known(
    built: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 1.0, 8.0])
    monkeypatch.setattr(units, "cpu_seconds", lambda: next(clock))
    found = Units()
    long = "b" * 40_000
    kernels = ask(found, "a", long, "c")
    found.build()
    assert built == [["a", "c"], [long]]
    assert seconds_of(kernels) == (7.0, 8.0)


def test_inductor_builds_its_kernels_itself_afterwards() -> None:
    from torch._inductor.async_compile import AsyncCompile

    before = AsyncCompile.cpp_pybinding
    with cpp_kernels(lambda types, source: print):
        assert AsyncCompile.cpp_pybinding is not before
    assert AsyncCompile.cpp_pybinding is before


@pytest.mark.slow
def test_kernels_of_one_unit_have_their_own_names_and_bindings() -> None:
    helper = "static float more() {{ return {0}; }}\n"
    sources = [helper.format(i) + ADDING.format("more()") for i in (1, 2)]
    sources.append('extern "C" void kernel(float* y) { throw std::runtime_error("refused"); }')
    found = build_unit([(TYPES, sources[0]), (TYPES, sources[1]), (["float*"], sources[2])])
    assert found is not None
    x, y = torch.ones(1), torch.zeros(1)
    for i, kernel in enumerate(found[:2]):
        kernel(x, y, 1)
        assert y.item() == 2 + i
    with pytest.raises(RuntimeError, match="refused"):
        found[2](y)
    with pytest.raises(RuntimeError, match="requires 3 args"):
        found[0](y)
    assert build_unit([(TYPES, sources[0]), (TYPES, "no C++")]) is None
