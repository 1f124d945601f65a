"""Lines and files that are whole or not there, on a disk that is full for a while."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzzer.campaign.told import written
from fuzzer.campaign.told.written import append_line, replace_file

# a file may have no more bytes than this: what is beyond is refused in the middle of a line
LIMITED = """
import errno, resource, signal, sys
from pathlib import Path
from fuzzer.campaign.told import written
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
written.append_line(path, "a" * 60)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    written.append_line(path, "b" * 60)
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_a_line_that_does_not_fit_leaves_no_half_of_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "log")], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("EFBIG\n", "")
    assert (tmp_path / "log").read_text() == "a" * 60 + "\n"


def write_line(path: Path) -> None:
    append_line(path, "whole")


def write_file(path: Path) -> None:
    replace_file(path, b"whole\n")


@pytest.mark.parametrize("write", [write_line, write_file])
def test_a_full_disk_is_waited_for_and_told_once(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(written, "RETRY_SECONDS", 0.01)
    full = threading.Event()
    opened = Path.open

    def refuse(self: Path, *given: object, **named: object) -> object:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(self, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    full.set()
    thread = threading.Thread(target=write, args=(tmp_path / "log",))
    thread.start()
    time.sleep(0.1)
    assert thread.is_alive()
    full.clear()
    thread.join(10)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("log", "whole\n")]
    assert capsys.readouterr().err == f"backfuzz: the disk of {tmp_path} is full: waiting for room\n"


def test_other_errors_are_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        append_line(tmp_path / "no folder" / "log", "x")
