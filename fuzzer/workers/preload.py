"""The imports that every worker needs, made once by the fork server. Touches no device.

A worker's first compile takes 0.4 CPU seconds less with the imports made here, and 1.0 less with the facts about the
machine that are found here (docs/speed.md), and 6 less where a header is kept (`headers`). Code that was compiled
before is not compiled again (`objects`).
"""

import gc
import os
import tempfile


def _hold() -> None:
    from fuzzer.language.private import know_machine, preload
    from fuzzer.workers import worker  # noqa: F401
    from fuzzer.workers.accelerator import can_fork
    from fuzzer.workers.folders import Folder
    from fuzzer.workers.headers import keep_headers
    from fuzzer.workers.kept import kept_folder
    from fuzzer.workers.objects import keep_objects
    from fuzzer.workers.server import environment

    if can_fork():
        preload()
        compile_again = keep_objects(kept_folder("probes"))
        with tempfile.TemporaryDirectory() as folder, environment({**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}):
            know_machine()
        compile_again()
        keep_headers(kept_folder("headers"))
        keep_objects(Folder(None, "backfuzz-objects-").path)


# Workers wait for this. Torch and its compiler are 600 000 objects that live as long as the process: to look through
# them while they are made takes a quarter of the time, and finds ten thousand that nobody needs.
gc.disable()
_hold()
gc.freeze()  # nor does any later collection look at them
gc.enable()
