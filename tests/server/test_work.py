"""Jobs over HTTP, for workers: claim, heartbeat, reports, and who may speak of a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from tests.clock import TestClock
from tests.server.api import WORKER, claim, lease, state_of, submit, submit_and_claim
from tests.server.test_frame import exchange
from windlass.config import Settings
from windlass.engine.engine import Engine
from windlass.server.app import Door
from windlass.server.bodies import BodyBudget
from windlass.server.call import Reply

Calls = Callable[[str], httpx2.AsyncClient]


async def test_a_claim_hands_out_everything_a_worker_needs(client: httpx2.AsyncClient) -> None:
    """The job comes with its lease: fence, session, run id, length; a bare caller gets a session for each job."""
    job_id = await submit(client, payload={"x": 1}, timeout_seconds=90, labels=["gpu"], headers={"h": "1"}, tags=["t"])

    none = await client.post("/jobs/claim", json={"worker_id": WORKER})
    [job] = await claim(client, capabilities={"labels": ["gpu"]}, lease_seconds=120)

    assert (204, b"") == (none.status_code, none.content)
    assert (job_id, f"{job_id}.1", 1, 1) == (job["id"], job["run_id"], job["attempt"], job["fence"])
    assert ({"x": 1}, 90, 120, ["gpu"]) == (
        job["payload"],
        job["max_execution_time"],
        job["lease_seconds"],
        job["labels"],
    )
    assert ("a", "default", {"h": "1"}, ["t"]) == (job["tenant"], job["queue"], job["headers"], job["tags"])


async def test_a_claim_may_stand_in_the_query(client: httpx2.AsyncClient) -> None:
    """Plain fields may come in the query; GET is 405."""
    await submit(client, queue="mail")

    answer = await client.post(f"/jobs/claim?worker_id={WORKER}&count=1&queues=mail,other")
    get = await client.get(f"/jobs/claim?worker_id={WORKER}")

    assert 1 == len(answer.json()["jobs"])
    assert (405, "POST") == (get.status_code, get.headers["allow"])


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 0},
        {"count": 1001},
        {"wait": 21},
        {"wait": -1},
        {"lease_seconds": 0},
        {"queues": []},
        {"queues": ["a/b"]},
        {"worker_id": ""},
        {"worker_id": None},
        {"session": "x"},
        {"capabilities": {"tasks": [1]}},
        {"capabilities": {"a": [0] * 33}},
        {"capabilities": {"a": [[0] * 33]}},
        {"capabilities": {"a": [[[0]]]}},
        {"capabilities": {"labels": {"a": [0] * 33}}},
        {"capabilities": {f"a{number}": 1 for number in range(33)}},
        {"tenant": "b"},
    ],
)
async def test_a_claim_that_cannot_be_is_refused(client: httpx2.AsyncClient, fields: dict[str, Any]) -> None:
    """Counts, waits and names are bounded; unknown fields are refused."""
    answer = await client.post("/jobs/claim", json={"worker_id": WORKER, **fields})

    assert 422 == answer.status_code


@pytest.mark.parametrize(
    ("labels", "capabilities"),
    [
        (["gpu"], {"gpu": True}),
        (["gpu", "region=eu"], {"labels": ["gpu"], "region": "eu", "ssd": False, "cores": None}),
        (["gpu", "cores=8"], {"tasks": ["t"], "labels": {"gpu": True, "cores": 8}}),
        (["zone=a"], {"zone": ["a", "b"], "disk": {"size": 3}}),
        (["disk"], {"disk": {"size": 3}}),
        (["mem=1.5"], {"mem": [1.5, {"of": 2}, None], "x": [[1]]}),
    ],
)
async def test_capabilities_are_a_free_object(
    client: httpx2.AsyncClient, labels: list[str], capabilities: dict[str, Any]
) -> None:
    """P16, L17: what a worker says that it has are labels; a job that asks for more stays where it is."""
    await submit(client, labels=[*labels, "other"])
    job_id = await submit(client, labels=labels)

    jobs = await claim(client, capabilities=capabilities)

    assert [job_id] == [job["id"] for job in jobs]


@pytest.mark.parametrize("value", [False, None])
async def test_what_a_worker_has_not_is_no_label(client: httpx2.AsyncClient, value: Any) -> None:
    """P16: a capability that is false or null is none."""
    await submit(client, labels=["gpu"])

    assert [] == await claim(client, capabilities={"gpu": value})


async def test_a_long_poll_is_answered_when_work_appears(client: httpx2.AsyncClient) -> None:
    """A claim that waits gets the job the moment it is submitted."""
    waiting = asyncio.create_task(claim(client, wait=20))
    await asyncio.sleep(0)

    job_id = await submit(client)

    assert [job_id] == [job["id"] for job in await waiting]


async def test_who_hangs_up_gets_no_job(client: httpx2.AsyncClient, door: Door, engine: Engine) -> None:
    """A claimer that has gone leaves its place in the line; the job goes to the next one."""
    head = [(b"authorization", b"Bearer admin.a")]
    query = b"worker_id=gone&wait=20"
    scope = {"path": "/api/v1/jobs/claim", "raw_path": b"/api/v1/jobs/claim", "query_string": query, "headers": head}

    sent = await exchange(door, scope, [{"type": "http.disconnect"}])
    job = await submit_and_claim(client)

    assert [] == sent
    assert 1 == job["fence"]


async def test_a_registered_worker_claims_and_beats(client: httpx2.AsyncClient) -> None:
    """A session renews all its leases with one heartbeat, is told what to stop, what is lost and when to drain."""
    session = str(uuid4())
    opened = await client.post(
        "/workers/register",
        json={"worker_id": WORKER, "session": session, "lease_seconds": 60, "max_threads": 4, "tasks": ["t"]},
    )
    first, second = await submit(client), await submit(client)
    jobs = await claim(client, session=session)
    await client.delete(f"/jobs/{first}")
    held = [{"jobId": job["id"], "fence": job["fence"], "started": True} for job in jobs]

    beat = await client.post(
        "/workers/heartbeat",
        json={
            "workerId": WORKER,
            "session": session,
            "held": [*held, {"job_id": str(uuid4()), "fence": 1}],
            "busy_threads": 2,
            "timestamp": "2026-01-01T12:00:00Z",
        },
    )

    assert (60, 20, session) == tuple(opened.json()[k] for k in ("lease_seconds", "heartbeat_seconds", "session"))
    assert {session} == {job["session"] for job in jobs}
    assert (200, [first], 1, False) == (
        beat.status_code,
        beat.json()["cancel"],
        len(beat.json()["lost"]),
        beat.json()["drain"],
    )
    assert "running" == await state_of(client, second)


async def test_an_unknown_session_is_registered_on_the_way(client: httpx2.AsyncClient) -> None:
    """A claim or heartbeat of a session not known yet opens it."""
    await submit(client)

    [job] = await claim(client, session=str(uuid4()))
    beat = await client.post("/workers/heartbeat", json={"worker_id": "new", "session": str(uuid4()), "held": []})

    assert 1 == job["fence"]
    assert (200, "ok") == (beat.status_code, beat.json()["status"])


async def test_a_bare_worker_beats_for_one_job(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """Without a session the heartbeat is a sign of life, and renews the one job it names."""
    job = await submit_and_claim(client)
    clock.advance(20)

    beat = await client.post("/workers/heartbeat", json={"workerId": WORKER, "currentPageId": job["id"]})
    lost = await client.post("/workers/heartbeat", json={"workerId": WORKER, "currentPageId": str(uuid4())})
    shown = (await client.get(f"/jobs/{job['id']}")).json()

    assert ([], []) == (beat.json()["lost"], beat.json()["cancel"])
    assert 1 == len(lost.json()["lost"])
    assert ("running", "2026-01-01T12:00:50Z") == (shown["state"], shown["lease_expires_at"])


async def test_a_bare_worker_names_only_so_many_jobs(client: httpx2.AsyncClient) -> None:
    """Each costs as much as a session; who has more of them registers."""
    held = [{"job_id": str(uuid4()), "fence": 1} for _ in range(101)]

    refused = await client.post("/workers/heartbeat", json={"worker_id": WORKER, "held": held})
    taken = await client.post("/workers/heartbeat", json={"worker_id": WORKER, "held": held[:100]})

    assert [422, 200] == [refused.status_code, taken.status_code]
    assert 100 == len(taken.json()["lost"])


async def test_a_lease_is_renewed_by_its_holder_alone(client: httpx2.AsyncClient) -> None:
    """404 for another worker, 409 for another fence or session, 200 with the length of the lease for the holder."""
    job = await submit_and_claim(client)
    path = f"/jobs/{job['id']}/heartbeat"

    own = await client.post(path, json=lease(job, started=True))
    by_query = await client.post(f"{path}?worker_id={WORKER}")
    other = await client.post(path, json={**lease(job), "worker_id": "other"})
    fence = await client.post(path, json={**lease(job), "fence": 2})
    session = await client.post(path, json={**lease(job), "session": str(uuid4())})

    assert [200, 200, 404, 409, 409] == [a.status_code for a in (own, by_query, other, fence, session)]
    assert {"status": "ok", "cancel": False, "lease_seconds": 30, "drain": False, "refused": []} == own.json()


async def test_a_result_is_recorded_once(client: httpx2.AsyncClient) -> None:
    """Said again it is 200 with the same answer; further fields are metrics."""
    job = await submit_and_claim(client)
    path = f"/jobs/{job['id']}/complete"
    body = lease(job, result=[1, 2.50], files_processed=3, duration_seconds=1.5, region="eu", metrics={"x": 1})

    first = await client.post(path, json=body)
    again = await client.post(path, json=body)
    shown = (await client.get(f"/jobs/{job['id']}")).json()

    assert {"status": "completed"} == first.json()
    assert {"status": "completed", "already_applied": True} == again.json()
    metrics = {"x": 1, "files_processed": 3, "region": "eu", "duration_seconds": 1.5}
    assert ([1, 2.5], metrics) == (shown["result"], shown["metrics"])


@pytest.mark.parametrize("by", ["job", "worker"])
async def test_a_start_is_told_as_seconds_ago(client: httpx2.AsyncClient, clock: TestClock, by: str) -> None:
    """W6, G7: whatever word comes first, the database's clock decides when that was."""
    job = await submit_and_claim(client)
    claimed_at = clock.now()
    clock.advance(20)
    held = {"job_id": job["id"], "fence": job["fence"], "started": 17.5}

    if by == "job":
        answer = await client.post(f"/jobs/{job['id']}/heartbeat", json=lease(job, started=17.5))
    else:
        answer = await client.post("/workers/heartbeat", json={"worker_id": WORKER, "held": [held]})
    await client.post(f"/jobs/{job['id']}/complete", json=lease(job))
    shown = (await client.get(f"/jobs/{job['id']}")).json()

    assert 200 == answer.status_code
    began_s = (datetime.fromisoformat(shown["started_at"]) - claimed_at).total_seconds()
    assert began_s == pytest.approx(2.5, abs=0.5)
    assert shown["execution_time_ms"] == pytest.approx(17_500, abs=500)


@pytest.mark.parametrize("started", [-1, "17", 1e12, None])
async def test_a_start_that_cannot_be_is_refused(client: httpx2.AsyncClient, started: Any) -> None:
    """Seconds are not negative and not for ever."""
    job = await submit_and_claim(client)

    answer = await client.post(f"/jobs/{job['id']}/heartbeat", json=lease(job, started=started))

    assert 422 == answer.status_code


@pytest.mark.parametrize("extra", [{"a": [1]}, {"a": None}, {f"m{i}": 1 for i in range(33)}, {"metrics": [1]}])
async def test_metrics_are_numbers_and_texts(client: httpx2.AsyncClient, extra: dict[str, Any]) -> None:
    """At most 32 metrics, numbers and texts only."""
    job = await submit_and_claim(client)

    answer = await client.post(f"/jobs/{job['id']}/complete", json=lease(job, **extra))

    assert 422 == answer.status_code


async def test_rel_t7_only_the_holder_ends_a_lease(client: httpx2.AsyncClient) -> None:
    """Without a fence 422, by another worker 404, with another fence or session 409; nothing is changed by them."""
    job = await submit_and_claim(client)
    bodies = [
        {"worker_id": WORKER},
        {"fence": 1},
        {"worker_id": "other", "fence": 1},
        {**lease(job), "fence": 2},
        {**lease(job), "session": str(uuid4())},
        {**lease(job), "fence": 0},
        {**lease(job), "fence": 2**63},
    ]

    for verb in ("complete", "fail", "release"):
        answers = [await client.post(f"/jobs/{job['id']}/{verb}", json=body) for body in bodies]
        assert [422, 422, 404, 409, 409, 422, 422] == [answer.status_code for answer in answers]

    assert "assigned" == await state_of(client, job["id"])
    stale = await client.post(f"/jobs/{job['id']}/complete", json={**lease(job), "fence": 2})
    assert "stale_fence" == stale.json()["code"]


async def test_a_failure_says_when_again(client: httpx2.AsyncClient) -> None:
    """A failed attempt is retried later; a snoozed job too, without using one; a released one at once."""
    job = await submit_and_claim(client)
    failed = await client.post(f"/jobs/{job['id']}/fail", json=lease(job, error_message="x", traceback="t"))
    job = await submit_and_claim(client)
    released = await client.post(f"/jobs/{job['id']}/release", json=lease(job, reason="drain"))
    [job] = await claim(client)
    snoozed = await client.post(f"/jobs/{job['id']}/snooze", json=lease(job, delay="5m"))

    assert ("failed", "scheduled") == (failed.json()["status"], failed.json()["state"])
    assert failed.json()["next_run_at"] is not None
    assert ("released", "queued") == (released.json()["status"], released.json()["state"])
    assert ("snoozed", "scheduled") == (snoozed.json()["status"], snoozed.json()["state"])
    assert snoozed.json()["next_run_at"].startswith("2026-01-01T12:05:0")
    assert 2 == job["fence"]


async def test_reports_by_the_list_are_answered_one_by_one(client: httpx2.AsyncClient) -> None:
    """Applied, already, stale and unknown, in order; without a fence it is 422, naming the entry."""
    ids = [await submit(client) for _ in range(3)]
    jobs = {job["id"]: job for job in await claim(client)}
    done = {"kind": "complete", "job_id": ids[0], "fence": 1, "result": {"a": 1}}
    reports = [
        done,
        {"kind": "fail", "jobId": ids[1], "fence": 1, "error": "boom", "session": jobs[ids[1]]["session"]},
        {"kind": "release", "job_id": ids[2], "fence": 7},
        {"kind": "snooze", "job_id": str(uuid4()), "fence": 1, "delay": 5},
    ]

    answer = await client.post("/jobs/report", json={"worker_id": WORKER, "reports": reports})
    again = await client.post("/jobs/report", json={"worker_id": WORKER, "reports": [done]})
    del done["fence"]
    nobody = await client.post("/jobs/report", json={"worker_id": WORKER, "reports": [reports[1], done]})
    odd = await client.post("/jobs/report", json={"worker_id": WORKER, "reports": [{**done, "error": "x"}]})

    assert ["applied", "applied", "stale", "unknown"] == [a["status"] for a in answer.json()["answers"]]
    assert ["already"] == [a["status"] for a in again.json()["answers"]]
    assert "reports[1].fence" == nobody.json()["errors"][0]["field"]
    assert 422 == odd.status_code


async def test_a_drained_worker_gets_no_more(client: httpx2.AsyncClient, engine: Engine) -> None:
    """A session told to drain claims nothing and is told so by its heartbeat."""
    session = str(uuid4())
    await client.post("/workers/register", json={"worker_id": WORKER, "session": session})
    await engine.acts.drain(tenant="a", worker=WORKER)
    await submit(client)

    beat = await client.post("/workers/heartbeat", json={"worker_id": WORKER, "session": session, "held": []})

    assert beat.json()["drain"]
    assert [] == await claim(client, session=session)


async def test_an_ended_session_must_open_a_new_one(client: httpx2.AsyncClient, engine: Engine) -> None:
    """A heartbeat, claim or register of a session that has ended is 409."""
    session = uuid4()
    body = {"worker_id": WORKER, "session": str(session)}
    await client.post("/workers/register", json=body)
    await engine.acts.close(session, tenant="a", reason="test")

    answers = [
        await client.post(path, json=body) for path in ("/workers/heartbeat", "/workers/register", "/jobs/claim")
    ]

    assert [409, 409, 409] == [answer.status_code for answer in answers]


async def test_rel_l4_a_session_of_another_tenant_is_like_an_ended_one(
    calls: Callable[[str], httpx2.AsyncClient], engine: Engine
) -> None:
    """Register, heartbeat, claim and report say the same of both, so that nobody learns whose sessions there are."""
    own, foreign = uuid4(), uuid4()
    await calls("worker.a").post("/workers/register", json={"worker_id": WORKER, "session": str(own)})
    await engine.acts.close(own, tenant="a", reason="test")
    await calls("worker.b").post("/workers/register", json={"worker_id": WORKER, "session": str(foreign)})

    told = []
    for session in (own, foreign):
        body = {"worker_id": WORKER, "session": str(session)}
        asked = {
            "/workers/register": body,
            "/workers/heartbeat": body,
            "/jobs/claim": body,
            "/jobs/report": {**body, "claim": {}, "notes": [{"job_id": str(session), "fence": 1, "progress": 1}]},
        }
        answers = [await calls("worker.a").post(path, json=words) for path, words in asked.items()]
        told.append([(answer.status_code, answer.text.replace(str(session), "")) for answer in answers])

    assert told[0] == told[1]
    assert [409, 409, 409, 200] == [status for status, _ in told[0]]


async def test_rel_l14_a_key_for_some_queues_keeps_no_lease_of_others_alive(
    calls: Callable[[str], httpx2.AsyncClient],
) -> None:
    """Such a key may say nothing of a session that holds a job of another queue, by whatever call."""
    session = str(uuid4())
    body = {"worker_id": WORKER, "session": session}
    everything, limited = calls("admin.a"), calls("worker.a@mail")
    await everything.post("/workers/register", json=body)
    for queue in ("mail", "post"):
        await submit(everything, queue=queue)
    jobs = {queue: (await claim(everything, session=session, queues=[queue]))[0] for queue in ("mail", "post")}
    held = [{"job_id": job["id"], "fence": job["fence"], "progress": 1} for job in jobs.values()]

    async def said() -> list[int]:
        answers = [
            await limited.post("/workers/register", json=body),
            await limited.post("/workers/heartbeat", json={**body, "held": held}),
            await limited.post("/jobs/claim", json={**body, "queues": ["mail"]}),
            await limited.post("/jobs/report", json=body),
            await limited.post(f"/jobs/{uuid4()}/complete", json={**body, "fence": 1}),
            await limited.post(f"/jobs/{jobs['mail']['id']}/heartbeat", json={**body, "fence": jobs["mail"]["fence"]}),
            await limited.delete(f"/workers/{WORKER}", params={"session": session}),
        ]
        return [answer.status_code for answer in answers]

    refused = await said()
    await everything.post(f"/jobs/{jobs['post']['id']}/release", json=lease(jobs["post"]))
    allowed = await said()

    assert ([403] * 7, [200, 200, 204, 200, 404, 200, 204]) == (refused, allowed)


async def test_a_stopping_server_sends_claimers_away(client: httpx2.AsyncClient, engine: Engine) -> None:
    """A draining server answers claims with 503 and is not ready."""
    await engine.drain()

    answer = await client.post("/jobs/claim", json={"worker_id": WORKER})
    ready = await client.get("http://windlass.test/readyz")

    assert (503, "1") == (answer.status_code, answer.headers["retry-after"])
    assert (503, "unavailable") == (ready.status_code, ready.json()["status"])


async def test_the_answer_to_a_claim_is_bounded(client: httpx2.AsyncClient) -> None:
    """What does not fit into 8 MiB goes back at once, unharmed, and is claimed next."""
    large = [{"task": "t", "payload": "x" * 261_000} for _ in range(20)]
    for _ in range(2):
        await client.post("/jobs/batch", json={"jobs": large})

    first = await claim(client, count=40)
    second = await claim(client, count=40)

    assert 32 == len(first)
    assert 8 == len(second)
    assert {1} == {job["attempt"] for job in second}


class TestUnfenced:
    """`api.allow_unfenced` lets bare workers report without a fence."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Settings that allow it."""
        usual = Settings()
        return msgspec.structs.replace(usual, api=msgspec.structs.replace(usual.api, allow_unfenced=True))

    async def test_a_report_without_fence_is_for_the_current_lease(self, client: httpx2.AsyncClient) -> None:
        """It is taken only for the named worker's current lease, and counted."""
        job = await submit_and_claim(client)

        other = await client.post(f"/jobs/{job['id']}/complete", json={"worker_id": "other"})
        own = await client.post(f"/jobs/{job['id']}/complete", json={"worker_id": WORKER})

        assert [404, 200] == [other.status_code, own.status_code]
        assert "succeeded" == await state_of(client, job["id"])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_jobs_that_do_not_fit_into_an_answer_are_as_if_not_claimed(client: httpx2.AsyncClient) -> None:
    """What is beyond 8 MiB waits as before: no attempt, no release is counted against the job."""
    for _ in range(2):
        await client.post("/jobs/batch", json={"jobs": [{"task": "t", "payload": "x" * 250_000}] * 20})

    claimed = await claim(client, count=40)
    page = (await client.get("/jobs?state=queued&limit=50")).json()
    waiting = page["jobs"]

    assert (33, 7) == (len(claimed), page["total"])
    assert {(0, 0)} == {(job["attempt"], job["releases"]) for job in waiting}
    assert [] == (await client.get(f"/jobs/{waiting[0]['id']}/attempts")).json()["attempts"]


@pytest.mark.parametrize("by", ["claim", "report"])
async def test_rel_s8_a_claim_takes_what_its_answer_has_room_for(
    client: httpx2.AsyncClient, door: Door, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """S8: a key that leaves its answers unread gets fewer jobs, then none; those it does not get are unharmed."""
    budget = BodyBudget(4 << 20, 25)
    monkeypatch.setattr(door, "_answers", budget)
    sent: list[int] = []
    send_whole = Door._send_whole

    async def noted(self: Door, reply: Reply, *arguments: Any) -> None:
        sent.append(budget.used)
        await send_whole(self, reply, *arguments)

    async def ask() -> tuple[int, int]:
        if by == "claim":
            answer = await client.post("/jobs/claim", json=worker | {"count": 10})
        else:
            answer = await client.post("/jobs/report", json=worker | {"claim": {"count": 10}})
        return answer.status_code, len(answer.json().get("jobs", ()))

    worker = {"worker_id": WORKER, "session": str(uuid4())}
    await client.post("/workers/register", json=worker)
    await client.post("/jobs/batch", json={"jobs": [{"task": "t", "payload": "x" * 250_000}] * 10})
    monkeypatch.setattr(Door, "_send_whole", noted)

    with budget.share("a", "admin.a") as unread:
        unread.grow_to(budget.left(unread.owner) - 600_000)  # of one that was sent before
        some = await ask()
        counted = sent[-1] - unread.size
        unread.grow_to(unread.size + 600_000 - 100_000)
        none = await ask()
    [first, *_] = (await client.get("/jobs?state=queued&limit=10")).json()["jobs"]
    rest = await ask()

    assert [(200, 2), ((503, 0) if by == "claim" else (200, 0)), (200, 4)] == [some, none, rest]
    assert 500_000 <= counted <= 502_000
    assert (0, 0) == (first["attempt"], first["releases"])
    assert 0 == budget.used


async def test_a_worker_may_send_every_field_of_the_contract(client: httpx2.AsyncClient) -> None:
    """P16, P18, P32: progress and checkpoints are taken, and capabilities stand in the query too."""
    await submit(client)
    asked = await client.post(f'/jobs/claim?worker_id={WORKER}&capabilities={{"tasks":["t"]}}')
    [job] = asked.json()["jobs"]
    held = [{"job_id": job["id"], "fence": job["fence"], "progress": {"done": 1}}]

    beat = await client.post(f"/jobs/{job['id']}/heartbeat", json=lease(job, progress=0.5, checkpoint={"page": 3}))
    beats = await client.post("/workers/heartbeat", json={"worker_id": WORKER, "held": held})
    released = await client.post(f"/jobs/{job['id']}/release", json=lease(job, checkpoint=[1]))
    bad = await client.post(f"/jobs/claim?worker_id={WORKER}&capabilities=all")

    assert [200, 200, 200, 422] == [answer.status_code for answer in (beat, beats, released, bad)]
    assert job["checkpoint"] is None


async def test_a_job_is_put_off_by_a_delay_or_until_a_time(client: httpx2.AsyncClient) -> None:
    """P21: one of them is needed, and only one."""
    job = await submit_and_claim(client)

    for wrong in ({}, {"delay": 1, "until": "2026-01-01T13:00:00Z"}):
        assert 422 == (await client.post(f"/jobs/{job['id']}/snooze", json=lease(job, **wrong))).status_code


@pytest.mark.parametrize("word", ["canceled", "CANCELLED", "cancelled"])
async def test_outcomes_are_taken_in_every_spelling(client: httpx2.AsyncClient, word: str) -> None:
    """P3: in capitals, and with one l; in bodies and in filters."""
    job = await submit_and_claim(client)
    await client.delete(f"/jobs/{job['id']}")

    failed = await client.post(f"/jobs/{job['id']}/fail", json=lease(job, outcome=word, error="x"))
    listed = await client.get(f"/attempts?outcome={word}")

    assert (200, "cancelled") == (failed.status_code, failed.json()["state"])
    assert [job["id"]] == [attempt["job_id"] for attempt in listed.json()["attempts"]]


async def test_rel_t17_secrets_in_texts_are_not_shown(client: httpx2.AsyncClient) -> None:
    """T17: what the log hides, answers hide: errors, traces, reasons, metrics; a result is shown as it was told."""
    job = await submit_and_claim(client, max_attempts=1)
    told = {"error": "password=canary-7", "traceback": "http://u:canary-7@h", "metrics": {"token": "canary-7"}}
    await client.post(f"/jobs/{job['id']}/fail", json=lease(job, **told))
    done = await submit_and_claim(client)
    await client.post(f"/jobs/{done['id']}/complete", json=lease(done, result={"token": "own"}))

    paths = ["", "/attempts", "/events", "/report"]
    shown = [(await client.get(f"/jobs/{job['id']}{path}")).text for path in paths]
    shown += [(await client.get(path)).text for path in ("/attempts", "/dead-letter", "/jobs")]

    assert [] == [text for text in shown if "canary-7" in text]
    assert {"token": "own"} == (await client.get(f"/jobs/{done['id']}")).json()["result"]
