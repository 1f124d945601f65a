"""Imported by the fork server: what every worker needs, once. Touches no device.

A worker's first compile takes 0.4 CPU seconds less for what is imported here, and 1.0 less for what is known of the
machine (docs/speed.md).
"""

import gc
import os
import tempfile

from fuzzer.execution import worker  # noqa: F401
from fuzzer.execution.pool import environment
from fuzzer.language.private import know_machine, preload

preload()
with tempfile.TemporaryDirectory() as folder, environment({**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}):
    know_machine()
# torch and its compiler are 600 000 objects that live as long as the process: no collection looks at them again
gc.collect()
gc.freeze()
