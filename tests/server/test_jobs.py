"""Jobs over HTTP, for users: submit, look, wait, list, cancel, change, pause, retry, replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import httpx2
import msgspec
import pytest

from tests.clock import TestClock
from tests.server.api import claim, lease, state_of, submit, submit_and_claim
from windlass.config import Settings
from windlass.queue import views

Calls = Callable[[str], httpx2.AsyncClient]


async def test_a_submitted_job_is_stored_as_it_came(client: httpx2.AsyncClient) -> None:
    """201 with id, status and next run; the job shows every field, the payload byte for byte."""
    payload = b'{"b": 1.0,  "a":[1e2]}'
    body = b'{"task":"mail","payload":' + payload + b',"queue":"q","priority":5,"max_retries":4,"tags":["x"]}'

    answer = await client.post("/jobs", content=body, headers={"Content-Type": "application/json"})
    job = await client.get(f"/jobs/{answer.json()['id']}")

    assert 201 == answer.status_code
    assert ("queued", "queued") == (answer.json()["status"], answer.json()["state"])
    assert payload in job.content
    shown = job.json()
    assert ("mail", "mail", "q", 5, ["x"]) == tuple(shown[k] for k in ("name", "task", "queue", "priority", "tags"))
    assert (5, 4, 0, 0, None) == tuple(
        shown[k] for k in ("max_attempts", "max_retries", "attempt_number", "retry_count", "run_id")
    )
    assert "session" not in shown


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"delay": 60}, "scheduled"),
        ({"delay": "1h30m"}, "scheduled"),
        ({"run_at": "2030-01-01T00:00:00Z"}, "scheduled"),
        ({"scheduledAt": "2030-01-01T01:00:00+01:00"}, "scheduled"),
        ({"run_at": "1999-01-01T00:00:00Z"}, "queued"),
        ({"retry_policy": "stepped"}, "queued"),
        ({"retry_policy": {"backoff": "fixed", "base": "5s", "by_error": {"timeout": {"kind": "table"}}}}, "queued"),
        ({"timeout_seconds": None, "headers": {"a": "b"}, "labels": ["gpu"]}, "queued"),
    ],
)
async def test_times_and_options_of_a_job(client: httpx2.AsyncClient, fields: dict[str, object], state: str) -> None:
    """Spans are seconds or texts, times have a zone, the past means now, older names are taken."""
    answer = await client.post("/jobs", json={"task": "t", **fields})

    assert (201, state) == (answer.status_code, answer.json().get("state"))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"task": None}, "task"),
        ({"task": "a/b"}, "task"),
        ({"task": ""}, "task"),
        ({"queue": "a,b"}, "queue"),
        ({"queue": "\x00"}, "queue"),
        ({"priority": 128}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"delay": -1}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "delay"),
        ({"run_at": "2030-01-01T00:00:00"}, "run_at"),
        ({"run_at": "2030-01-01T24:00:00Z"}, "run_at"),
        ({"run_at": "infinity"}, "run_at"),
        ({"run_at": "0001-01-01T00:00:00+14:00"}, "run_at"),
        ({"run_at": "9999-12-31T23:59:59-14:00"}, "run_at"),
        ({"run_at": "294277-01-01T00:00:00Z"}, "run_at"),
        ({"max_attempts": 3, "max_retries": 3}, "max_retries"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"retry_policy": "never"}, "retry_policy"),
        ({"retry_policy": {"kind": "fixed", "colour": 1}}, "retry_policy.colour"),
        ({"schedule": "* * * *"}, "schedule"),
        ({"depends_on": []}, "depends_on"),
        ({"tenant": "b"}, "tenant"),
        ({"id": str(uuid4())}, "id"),
        ({"payload": "x" * 262_144}, "payload"),
        ({"labels": ["x"] * 33}, "labels"),
        ({"idempotency_key": "x" * 513}, "idempotency_key"),
    ],
)
async def test_a_job_that_cannot_be_is_refused_with_its_field(
    client: httpx2.AsyncClient, fields: dict[str, object], field: str
) -> None:
    """422 (413 for too large a payload) names the field; what does not exist yet is unknown."""
    answer = await client.post("/jobs", json={"task": "t", **fields})

    assert (413 if field == "payload" else 422) == answer.status_code
    assert [field] == [error["field"] for error in answer.json()["errors"]]


async def test_an_idempotency_key_names_the_work(client: httpx2.AsyncClient) -> None:
    """Body and header are the same key; said again it is 200 with the first job, with another body 422."""
    first = await client.post("/jobs", json={"task": "t", "idempotency_key": "k"})
    again = await client.post("/jobs", json={"task": "t"}, headers={"Idempotency-Key": "k"})
    other = await client.post("/jobs", json={"task": "u"}, headers={"Idempotency-Key": "k"})
    both = await client.post("/jobs", json={"task": "t", "idempotency_key": "k"}, headers={"Idempotency-Key": "l"})

    assert [201, 200, 422, 422] == [a.status_code for a in (first, again, other, both)]
    assert (first.json()["id"], True) == (again.json()["id"], again.json()["duplicate"])
    assert "key_reused" == other.json()["code"]


async def test_a_batch_is_stored_whole_or_not_at_all(client: httpx2.AsyncClient) -> None:
    """Answers in order; one bad job refuses the batch and is named by its index."""
    good = await client.post("/jobs/batch", json={"jobs": [{"task": "a"}, {"name": "b", "delay": 5}]})
    bad = await client.post("/jobs/batch", json={"jobs": [{"task": "a"}, {"task": "b", "labels": ["a/b"]}]})
    early = {"task": "b", "run_at": "1960-01-01T00:00:00Z"}
    worse = await client.post("/jobs/batch", json={"jobs": [{"task": "a"}, early]})
    empty = await client.post("/jobs/batch", json={"jobs": []})

    assert ["queued", "scheduled"] == [job["state"] for job in good.json()["jobs"]]
    assert [422, 422, 422] == [bad.status_code, worse.status_code, empty.status_code]
    assert "jobs[1].labels[0]" == bad.json()["errors"][0]["field"]
    assert "jobs[1].run_at" == worse.json()["errors"][0]["field"]
    assert 2 == len((await client.get("/jobs")).json()["jobs"])


async def test_vocabularies_change_the_status_and_not_the_state(client: httpx2.AsyncClient) -> None:
    """`status` is told in the words asked for; filters take the names of all of them."""
    job_id = await submit(client)

    words = [(await client.get(f"/jobs/{job_id}?vocabulary={v}")).json()["status"] for v in "abcd"]
    listed = [
        len((await client.get(f"/jobs?status={name}")).json()["jobs"])
        for name in ("PENDING", "queued", "Queued", "running", "failed", "queued,dead")
    ]

    assert ["PENDING", "queued", "queued", "queued"] == words
    assert [1, 1, 1, 0, 0, 1] == listed
    assert 422 == (await client.get("/jobs?status=sleepy")).status_code


async def test_a_list_goes_by_pages(client: httpx2.AsyncClient) -> None:
    """Newest first; by cursor or by page; combined filters."""
    ids = [await submit(client, queue="q") for _ in range(5)]
    await submit(client, queue="other")

    first = (await client.get("/jobs?queue=q&limit=2")).json()
    second = (await client.get(f"/jobs?queue=q&limit=2&cursor={first['next_cursor']}")).json()
    third = (await client.get("/jobs?queue=q&limit=2&page=3")).json()
    beyond = (await client.get("/jobs?queue=q&limit=2&page=4")).json()

    assert [ids[4], ids[3]] == [job["id"] for job in first["jobs"]]
    assert [ids[2], ids[1]] == [job["id"] for job in second["jobs"]]
    assert ([ids[0]], None) == ([job["id"] for job in third["jobs"]], third["next_cursor"])
    assert [] == beyond["jobs"]


async def test_a_waiting_reader_is_answered_when_the_job_ends(client: httpx2.AsyncClient) -> None:
    """`?wait=` answers with the result as soon as it is there, or with the job as it is."""
    job = await submit_and_claim(client)
    early = await client.get(f"/jobs/{job['id']}?wait=0.01")
    waiting = asyncio.create_task(client.get(f"/jobs/{job['id']}?wait=20"))
    await asyncio.sleep(0)

    await client.post(f"/jobs/{job['id']}/complete", json=lease(job, result={"x": 1}))
    ended = (await waiting).json()

    assert "assigned" == early.json()["state"]
    assert ("succeeded", {"x": 1}) == (ended["state"], ended["result"])


async def test_cancel_of_a_waiting_job_is_done_at_once(client: httpx2.AsyncClient) -> None:
    """200 cancelled, said again the same; a finished job is 409 job_already_finished."""
    job_id = await submit(client)

    first = await client.delete(f"/jobs/{job_id}")
    again = await client.post(f"/jobs/{job_id}/cancel", json={"reason": "twice"})

    assert [(200, "cancelled"), (200, "cancelled")] == [(a.status_code, a.json()["status"]) for a in (first, again)]


async def test_cancel_of_a_running_job_is_told_to_its_worker(client: httpx2.AsyncClient) -> None:
    """202 cancelling; the worker confirms by a fail of outcome cancelled; afterwards 409 for a finished one."""
    job = await submit_and_claim(client)
    other = await submit_and_claim(client)
    await client.post(f"/jobs/{other['id']}/complete", json=lease(other))

    asked = await client.delete(f"/jobs/{job['id']}?reason=why")
    beat = await client.post(f"/jobs/{job['id']}/heartbeat", json=lease(job))
    waiting = asyncio.create_task(client.delete(f"/jobs/{job['id']}?wait=20"))
    await asyncio.sleep(0)
    await client.post(f"/jobs/{job['id']}/fail", json=lease(job, outcome="cancelled"))
    finished = await client.delete(f"/jobs/{other['id']}")

    assert (202, "cancelling") == (asked.status_code, asked.json()["status"])
    assert beat.json()["cancel"]
    assert (200, "cancelled") == ((await waiting).status_code, (await waiting).json()["status"])
    assert (409, "job_already_finished") == (finished.status_code, finished.json()["code"])


async def test_change_pause_resume(client: httpx2.AsyncClient) -> None:
    """A waiting job changes its queue, priority and time; a leased one does not (409)."""
    job_id = await submit(client)

    changed = await client.patch(f"/jobs/{job_id}", json={"priority": 9, "queue": "fast"})
    paused = await client.post(f"/jobs/{job_id}/pause", json={"reason": "later"})
    none = await claim(client, queues=["fast"])
    resumed = await client.post(f"/jobs/{job_id}/resume")
    [job] = await claim(client, queues=["fast"])
    late = await client.patch(f"/jobs/{job_id}", json={"priority": 1})

    assert (200, 9, "fast") == (changed.status_code, changed.json()["priority"], changed.json()["queue"])
    assert (True, False) == (paused.json()["paused"], resumed.json()["paused"])
    assert ([], job_id) == (none, job["id"])
    assert 409 == late.status_code


async def test_retry_and_replay(client: httpx2.AsyncClient) -> None:
    """A dead job runs again under its id, perhaps with another payload; a finished one is replayed as a new one."""
    job = await submit_and_claim(client, max_attempts=1)
    early = await client.post(f"/jobs/{job['id']}/retry")
    failed = await client.post(f"/jobs/{job['id']}/fail", json=lease(job, error="no"))
    dead = (await client.get("/dead-letter")).json()["jobs"]

    retried = await client.post(f"/dead-letter/{job['id']}/retry", json={"payload": {"n": 2}, "reason": "fixed"})
    [again] = await claim(client)
    await client.post(f"/jobs/{again['id']}/complete", json=lease(again))
    replayed = await client.post(f"/jobs/{job['id']}/replay")

    assert (409, "dead") == (early.status_code, failed.json()["state"])
    assert [(job["id"], "no", "no")] == [(d["id"], d["error_message"], d["failure_reason"]) for d in dead]
    assert (200, "queued") == (retried.status_code, retried.json()["state"])
    assert ({"n": 2}, job["fence"] + 1) == (again["payload"], again["fence"])
    assert 201 == replayed.status_code
    assert replayed.json()["id"] != job["id"]


async def test_attempts_and_events_tell_the_story(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """Every ended attempt and everything that happened can be read."""
    job = await submit_and_claim(client)
    clock.advance(2)
    await client.post(f"/jobs/{job['id']}/fail", json=lease(job, error="boom", error_type="x", duration_seconds=1))

    attempts = (await client.get(f"/jobs/{job['id']}/attempts")).json()["attempts"]
    events = (await client.get(f"/jobs/{job['id']}/events")).json()["events"]

    assert [("failed", "boom", 1000, f"{job['id']}.1")] == [
        (a["outcome"], a["error_message"], a["execution_time_ms"], a["run_id"]) for a in attempts
    ]
    assert {"submitted", "assigned", "failed"} <= {event["kind"] for event in events}


async def test_dead_letters_are_purged_and_retried_by_the_list(client: httpx2.AsyncClient) -> None:
    """Many at once, by id or by queue; each is answered; 204 for one, 409 for one that is not dead."""
    jobs = [await submit_and_claim(client, max_attempts=1) for _ in range(3)]
    for job in jobs:
        await client.post(f"/jobs/{job['id']}/fail", json=lease(job, retryable=False))
    ids = [job["id"] for job in jobs]
    live = await submit(client, queue="elsewhere")

    retried = await client.post("/dead-letter/retry", json={"ids": [ids[0], live, str(uuid4())]})
    one = await client.delete(f"/dead-letter/{ids[1]}")
    wrong = await client.delete(f"/dead-letter/{live}")
    purged = await client.post("/dead-letter/purge", json={"queue": "default"})

    assert ["retried", "conflict", "not_found"] == [answer["status"] for answer in retried.json()["jobs"]]
    assert [204, 409] == [one.status_code, wrong.status_code]
    assert (1, [ids[2]]) == (purged.json()["count"], [answer["id"] for answer in purged.json()["jobs"]])
    assert "queued" == await state_of(client, ids[0])


async def test_rel_t5_foreign_and_unknown_ids_answer_the_same_bytes(calls: Calls) -> None:
    """Another tenant's job is like one that never was, in every route of a job."""
    foreign = await submit(calls("admin.b"))
    unknown = str(uuid4())
    client = calls("admin.a")
    body = {"worker_id": "w", "fence": 1}

    for method, path, sent in (
        ("GET", "", None),
        ("GET", "/attempts", None),
        ("GET", "/events", None),
        ("DELETE", "", None),
        ("PATCH", "", {"priority": 1}),
        ("POST", "/pause", {}),
        ("POST", "/resume", {}),
        ("POST", "/retry", {}),
        ("POST", "/replay", {}),
        ("POST", "/heartbeat", body),
        ("POST", "/complete", body),
        ("POST", "/fail", body),
        ("POST", "/release", body),
        ("POST", "/snooze", {**body, "delay": 1}),
    ):
        there = await client.request(method, f"/jobs/{foreign}{path}", json=sent)
        nowhere = await client.request(method, f"/jobs/{unknown}{path}", json=sent)

        assert (404, 404) == (there.status_code, nowhere.status_code), (method, path)
        assert nowhere.text == there.text.replace(foreign, unknown), (method, path)


async def test_names_that_look_alike_are_not_the_same(calls: Calls) -> None:
    """Case twins and NFC/NFD twins name different things; nothing is folded."""
    client = calls("admin.a")
    twins = ["mail", "Mail", "m\u00e4il", "ma\u0308il", "m\u0430il"]

    for name in twins:
        await client.post("/jobs", json={"task": "t", "queue": name})

    listed = [queue["name"] for queue in (await client.get("/queues")).json()["queues"]]
    assert sorted(twins) == sorted(listed)


async def test_rel_t17_secrets_in_arguments_are_not_shown(client: httpx2.AsyncClient) -> None:
    """What stands under a secret name is hidden from readers, at any depth; its worker gets it as it was sent."""
    payload = {"user": "ann", "auth": [{"API-Key": "hunter2"}], "password": "hunter2"}
    job_id = await submit(client, payload=payload, headers={"authorization": "hunter2"})

    shown = await client.get(f"/jobs/{job_id}")
    listed = await client.get("/jobs")
    [job] = await claim(client)

    assert "ann" == shown.json()["payload"]["user"]
    assert "hunter2" not in shown.text + listed.text
    assert payload == job["payload"]


class TestSettings:
    """What the settings say of jobs that do not say it themselves."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Settings other than the usual ones."""
        usual = Settings()
        jobs = msgspec.structs.replace(
            usual.jobs, max_attempts=7, timeout_seconds=60, priority=3, max_payload_bytes=100, max_result_bytes=50
        )
        retry = msgspec.structs.replace(usual.retry, kind="fixed", base_seconds=90, jitter=0)
        server = msgspec.structs.replace(usual.server, vocabulary="a")
        return msgspec.structs.replace(usual, jobs=jobs, retry=retry, server=server)

    async def test_jobs_get_the_usual_figures(self, client: httpx2.AsyncClient) -> None:
        """Attempts, time-out, priority, retry policy and vocabulary come from the settings."""
        job = await submit_and_claim(client)
        failed = await client.post(f"/jobs/{job['id']}/fail", json=lease(job))
        shown = (await client.get(f"/jobs/{job['id']}")).json()

        assert (7, 60, 3, "PENDING") == tuple(
            shown[k] for k in ("max_attempts", "timeout_seconds", "priority", "status")
        )
        assert failed.json()["next_run_at"].startswith("2026-01-01T12:01:3")

    async def test_payloads_and_results_have_the_usual_limits(self, client: httpx2.AsyncClient) -> None:
        """Over them it is 413, naming the field."""
        large = await client.post("/jobs", json={"task": "t", "payload": "x" * 99})
        job = await submit_and_claim(client, payload="x" * 98)
        result = await client.post(f"/jobs/{job['id']}/complete", json=lease(job, result="x" * 49))

        assert [413, 413] == [large.status_code, result.status_code]
        assert ["payload", "result"] == [a.json()["errors"][0]["field"] for a in (large, result)]


@pytest.mark.one_kind
async def test_what_there_is_of_a_job_comes_in_pages(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5: attempts and events have cursors, and a report says where its own go on."""
    monkeypatch.setattr(views, "LIST_BYTES", 3000)
    job_id = await submit(client)
    for _ in range(3):
        [job] = await claim(client)
        released = await client.post(f"/jobs/{job_id}/release", json=lease(job, reason="r" * 2000))
        assert 200 == released.status_code, released.text

    report = (await client.get(f"/jobs/{job_id}/report")).json()
    pages = [(await client.get(f"/jobs/{job_id}/attempts")).json()]
    while pages[-1]["next_cursor"] is not None:
        pages.append((await client.get(f"/jobs/{job_id}/attempts?cursor={pages[-1]['next_cursor']}")).json())
    events = (await client.get(f"/jobs/{job_id}/events?limit=2")).json()
    rest = (await client.get(f"/jobs/{job_id}/events?cursor={events['next_cursor']}")).json()

    assert [[1], [2], [3]] == [[attempt["fence"] for attempt in page["attempts"]] for page in pages]
    assert (1, "1_1_0", None) == (len(report["attempts"]), report["attempts_cursor"], report["timeline_cursor"])
    by_fence = (await client.get(f"/jobs/{job_id}/attempts?cursor=2")).json()
    assert pages[2] == by_fence
    assert report["timeline"] == events["events"] + rest["events"]
    refused = (
        "attempts?limit=0",
        "events?cursor=x",
        "attempts?cursor=x",
        "attempts?cursor=1_1",
        "attempts?cursor=1_1_2",
    )
    assert {422} == {(await client.get(f"/jobs/{job_id}/{path}")).status_code for path in refused}
    assert [] == (await client.get(f"/jobs/{job_id}/attempts?cursor=9999999999_99999_1")).json()["attempts"]


@pytest.mark.one_kind
async def test_pages_are_passed_over_by_their_ids(client: httpx2.AsyncClient) -> None:
    """H4: for a page by its number nothing of the jobs before it is read, and its total is never less than it shows."""
    ids = [await submit(client, payload="x" * 1000) for _ in range(7)]

    pages = [(await client.get(f"/jobs?limit=2&page={number}")).json() for number in range(1, 6)]

    assert ids[::-1] == [job["id"] for page in pages for job in page["jobs"]]
    assert [2, 2, 2, 1, 0] == [len(page["jobs"]) for page in pages]
    assert {7} == {page["total"] for page in pages}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_rel_t9_a_list_is_bounded_in_bytes(client: httpx2.AsyncClient) -> None:
    """T9: a page of large jobs ends at 256 KiB, and its cursor goes on: every job is listed once."""
    await client.post("/jobs/batch", json={"jobs": [{"task": "t", "payload": "x" * 15_000}] * 40})

    pages = [(await client.get("/jobs?limit=500")).json()]
    while (cursor := pages[-1]["next_cursor"]) is not None:
        pages.append((await client.get(f"/jobs?limit=500&cursor={cursor}")).json())

    assert [17, 17, 6] == [len(page["jobs"]) for page in pages]
    assert 40 == len({job["id"] for page in pages for job in page["jobs"]})
    assert 40 == pages[0]["total"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_rel_t9_no_payload_takes_long_to_show(client: httpx2.AsyncClient) -> None:
    """T9: a payload made to be slow to redact is shown at once."""
    job_id = await submit(client, payload="password" * 31_000)

    async with asyncio.timeout(5):
        answer = await client.get(f"/jobs/{job_id}")

    assert 200 == answer.status_code


async def test_a_change_of_nothing_is_refused(client: httpx2.AsyncClient) -> None:
    """422, and the audit has no entry for it."""
    job_id = await submit(client)

    answer = await client.patch(f"/jobs/{job_id}", json={"reason": "why"})

    assert 422 == answer.status_code
    assert [] == (await client.get("/audit")).json()["entries"]


async def test_stale_stands_alone(client: httpx2.AsyncClient) -> None:
    """In a list of states a comma means either; stale is no state, so it is refused there and taken by itself."""
    both = await client.get("/jobs?status=stale,dead")
    alone = await client.get("/jobs?status=stale")

    assert [422, 200] == [both.status_code, alone.status_code]
