"""A pool of one worker on the CPU: of a process of this machine, and of a Ray cluster's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzzer.workers.cluster import LOCAL, RAY, Cluster
from fuzzer.workers.pool import Pool
from tests.workers.asked import DEADLINE


@pytest.fixture(scope="module", params=[LOCAL, RAY])
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """What a pool promises holds wherever its workers are. Ray's half is run where Ray is installed."""
    if request.param == RAY:
        pytest.importorskip("ray")
    cluster = Cluster("local") if request.param == RAY else None
    scratch = tmp_path_factory.mktemp("scratch")
    with Pool(1, ["cpu"], deadline=DEADLINE, scratch=scratch, cluster=cluster) as running:
        yield running


@pytest.fixture(scope="module")
def local_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of this machine, whose folder a test may look into."""
    with Pool(1, ["cpu"], deadline=DEADLINE, scratch=tmp_path_factory.mktemp("scratch")) as running:
        yield running
