"""O17: each line of the server's log says what its event promises, whoever ended the lease."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx2
import pytest

from tests.clock import TestClock
from tests.server.api import claim, lease, submit, submit_and_claim
from windlass import log
from windlass.config.redact import Redactor
from windlass.engine.engine import Engine
from windlass.queue import timers

Fields = dict[str, Any]


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture, clock: TestClock) -> None:
    """Hear every level, and move past the time that an empty SQLite file never goes below."""
    caplog.set_level(logging.DEBUG, logger="windlass")
    clock.advance(5)


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[Fields]:
    """Return the fields of all lines of an event, as a program reads them."""
    lines = [record.msg for record in caplog.records if isinstance(record.msg, log.Line)]
    return [json.loads(json.dumps(line.shown(Redactor()))) for line in lines if line.name == name]


async def report(client: httpx2.AsyncClient, job: Fields, verb: str, **fields: Any) -> None:
    """Say how an attempt ended."""
    answer = await client.post(f"/jobs/{job['id']}/{verb}", json=lease(job, **fields))
    assert 200 == answer.status_code, answer.text


async def test_a_completion_tells_its_wait_its_run_and_its_metrics(
    client: httpx2.AsyncClient, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It waited from when it was due until the attempt began."""
    await submit(client)
    clock.advance(3)
    [job] = await claim(client)
    clock.advance(2)

    await report(client, job, "complete", metrics={"rows": 7, "note": "fine"}, duration_seconds=1.5)

    [line] = told(caplog, "job.completed")
    wanted = {"count": 1, "job": job["id"], "tenant": "a", "worker": "worker-1", "attempt": 1}
    metrics = {"rows": 7, "note": "fine", "duration_seconds": 1.5}
    assert wanted | {"waited_ms": 3500, "run_ms": 1500, "metrics": metrics} == line


async def test_completions_of_one_batch_keep_their_numbers(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """One line tells of several jobs: lists of numbers, not texts; in text they are joined by commas."""
    for _ in range(2):
        await submit(client)
    jobs = await claim(client, count=2)

    entries = [
        {
            "kind": "complete",
            "job_id": job["id"],
            "fence": job["fence"],
            "duration_seconds": number,
            "session": job["session"],
        }
        for number, job in enumerate(jobs)
    ]
    answer = await client.post("/jobs/report", json={"worker_id": "worker-1", "reports": entries})

    assert 200 == answer.status_code, answer.text
    [line] = told(caplog, "job.completed")
    assert (2, [0, 1000], [1, 1], [0, 0]) == tuple(line[k] for k in ("count", "run_ms", "attempt", "waited_ms"))
    assert [job["id"] for job in jobs] == line["job"]
    assert any("run_ms=0,1000 " in f"{record.msg} " for record in caplog.records)


async def test_a_failure_names_its_type_its_attempt_and_what_follows(
    engine: Engine, client: httpx2.AsyncClient, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    """`KeyError: 9` and not `9`; the retry with attempt, delay and time; the end with its reason."""
    policy = {"kind": "fixed", "base": 4, "jitter": 0}
    job = await submit_and_claim(client, max_attempts=2, retry_policy=policy)
    await report(client, job, "fail", error_type="KeyError", error_message="9")
    clock.advance(4)
    await timers.promote(engine.db)
    [again] = await claim(client)
    await report(client, again, "fail", error_type="timeout", error_message="Too slow.", outcome="timed_out")

    first, second = told(caplog, "job.failed")
    named = {"job": job["id"], "worker": "worker-1", "tenant": "a"}
    assert named | {"fence": 1, "attempt": 1, "outcome": "failed", "message": "KeyError: 9"} == first
    assert ("timed_out", "Too slow.", 2) == (second["outcome"], second["message"], second["attempt"])
    [retrying] = told(caplog, "job.retrying")
    assert named | {"attempt": 2, "delay_s": 4.0, "next_run_at": "2026-01-01T12:00:09Z"} == retrying
    assert [named | {"attempt": 2, "reason": "Attempt 2 of 2 timed out."}] == told(caplog, "job.dead")


async def test_a_snooze_and_a_release_are_told_as_such(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither is a retry; a release with an error is a failure."""
    first = await submit_and_claim(client)
    await report(client, first, "release", reason="no disk")
    [again] = await claim(client)
    await report(client, again, "snooze", delay=60, reason="not yet")
    other = await submit_and_claim(client)
    await report(client, other, "release", error_message="no disk")

    [released], [snoozed] = told(caplog, "job.released"), told(caplog, "job.snoozed")
    assert (first["id"], "no disk") == (released["job"], released["reason"])
    assert (first["id"], "not yet", "2026-01-01T12:01:05Z") == tuple(
        snoozed[k] for k in ("job", "reason", "next_run_at")
    )
    assert [other["id"]] == [line["job"] for line in told(caplog, "job.retrying")]
    assert [other["id"]] == [line["job"] for line in told(caplog, "job.failed")]


async def test_a_worker_that_is_removed_gives_its_jobs_back_aloud(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """What a closed session held is told job by job."""
    body = {"worker_id": "w", "max_threads": 1}
    session = (await client.post("/workers/register", json=body)).json()["session"]
    await submit(client)
    [job] = await claim(client, worker_id="w", session=session)

    await client.delete("/workers/w")

    [line] = told(caplog, "job.released")
    assert (job["id"], "w", "Its worker was removed.") == (line["job"], line["worker"], line["reason"])
