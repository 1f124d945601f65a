"""The documentation agrees with the tree and the commands; the seed programs are what they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

from fuzzer.bench.__main__ import main as bench
from fuzzer.cli import main
from fuzzer.execution.messages import Place, Subject
from fuzzer.execution.worker import Journal, Task, report
from fuzzer.infer import check_cotangents, infer
from fuzzer.text import parse, show
from fuzzer.verdict import CLASSES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
HOW = (ROOT / "docs" / "how-it-works.md").read_text()
COMMANDS: dict[str, click.Command] = dict(main.commands)
SEEDS = sorted((ROOT / "corpus" / "seeds").glob("*.prog"))


def options(command: click.Command) -> set[str]:
    given = [name for p in command.params if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)]
    return {name for name in given if name.startswith("--")}


def row(name: str) -> list[str]:
    """The cells of the command's row in the README's table."""
    found = re.search(rf"^\| `backfuzz {name}\b.*$", README, re.MULTILINE)
    assert found, f"the README's table has no command {name}"
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", found.group())[1:-1]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_stands_in_the_readme_and_no_other(name: str) -> None:
    assert set(re.findall(r"--[a-z-]+", row(name)[1])) == options(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_exit_codes_of_the_readme_are_those_of_the_help(name: str) -> None:
    told = COMMANDS[name].help or ""
    told = " ".join(told.partition("Exit codes:")[2].split())
    codes = r"(?:^|[;,] )(\d+) "
    assert re.findall(codes, row(name)[3]) == re.findall(codes, told.strip())


def test_the_readme_names_no_command_that_does_not_exist() -> None:
    assert set(re.findall(r"`backfuzz ([a-z]+)", README)) == set(COMMANDS)


def test_every_option_of_the_bench_stands_in_the_readme() -> None:
    assert isinstance(bench, click.Group)
    section = README.partition("## Bench")[2].partition("\n## ")[0]
    for name, command in bench.commands.items():
        assert f"scripts/bench {name}" in section
        assert options(command) <= set(re.findall(r"--[a-z-]+", section))


def test_every_verdict_class_stands_in_the_readme() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", README.partition("## Verdicts")[2], re.MULTILINE) == list(CLASSES)


def test_every_dependency_is_explained_in_the_readme_and_needed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=~!]", text)[0] for text in project["dependencies"]}
    section = README.partition("## Dependencies")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^\| ([a-z-]+) \|", section, re.MULTILINE))
    assert explained == declared | {"triton"}
    tests = {re.split(r"[<>=~!]", text)[0] for text in project["optional-dependencies"]["test"]}
    assert all(name in section for name in tests)


def test_every_module_stands_in_the_layout_and_every_file_there_exists() -> None:
    named = HOW.partition("## Layout")[2].partition("\n## ")[0]
    for package in ("fuzzer", "minimizer"):
        for path in (ROOT / package).rglob("*.py"):
            own = path.relative_to(ROOT).as_posix()
            if path.name.startswith("__") or own.startswith("fuzzer/ops/"):
                continue
            assert f"`{own}`" in named or f"`{path.name}`" in named, f"{own} is not in docs/how-it-works.md"
    for name in re.findall(r"`((?:fuzzer|minimizer)/[\w/.]*)`", named):
        assert (ROOT / name).exists(), name


DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "corpus" / "README.md", *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_within_the_project_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def test_the_counts_of_the_changelog_are_those_of_the_tables() -> None:
    from fuzzer.ops import OPS

    text = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    assert f"{len(OPS)} operations" in text
    assert f"{sum(bool(spec.differentiable) for spec in OPS.values())} of them differentiable" in text


# ---------------------------------------------------------------- programs that documents and the corpus show


@pytest.mark.parametrize("text", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_a_program_in_the_readme_is_canonical(text: str) -> None:
    assert show(parse(text)) == text


def test_the_seeds_are_few_and_reviewed() -> None:
    assert 6 <= len(SEEDS) <= 70


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_a_seed_says_what_it_is_for_types_and_runs_in_eager(path: Path) -> None:
    text = path.read_text()
    program = parse(text)
    assert show(program) == text
    assert len(program.comment) >= 2
    assert program.comment[-1] == "expect: agree"
    check_cotangents(program, infer(program))
    eager = Subject("eager", "cpu")
    found = report(program, Task(place=Place(eager, eager)), Journal(None))
    assert (found.verdict, found.rejected) == ("agree", "")
    assert found.detectable > 0


def test_a_seed_of_the_vjp_route_hands_on_a_broadcast_cotangent() -> None:
    programs = [parse(path.read_text()) for path in SEEDS]
    strides = [o.cotangent.stride for p in programs if p.route.name == "vjp" for o in p.outputs if o.cotangent]
    assert any(0 in stride for stride in strides)
