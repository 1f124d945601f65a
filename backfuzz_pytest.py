"""A pytest plugin. `pytest --backfuzz corpus/` makes a test of each .prog file, which must show the `# expect:` of its
header. The fixture `backward_agrees` lets a library test its own functions and modules.

pytest imports this module wherever backfuzz is installed, so it imports nothing but pytest. torch is imported when the
first program runs. All programs of a session run in the workers of one pool, as in `backfuzz replay`; each test waits
for its own program.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

_OPTIONS: dict[str, dict[str, Any]] = {
    "device": {"help": "of both sides; default: a GPU if there is one"},
    "backend": {"help": "the torch.compile backend on trial; default: inductor"},
    "compare": {"nargs": 2, "metavar": ("A", "B"), "help": "both sides, each `backend` or `backend@device`"},
    "workers": {"type": int, "help": "processes; default: one a core, two with a GPU"},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("backfuzz", "programs of backfuzz as tests")
    group.addoption("--backfuzz", action="store_true", help="collect .prog files; each is held against its # expect:")
    for name, option in _OPTIONS.items():
        group.addoption(f"--backfuzz-{name}", **option)
    told = "whether a function that cannot be judged fails its test"
    parser.addini("backfuzz_strict", told, type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("backfuzz"):
        _import_ours()
        config.pluginmanager.register(Programs(config), Programs.__name__)


@pytest.fixture
def backward_agrees(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`backward_agrees(function, *args, **kwargs)` fails if the compiled function computes something that rounding does
    not explain. It takes the keywords of `backfuzz.check`; --backfuzz-backend is the default of `backend`. A function
    that cannot be judged fails too, or is skipped under `backfuzz_strict = false`."""
    _import_ours()
    import backfuzz

    def agrees(function: Callable[..., Any], *args: Any, **options: Any) -> None:
        __tracebackhide__ = True
        named = request.config.getoption("backfuzz_backend")
        options = ({"backend": named} if named else {}) | options
        try:
            with _unlogged():
                told = backfuzz.check(function, *args, **options)
        except backfuzz.Uncheckable as error:
            if request.config.getini("backfuzz_strict"):
                pytest.fail(str(error), pytrace=False)
            pytest.skip(str(error))
        if not told.agrees:
            pytest.fail(_told_of(told, request), pytrace=False)

    return agrees


def _told_of(verdict: Any, request: pytest.FixtureRequest) -> str:
    """The text of a failure: the verdict, then the program that shows the same and the commands for it."""
    if not verdict.program:
        return f"{verdict}\n\nNo program shows the same; again: pytest {shlex.quote(request.node.nodeid)}"
    path = request.getfixturevalue("tmp_path") / "differs.prog"
    path.write_text(verdict.program)
    backend = request.config.getoption("backfuzz_backend")
    given = [str(path), *(["--backend", backend] if backend else [])]
    again, smaller = (shlex.join(["backfuzz", verb, *given]) for verb in ("replay", "minimize"))
    return f"{verdict}\n\n{verdict.program}\nagain: {again}\nsmaller: {smaller}"


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """No line of the log that torch.compile keeps for its own tools (`torch.__trace`) reaches pytest's report."""
    log = logging.getLogger("torch.__trace")

    def drop(record: logging.LogRecord) -> bool:
        return False

    log.addFilter(drop)
    try:
        yield
    finally:
        log.removeFilter(drop)


def _import_ours() -> None:
    """Import our package `fuzzer`. Raises UsageError where another of that name is loaded."""
    import backfuzz

    found = getattr(sys.modules["fuzzer"], "__file__", None) or "?"
    if Path(found).resolve().parent.parent != backfuzz.FOLDER:
        raise pytest.UsageError(f"--backfuzz needs its own package `fuzzer`, and {found} is loaded under that name")


class Programs:
    """The programs of a session and the pool that runs them, which starts with the first test that needs a result."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.pool: Any = None
        self.running: dict[ProgramTest, tuple[Any, Future[Any] | None]] = {}

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        return ProgramFile.from_parent(parent, path=file_path) if file_path.suffix == ".prog" else None

    def pytest_unconfigure(self) -> None:
        if self.pool is not None:
            self.pool.close(kill=True)

    def option(self, name: str) -> Any:
        return self.config.getoption(f"backfuzz_{name}")

    def result(self, test: ProgramTest) -> Any:
        """The result of a test's program."""
        from fuzzer.commands.shared.replayed import replayed, unreadable

        if test not in self.running:
            self._begin(test)
        asked, future = self.running.pop(test)
        if future is None:
            return unreadable(asked.label, asked.refused)
        return replayed(asked.label, self.pool.result(future, asked.task), asked.wanted)

    def _begin(self, test: ProgramTest) -> None:
        """Submit the programs of all tests to the pool; where xdist spreads the tests over processes, only this
        process's own."""
        from fuzzer.commands.replay import ask
        from fuzzer.commands.shared.options import Sides
        from fuzzer.language.errors import NoMachine, UsageError
        from fuzzer.trial.tasks import examine

        alone = hasattr(self.config, "workerinput")
        tests = [test] if alone else [item for item in test.session.items if isinstance(item, ProgramTest)]
        compare = self.option("compare")
        sides = Sides(self.option("device"), self.option("backend"), tuple(compare) if compare else None)
        try:
            asked = [ask(str(one.path), sides, Path(), expect=True) for one in tests]
            for one, found in zip(tests, asked, strict=True):
                if found.task is not None and self.pool is None:
                    self.pool = self._open(found.task.place.devices, 1 if alone else len(tests))
                future = self.pool.submit(examine, found.task, found.text) if found.task is not None else None
                self.running[one] = found, future
        except (UsageError, NoMachine) as error:
            pytest.exit(f"--backfuzz: {error}", returncode=pytest.ExitCode.USAGE_ERROR)

    def _open(self, devices: list[str], most: int) -> Any:
        from fuzzer.workers.capacity import default_workers
        from fuzzer.workers.pool import Pool

        return Pool(min(self.option("workers") or default_workers(devices), most), devices)

    @property
    def given(self) -> list[str]:
        """The options with which `backfuzz replay` does the same."""
        told = [(name, self.option(name)) for name in _OPTIONS if name != "workers" and self.option(name)]
        return [word for name, value in told for word in (f"--{name}", *([value] if isinstance(value, str) else value))]


class ProgramFile(pytest.File):
    """A .prog file: one test."""

    def collect(self) -> Iterator[ProgramTest]:
        yield ProgramTest.from_parent(self, name="backfuzz")


class ProgramTest(pytest.Item):
    """The test of one program: its result must be the one that its header expects, `agree` if there is none."""

    def runtest(self) -> None:
        programs = self.config.pluginmanager.get_plugin(Programs.__name__)
        assert isinstance(programs, Programs)  # else no program is collected
        found = programs.result(self)
        self.user_properties.append(("class", found.shown))
        if found.stderr:
            self.add_report_section("call", "stderr of the worker", found.stderr)
        if not found.passed:
            raise Unexpected(self._told(found, programs.given))

    def _told(self, found: Any, given: list[str]) -> str:
        file = os.path.relpath(self.path, self.config.invocation_params.dir)
        head = f"{found.shown}, expected {' or '.join(found.wanted)}" if found.ran else found.head
        again = f"again: {shlex.join(['backfuzz', 'replay', file, '--expect', *given])}"
        smaller = [f"smaller: {shlex.join(['backfuzz', 'minimize', file, *given])}"] if found.verdicts else []
        release = f"torch {importlib.metadata.version('torch')}"
        return "\n".join([f"{file}: {head} ({release})", *found.evidence, again, *smaller])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Unexpected) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.nodeid


class Unexpected(Exception):
    """A program's result is not the one that its header expects, or the program could not run."""
