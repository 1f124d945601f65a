"""Python scripts run to their end in processes that have imported torch already: a fresh one takes seconds for that."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path
from subprocess import CompletedProcess

from fuzzer.workers.server import environment, server_environment

SECONDS = 500


def run(folder: Path, text: str, *arguments: str, fresh: bool = False) -> CompletedProcess[str]:
    """The script as the program of a process of its own, in this folder: its exit code and what it wrote.

    fresh   whether by a Python that has imported nothing, as a person would.
    """
    (folder / "repro.py").write_text(text)
    if fresh:
        command = [sys.executable, "repro.py", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["backfuzz", "fuzzer.workers.preload"])
    with environment(server_environment()):  # as pools start it: whoever is first decides for all
        forkserver.ensure_running()
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
