"""The documentation agrees with the tree and the commands; the seed programs are what they say."""

from __future__ import annotations

import ast
import builtins
import dis
import importlib
import json
import random
import re
import runpy
import tomllib
from pathlib import Path
from types import CodeType
from typing import Any

import click
import pytest
import torch
from benches.__main__ import main as bench
from click.testing import CliRunner

from fuzzer.commands import main
from fuzzer.commands.shared.exits import EXITS
from fuzzer.generation.draft import Draft
from fuzzer.generation.nodes import draw_node
from fuzzer.judgement.expectation import expected
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import CLASSES
from fuzzer.language.infer import check_cotangents, infer
from fuzzer.language.ops import matmul
from fuzzer.language.ops.spec import Limits
from fuzzer.language.text import parse, show
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.test_style import ORDER, imported, modules, place

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
HOW, VERBS, BENCH = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("how-it-works", "commands", "bench"))
COMMANDS = {name: main.get_command(click.Context(main), name) for name in main.modules}
SEEDS = sorted((ROOT / "corpus" / "seeds").glob("*.prog"))


def options(command: click.Command) -> set[str]:
    given = [name for p in command.params if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)]
    return {name for name in given if name.startswith("--")}


def section(text: str, title: str) -> str:
    """What stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found.group(1)


def cells(text: str) -> list[list[str]]:
    """The rows of the tables in a text."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_section_with_an_example(name: str) -> None:
    assert re.search(rf"(^    |`)backfuzz {name}\b", section(VERBS, name), re.MULTILINE)


def test_the_options_that_the_commands_page_names_exist() -> None:
    """Every option stands in docs/reference/options.md, which sphinx-click makes of the code (tests/test_site.py)."""
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", VERBS)) - {"--help", "--version"}
    of_pytest = {name for name in named if name.startswith("--backfuzz")}
    assert named - of_pytest <= set[str]().union(*map(options, COMMANDS.values()))


def test_the_exit_codes_stand_once_as_the_commands_have_them() -> None:
    told = {int(row[0].strip("`")): row[1] for row in cells(VERBS) if re.fullmatch(r"`\d+`", row[0])}
    assert told == EXITS
    assert "Exit codes:" not in VERBS


def test_the_readme_has_a_line_for_each_command() -> None:
    rows = [row for row in cells(section(README, "Commands")) if row[0].startswith("`backfuzz")]
    assert sorted(row[0].strip("`").split()[1] for row in rows) == sorted(COMMANDS)
    assert all(row[1] for row in rows)


@pytest.mark.parametrize("text", [README, VERBS], ids=["README", "commands"])
def test_no_document_for_users_names_a_command_that_does_not_exist(text: str) -> None:
    assert set(re.findall(r"`backfuzz ([a-z]+)", text)) == set(COMMANDS)


OTHERS = [ROOT / "docs" / f"{name}.md" for name in ("commands", "compared", "tutorial")]
PAGES = [*sorted((ROOT / "docs" / "howto").glob("*.md")), *OTHERS]
TYPED = r"(?:^(?: +|\$ )(?:\$ )?(?:exec )?(?:\.venv/bin/)?|`)backfuzz ([a-z]+)([^`\n]*)"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_that_says_how_to_types_commands_and_options_that_exist(path: Path) -> None:
    typed = re.findall(TYPED, path.read_text(), re.MULTILINE)
    assert typed or path.stem == "index"
    for name, typed_after in typed:
        rest = typed_after.partition(" -- ")[0]  # options of `fuzz` stand behind it
        assert set(re.findall(r"--[a-z-]+", rest)) <= options(COMMANDS[name]) | {"--help"}, (name, rest)


def test_every_bench_has_a_row_and_each_of_its_options_a_help() -> None:
    assert isinstance(bench, click.Group)
    rows = {row[0].strip("`"): row for row in cells(BENCH) if len(row) == 4 and row[0].startswith("`")}
    assert set(rows) == set(bench.commands)
    assert all(all(row) for row in rows.values())
    for name, command in bench.commands.items():
        assert command.help, name
        silent = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
        assert not silent, (name, silent)


def test_every_verdict_class_stands_in_its_table() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", section(VERBS, "Verdicts"), re.MULTILINE) == list(CLASSES)


def test_every_dependency_is_explained_in_the_readme_and_needed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=~!]", text)[0] for text in project["dependencies"]}
    told = section(README, "Dependencies")
    explained = set(re.findall(r"^\| ([a-z-]+) \|", told, re.MULTILINE))
    assert explained == declared | {"triton"}
    tests = {re.split(r"[<>=~!]", text)[0] for text in project["optional-dependencies"]["test"]}
    assert all(name in told for name in tests)


PACKAGES = {"fuzzer": ROOT, "minimizer": ROOT, "benches": ROOT / "scripts"}
MODULES = [path for package, folder in PACKAGES.items() for path in sorted((folder / package).rglob("*.py"))]


def test_every_folder_stands_in_the_layout_and_in_its_picture_and_each_that_stands_there_exists() -> None:
    layout = section(HOW, "Layout")
    named = {row[0].strip("`/") for row in cells(layout) if row[0].startswith("`")}
    assert named == {name.replace(".", "/").replace("benches", "scripts/benches") for name in ORDER}
    for name in named:
        assert (ROOT / name).is_dir(), name
    picture = set(re.findall(r"[a-z]+", "".join(line for line in layout.splitlines() if line.startswith("    "))))
    assert picture == {Path(name).name for name in named} - {"benches"}


# The neighbours that a drawn line has, as (row, column).
RIGHT, LEFT, DOWN, UP = (0, 1), (0, -1), (1, 0), (-1, 0)
LINES = {"─": (LEFT, RIGHT), "│": (UP, DOWN), "└": (UP, RIGHT), "┘": (LEFT, UP), "┐": (LEFT, DOWN),
         "├": (UP, DOWN, RIGHT), "┤": (UP, DOWN, LEFT), "┼": (UP, DOWN, LEFT, RIGHT), ">": (LEFT, RIGHT)}  # fmt: skip


def drawn(picture: list[str]) -> set[tuple[str, str]]:
    """The arrows of a picture in box characters, (from, to): from each word on a line to each at an arrowhead of it."""
    signs = {(row, column): sign for row, line in enumerate(picture) for column, sign in enumerate(line)}
    words = [(row, found) for row, line in enumerate(picture) for found in re.finditer(r"[a-z]+", line)]
    # a space lies between a word and the lines beside it
    at = {(row, column): found.group() for row, found in words for column in range(found.start() - 1, found.end() + 1)}
    arrows, seen = set[tuple[str, str]](), set[tuple[int, int]]()
    for start, sign in signs.items():
        if sign not in LINES or start in seen:
            continue
        sources, targets, todo = set[str](), set[str](), [start]
        while todo:
            row, column = here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            for down, right in LINES[signs[here]]:
                there = row + down, column + right
                if there in at:
                    (targets if (signs[here], right) == (">", 1) else sources).add(at[there])
                elif signs.get(there) in LINES:
                    todo.append(there)
        arrows |= {(source, target) for source in sources for target in targets}
    return arrows


def test_the_arrows_of_the_picture_are_the_imports_between_folders_but_for_those_that_follow() -> None:
    below: dict[str, set[str]] = {folder: set() for folder in ORDER if folder != "benches"}
    for module, path in modules():
        folder = place(module)
        if folder in below:
            below[folder] |= {other for name in imported(module, path) if (other := place(name))} - {folder}
    reached: dict[str, set[str]] = {}
    for folder in below:  # from the ground up: no folder imports a higher one
        reached[folder] = below[folder].union(*(reached[other] for other in below[folder]))
    arrows = {(other, folder) for folder, others in below.items() for other in others
              if not any(other in reached[between] for between in others)}  # fmt: skip
    picture = [line for line in section(HOW, "Layout").splitlines() if line.startswith("    ")]
    assert drawn(picture) == {(a.rpartition(".")[2], b.rpartition(".")[2]) for a, b in arrows}


def test_the_way_of_one_program_enters_each_folder_once() -> None:
    entered = re.findall(r"^\d+\. `([a-z]+)/`", section(HOW, "From a seed to a stored finding"), re.MULTILINE)
    assert sorted(entered) == sorted(folder.rpartition(".")[2] for folder in ORDER if folder != "benches")


def test_every_module_says_what_it_holds() -> None:
    assert MODULES
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())) or not path.read_text(), path


NAMING = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", NAMING, ids=lambda path: path.stem)
def test_the_files_that_a_document_names_exist(path: Path) -> None:
    for found in re.findall(r"`((?:fuzzer|minimizer|scripts|corpus|tests)/[\w/.-]*)`", path.read_text()):
        assert (ROOT / found).exists(), found


def test_what_code_says_was_measured_is_named_where_it_says() -> None:
    said = re.compile(r"^(\w+)\b.*#.*measured: docs/([\w-]+)\.md", re.MULTILINE)
    pointers = [found for path in MODULES for found in said.findall(path.read_text())]
    assert len(pointers) >= 3
    for name, document in pointers:
        assert f"`{name}`" in (ROOT / "docs" / f"{document}.md").read_text(), name


@pytest.mark.parametrize("path", NAMING, ids=lambda path: path.stem)
def test_the_tests_that_a_document_names_exist(path: Path) -> None:
    known = {found.name for found in (ROOT / "tests").rglob("*.py")}
    own = re.sub(r"https://\S+", "", path.read_text())  # not those of another project
    for found in re.findall(r"tests/[\w/]+(?:\.py)?|\btest_\w+\.py", own):
        assert (ROOT / found).exists() or found in known, found


NAMED = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "corpus/README.md")
DOCUMENTS = [*(ROOT / name for name in NAMED), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_within_the_project_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def test_the_counts_of_the_changelog_are_those_of_the_tables() -> None:
    from fuzzer.language.ops import OPS

    text = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    assert f"{len(OPS)} operations" in text
    assert f"{sum(bool(spec.differentiable) for spec in OPS.values())} of them differentiable" in text


# ---------------------------------------------------------------- examples of what can be added

EXAMPLES = [(title, block) for title in re.findall(r"^## (.*)", GUIDE, re.MULTILINE)
            for block in re.findall(r"```python\n(.*?)```", section(GUIDE, title), re.DOTALL)]  # fmt: skip


def read_globally(code: CodeType) -> set[str]:
    """The names outside of itself that code reads, in its functions too."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(read_globally(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


@pytest.mark.parametrize("block", [block for _, block in EXAMPLES], ids=[title for title, _ in EXAMPLES])
def test_an_example_uses_what_is_there_and_ends_in_a_row_such_as_its_table_holds(block: str) -> None:
    lines = block.splitlines()
    assert len(lines) <= 21  # the first says where it belongs: a file, and the table
    path, table = re.fullmatch(r"# ([\w/.]+)(?:, .*?in ([A-Z]+).*)?", lines[0]).groups()  # type: ignore[union-attr]
    names: dict[str, Any] = {}
    if (ROOT / path).exists():
        module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        names = {name: dict(held) if isinstance(held, dict) else held for name, held in vars(module).items()}
    else:  # a decorator would enter the example among the commands
        lines = [line for line in lines if not line.startswith("@")]
    *body, last = ast.parse("\n".join(lines)).body
    exec(compile(ast.Module(body if table else [*body, last], []), path, "exec"), names)
    assert not read_globally(compile("\n".join(lines), path, "exec")) - names.keys() - set(dir(builtins))
    if table:
        assert isinstance(last, ast.Expr)
        (row,) = eval(compile(ast.Expression(last.value), path, "eval"), names)
        assert type(row) is type(names[table][0])


def test_the_guide_has_an_example_of_all_that_is_a_row_a_function_or_a_file() -> None:
    told = {"An op", "A kernel", "An oracle", "A reducer", "A route", "A setting", "A type of device", "A command"}
    assert {title for title, _ in EXAMPLES} == told


def test_the_op_of_the_example_is_drawn_and_runs() -> None:
    (block,) = (block for title, block in EXAMPLES if title == "An op")
    (row,) = eval(block.partition("\n")[2].strip(), dict(vars(matmul)))
    assert row.source == "torch.rnn_tanh_cell"
    finite = 0
    for number in range(16):
        draft = Draft(random.Random(number), Limits(), "f32")
        node = draw_node(draft, row)
        operands = [draft.env[name] for name in node.uses]
        found = torch.rnn_tanh_cell(*operands)
        if all(operand.isfinite().all() for operand in operands):  # a leaf may hold infinities and NaN
            assert found.isfinite().all()
            finite += 1
    assert finite >= 8


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
    assert program.comment[-1].startswith("expect: ")
    assert expected(program) == ("agree",)
    check_cotangents(program, infer(program))
    eager = Subject("eager", "cpu")
    found = report_program(program, Task(place=Place(eager, eager)), Journal(None))
    assert (found.verdict, found.rejected) == ("agree", "")
    assert found.detectable > 0


def test_a_seed_of_the_vjp_route_hands_on_a_broadcast_cotangent() -> None:
    programs = [parse(path.read_text()) for path in SEEDS]
    strides = [o.cotangent.stride for p in programs if p.route.name == "vjp" for o in p.outputs if o.cotangent]
    assert any(0 in stride for stride in strides)


# ---------------------------------------------------------------- figures and tables of data


def test_the_units_of_functions_are_the_largest_errors_that_the_table_of_libraries_states() -> None:
    from fuzzer.rounding.kernels import KERNELS

    text = (ROOT / "docs" / "rounding.md").read_text()
    rows = [row for row in cells(section(text, "Units")) if row[0].startswith("`")]
    assert len(rows) >= 24
    for functions, *libraries in rows:
        # CUDA counts from the correctly rounded result, which adds half a unit
        errors = [[0.0 if at == "-" else float(at) for at in told.split(", ")] for told in libraries]
        f32, f64 = (max(cuda + 0.5, *others) for cuda, *others in zip(*errors, strict=True))
        for name in functions.split(", "):
            assert KERNELS[name.strip("`")].units[:2] == (f64, f32), name  # type: ignore[index]


CONF = runpy.run_path(str(ROOT / "docs" / "conf.py"))


def test_the_marks_of_documents_are_those_that_have_a_table() -> None:
    marks = [name for path in DOCUMENTS for name in re.findall(r"<!-- rows: (\w+) -->", path.read_text())]
    assert sorted(marks) == sorted(CONF["ROWS"])


def test_the_list_of_reported_faults_has_a_row_for_each() -> None:
    threads = json.loads((ROOT / "corpus" / "reach" / "threads.json").read_text())
    rows = [row for row in cells(CONF["reach"]()) if row[0].startswith("[#")]
    assert [int(re.findall(r"\d+", row[0])[0]) for row in rows] == [thread["thread"] for thread in threads]


def test_the_list_of_faults_is_that_of_the_command_and_every_fault_that_a_document_names_is_in_the_ledger() -> None:
    ledger = str(ROOT / "findings.db")

    def listed(*wanted: str) -> set[str]:
        done = CliRunner().invoke(main, ["faults", "--db", ledger, "--json", *wanted])
        return {fault["id"] for fault in json.loads(done.output)}

    [newest] = re.findall(r"live on torch (\S+)", CONF["faults"]())
    rows = {row[0].strip("`") for row in cells(CONF["faults"]()) if row[0].startswith("`")}
    assert rows == listed("--state", "confirmed", "--lives-on", newest)
    compared = (ROOT / "docs" / "compared.md").read_text()
    assert f"{len(rows)} faults of torch {newest.removesuffix('.0')} are confirmed" in compared
    ours = [path for path in DOCUMENTS if path.stem != "tutorial"]  # its ledger is the reader's own
    named = {name: path for path in ours for name in re.findall(r"\bF[0-9a-f]{7}\b", path.read_text())}
    assert not named.keys() - listed(), named
