"""A task that holds the interpreter: it keeps its lease, and when it must stop its process is replaced."""

from __future__ import annotations

from tests.worker.process.installation import FOR_EVER_MS, Installation

LEASE_S = 4
HELD_MS = 3 * LEASE_S * 1000 + 500


async def test_rel_b5_a_task_that_holds_the_interpreter_for_three_leases_keeps_its_lease(
    installation: Installation,
) -> None:
    """Its heartbeats come from a process that runs no user code: one attempt, one result."""
    await installation.start_workers(worker_lease_seconds=str(LEASE_S))
    job_id = await installation.submit("hold", port=installation.port, ms=HELD_MS)

    job = await installation.ended(job_id)

    assert ("succeeded", HELD_MS, 1) == (job["status"], job["result"], job["attempt"])
    assert ["succeeded"] == [attempt["outcome"] for attempt in await installation.attempts(job_id)]


async def test_a_cancelled_call_that_cannot_be_stopped_is_reported_and_its_process_replaced(
    installation: Installation,
) -> None:
    """The attempt is cancelled and a zombie by the word of the keeper; the capacity is whole again."""
    fleet = await installation.start_workers(worker_cancel_grace_seconds="1", worker_kill_seconds="1")
    job_id = await installation.submit("hold", port=installation.port, ms=FOR_EVER_MS)
    held = await installation.begun()

    await installation.cancel(job_id)

    job = await installation.ended(job_id)
    assert "cancelled" == job["status"]
    [attempt] = await installation.attempts(job_id)
    assert {"stopped_by": "abandoned", "zombie": 1} == attempt["metrics"]
    await held.gone()
    other = await installation.ended(await installation.submit("double", x=4))
    assert 8 == other["result"]
    assert "worker.stuck" in fleet.text


async def test_a_call_out_of_time_that_cannot_be_stopped_is_reported(installation: Installation) -> None:
    """The limit of a job counts for it too; it may run again by its policy."""
    await installation.start_workers(worker_timeout_grace_seconds="1", worker_kill_seconds="1")
    job_id = await installation.submit_with(
        "hold", {"port": installation.port, "ms": FOR_EVER_MS}, max_attempts=1, timeout_seconds=1
    )

    job = await installation.ended(job_id)

    assert "dead" == job["status"]
    [attempt] = await installation.attempts(job_id)
    assert ("timed_out", "abandoned") == (attempt["outcome"], attempt["metrics"]["stopped_by"])
