"""What the machine is to blame for is told from what a program is."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from fuzzer.judgement.trial import Place, Subject
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.trouble import TROUBLE, trouble
from tests.workers import worker_faults as faults


def raised_by(command: str, environment: dict[str, str]) -> BaseException:
    with pytest.raises(FileNotFoundError) as told:
        subprocess.run([command, "--version"], env=environment, check=True)
    return told.value


class Wrapped(RuntimeError):
    """As the compiler wraps what a part of it raised."""

    def __init__(self, inner: BaseException):
        super().__init__(f"{type(inner).__name__}: {inner}")
        self.inner_exception = inner


def test_a_compiler_that_is_gone_is_the_machines_trouble_however_it_is_wrapped(tmp_path: Path) -> None:
    gone = raised_by(str(tmp_path / "g++"), {})
    assert trouble(gone) == trouble(Wrapped(gone)) == "there is no g++"
    hidden = ValueError("no kernel")
    hidden.__context__ = gone
    assert trouble(hidden) == "there is no g++"
    assert trouble(RuntimeError("No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')"))
    assert trouble(RuntimeError("Failed to find C compiler. Please specify via CC environment variable"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EROFS])
def test_a_full_disk_and_no_descriptors_are_the_machines_trouble(number: int) -> None:
    assert trouble(OSError(number, os.strerror(number), "/x/journal")) == os.strerror(number)


@pytest.mark.parametrize(
    "said",
    [
        "C++ compile error\nOutput:\nkernel.cpp:1:1: fatal error: error writing to /x/a.s: No space left on device",
        "C++ compile error\nOutput:\nc++: fatal error: Killed signal terminated program cc1plus\n",
        "C++ compile error\nOutput:\ng++: fatal error: cannot execute 'cc1plus': posix_spawnp: No such file",
    ],
)
def test_what_a_compiler_says_of_the_machine_is_no_fault_of_the_code(said: str) -> None:
    assert trouble(Wrapped(RuntimeError(said)))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("C++ compile error\nOutput:\nkernel.cpp:3:5: error: 'tmp0' was not declared in this scope"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/x/cache/kernel.so"),
        OSError("/x/kernel.so: undefined symbol: f"),
        IndexError("index 4 is out of range"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
    ],
)
def test_what_else_is_raised_is_the_codes_own(error: BaseException) -> None:
    assert trouble(error) == ""


def test_a_program_that_cannot_be_built_since_the_compiler_is_gone_is_no_finding(tmp_path: Path) -> None:
    task = Task(place=Place(subject=Subject("inductor", "cpu")), fresh=True)
    with Pool(1, ["cpu"], scratch=tmp_path) as pool:
        told = pool.result(pool.submit(faults.examine_without_compiler, task, faults.TEXT), task)
    assert (told.rejected[: len(TROUBLE)], told.verdicts) == (TROUBLE, ())
    assert told.text == faults.TEXT
