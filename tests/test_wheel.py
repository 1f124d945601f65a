"""What `pip wheel .` installs, in an environment of its own beside this one's torch: what a user runs, only that."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import backfuzz
from fuzzer.campaign.canaries import CANARIES
from fuzzer.ledger.checkout import LEDGER
from fuzzer.ledger.store import open_store

ROOT = Path(__file__).parent.parent
TOP = ("backfuzz.py", "backfuzz_pytest.py")
PACKED = ("fuzzer/campaign/parents.json.xz", "fuzzer/export/page.html", "fuzzer/ledger/known.db.xz")
SOURCE = ("pyproject.toml", "README.md", "LICENSE", *TOP, "backfuzz-stubs", "fuzzer", "minimizer", "corpus")
PROGRAM = ROOT / "corpus" / "seeds" / "select_scatter_mean.prog"
OURS = {"backfuzz", "fuzzer", "minimizer"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
USERS, DEVELOPERS = {"flag_gems", "pytest", "ray", "report"}, {"bench", "docs", "test"}  # for whom an extra is
IMPORTED_AS = {"pillow": "PIL"}
MARKED = "from pathlib import Path\nPath({marker!r}).write_text(__name__)\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source, built from a copy: building leaves folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and, of what this one has, all but its backfuzz: the `.pth` files are not read."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    beside = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "beside.pth").write_text("\n".join(beside))
    pip("--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    return folder


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def run(environment: Path, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The environment's `backfuzz` in this folder, with a home of its own and no PYTHONPATH unless given."""
    home = folder.with_name(f"{folder.name}-home")
    home.mkdir()
    command = [str(environment / "bin" / "backfuzz"), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=clean() | {"HOME": str(home)} | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert all(name.startswith((".cache/backfuzz/headers/", ".cache/backfuzz/probes/")) for name in kept), kept
    return done


def clean() -> dict[str, str]:
    """This environment without what tells Python where to look, which a pool that starts in a thread sets meanwhile."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_"))}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below but Python's caches."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def imported(*places: str) -> Iterator[str]:
    """The distributions that these files, and those of these folders, import anywhere in their text. The cases of the
    bench `libraries` import what that bench installs by itself."""
    files = [file for name in places for file in (sorted((ROOT / name).rglob("*.py")) or [ROOT / name])]
    for path in (file for file in files if file.name != "library_cases.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in {name.partition(".")[0] for name in names} - OURS - sys.stdlib_module_names:
                yield name.replace("_", "-")


def named(requirements: Iterable[str]) -> set[str]:
    """The distributions of requirements, spelt as modules are imported, with `-` for `_`."""
    names = {re.split(r"[^\w-]", requirement)[0].replace("_", "-") for requirement in requirements}
    return {IMPORTED_AS.get(name, name) for name in names}


def test_old_releases_of_setuptools_can_read_what_data_the_packages_hold() -> None:
    """torch 2.11 asks for one before 82, which takes names of modules alone."""
    data = PYPROJECT["tool"]["setuptools"]["package-data"]
    assert data
    assert [name for name in data if name != "*" and not name.isidentifier()] == []


def test_what_is_declared_is_what_the_product_imports() -> None:
    declared = named([*PROJECT["dependencies"], *(name for extra in USERS for name in EXTRAS[extra])])
    assert declared == set(imported(*TOP, "fuzzer", "minimizer"))


def test_what_the_benches_and_documents_declare_is_what_they_import() -> None:
    assert set(EXTRAS) == USERS | DEVELOPERS
    of_product = named(PROJECT["dependencies"])
    benches = set(imported("scripts/benches", "fuzzer/export/plots.py"))  # they draw as a report does
    assert named(EXTRAS["bench"]) == benches - of_product - {"benches"}
    site = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    extensions = {name.partition(".")[0].replace("_", "-") for name in (*site["extensions"], site["html_theme"])}
    assert named(EXTRAS["docs"]) == extensions


def test_the_wheel_holds_what_a_user_runs_and_nothing_else(wheel: Path) -> None:
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = [path for name in ("fuzzer", "minimizer") for path in (ROOT / name).rglob("*.py")]
    modules = {path.relative_to(ROOT).as_posix() for path in sources}
    programs = {f"fuzzer/campaign/canary_programs/{canary.program}.prog" for canary in CANARIES}
    typed = {"backfuzz-stubs/__init__.pyi", "fuzzer/py.typed", "minimizer/py.typed"}
    assert found == modules | programs | typed | {*TOP, *PACKED}
    assert not [name for name in found if {"bench", "benches", "rare", "tests"} & set(Path(name).with_suffix("").parts)]


@pytest.mark.slow
def test_it_fuzzes_in_an_empty_folder_and_touches_nothing_but_the_ledger_and_the_folder_there(
    installed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "größer, with a space"  # no compile command could hold the space
    folder.mkdir()
    before = contents(installed)
    done = run(installed, folder, "fuzz", "--programs", "2", "--device", "cpu", "--workers", "1")
    first = done.stdout.splitlines()[0]
    assert re.fullmatch(
        r"[\d-]+ [\d:]+ a new finding goes to \.backfuzz/findings\.db; everything else to \.backfuzz", first
    )
    assert sorted(path.name for path in folder.iterdir()) == [".backfuzz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.name, f"{folder.name}-home"]
    with open_store(folder / LEDGER, create=False) as store:
        [campaign] = store.campaigns()
    assert campaign.totals["programs"] == 2
    assert contents(installed) == before


@pytest.mark.slow
def test_modules_of_our_names_in_the_working_folder_and_on_pythonpath_are_not_imported_by_any_process(
    installed: Path, tmp_path: Path
) -> None:
    here, there, marker = tmp_path / "here", tmp_path / "there", tmp_path / "imported"
    for folder, names in ((here, ("fuzzer", "minimizer", "torch", "rich")), (there, ("fuzzer", "minimizer"))):
        folder.mkdir()
        for name in names:
            (folder / f"{name}.py").write_text(MARKED.format(marker=str(marker)))
    done = run(installed, here, "replay", str(PROGRAM), *OTHERS, PYTHONPATH=str(there))
    assert done.stdout == f"{PROGRAM}: agree\n"
    assert not marker.exists()
    # they would be: whoever says `import fuzzer` there gets theirs
    subprocess.run([installed / "bin" / "python", "-c", "import fuzzer"], cwd=here, env=clean(), check=True)
    assert marker.read_text() == "fuzzer"


@pytest.mark.slow
def test_pytest_finds_the_plugin_and_it_does_nothing_unasked(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "no.prog").write_text("program(")
    for option, told in (("", "no tests ran"), ("--backfuzz", "no.prog: unreadable (line 1, column ")):
        command = [installed / "bin" / "python", "-m", "pytest", "-p", "no:cacheprovider", *filter(None, [option])]
        assert told in subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout


OTHERS = ("--compare", "eager", "aot_eager", "--device", "cpu", "--workers", "1")  # a subject that compiles in no time


@pytest.mark.slow
def test_a_type_checker_knows_what_the_python_interface_offers(installed: Path, tmp_path: Path) -> None:
    offered = ", ".join(name for name in backfuzz.__all__ if name != "main")
    (tmp_path / "users.py").write_text(
        f"from backfuzz import {offered}, main\nimport backfuzz\n"
        'said: backfuzz.Verdict = backfuzz.run("program(1)")\nwrong: int = backfuzz.show(said)\n'
    )
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")  # 8 s, and it is not ours
    checker = [sys.executable, "-m", "mypy", "--python-executable", str(installed / "bin" / "python")]
    told = subprocess.run(
        [*checker, "--follow-imports", "silent", "users.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "missing library stubs" not in told.stdout
    errors = [line for line in told.stdout.splitlines() if "error:" in line]
    assert [line.partition(":")[2].partition(":")[0] for line in errors] == ["4", "4"], told.stdout + told.stderr
