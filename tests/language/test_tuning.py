"""One of Triton's configs: the number in the text chooses it, each comes up, and nothing is timed."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzzer.generation.vocabulary import vocabulary
from fuzzer.language import routes, tuning
from fuzzer.language.interpret import cotangents, materialise, to_function
from fuzzer.language.ops.spec import Limits
from fuzzer.language.private import reset_compiler
from fuzzer.language.program import Program
from fuzzer.language.settings import ONE_CONFIG, SETTINGS, default, draw_settings, in_force, without_choices
from fuzzer.language.text import parse
from fuzzer.language.tuning import ALL, one_config
from tests.drawn import drawn


def kernel(configs: int) -> Any:
    """What inductor holds of a kernel before it builds it, of as many configs."""
    return SimpleNamespace(configs=list(range(configs)), compile_results=[], launchers=[])


def build(found: Any, unfit: tuple[int, ...] = ()) -> None:
    """As torch: what does not fit is left out, unless that leaves none."""
    found.compile_results = [config for config in found.configs if config not in unfit]
    if not found.compile_results:
        raise RuntimeError("No valid triton configs. OutOfResources: shared memory")
    found.launchers, found.configs = list(found.compile_results), None


def built(number: int, configs: int, unfit: tuple[int, ...] = ()) -> list[int]:
    found = kernel(configs)
    one_config(number, lambda k: build(k, unfit))(found)
    return list(found.launchers)


@pytest.mark.parametrize("configs", [1, 2, 3, 4, 6])
def test_one_config_is_built_and_each_comes_up_as_often(configs: int) -> None:
    (row,) = (s for s in SETTINGS if s.name == ONE_CONFIG)
    seen = [built(number, configs) for number in row.values if isinstance(number, int) and number != ALL]
    assert sorted(seen) == sorted([config] for config in range(configs) for _ in range(len(seen) // configs))


def test_the_next_is_built_where_one_does_not_fit_and_what_torch_raises_is_raised_where_none_does() -> None:
    assert built(1, 3, unfit=(1,)) == [2]
    assert built(2, 3, unfit=(2, 0)) == [1]
    with pytest.raises(RuntimeError, match="No valid triton configs"):
        built(1, 2, unfit=(0, 1))


def test_another_error_is_not_hidden_by_the_next_config() -> None:
    def broken(found: Any) -> None:
        raise RuntimeError(f"cannot compile {found.configs}")

    with pytest.raises(RuntimeError, match=r"cannot compile \[1\]"):
        one_config(1, broken)(kernel(2))


def test_what_is_built_stays_and_what_torch_adds_to_it_is_dropped() -> None:
    found = kernel(2)
    one_config(0, build)(found)
    one_config(1, lambda k: None)(found)
    assert found.launchers == [0]
    one_config(0, lambda k: k.launchers.extend([5, 6]))(other := kernel(1))
    assert other.launchers == [5]


def test_it_is_in_force_for_a_while_with_caches_off() -> None:
    from torch._inductor import config
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    before = CachingAutotuner.precompile
    with in_force(((ONE_CONFIG, 3),)):
        assert tuning.config == 3
        assert CachingAutotuner.precompile is not before
        assert config.force_disable_caches
    assert (tuning.config, CachingAutotuner.precompile) == (ALL, before)
    with in_force(((ONE_CONFIG, ALL),)):
        assert CachingAutotuner.precompile is before
        assert not config.force_disable_caches


def test_the_lines_of_a_script_do_the_same() -> None:
    tuner = SimpleNamespace(precompile=build)
    inductor = SimpleNamespace(
        config=SimpleNamespace(), runtime=SimpleNamespace(triton_heuristics=SimpleNamespace(CachingAutotuner=tuner))
    )
    exec("\n".join(tuning.write(4)), {"torch": SimpleNamespace(_inductor=inductor)})
    tuner.precompile(found := kernel(3))
    assert found.launchers == [1]
    assert inductor.config.force_disable_caches


def numbers(device: str) -> list[Any]:
    programs = drawn(range(40), vocabulary(Limits(), ("mul", "exp")), Limits(), ("autograd",), device)
    return [dict(program.settings).get(ONE_CONFIG, ALL) for program in programs]


def test_programs_for_triton_hold_a_number_that_their_seed_alone_draws() -> None:
    found = numbers("cuda")
    assert found == numbers("cuda")
    assert len(set(found)) > 6
    assert set(numbers("cpu")) == {ALL}


def test_every_number_is_drawn_and_so_is_torchs_own_way() -> None:
    acting = [s for s in SETTINGS if s.name == ONE_CONFIG]
    found = [dict(draw_settings(random.Random(n), acting)).get(ONE_CONFIG, ALL) for n in range(600)]
    assert set(found) == set(acting[0].values)
    assert default(ONE_CONFIG) == ALL


def test_a_program_without_its_settings_keeps_the_number() -> None:
    assert without_choices((("inductor.max_fusion_size", 2), (ONE_CONFIG, 2))) == ((ONE_CONFIG, 2),)


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CHAIN = parse("""program(1)
route("autograd")
x0 = leaf(f32[65536])
v0 = exp(x0)
backward(v0, cotangent(f32[65536]))
""")


def compiled(program: Program) -> None:
    def compile(function: Any) -> Any:
        return torch.compile(function, fullgraph=True)

    reset_compiler()
    leaves, seeds = materialise(program.leaves, "cuda"), cotangents(program, "cuda")
    routes.ROUTES["autograd"].run(routes.Call(program, to_function(program), leaves, seeds, compile))


@pytest.mark.gpu
@CUDA
def test_on_a_gpu_one_config_of_each_kernel_is_built_and_none_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    made, timed = list[str](), list[str]()
    make, bench = CachingAutotuner._precompile_config, CachingAutotuner.bench

    def making(self: Any, config: Any) -> Any:
        made.append(f"{self.fn.__name__} {config}")
        return make(self, config)

    def timing(self: Any, *given: Any, **named: Any) -> Any:
        timed.append(self.fn.__name__)
        return bench(self, *given, **named)

    monkeypatch.setattr(CachingAutotuner, "_precompile_config", making)
    monkeypatch.setattr(CachingAutotuner, "bench", timing)
    seen = []
    for number in (0, 1, 2):
        with in_force(((ONE_CONFIG, number),)):
            compiled(CHAIN)
        assert len({line.split()[0] for line in made}) == len(made) > 0
        assert not timed
        seen.append(sorted(made))
        made.clear()
    assert seen[0] == seen[2] != seen[1]
    with in_force((("inductor.force_disable_caches", True),)):
        compiled(CHAIN)
    assert sorted(made) == sorted({*seen[0], *seen[1]})
    assert timed
