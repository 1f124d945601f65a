"""`backfuzz cmin`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzzer import commands
from fuzzer.campaign.corpus import Corpus, load_corpus, resume_corpus
from tests.campaign.kept import HERE, shown


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "corpus", HERE).start()


def test_cmin_keeps_every_feature_and_can_be_resumed(corpus: Corpus) -> None:
    for seed, numbers in enumerate([(1,), (2,), (1, 2, 3), (4,), (3, 4, 5)]):
        corpus.learn(shown(seed, *numbers))
    corpus.save({"next": 5})
    arguments = ["cmin", "--corpus", str(corpus.folder)]
    done = CliRunner().invoke(commands.main, [*arguments, "--out", str(corpus.folder.with_name("small")), "--json"])
    assert json.loads(done.output) == {"programs": 5, "kept": 2, "features": 5}
    assert len(load_corpus(corpus.folder).kept) == 5, "the corpus itself is as it was"
    done = CliRunner().invoke(commands.main, arguments)
    assert "2 of 5 programs have all 5 features" in done.output
    found, state = resume_corpus(corpus.folder, HERE)
    assert found.frontier.best.keys() == corpus.frontier.best.keys()
    assert len(list(corpus.folder.glob("*.prog"))) == 2
    assert state == {"next": 5}
