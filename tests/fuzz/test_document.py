"""The document is true: what it allows is taken, what it forbids is refused, and no answer is one it does not name.

Also `python -m tests.fuzz`, with more requests and another seed each time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.run import faults, target

LEAST_REQUESTS = 9_000


@pytest.mark.exhaustive
async def test_rel_s1_every_edge_of_the_document_holds(sqlite_url: str, tmp_path: Path) -> None:
    """Each bound of each field from both sides, each missing field, each method that is not there."""
    async with target(sqlite_url, tmp_path) as server:
        found = await server.fuzz(["examples", "coverage"], examples=1)
        answered = await server.answered()

    assert found.passed, found.said
    assert answered.total() >= LEAST_REQUESTS
    assert [] == [status for status in answered if status >= 500]
    assert [] == faults(server.process)


@pytest.mark.exhaustive
async def test_rel_s1_generated_requests_meet_no_fault(sqlite_url: str, tmp_path: Path) -> None:
    """Whatever is generated is answered as the document says."""
    async with target(sqlite_url, tmp_path) as server:
        found = await server.fuzz(["fuzzing"], examples=8)
        answered = await server.answered()

    assert found.passed, found.said
    assert [] == [status for status in answered if status >= 500]
    assert [] == faults(server.process)


@pytest.mark.exhaustive
async def test_rel_s1_sequences_of_requests_meet_no_fault(sqlite_url: str, tmp_path: Path) -> None:
    """Calls that use each other's answers: what was made is there, what was removed is not."""
    async with target(sqlite_url, tmp_path) as server:
        found = [await server.fuzz(["stateful"], examples=60, seed=seed) for seed in (1, 2, 3)]
        answered = await server.answered()

    assert all(round_.passed for round_ in found), "\n".join(round_.said for round_ in found)
    assert answered[201] > 20
    assert [] == [status for status in answered if status >= 500]
    assert [] == faults(server.process)


@pytest.mark.exhaustive
@pytest.mark.postgres
async def test_rel_s1_generated_requests_meet_no_fault_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    """What PostgreSQL cannot store, as NUL in a text or a number out of range, is refused before it gets there."""
    async with target(postgres_url, tmp_path) as server:
        found = [await server.fuzz(["fuzzing"], examples=6), await server.fuzz(["stateful"], examples=60, seed=4)]
        answered = await server.answered()

    assert all(round_.passed for round_ in found), "\n".join(round_.said for round_ in found)
    assert [] == [status for status in answered if status >= 500]
    assert [] == faults(server.process)
