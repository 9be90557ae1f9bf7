"""The local pool follows what the servers recommend, and loses no work by it (H5, H8)."""

from __future__ import annotations

import signal

from tests.worker.process.installation import Installation

POOL = {
    "workers_default_count": "1",
    "workers_max_count": "3",
    "workers_threads": "1",
    "workers_scale_interval_ms": "100",
    "scaling_cooldown_seconds": "1",
}
JOBS = 5


async def test_the_pool_grows_with_the_work_and_shrinks_by_draining(bare: Installation) -> None:
    """From one to three and back to one; every job has one attempt."""
    await bare.start_server(**POOL)
    pool = await bare.start_workers("--scale", "--name", "pool", **POOL)
    ids = [await bare.submit("wait", port=bare.port) for _ in range(JOBS)]

    running = [await bare.begun() for _ in range(3)]

    assert {"pool-1", "pool-2", "pool-3"} == {worker["id"] for worker in await living(bare, 3)}
    for begun in running:
        begun.go_on()
    for _ in range(JOBS - len(running)):
        (await bare.begun()).go_on()
    await living(bare, 1)
    for job_id in ids:
        assert ("succeeded", 1) == ((job := await bare.ended(job_id))["status"], job["attempt"])
        # A job handed out to a worker that is just told to leave goes back, and no attempt is used.
        *given_back, end = [attempt["outcome"] for attempt in await bare.attempts(job_id)]
        assert (True, "succeeded") == ({"released"}.issuperset(given_back), end)
    pool.send(signal.SIGTERM)
    assert 0 == await pool.ended()


async def living(installation: Installation, count: int) -> list[dict[str, object]]:
    """Wait until so many workers live; return them."""

    def alive(answer: dict[str, list[dict[str, object]]]) -> list[dict[str, object]]:
        return [worker for worker in answer["workers"] if worker["status"] not in ("stopped", "dead", "draining")]

    return alive(await installation.until(lambda answer: len(alive(answer)) == count, "/workers"))
