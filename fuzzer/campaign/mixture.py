"""Campaigns of several sources: programs that are drawn, mutants of programs that people wrote or reported, and mutants
of programs that this campaign kept because they showed something new.

Seed and number decide the source of a program, and all that is changed in a mutant around a given program. The parent
of any other mutant also depends on what is kept at that time: those choices are logged (`choices`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fuzzer.campaign.choices import Choice, ChoiceLog
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.parents import Parents
from fuzzer.campaign.plan import AROUND, DRAWN, GUIDANCES, KIN, MUTANTS
from fuzzer.campaign.schedule import BySeedWithCorpus, submit_numbers
from fuzzer.generation import kin, mutate
from fuzzer.trial.origin import Mutation
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_DONORS = 3  # kept programs, the smallest of which is the donor: few mutants that it makes large are in the domain


class Mixture(BySeedWithCorpus):
    """The programs of a guidance, by its shares. Where a number has no mutant, its program is drawn.

    folder   where the log is, if there is one.  parents  of mutants around given programs: kept beside the corpus, for
             `--resume`; None where the guidance takes none.
    """

    def __init__(
        self,
        task: Task,
        folder: Path,
        corpus: Corpus,
        guidance: str,
        parents: Parents | None = None,
        state: Mapping[str, Any] | None = None,
    ):
        self.guidance, self.shares, self.parents = guidance, GUIDANCES[guidance], parents
        self.sources = Counter[str]()
        super().__init__(task, corpus, state)
        self.log = ChoiceLog(folder, self.drawing) if self.shares.mutants else None
        if parents is not None:
            parents.write(corpus.folder)

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        own = tuple(map(self.number, numbers))
        # who runs again, since a worker died, stays as it was chosen
        self.pending |= {number: self.choose(number) for number in own if number not in self.pending}
        made = {number: choice.mutation for number in own if (choice := self.pending[number])}
        return submit_numbers(pool, self.task_with_features(task), own, made)

    def choose(self, number: int) -> Choice | None:
        """How program `number` is made; None: it is drawn."""
        seed = self.drawing["seed"]
        if self.parents is not None and (chosen := choose_by_share(self.guidance, self.parents, seed, number)):
            return chosen
        rng = random.Random(f"{seed}/{number}/mutation")
        past = rng.random() - self.shares.around
        return self._of_kept(rng) if 0 <= past < self.shares.mutants else None

    def _of_kept(self, rng: random.Random) -> Choice | None:
        """A mutant by any mutator. The parent: a feature is drawn, each as likely, and its smallest program taken."""
        frontier = self.corpus.frontier
        if not frontier.features:
            return None
        mutator, donor = rng.choice(mutate.MUTATOR_NAMES), min(rng.choices(self.corpus.kept, k=_DONORS))
        parent = frontier.best[rng.choice(frontier.features)]
        made = Mutation(mutator, self.corpus.text(parent), self.corpus.text(donor))
        return Choice(MUTANTS, made, parent.id, donor.id)

    def learn(self, n: int, report: Report) -> None:
        number = self.number(n)
        choice = self.pending.pop(number)
        self.sources[source_of(report)] += 1
        new = sum(self.keep(report).values())
        if self.log is not None:
            self.log.note(number, choice, report, new)

    def progress(self) -> str:
        told = [f"{self.sources[name]} {name}" for name in (DRAWN, AROUND, MUTANTS) if self.sources[name]]
        causes = f" {len(self.parents.causes)} cause(s)" if self.parents is not None else ""
        told = [name + causes * name.endswith(AROUND) for name in told]
        return "; ".join(filter(None, [", ".join(told), super().progress()]))

    def close(self) -> None:
        super().close()
        if self.log is not None:
            self.log.close()

    def state(self) -> dict[str, Any]:
        return {"guidance": self.guidance}


def choose_around(parents: Parents, seed: int, number: int) -> Choice:
    """The mutant around a given program that is program `number` of a seed."""
    cause, text = parents.of(seed, number)
    return Choice(AROUND, Mutation(mutate.AROUND, text, text), cause)


def choose_by_share(guidance: str, parents: Parents, seed: int, number: int) -> Choice | None:
    """The mutant around a given program that is program `number` of a seed; None where the guidance's share leaves it
    to another source."""
    drawn = random.Random(f"{seed}/{number}/mutation").random()
    return choose_around(parents, seed, number) if drawn < GUIDANCES[guidance].around else None


def source_of(report: Report) -> str:
    """Where a program came from: it was drawn, of the kin of a given program, a mutant around one, or a mutant of one
    that was kept."""
    return {"": DRAWN, kin.KIN: KIN, mutate.AROUND: AROUND}.get(report.mutator, MUTANTS)
