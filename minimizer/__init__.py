"""Shrinks a program as long as it stays the same finding. It knows nothing of compilers: the caller's function
decides."""
