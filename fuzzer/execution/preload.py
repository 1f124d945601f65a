"""Imported by the fork server: what every worker needs, once. Touches no device."""

from fuzzer.execution import worker  # noqa: F401
from fuzzer.private import preload

preload()
