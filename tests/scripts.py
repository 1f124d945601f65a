"""Python scripts run to their end in processes that have imported torch already: a fresh one takes seconds for that."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from pathlib import Path
from subprocess import CompletedProcess

from fuzzer.workers.server import start_server

SECONDS = 500


def run(folder: Path, text: str, *arguments: str) -> CompletedProcess[str]:
    """The script as the program of a process of its own, in this folder: its exit code and what it wrote."""
    (folder / "repro.py").write_text(text)
    context = multiprocessing.get_context("forkserver")
    start_server()
    process = context.Process(target=_main, args=(str(folder), arguments))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    out, err = ((folder / name).read_text() for name in ("stdout", "stderr"))
    assert process.exitcode is not None
    return CompletedProcess(["repro.py", *arguments], process.exitcode, out, err)


def _main(folder: str, arguments: tuple[str, ...]) -> None:
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["repro.py", *arguments]
    sys.path.insert(0, folder)
    try:
        runpy.run_path("repro.py", run_name="__main__")
    except SystemExit:
        raise
    except BaseException:  # the end of a process, which Python itself would tell so
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.exit(1)
