"""The seed programs: one for each family of ops and each route, and what replaying them says on the running torch."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from fuzzer.judgement.expectation import expected
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.program import Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import SETTINGS
from fuzzer.language.text import parse, show
from fuzzer.trial.verify import examine_all
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from tests.together import examined_together

CORPUS = Path(__file__).parent.parent / "corpus" / "seeds"
SEEDS = {path.stem: parse(path.read_text()) for path in sorted(CORPUS.glob("*.prog"))}
GEMS = {path.stem: parse(path.read_text()) for path in sorted((CORPUS / "flag_gems").glob("*.prog"))}


def test_there_is_a_seed_for_each_family_of_ops_and_each_route() -> None:
    assert {OPS[node.op].family for program in SEEDS.values() for node in program.nodes} == set(ops_by_family())
    assert {program.route.name for program in SEEDS.values()} == set(ROUTES)


def test_no_two_seeds_are_the_same_program() -> None:
    texts = Counter(show(Program(p.leaves, p.body, p.outputs, p.route, p.settings)) for p in SEEDS.values())
    assert max(texts.values()) == 1


def verdicts(programs: dict[str, Program], reports: Sequence[Report | None]) -> dict[str, str]:
    """What each program came to, by its name; "lost" where another program's death took the worker."""
    found = dict(zip(programs, reports, strict=True))
    for name, report in found.items():
        said = f"{report.verdict} {report.rejected} {[str(v.signature) for v in report.verdicts]}" if report else ""
        print(f"  {name:36} {said}")
    return {name: report.verdict if report else "lost" for name, report in found.items()}


def needs_code(program: Program) -> bool:
    """Whether a stage before code does not tell of a program: it has a fault here, or a setting that acts in code."""
    late = {setting.name for setting in SETTINGS if setting.code and "cpu" in setting.devices}
    in_code = any(name in late for name, _ in program.settings)
    return in_code or expected(program, torch.__version__) != ("agree",)


@pytest.mark.slow
def test_the_seeds_are_as_they_say() -> None:
    """That the programs of the canaries agree, their twins show; that the seed which is a package does, `test_routes`,
    where a program is built by every route."""
    seeds = {name: program for name, program in SEEDS.items() if ROUTES[program.route.name].torch_compile}
    assert set(SEEDS) - set(seeds) == {"aoti"}
    found = dict[str, str]()
    for place, in_code in ((Place(), True), (Place().at("ir"), False)):
        some = {name: program for name, program in seeds.items() if needs_code(program) == in_code}
        if some:
            found |= verdicts(some, examined_together(Task(place=place), list(some.values())))
    assert {name: (told,) for name, told in found.items()} == {
        name: expected(program, torch.__version__) for name, program in seeds.items()
    }


@pytest.mark.gpu
@pytest.mark.slow
def test_every_case_of_flag_gems_runs_whatever_it_finds() -> None:
    if not torch.cuda.is_available() or importlib.util.find_spec("flag_gems") is None:
        pytest.skip("no CUDA device, or no flag_gems")
    task = Task(place=Place(Subject("eager", "cuda"), Subject("flag_gems", "cuda")), fresh=True)
    with Pool(default_workers(["cuda"]), ["cuda"]) as pool:
        found = verdicts(GEMS, examine_all(pool, [(task, program) for program in GEMS.values()]))
    assert "rejected" not in found.values()
