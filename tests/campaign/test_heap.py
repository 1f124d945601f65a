"""The C heap of the campaign's process."""

from __future__ import annotations

import ctypes
import os

import pytest

from fuzzer.campaign import heap
from fuzzer.campaign.heap import trim_heap
from fuzzer.workers.usage import resident_bytes

MIB, BLOCK = 2**20, 65_536  # a block is smaller than what malloc maps apart


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_free_pages_between_blocks_in_use_go_back_to_the_system():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(BLOCK) for _ in range(1024)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    held = blocks[::8]
    for block in set(blocks) - set(held):
        libc.free(block)
    before = resident_bytes(os.getpid())
    trim_heap()
    freed = before - resident_bytes(os.getpid())
    for block in held:
        libc.free(block)
    assert freed > 32 * MIB


def test_another_c_library_is_left_alone(monkeypatch):
    asked: list[str | None] = []
    monkeypatch.setattr(heap.ctypes, "CDLL", asked.append)  # which has no malloc_trim
    trim_heap()
    assert asked == [None]
