"""Results of the C++ compiler, kept while the fork server lives: workers compile the same code once.

Triage builds the same program again and again: in fresh processes, under other settings, beside a change that does not
reach this kernel. Most of the compiler's time went into code that it had compiled before (docs/speed.md).
Inductor still writes its code anew each time; a result is used again only for the very same text and flags. Code that
takes long to compile is not kept: its cost is measured each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fuzzer.language.private import replace_compiler
from fuzzer.workers.kept import keep, longest_unused

MOST_KEPT = 500  # 100 KB each
CLEARED_EVERY = 32  # results that a process keeps: to look at the times of 500 files takes 8 CPU milliseconds
LONGEST_SECONDS = 4.0  # wall clock; a program may take 25 and more (`oracles.compile_limit`)
_BUILT = (".so", ".o")
_TEXTS = (".cpp", ".cc", ".c", ".s", ".S", ".o")
_READ = (".cpp", ".o")  # of these, those whose text says all: an assembler's may take in files by name
_results = itertools.count()  # that this process kept
_kept_by: list[Callable[[], None]] = []  # what stops each `keep_objects`


def keep_objects(folder: Path) -> Callable[[], None]:
    """Compile the same C++ code once: inductor's compiles take their results from this folder, and leave those that it
    lacks there. This holds in this process and all that are forked from it, until somebody calls the function that is
    returned."""
    _kept_by.append(stop := replace_compiler(lambda command, compile_: _answer(command, compile_, folder)))
    return stop


def compile_anew() -> None:
    """Compile all C++ code in this process, also where a worker of the same fork server compiled the same before."""
    while _kept_by:
        _kept_by.pop()()


def _answer(command: str, compile_: Callable[[], None], folder: Path) -> None:
    """Compile, or copy the result of an earlier compile of the same code."""
    words = shlex.split(command)
    target = _target(words)
    kept = target and _kept(words, target, folder)
    if not (target and kept):
        compile_()
        return
    with contextlib.suppress(OSError):
        shutil.copy(kept, target)  # a copy: the loader takes two names of one file for one library
        os.utime(kept)
        return
    begun = time.monotonic()
    compile_()
    if time.monotonic() - begun < LONGEST_SECONDS:
        _keep(target, kept)


def _target(words: list[str]) -> Path | None:
    """The file that a command of the compiler writes; None where that is no code."""
    if "-o" not in words[:-1]:
        return None
    target = Path(words[words.index("-o") + 1])
    return target if target.suffix in _BUILT else None


def _kept(words: list[str], target: Path, folder: Path) -> Path | None:
    """Where the result of a command is kept: its name is a hash of the flags and of the texts that the command names.
    None where it names no text, or one that may take in other files."""
    said, read = hashlib.sha256(), 0
    for word in words:
        path = Path(word)
        if path == target:
            word = target.suffix
        elif path.suffix in _TEXTS or path.parent == target.parent:
            if path.suffix not in _READ or not path.is_file():
                return None
            # the name, too: inductor's names of probes hold the compiler's version and torch's
            word, read = path.name + hashlib.sha256(path.read_bytes()).hexdigest(), read + 1
        said.update(word.encode() + b"\0")
    return folder / f"{said.hexdigest()}{target.suffix}" if read else None


def _keep(target: Path, kept: Path) -> None:
    """Keep a result, whole or not at all. Every CLEARED_EVERY-th time those not used for longest are removed."""
    with contextlib.suppress(OSError):
        keep(target, kept)
        if next(_results) % CLEARED_EVERY:
            return
        for old in longest_unused([path for path in kept.parent.iterdir() if path.suffix in _BUILT], MOST_KEPT):
            old.unlink(missing_ok=True)
