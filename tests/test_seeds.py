"""The seed programs: one for each family of ops and each route, and what replaying them says on the running torch."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
import torch

from fuzzer.judgement.expectation import expected
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.program import Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.text import parse, show
from fuzzer.trial.verify import examine_all
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

CORPUS = Path(__file__).parent.parent / "corpus" / "seeds"
SEEDS = {path.stem: parse(path.read_text()) for path in sorted(CORPUS.glob("*.prog"))}
GEMS = {path.stem: parse(path.read_text()) for path in sorted((CORPUS / "flag_gems").glob("*.prog"))}


def test_there_is_a_seed_for_each_family_of_ops_and_each_route() -> None:
    assert {OPS[node.op].family for program in SEEDS.values() for node in program.nodes} == set(ops_by_family())
    assert {program.route.name for program in SEEDS.values()} == set(ROUTES)


def test_no_two_seeds_are_the_same_program() -> None:
    texts = Counter(show(Program(p.leaves, p.body, p.outputs, p.route, p.settings)) for p in SEEDS.values())
    assert max(texts.values()) == 1


def replayed(programs: dict[str, Program], place: Place) -> dict[str, Report]:
    task = Task(place=place, fresh=True)
    devices = sorted({place.reference.device, place.subject.device})
    with Pool(default_workers(devices), devices) as pool:
        reports = examine_all(pool, [(task, program) for program in programs.values()])
    for name, report in zip(programs, reports, strict=True):
        print(f"  {name:36} {report.verdict} {report.rejected} {', '.join(str(v.signature) for v in report.verdicts)}")
    return dict(zip(programs, reports, strict=True))


@pytest.mark.slow
def test_the_seeds_replay_as_expected() -> None:
    found = replayed(SEEDS, Place())
    wanted = {name: expected(program, torch.__version__) for name, program in SEEDS.items()}
    assert {name: (report.verdict,) for name, report in found.items()} == wanted


@pytest.mark.gpu
@pytest.mark.slow
def test_every_case_of_flag_gems_runs_whatever_it_finds() -> None:
    if not torch.cuda.is_available() or importlib.util.find_spec("flag_gems") is None:
        pytest.skip("no CUDA device, or no flag_gems")
    found = replayed(GEMS, Place(Subject("eager", "cuda"), Subject("flag_gems", "cuda")))
    assert not [name for name, report in found.items() if report.rejected]
