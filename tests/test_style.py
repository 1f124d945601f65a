"""What holds for the whole tree: ruff, mypy, one direction of imports, no path of anybody's machine."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# The folders, from the ground up: a module imports only from its own folder and those that stand before it.
ORDER = (
    "fuzzer.language",
    "fuzzer.generation",
    "fuzzer.stages",
    "fuzzer.rounding",
    "fuzzer.coverage",
    "fuzzer.judgement",
    "minimizer",
    "fuzzer.workers",
    "fuzzer.ledger",
    "fuzzer.trial",
    "fuzzer.export",
    "fuzzer.diagnosis",
    "fuzzer.campaign",
    "fuzzer.commands",
    "benches",
)
PACKAGES = {"fuzzer": ROOT, "minimizer": ROOT, "benches": ROOT / "scripts"}


def modules() -> Iterator[tuple[str, Path]]:
    for package, folder in sorted(PACKAGES.items()):
        for path in sorted((folder / package).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def place(module: str) -> str | None:
    """The folder of ORDER that a module lies in."""
    return next((folder for folder in ORDER if f"{module}.".startswith(f"{folder}.")), None)


@functools.cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports anywhere in a module's text, which several tests look at."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(module: str, path: Path) -> set[str]:
    """Modules of ours that this one imports anywhere in its text."""
    found: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in imports(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            parents = package.split(".")
            above = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (above, node.module or "") if part)
            # `from fuzzer import text` imports a module, `from fuzzer.language.text import show` a name
            found |= {f"{source}.{alias.name}" if source in PACKAGES else source for alias in node.names}
    return {name for name in found if name.split(".")[0] in PACKAGES}


MODULES = [(name, path) for name, path in modules() if name != "fuzzer"]


def test_no_folder_imports_a_higher_one() -> None:
    assert MODULES
    for module, path in MODULES:
        own = place(module)
        assert own is not None, f"{module} lies in no folder of ORDER"
        for name in sorted(imported(module, path)):
            other = place(name)
            assert other is not None, f"{module} imports {name}, which lies in no folder of ORDER"
            assert ORDER.index(other) <= ORDER.index(own), f"{module} imports {name}, a folder above its own"


def test_commands_do_not_import_each_other() -> None:
    assert "fuzzer.commands" in {place(module) for module, _ in MODULES}
    for module, path in MODULES:
        if place(module) == "fuzzer.commands":
            others = {name for name in imported(module, path) if name.startswith("fuzzer.commands.")} - {module}
            assert not {name for name in others if not name.startswith("fuzzer.commands.shared")}


# Modules whose tests have another name, and why.
ELSEWHERE = {
    "language/ops/*.py": "tables: test_ops draws from every entry",
    "rounding/kernels/*.py": "rows: test_kernels holds every one, test_arithmetic runs every kernel",
    "language/routes/accumulate.py": "a row: test_routes runs every route",
    "language/routes/aoti.py": "a row: test_routes runs every route",
    "language/routes/autograd.py": "a row: test_routes runs every route",
    "language/routes/backward_twice.py": "a row: test_routes runs every route",
    "language/routes/compiled_autograd.py": "a row: test_routes runs every route",
    "language/routes/vjp.py": "a row: test_routes runs every route",
}


def test_a_modules_tests_have_its_name_and_stand_in_its_folder() -> None:
    of_product = [path for name, path in MODULES if not name.startswith("benches") and path.name != "__init__.py"]
    own = [
        path.relative_to(ROOT if path.is_relative_to(ROOT / "minimizer") else ROOT / "fuzzer") for path in of_product
    ]
    without = [path for path in own if not (ROOT / "tests" / path.with_name(f"test_{path.name}")).is_file()]
    assert [str(path) for path in without if not any(path.match(pattern) for pattern in ELSEWHERE)] == []
    assert [pattern for pattern in ELSEWHERE if not any(path.match(pattern) for path in without)] == [], "needless"


def test_every_folder_of_tests_is_a_folder_of_what_they_test() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")} - {Path()}
    places = [ROOT / "fuzzer", ROOT, ROOT / "scripts"]
    assert [str(folder) for folder in sorted(folders) if not any((place / folder).is_dir() for place in places)] == []


def test_the_program_and_its_text_know_no_torch() -> None:
    modules = "fuzzer.language.program, fuzzer.language.text, fuzzer.judgement.verdict, fuzzer.ledger.store"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# Where torch's own modules that are not public may be imported; each says in its docstring which, and on what they were
# tried.
PRIVATE = ("fuzzer.language.private", "fuzzer.language.tuning", "fuzzer.stages.", "benches.insides")


def imports_private_torch(path: Path) -> bool:
    """Whether a module imports, anywhere in its text, one of torch's that begins with an underscore."""
    nodes = imports(path)
    found = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    found += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return any(re.match(r"torch\._", name) for name in found)


def test_private_torch_is_imported_in_few_places_which_say_so() -> None:
    assert any(imports_private_torch(path) for _, path in MODULES)
    for module, path in MODULES:
        if imports_private_torch(path):
            assert module.startswith(PRIVATE)
            told = ast.get_docstring(ast.parse(path.read_text())) or ""
            assert re.search(r"(?i)not public|private", told), f"{module} does not say what it uses"


def run(*command: str) -> None:
    """Run a checker over the tree; its report is the test's message."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_has_no_complaint() -> None:
    run("ruff", "check", "--quiet", ".")


@pytest.mark.slow
def test_mypy_has_no_complaint() -> None:
    run("mypy")
    run("mypy", "backfuzz.py")  # for its name mypy looks at the stubs


def texts() -> Iterator[tuple[str, bytes]]:
    """Every file that git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listing.returncode:
        pytest.skip("no git work tree")
    for name in sorted(listing.stdout.decode().split("\0")):
        path = ROOT / name
        if name and path.is_file():
            yield name, path.read_bytes()


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    pattern = re.compile(rb"(?<![\w.])/(?:home|Users|root|work|mnt)/[\w.-]+")
    found = {name: hit.group().decode() for name, text in texts() if (hit := pattern.search(text))}
    assert not found


def test_scripts_are_executable_and_bash_can_read_them() -> None:
    scripts = [path for folder in ("scripts", ".ci") for path in (ROOT / folder).iterdir() if path.is_file()]
    for path in scripts:
        first = path.read_text().splitlines()[0]
        if first.startswith("#!"):
            assert path.stat().st_mode & 0o111, f"{path.name} is not executable"
        if "bash" in first or path.name == "environment":
            assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
