"""What holds for the whole tree: ruff, mypy, one direction of imports, no path of anybody's machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# The pipeline. A module imports only what stands before it; the modules of one package may import each other.
ORDER = (
    "fuzzer.private",
    "fuzzer.program",
    "fuzzer.text",
    "fuzzer.verdict",
    "fuzzer.ops",
    "fuzzer.settings",
    "fuzzer.knobs",
    "fuzzer.values",
    "fuzzer.regions",
    "fuzzer.interpret",
    "fuzzer.infer",
    "fuzzer.transcribe",
    "fuzzer.routes",
    "fuzzer.draft",
    "fuzzer.generate",
    "fuzzer.vocabulary",
    "fuzzer.strategies",
    "fuzzer.graft",
    "fuzzer.mutate",
    "fuzzer.trace",
    "fuzzer.features",
    "fuzzer.structure",
    "fuzzer.frontier",
    "fuzzer.arithmetic",
    "fuzzer.cancellation",
    "fuzzer.accumulations",
    "fuzzer.rounding",
    "fuzzer.floors",
    "fuzzer.derivative",
    "fuzzer.picture",
    "fuzzer.execution.messages",
    "fuzzer.oracles",
    "fuzzer.faults",
    "fuzzer.execution",
    "fuzzer.sides",
    "fuzzer.corpus",
    "fuzzer.audit",
    "fuzzer.credit",
    "fuzzer.price",
    "fuzzer.guidance",
    "fuzzer.schedule",
    "minimizer",
    "fuzzer.store",
    "fuzzer.longhand",
    "fuzzer.export",
    "fuzzer.issue",
    "fuzzer.generated",
    "fuzzer.dissect",
    "fuzzer.ablate",
    "fuzzer.evidence",
    "fuzzer.memcheck",
    "fuzzer.releases",
    "fuzzer.diagnose",
    "fuzzer.canaries",
    "fuzzer.doctor",
    "fuzzer.answers",
    "fuzzer.campaign",
    "fuzzer.view",
    "fuzzer.bench",
    "fuzzer.cli",
)
PACKAGES = {"fuzzer", "minimizer"}


def modules() -> Iterator[tuple[str, Path]]:
    for package in sorted(PACKAGES):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def place(module: str) -> str | None:
    """The entry of ORDER that a module belongs to: the narrowest."""
    return max((entry for entry in ORDER if module == entry or module.startswith(entry + ".")), key=len, default=None)


def imported(module: str, path: Path) -> set[str]:
    """Modules of ours that this one imports anywhere in its text."""
    found: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (above, node.module or "") if part)
            # `from fuzzer import text` imports a module, `from fuzzer.text import show` a name
            found |= {f"{source}.{alias.name}" if source in PACKAGES else source for alias in node.names}
    return {name for name in found if name.split(".")[0] in PACKAGES}


MODULES = [(name, path) for name, path in modules() if name != "fuzzer"]


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_a_module_imports_only_what_comes_before_it_in_the_pipeline(module: str, path: Path) -> None:
    own = place(module)
    assert own is not None, f"{module} has no place in the pipeline: give it one in ORDER, and in docs/how-it-works.md"
    for name in sorted(imported(module, path)):
        other = place(name)
        assert other is not None, f"{module} imports {name}, which has no place in ORDER"
        assert ORDER.index(other) <= ORDER.index(own), f"{module} imports {name}, which comes later in the pipeline"


def test_the_program_and_its_text_know_no_torch() -> None:
    code = "import sys, fuzzer.program, fuzzer.text, fuzzer.verdict, fuzzer.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def run(*command: str) -> None:
    """Run a checker over the tree; its report is the test's message."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_has_no_complaint() -> None:
    run("ruff", "check", "--quiet", ".")


def test_mypy_has_no_complaint() -> None:
    run("mypy")


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
