"""Answers of sympy that inductor asks for again and again."""

from __future__ import annotations

import functools

import sympy

_MOST = 1 << 16  # answers, some kilobytes each; the 200 programs of a worker's life ask for some 4,000


def remember_simplified() -> None:
    """Have `sympy.simplify` give the answer that it gave before. While inductor writes C++ it asks some 58 times a
    program, three quarters of that again, which is a seventh of all of its Python (docs/speed.md). What is asked does
    not change, nor does the answer depend on anything else: the code stays the same."""
    if not hasattr(sympy.simplify, "cache_info"):
        sympy.simplify = functools.lru_cache(maxsize=_MOST, typed=True)(sympy.simplify)
