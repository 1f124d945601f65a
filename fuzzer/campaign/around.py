"""Campaigns around programs that are given: each program is a mutant that keeps the ops of its parent and their order.

Seed and number decide the parent and all that is changed, so the mutants are the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.parents import Parents
from fuzzer.campaign.plan import AROUND
from fuzzer.campaign.schedule import BySeedWithCorpus, submit_numbers
from fuzzer.generation import mutate
from fuzzer.trial.origin import Mutation
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool


class Around(BySeedWithCorpus):
    """Mutants of the parents, by number; a number of which no mutant comes has a fresh program.

    The parents are kept beside the corpus, for `--resume`.
    """

    def __init__(self, task: Task, corpus: Corpus, parents: Parents, state: Mapping[str, Any] | None = None):
        self.parents, self.mutants, self.fresh = parents, 0, 0
        super().__init__(task, corpus, state)
        parents.write(corpus.folder)

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        own = tuple(map(self.number, numbers))
        self.pending |= dict.fromkeys(own)
        return submit_numbers(pool, self.task_with_features(task), own, {n: self.mutation(n) for n in own})

    def mutation(self, number: int) -> Mutation:
        """How program `number` is made."""
        _, text = self.parents.of(self.drawing["seed"], number)
        return Mutation(mutate.AROUND, text, text)

    def learn(self, n: int, report: Report) -> None:
        super().learn(n, report)
        self.mutants += bool(report.mutator)
        self.fresh += not report.mutator

    def progress(self) -> str:
        told = f"{self.mutants} mutants around {len(self.parents.causes)} cause(s)"
        return f"{told}, {self.fresh} fresh where none was made; {super().progress()}"

    def state(self) -> dict[str, Any]:
        return {"guidance": AROUND}
