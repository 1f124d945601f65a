"""The pools of the tests of workers."""

from tests.workers.conftest import local_pool, pool  # noqa: F401
