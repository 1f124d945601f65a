"""Programs that are compiled in full, and built together: nine tenths of a second each in place of two and a half."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from fuzzer.language.program import Program
from fuzzer.language.text import show
from fuzzer.trial.batch import examine_batch
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool


def examined_together(task: Task, programs: Sequence[Program]) -> list[Report | None]:
    """The Reports of these programs, in order. Each worker of this machine builds its part together: programs that
    stand beside each other. None: the death of another program took the worker."""
    device = task.place.subject.device
    workers = min(default_workers([device]), max(1, len(programs) // 2))
    ends = [len(programs) * i // workers for i in range(workers + 1)]
    texts = [show(program) for program in programs]
    with Pool(workers, [device]) as pool:
        parts = [pool.submit(examine_batch, task, texts[a:b], programs=b - a) for a, b in itertools.pairwise(ends)]
        return [report for part in parts for report in pool.results(part, task)]
