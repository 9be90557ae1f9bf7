"""`make bench` measures on a server that loses nothing."""

from __future__ import annotations

import pytest

from tests import cluster
from windlass.bench.scratch import undurable


@pytest.mark.exhaustive
async def test_the_cluster_of_a_benchmark_is_durable() -> None:
    """What is committed is on disk, unlike in the cluster of a test run."""
    binaries = cluster.find()
    if binaries is None:
        pytest.skip("no binaries on this machine")

    with cluster.running(binaries, durable=True) as server:
        assert [] == await undurable(server.url)
