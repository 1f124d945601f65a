"""The command `backfuzz` (`python -m backfuzz`): it means the `fuzzer` and the `minimizer` that lie beside this file.

Those are names that others use too: a fuzzer.py in the working folder or on PYTHONPATH would be imported in the place
of ours. Whoever imports this module first gets ours: the command does, and so does the fork server of its workers.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PACKAGES = ("fuzzer", "minimizer")


def take(package: str) -> None:
    """Import a package of this folder, wherever else on sys.path its name occurs; one that is loaded stays."""
    if package in sys.modules:
        return
    spec = spec_from_file_location(package, FOLDER / package / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[package] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


for name in PACKAGES:
    take(name)


def main() -> None:
    """Run the command with the process's arguments."""
    try:
        from fuzzer import commands
    except KeyboardInterrupt:  # in the first moment; later the command tells of it
        print("backfuzz: interrupted", file=sys.stderr)
        sys.exit(130)
    commands.main(prog_name="backfuzz")


if __name__ == "__main__":
    main()
