"""Shrinks a program while it stays the same finding. Knows nothing of compilers: it asks a function it is given."""
