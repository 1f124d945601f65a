"""Python scripts run to their end in processes that have imported torch already: a fresh one takes seconds for that."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
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


# Forks itself for each script, whose exit code it prints.
_LIGHT = """
import os, runpy, sys
import torch
for name in sys.argv[1:]:
    if not (process := os.fork()):
        for number, stream in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{name}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = [name]
        runpy.run_path(name, run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def run_light(folder: Path, texts: list[str]) -> list[CompletedProcess[str]]:
    """Each script as the program of a process of its own, in this folder, that has imported torch and not its compiler:
    its exit code and what it wrote."""
    names = [f"repro{number}.py" for number in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        (folder / name).write_text(text)
    command = [sys.executable, "-c", _LIGHT, *names]
    codes = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout
    return [
        CompletedProcess([name], int(code), *((folder / f"{name}.{s}").read_text() for s in ("stdout", "stderr")))
        for name, code in zip(names, codes.split(), strict=True)
    ]
