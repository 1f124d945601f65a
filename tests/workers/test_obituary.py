"""What the end of a worker says of the program that it was at."""

from __future__ import annotations

import pytest

from fuzzer.judgement.trial import DIED, TIMED_OUT, Observation, Place
from fuzzer.judgement.verdict import CORRUPT_HEAP, EAGER_DIES, follows, side_by_class
from fuzzer.workers.journal import DIED_DRAWING
from fuzzer.workers.obituary import died_of, heap_words, number_undrawn, report_of_death, top_frame
from tests.workers.worker_faults import TEXT


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_death_in_eager_is_a_crash_of_eager(direction: str) -> None:
    seen = Observation(DIED, signal="SIGSEGV", frame="at::native::kernel")
    (verdict,) = report_of_death(Place(), seen, TEXT, f"reference {direction}").verdicts
    assert str(verdict.signature) == f"eager_survives/crashes/{direction}/eager alone: SIGSEGV at::native::kernel"
    assert side_by_class(verdict.signature) == EAGER_DIES


def test_a_corrupt_heap_is_one_pattern_wherever_it_is_noticed_and_by_whatever_signal() -> None:
    places = [("SIGABRT", "backward"), ("SIGSEGV", "judge"), ("SIGSEGV", "reference backward")]
    seen = [(Observation(DIED, signal=name, frame=CORRUPT_HEAP), phase) for name, phase in places]
    told = [report_of_death(Place(), observed, TEXT, phase).verdicts[0] for observed, phase in seen]
    assert [v.signature.pattern for v in told] == [CORRUPT_HEAP, CORRUPT_HEAP, f"eager alone: {CORRUPT_HEAP}"]
    assert told[0].detail == "the worker died in the backward: SIGABRT, a corrupt heap"
    assert all(follows(one.signature, other.signature) for one in told for other in told)


def stack(*names: str) -> str:
    """What torch prints of a death in these functions, the innermost first."""
    frames = [f"frame #{n}: {name} + 0x12 (0x7f in libtorch.so)" for n, name in enumerate(names)]
    return "\n".join(["SIGSEGV(11), PID: 7, Thread 7:", *frames, "<omitting python frames>"])


@pytest.mark.parametrize(
    "words",
    [
        "free(): invalid pointer",
        "malloc(): unaligned tcache chunk detected",
        "realloc(): invalid next size",
        "munmap_chunk(): invalid pointer",
        "malloc_consolidate(): invalid chunk size",
        "corrupted size vs. prev_size",
        "corrupted double-linked list",
        "double free or corruption (out)",
        "Fatal glibc error: malloc.c:2599 (sysmalloc): assertion failed: (old_top == initial_top (av))",
    ],
)
def test_a_corrupt_heap_is_told_by_the_words_of_glibc(words: str) -> None:
    assert heap_words(f"a warning\n{words}\n{stack('abort', 'at::native::kernel(int)')}") == words
    assert top_frame(f"{words}{stack('abort', 'at::native::kernel(int)')}") == CORRUPT_HEAP


@pytest.mark.parametrize(
    "name",
    ["malloc", "__libc_free", "__libc_malloc2", "realloc", "_int_free", "posix_memalign", "__libc_memalign",
     "operator new(unsigned long)", "operator delete[](void*)"],
)  # fmt: skip
def test_a_corrupt_heap_is_told_by_a_death_within_the_allocator(name: str) -> None:
    assert top_frame(stack("<unknown function>", "abort", name, "at::native::kernel(int)")) == CORRUPT_HEAP


@pytest.mark.parametrize("name", ["at::native::free", "mallocator", "c::alloc_cpu", "freeze", "at::malloc"])
def test_other_functions_and_words_are_no_corrupt_heap(name: str) -> None:
    assert top_frame(f"*** stack smashing detected ***: terminated\nself.free(): no\n{stack(name, 'free')}") == name


@pytest.mark.parametrize(
    ("outcome", "name", "phase"),
    [
        (DIED, "SIGKILL", "reference forward"),  # as the kernel does where memory is short
        (TIMED_OUT, "", "reference forward"),
        (DIED, "SIGSEGV", "reference judge"),
        (DIED, "SIGSEGV", "judge"),
    ],
)
def test_what_may_be_the_machines_doing_or_ours_accuses_nobody(outcome: str, name: str, phase: str) -> None:
    told = report_of_death(Place(), Observation(outcome, signal=name), TEXT, phase)
    assert told.verdict == "rejected"
    assert (died_of(told), number_undrawn(told)) == ("", None)


def test_a_death_while_drawing_names_the_number_and_then_what_it_died_of() -> None:
    seen = Observation(DIED, signal="SIGSEGV")
    first = report_of_death(Place(), seen, "# program 17 of seed 3, not drawn yet\n", "begin")
    assert (first.verdict, number_undrawn(first), died_of(first)) == ("rejected", 17, "")
    second = report_of_death(Place(), seen, TEXT, DIED_DRAWING)
    assert (second.verdict, number_undrawn(second), died_of(second)) == ("rejected", None, TEXT)
