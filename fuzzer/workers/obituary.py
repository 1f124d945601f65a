"""The Report of a program whose worker ended, made from the journal and the stderr that the worker left."""

from __future__ import annotations

import contextlib
import re
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from fuzzer.judgement.oracles import eager_survives, worker_survives
from fuzzer.judgement.trial import DIED, PENDING, Observation, Place, Trial
from fuzzer.judgement.verdict import CORRUPT_HEAP
from fuzzer.language.program import Program
from fuzzer.language.text import ParseError, parse
from fuzzer.workers.journal import DIED_DRAWING, read_journal, read_turn
from fuzzer.workers.messages import Report, Task

# A worker ended before there was a program: what a Report of that begins with.
UNDRAWN = "the worker ended before a program was drawn"
_STDERR_TAIL = 8000  # a native stack with the paths of an environment takes 4000
_OF_EAGER = ("reference forward", "reference backward")


def number_undrawn(report: Report) -> int | None:
    """The number of the program in the drawing of which the worker of this Report died; None for any other Report."""
    told = re.match(rf"{UNDRAWN}: it {DIED} .*# program (\d+) of seed", report.rejected)
    return int(told[1]) if told else None


def died_of(report: Report) -> str:
    """The text of the program that a worker ran when it died in a drawing; "" for any other Report."""
    return report.text if report.rejected.startswith(f"the worker {DIED_DRAWING}") else ""


def report_of_death(place: Place, observed: Observation, text: str, phase: str) -> Report:
    """The Report of the program that a worker was running when it ended in this phase."""
    outcome, name, stderr = observed.outcome, observed.signal, observed.stderr
    try:
        # a function has no text
        program = Program((), (), ()) if phase and not text.strip() else parse(text)
    except ParseError:
        return Report("", rejected=f"{UNDRAWN}: it {outcome} {name} {text.strip()}")
    if phase == DIED_DRAWING:
        return Report(text, rejected=f"the worker {phase}: {name}", stderr=stderr)
    # who takes too much memory is killed; and a machine may be slow
    if phase in _OF_EAGER and outcome == DIED and name != signal.SIGKILL.name:
        seen = replace(observed, phase=phase.removeprefix("reference "))
        died = eager_survives(Trial(program, place, seen, Observation(PENDING)))
        return Report(text, (died,) if died else (), stderr=stderr)
    if phase.endswith("judge") and outcome == DIED and observed.frame == CORRUPT_HEAP:
        phase = ""  # what runs there is torch's, and what corrupted the heap ran before
    elif phase.startswith("reference") or phase in ("begin", "judge", ""):
        return Report(text, rejected=f"the worker {outcome} on the reference side ({phase}) {name}", stderr=stderr)
    verdict = worker_survives(Trial(program, place, Observation("ran"), replace(observed, phase=phase)))
    return Report(text, (verdict,) if verdict else (), stderr=stderr)


# Frames of the handler, of the C library's way to raise a signal, and of the program's start.
_NO_OWNERS = re.compile(
    r"c10::FatalSignalHandler::|<unknown function>|__restore_rt$|(gsignal|raise|abort|"
    r"pthread_kill|__libc_start_main|_start|clone|__assert_fail\w*|std::terminate|__cxa_throw|_ffi_call\w*|ffi_call)\b"
)


# What glibc says where it finds the heap corrupt.
_HEAP_WORDS = re.compile(
    r"(?<![\w.:])(?:(?:malloc|free|calloc|realloc|malloc_consolidate|munmap_chunk|mremap_chunk)\(\): "
    r"|corrupted (?:size vs|double-linked)|double free or corruption|Fatal glibc error: malloc)[^\n]*"
)
# Functions that take memory from the heap and give it back, without digits.
_ALLOCATORS = re.compile(
    r"(?:_*(?:libc_|int_)*(?:malloc|free|cfree|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc)#?"
    r"|malloc_consolidate|unlink_chunk|operator (?:new|delete)(?:\[\])?)$"
)


def heap_words(stderr: str) -> str:
    """What glibc printed of a corrupt heap, as `free(): invalid pointer`; "" where it printed nothing of that."""
    found = _HEAP_WORDS.search(stderr)
    return found[0].strip() if found else ""


def top_frame(stderr: str) -> str:
    """CORRUPT_HEAP where that was noticed: glibc says so, or the process died in one of the allocator's functions. Else
    the innermost native function of the stack that torch printed, without digits; "" where it printed none.

    torch prints the thread that died first, then all others, each under a line with the signal; only the first counts,
    and of it what is inside the innermost Python frame: the native caller of Python code did not die.
    """
    if heap_words(stderr):
        return CORRUPT_HEAP
    stacks = re.split(r"^SIG\w+\(\d+\), PID: \d+, Thread \d+:", stderr, flags=re.MULTILINE)
    innermost = stacks[min(1, len(stacks) - 1)].partition("<omitting python frames>")[0]
    for match in re.finditer(r"frame #\d+: (.+?) \+ 0x", innermost):
        name = match.group(1).strip().replace("(anonymous namespace)", "{anonymous}")
        if not _NO_OWNERS.match(name):
            name = re.sub(r"\d+", "#", name.split("(")[0])
            return CORRUPT_HEAP if _ALLOCATORS.match(name) else name
    return ""


@dataclass(frozen=True)
class Left:
    """The things that a worker left: its journal, the tail of its stderr, and the native function in which it died."""

    journal: str
    stderr: str
    frame: str


def obituary(task: Task, programs: int, outcome: str, name: str, left: Left) -> list[Report | None]:
    """The Reports of a task of so many programs whose worker ended: a Report for the program whose turn it was, None
    for the others."""
    found: list[Report | None] = [None] * programs
    turn = read_turn(left.journal) if programs > 1 else 0
    if turn is not None:
        observed = Observation(outcome, signal=name, frame=left.frame, stderr=left.stderr)
        found[turn] = report_of_death(task.place, observed, *read_journal(left.journal))
    return found


def signal_name(code: int | None) -> str:
    """The name of the signal that an exit status stands for; for another exit status, the status."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit status {code}"


def tail(path: Path, length: int = _STDERR_TAIL) -> str:
    """The last bytes of a file as text; "" where there is none."""
    if not path.exists():
        return ""
    return path.read_bytes()[-length:].decode(errors="replace")
