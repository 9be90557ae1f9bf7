"""What a submit leaves open comes from the task, as its workers publish it, then from the settings; and is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, get_args

import httpx2
import pytest

from tests.clock import TestClock
from tests.server.api import WORKER, Json
from windlass.job import GivenOption
from windlass.queue import defaults
from windlass.wire.tasks import MOST_TASKS

Calls = Callable[[str], httpx2.AsyncClient]
MAIL: Json = {
    "queue": "mail",
    "priority": 7,
    "timeout_seconds": 90,
    "max_attempts": 9,
    "max_lost": 2,
    "retry_policy": {"kind": "fixed", "base": 5},
    "labels": ["eu"],
    "tags": ["post"],
    "headers": {"trace": "1"},
    "start_within": 3600,
    "unique": True,
}
SHOWN = ("queue", "priority", "timeout_seconds", "max_attempts", "max_lost", "labels", "tags", "headers")
GIVEN = ["mail", 7, 90, 9, 2, ["eu"], ["post"], {"trace": "1"}]
OF_SETTINGS = ["queue", "priority", "timeout_seconds", "max_attempts", "max_lost", "retry_policy", "delivery"]


async def publish(client: httpx2.AsyncClient, task: str = "mail", worker: str = WORKER, **defaults: Any) -> None:
    """Register a worker whose task has these options."""
    signature = {"extra": True, "defaults": defaults}
    body = {"worker_id": worker, "tasks": [task], "signatures": {task: signature}}
    answer = await client.post("/workers/register", json=body)
    assert 200 == answer.status_code, answer.text


async def submit(client: httpx2.AsyncClient, **fields: Any) -> Json:
    """Submit a job and return it as it is shown."""
    answer = await client.post("/jobs", json={"task": "mail", **fields})
    assert 201 == answer.status_code, answer.text
    return await look(client, answer.json()["id"])


async def look(client: httpx2.AsyncClient, job_id: str) -> Json:
    """Return a job as it is shown."""
    found: Json = (await client.get(f"/jobs/{job_id}")).raise_for_status().json()
    return found


async def test_a_job_by_name_gets_the_options_of_its_task(client: httpx2.AsyncClient) -> None:
    """Every option that a task can have; without one the settings; and the job tells which came from where."""
    before = await submit(client)
    await publish(client, **MAIL)

    after = await submit(client)
    batch = (await client.post("/jobs/batch", json={"jobs": [{"task": "mail", "payload": {"n": 2}}]})).json()
    second = await look(client, batch["jobs"][0]["id"])

    assert (["default", 0, 3600, 3], dict.fromkeys(OF_SETTINGS, "settings")) == (
        [before[name] for name in SHOWN[:4]],
        before["defaults"],
    )
    for job in (after, second):
        assert GIVEN == [job[name] for name in SHOWN]
        assert ("fixed", 5) == (job["retry_policy"]["kind"], job["retry_policy"]["base_s"])
        assert job["start_deadline"] is not None
        assert {*MAIL, "unique_key", "start_deadline"} - {"unique", "start_within"} == {
            option for option, source in job["defaults"].items() if source == "task"
        }
        assert "settings" == job["defaults"]["delivery"]


async def test_every_task_of_a_worker_is_known_with_its_options(client: httpx2.AsyncClient) -> None:
    """As many as a worker may serve, the last as the first."""
    names = [f"task-{number}" for number in range(MOST_TASKS)]
    signature = {"extra": True, "defaults": {"queue": "many"}}
    body = {"worker_id": WORKER, "tasks": names, "signatures": dict.fromkeys(names, signature)}
    (await client.post("/workers/register", json=body)).raise_for_status()

    jobs = [await submit(client, task=name) for name in (names[0], names[-1])]

    assert ["many", "many"] == [job["queue"] for job in jobs]


async def test_what_a_job_names_itself_counts_first(client: httpx2.AsyncClient) -> None:
    """Also nothing, where that can be said: no time-out, no labels; and it is not among the defaults."""
    await publish(client, **MAIL)
    own: Json = {"queue": "other", "priority": 0, "timeout_seconds": None, "max_retries": 1, "max_lost": 4}
    own |= {"labels": [], "tags": [], "headers": {"trace": "2"}, "retry_policy": "immediate", "unique_key": "k"}

    job = await submit(client, **own, delivery="at_least_once", start_deadline="2100-01-01T00:00:00Z")

    assert ["other", 0, None, 2, 4, [], [], {"trace": "2"}] == [job[name] for name in SHOWN]
    assert {} == job["defaults"]


async def test_a_start_deadline_of_the_job_counts_before_that_of_its_task(client: httpx2.AsyncClient) -> None:
    """As a span or as an instant: neither contradicts what the task gives."""
    await publish(client, start_within=3600)

    by_task, span = await submit(client), await submit(client, start_within=60)

    deadlines = [datetime.fromisoformat(job["start_deadline"]) for job in (by_task, span)]
    created = [datetime.fromisoformat(job["created_at"]) for job in (by_task, span)]
    assert [3600, 60] == [round((at - since).total_seconds()) for at, since in zip(deadlines, created, strict=True)]
    assert ["task", None] == [job["defaults"].get("start_deadline") for job in (by_task, span)]


async def test_a_policy_of_the_task_does_not_change_attempts_that_the_job_names(client: httpx2.AsyncClient) -> None:
    """How often is the job's own word, how long to wait the task's."""
    await publish(client, retry_policy={"kind": "fixed", "base": 5, "max_attempts": 10})

    named, left = await submit(client, max_attempts=2), await submit(client)

    assert (2, 10) == (named["max_attempts"], left["max_attempts"])


async def test_at_most_once_of_the_task_holds(client: httpx2.AsyncClient) -> None:
    """One attempt and no second after a loss, whatever else the task or the settings say."""
    await publish(client, delivery="at_most_once", max_attempts=5)

    job = await submit(client)

    assert (1, 1, "task") == (job["max_attempts"], job["max_lost"], job["defaults"]["delivery"])


async def test_the_same_arguments_are_one_job_while_it_lives(client: httpx2.AsyncClient) -> None:
    """A task that is unique by its arguments is so for jobs by name too, in whatever order they are named."""
    await publish(client, unique=True)
    first = await submit(client, payload={"a": 1, "b": 2})

    again = await client.post("/jobs", json={"task": "mail", "payload": {"b": 2, "a": 1}})
    other = await client.post("/jobs", json={"task": "mail", "payload": {"a": 1}})

    assert (200, first["id"], True) == (again.status_code, again.json()["id"], again.json()["duplicate"])
    assert 201 == other.status_code


async def test_a_repeated_request_is_the_same_though_the_task_has_changed(client: httpx2.AsyncClient) -> None:
    """An idempotency key compares what was asked for, not what the task gave; what was asked for otherwise is 422."""
    first = await submit(client, idempotency_key="k", priority=3)
    await publish(client, **MAIL)

    same = await client.post("/jobs", json={"task": "mail", "idempotency_key": "k", "priority": 3})
    other = await client.post("/jobs", json={"task": "mail", "idempotency_key": "k", "priority": 4})
    named = await client.post("/jobs", json={"task": "mail", "idempotency_key": "k", "priority": 3, "queue": "mail"})

    assert (200, first["id"]) == (same.status_code, same.json()["id"])
    assert [422, 422] == [other.status_code, named.status_code]


async def test_the_build_that_registered_last_counts(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """Also after a way back to an older build; a heartbeat of the other one does not change it."""
    await publish(client, queue="old")
    clock.advance(10)
    await publish(client, worker="w2", queue="new")
    new = await submit(client)
    clock.advance(10)
    await publish(client, worker="w3", queue="old")

    back = await submit(client)

    assert ("new", "old") == (new["queue"], back["queue"])
    [listed] = (await client.get("/tasks")).json()["tasks"]
    assert ({"queue": "old"}, 2) == (listed["defaults"], len(listed["signatures"]))


async def test_secrets_in_the_headers_of_a_task_are_not_shown(client: httpx2.AsyncClient) -> None:
    """As those of a job are not."""
    await publish(client, headers={"authorization": "Bearer 123456789", "trace": "1"})

    listed = (await client.get("/tasks")).text

    assert "123456789" not in listed
    assert '"trace":"1"' in listed


async def test_a_task_is_its_tenants(client: httpx2.AsyncClient, calls: Calls) -> None:
    """The same name elsewhere has other options, or none."""
    await publish(client, queue="mail")

    foreign = await calls("admin.b").post("/jobs", json={"task": "mail"})

    job = (await calls("admin.b").get(f"/jobs/{foreign.json()['id']}")).json()
    assert ("default", "settings") == (job["queue"], job["defaults"]["queue"])


async def test_a_key_for_some_queues_does_not_get_into_others_by_a_task(
    client: httpx2.AsyncClient, calls: Calls
) -> None:
    """The queue that counts for a key is the one that the job comes into."""
    limited = calls("producer.a@mail")
    refused = await limited.post("/jobs", json={"task": "mail"})
    await publish(client, queue="mail")

    taken = await limited.post("/jobs", json={"task": "mail"})

    assert [403, 201] == [refused.status_code, taken.status_code]


async def test_a_replayed_job_keeps_what_it_had(client: httpx2.AsyncClient) -> None:
    """A replay is the same job once more, also when its task has other options now."""
    await publish(client, queue="mail", priority=7)
    job = await submit(client)
    await client.delete(f"/jobs/{job['id']}")
    await publish(client, queue="other", priority=1)

    answer = await client.post(f"/jobs/{job['id']}/replay")

    again = await look(client, answer.json()["id"])
    assert ("mail", 7, job["defaults"]) == (again["queue"], again["priority"], again["defaults"])


async def test_what_somebody_changes_is_no_default_any_more(client: httpx2.AsyncClient) -> None:
    """The value came from who changed it."""
    await publish(client, **MAIL)
    job = await submit(client, delay=60)

    changed = (await client.patch(f"/jobs/{job['id']}", json={"queue": "other", "priority": 1})).json()

    assert ("other", 1) == (changed["queue"], changed["priority"])
    assert job["defaults"].keys() - {"queue", "priority"} == changed["defaults"].keys()


async def test_a_job_of_a_schedule_gets_what_its_task_has_when_it_is_made(client: httpx2.AsyncClient) -> None:
    """The schedule keeps what its author named; run by hand and backfilled jobs are no other."""
    body = {"name": "hourly", "cron": "0 * * * *", "task": "mail", "priority": 3}
    made = (await client.post("/schedules", json=body)).raise_for_status().json()
    before = (await client.post("/schedules/hourly/run")).json()["id"]
    await publish(client, **{**MAIL, "unique": False})

    after = (await client.post("/schedules/hourly/run")).json()["id"]
    filled = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:30:00Z"}
    backfill = (await client.post("/schedules/hourly/backfill", json=filled)).raise_for_status().json()
    async with asyncio.timeout(30):
        while len(jobs := (await client.get("/jobs", params={"queue": "mail"})).json()["jobs"]) < 2:
            pass

    assert backfill["id"]
    early = await look(client, before)
    assert ("default", 3, "settings") == (early["queue"], early["priority"], early["defaults"]["queue"])
    for job in [await look(client, after), *jobs]:
        assert ["mail", 3, *GIVEN[2:]] == [job[name] for name in SHOWN]
        assert ("task", None) == (job["defaults"]["queue"], job["defaults"].get("priority"))
    now = (await client.get("/schedules/hourly")).json()
    assert ("default", "mail", "task") == (made["queue"], now["queue"], now["defaults"]["queue"])
    assert "priority" not in now["defaults"]


async def test_a_patch_names_an_option_or_leaves_it_open_again(client: httpx2.AsyncClient) -> None:
    """Null: the task decides; a value: the schedule does."""
    await publish(client, **{**MAIL, "unique": False})
    await client.post("/schedules", json={"name": "hourly", "cron": "0 * * * *", "task": "mail"})

    named = (await client.patch("/schedules/hourly", json={"queue": "own", "max_attempts": 1})).json()
    left = (await client.patch("/schedules/hourly", json={"queue": None, "max_attempts": None})).json()

    assert ("own", 1) == (named["queue"], named["max_attempts"])
    assert not {"queue", "max_attempts"} & named["defaults"].keys()
    assert ("mail", 9, "task", "task") == (
        left["queue"],
        left["max_attempts"],
        left["defaults"]["queue"],
        left["defaults"]["max_attempts"],
    )


@pytest.mark.parametrize("option", list(defaults.FIELDS))
def test_every_option_has_a_bit_of_its_own(option: str) -> None:
    """Where a value came from is stored as bits, whose order must not change."""
    both = defaults.OPEN[option] | defaults.OPEN[option] << defaults.BY_TASK

    assert {option: "task"} == defaults.sources(both)
    assert both < 2**31


async def test_what_a_job_does_without_is_not_filled_in(client: httpx2.AsyncClient) -> None:
    """It is as if the task had none: the settings count, or nothing; and an option that there is not is refused."""
    await publish(client, **MAIL)

    job = await submit(client, without=["queue", "max_attempts", "unique_key", "unique_for", "start_deadline", "tags"])
    again = await submit(client, without=["unique_key"])
    odd = await client.post("/jobs", json={"task": "mail", "without": ["colour"]})

    assert ("default", 3, [], None) == (job["queue"], job["max_attempts"], job["tags"], job["start_deadline"])
    assert (90, "task") == (job["timeout_seconds"], job["defaults"]["timeout_seconds"])
    assert job["id"] != again["id"]
    assert 422 == odd.status_code
    assert set(defaults.FIELDS) == set(get_args(GivenOption))
