"""Whether this torch still shows all families of features."""

from __future__ import annotations

from fuzzer.coverage.features import LINES, TRACE_FAMILIES
from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.trial.tasks import report_words
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

# It has something for every family to see, on the CPU and on CUDA: a softmax and a gelu are fused with what they are
# made of, torch computes a matrix product, inductor has no code of its own for the distances.
WITNESS = """program(1)
route("autograd")
x0 = leaf(f32[4, 13, 33], seed=1)
x1 = leaf(f32[33, 8], seed=2)
x2 = leaf(f32[4, 5, 8], seed=3)
v0 = softmax(x0, dim=1)
v1 = matmul(v0, x1)
v2 = gelu(v1)
v3 = cdist(v2, x2, p=1.0)
v4 = sum(v3, dim=1)
backward(v4, cotangent(f32[4, 5], seed=4))
"""


def silent_families(pool: Pool, task: Task) -> tuple[list[str], Report]:
    """The families of features that show nothing of WITNESS, compiled by inductor; and its Report.

    Lines are looked for where the task records them, by a worker that has not told them yet.
    """
    report = pool.result(pool.submit(report_words, task, WITNESS), task)
    families = (*TRACE_FAMILIES, *COMPILED_FAMILIES, *(LINES if task.lines else ()))
    return [family for family in families if not report.files.get(family)], report
