"""Servers are killed, stopped, and lose their database under load: the long proofs in short.

The full ones are `python -m tests.proofs`; here a duty's lease is two seconds, and each fault comes once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster import Cluster
from tests.proofs import failover, memory, restarts, stops
from tests.proofs.load import QUICK
from tests.proofs.verdict import Line


def against(lines: Sequence[Line]) -> list[str]:
    """Return what does not hold."""
    return [line.text for line in lines if line.against]


async def test_rel_a7_killed_holder(own_url: str) -> None:
    """The holder of a duty is killed: another acts for it in time, nothing is lost or doubled."""
    lines = await failover.prove(own_url, faults=1, fast=True, kinds=QUICK)

    assert [] == against(lines)


async def test_rel_b3_stopped_holder(own_url: str) -> None:
    """The holder of a duty is stopped for longer than its lease: woken, it changes nothing."""
    lines = await stops.prove(own_url, faults=2, fast=True, kinds=QUICK)

    assert [] == against(lines)


async def test_rel_c1_database_restarted(own_cluster: Cluster) -> None:
    """The database is restarted: 503 meanwhile, served again within two seconds, all that was told is there."""
    lines = await restarts.prove(own_cluster, faults=1, kinds=QUICK, down_s=1.0, loaded_s=2.0)

    assert [] == against(lines)


async def test_rel_i30_memory_is_flat(own_url: str) -> None:
    """Twenty thousand jobs leave nothing behind in the server that brought them through."""
    lines = await memory.prove(own_url, jobs=20_000, every_s=0.2)

    assert [] == against(lines)
