"""What people see and do over HTTP besides jobs: workers, queues, the whole, tenants, keys, duties, the audit."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from uuid import uuid4

import httpx2
import pytest

from tests.clock import TestClock
from tests.engine.test_figures import SlowFigure
from tests.queue.tenantdata import files_with
from tests.server.api import WORKER, Json, claim, lease, submit, submit_and_claim
from windlass.clock import to_us
from windlass.db.sqlite import SqliteDatabase
from windlass.engine.engine import Engine
from windlass.queue import views

Calls = Callable[[str], httpx2.AsyncClient]


async def test_the_status_counts_what_waits_and_runs(client: httpx2.AsyncClient) -> None:
    """P37: pending is due and claimable; also at the root; a registered idle worker is active."""
    await submit_and_claim(client)
    await submit(client)
    await submit(client, delay=60)
    await client.post("/workers/register", json={"worker_id": "idle-1", "session": str(uuid4())})

    below = (await client.get("/admin/queue/status")).json()
    root = (await client.get("http://windlass.test/admin/queue/status")).json()

    assert below == root
    assert (1, 1, 1, 0) == tuple(below[k] for k in ("pending", "in_progress", "scheduled", "failed_24h"))
    assert 2 == below["active_workers"]
    assert {"completed_24h", "average_wait_seconds"} <= set(below)


async def test_workers_are_listed_with_what_they_hold(client: httpx2.AsyncClient) -> None:
    """A worker shows its threads, jobs and counts, never its session."""
    session = str(uuid4())
    await client.post(
        "/workers/register",
        json={"worker_id": WORKER, "session": session, "max_threads": 2, "tasks": ["t", "u"], "labels": ["gpu"]},
    )
    job_id = await submit(client)
    [job] = await claim(client, session=session)
    held = [{"job_id": job_id, "fence": job["fence"]}]
    await client.post(
        "/workers/heartbeat",
        json={"worker_id": WORKER, "session": session, "held": held, "busy_threads": 1, "completed": 3, "failed": 1},
    )

    listed = (await client.get("/workers")).json()["workers"]
    one = (await client.get(f"/workers/{WORKER}")).json()
    words = (await client.get("/workers/status?vocabulary=d")).json()["workers"]

    assert [one] == listed
    assert ("active", 2, 1, 1, [job_id]) == tuple(
        one[k] for k in ("status", "total_threads", "busy_threads", "available_threads", "current_jobs")
    )
    assert (3, 1, ["t", "u"], ["gpu"]) == tuple(one[k] for k in ("jobs_completed", "jobs_failed", "tasks", "labels"))
    assert session not in str(listed)
    assert (WORKER, "active", job_id, 3, 1) == tuple(
        words[0][k] for k in ("id", "status", "currentPage", "pagesCompleted", "pagesFailed")
    )
    assert 404 == (await client.get("/workers/nobody")).status_code


async def test_the_status_of_every_worker_is_told(client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4: long lists of tasks, which it does not show, push no worker out of the answer."""
    monkeypatch.setattr(views, "LIST_BYTES", 1000)
    names = [f"worker-{number}" for number in range(4)]
    for name in names:
        asked = {"worker_id": name, "session": str(uuid4()), "tasks": ["t" * 200, "u" * 200, "v" * 200]}
        await client.post("/workers/register", json=asked)

    told = (await client.get("/workers/status")).json()["workers"]

    assert names == [worker["id"] for worker in told]


async def test_a_worker_is_drained_and_removed(calls: Calls) -> None:
    """202 for a drain; 204 for a removal, after which its jobs are ready again; a work key needs the session."""
    client, worker = calls("admin.a"), calls("worker.a")
    session = str(uuid4())
    await client.post("/workers/register", json={"worker_id": WORKER, "session": session})
    await submit(client)
    await claim(client, session=session)

    drained = await client.post(f"/workers/{WORKER}/drain", json={"reason": "deploy"})
    refused = await worker.delete(f"/workers/{WORKER}")
    wrong = await worker.delete(f"/workers/{WORKER}?session={uuid4()}")
    removed = await worker.delete(f"/workers/{WORKER}?session={session}")

    assert (202, "draining", 1) == (drained.status_code, drained.json()["status"], drained.json()["sessions"])
    assert [403, 404, 204] == [refused.status_code, wrong.status_code, removed.status_code]
    assert "stopped" == (await client.get(f"/workers/{WORKER}")).json()["status"]
    assert 1 == len(await claim(client))


async def test_queues_have_limits_order_and_pauses(client: httpx2.AsyncClient) -> None:
    """PUT sets exactly what it says; a paused queue hands out nothing and says who paused it."""
    unknown = await client.get("/queues/mail")
    put = await client.put("/queues/mail", json={"order": "fifo", "max_running": 1, "rate_per_second": 5, "burst": 2})
    paused = await client.post("/queues/mail/pause", json={"reason": "mend", "until": "2026-01-01T13:00:00Z"})
    await submit(client, queue="mail")
    none = await claim(client, queues=["mail"])
    resumed = await client.post("/queues/mail/resume")
    again = await client.put("/queues/mail", json={})

    assert [404, 200, 200] == [unknown.status_code, put.status_code, paused.status_code]
    assert ("fifo", 1, 5.0, 2) == tuple(put.json()[k] for k in ("order", "max_running", "rate_per_second", "burst"))
    assert ("mend", "admin.a", "queue") == tuple(paused.json()["pause"][k] for k in ("reason", "actor", "of"))
    assert ([], False) == (none, resumed.json()["paused"])
    assert ("priority", None, 1) == tuple(again.json()[k] for k in ("order", "max_running", "pending"))
    assert 1 == len(await claim(client, queues=["mail"]))
    assert ["mail"] == [queue["name"] for queue in (await client.get("/queues")).json()["queues"]]
    assert 422 == (await client.put("/queues/mail", json={"rate_per_second": 0})).status_code


async def test_autoscalers_are_told_how_many_workers(client: httpx2.AsyncClient) -> None:
    """By the policy of the settings, within its bounds; of the tenant and of one queue."""
    for _ in range(5):
        await submit(client, queue="mail")

    whole = await client.get("/autoscale")
    queue = await client.get("/queues/mail/scale")
    other = await client.get("/queues/none/scale")

    assert (5, 5, 5.0) == tuple(whole.json()[k] for k in ("desired_workers", "pending", "queue_depth_per_worker"))
    assert whole.json() == queue.json()
    assert 404 == other.status_code


async def test_attempts_are_listed_over_all_jobs(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """Newest first, by filters, in pages; the report of a job tells its waits."""
    jobs = []
    for _ in range(3):
        job = await submit_and_claim(client, task="t", max_attempts=1)
        clock.advance(5)
        await client.post(f"/jobs/{job['id']}/fail", json=lease(job, error="x"))
        jobs.append(job["id"])

    first = (await client.get("/attempts?limit=2&outcome=failed")).json()
    second = (await client.get(f"/runs?limit=2&cursor={first['next_cursor']}")).json()
    none = (await client.get("/attempts?worker_id=other")).json()
    report = (await client.get(f"/jobs/{jobs[0]}/report")).json()

    assert [jobs[2], jobs[1]] == [attempt["job_id"] for attempt in first["attempts"]]
    assert [jobs[0]] == [attempt["job_id"] for attempt in second["attempts"]]
    assert ([], None) == (none["attempts"], none["next_cursor"])
    assert ("dead", "dead", 1) == (report["state"], report["outcome"], len(report["attempts"]))
    # SQLite's clock may begin up to a second ahead.
    assert 4000 <= report["waits"]["assigned_ms"] + report["waits"]["running_ms"] <= 5000


async def test_a_list_of_attempts_goes_on_from_every_cursor_it_gave(
    client: httpx2.AsyncClient, clock: TestClock
) -> None:
    """P40: also from one that stands for a time at which nothing was found, until the last page."""
    job = await submit_and_claim(client, task="t", max_attempts=1)
    await client.post(f"/jobs/{job['id']}/fail", json=lease(job, error="x"))
    ahead_us = to_us(clock.now() + timedelta(days=200))
    cursor: str | None = f"{ahead_us}_00000000-0000-0000-0000-000000000000_1"
    found: list[str] = []
    page_count = 0

    while cursor is not None and page_count < 20:
        answer = await client.get(f"/attempts?cursor={cursor}")
        assert 200 == answer.status_code, answer.text
        found += [attempt["job_id"] for attempt in answer.json()["attempts"]]
        cursor = answer.json()["next_cursor"]
        page_count += 1

    beyond = await client.get("/attempts?cursor=1_00000000-0000-0000-0000-000000000000_9999999999")
    assert ([job["id"]], None) == (found, cursor)
    assert page_count > 1
    assert (200, []) == (beyond.status_code, beyond.json()["attempts"])


async def test_acts_are_kept_in_the_audit(calls: Calls) -> None:
    """One entry for each act that succeeded: who, from where, what, why; none for a refused one."""
    client = calls("admin.a")
    job_id = await submit(client)
    headers = {"X-Request-Id": "req-1"}

    await client.post(f"/jobs/{job_id}/pause", json={"reason": "wait"}, headers=headers)
    await client.delete(f"/jobs/{job_id}?reason=enough")
    await client.delete(f"/jobs/{uuid4()}")
    entries = (await client.get("/audit")).json()["entries"]
    foreign = (await calls("admin.b").get("/audit")).json()["entries"]
    filtered = (await calls("root").get("/audit?action=job.pause")).json()["entries"]

    assert [("job.cancel", job_id, "enough"), ("job.pause", job_id, "wait")] == [
        (entry["action"], entry["subject"], entry["reason"]) for entry in entries
    ]
    assert ("admin.a (admin.a)", "127.0.0.1", "req-1", "a") == tuple(
        entries[1][k] for k in ("actor", "address", "request_id", "tenant")
    )
    assert [] == foreign
    assert [entries[1]] == filtered


async def entry_of(client: httpx2.AsyncClient, action: str) -> tuple[Json | None, Json | None]:
    """Return what the newest entry of an action says was, and became."""
    entry = (await client.get(f"/audit?action={action}")).json()["entries"][0]
    return entry["was"], entry["became"]


@pytest.mark.usefixtures("stored_keys")
async def test_rel_t16_the_audit_tells_before_and_after(calls: Calls) -> None:
    """T16: what an act found and what it left, of jobs, queues, tenants and keys; never a payload or a token."""
    client, root = calls("admin.a"), calls("root")
    job_id = await submit(client, priority=1, payload={"canary": "canary-7"})

    await client.patch(f"/jobs/{job_id}", json={"priority": 7, "queue": "mail"})
    await client.post(f"/jobs/{job_id}/pause")
    await client.delete(f"/jobs/{job_id}")
    replayed = (await client.post(f"/jobs/{job_id}/replay")).json()["id"]
    await client.put("/queues/mail", json={"max_running": 3})
    await client.put("/queues/mail", json={"max_running": 4})
    await client.post("/tenants/a/pause")
    await client.post("/tenants/a/resume")
    made = (await root.post("/keys", json={"name": "k", "tenant": "a", "scopes": ["read"]})).json()
    await client.delete(f"/keys/{made['id']}")

    was, became = await entry_of(client, "job.change")
    assert was is not None
    assert became is not None
    assert [("default", 1, "queued"), ("mail", 7, "queued")] == [
        (job["queue"], job["priority"], job["state"]) for job in (was, became)
    ]
    was, became = await entry_of(client, "job.pause")
    assert (False, True) == ((was or {})["paused"], (became or {})["paused"])
    was, became = await entry_of(client, "job.cancel")
    assert ("queued", {"state": "cancelled"}) == ((was or {})["state"], became)
    assert {"replayed_as": replayed} == (await entry_of(client, "job.replay"))[1]
    was, became = await entry_of(client, "queue.set")
    assert (3, 4) == ((was or {})["max_running"], (became or {})["max_running"])
    assert ({"paused": True}, {"paused": False}) == await entry_of(client, "tenant.resume")
    assert ["read"] == ((await entry_of(client, "key.create"))[1] or {})["scopes"]
    assert "revoked_at" in ((await entry_of(client, "key.revoke"))[1] or {})
    whole = (await root.get("/audit")).text
    assert "canary-7" not in whole
    assert made["token"] not in whole


async def test_rel_t16_the_audit_tells_keys_of_one_name_apart(calls: Calls) -> None:
    """T16: a key's name is chosen freely, so its id stands behind it; dead letters are named one by one."""
    client = calls("admin.a")
    job = await submit_and_claim(client, max_attempts=1)
    await client.post(f"/jobs/{job['id']}/fail", json=lease(job, error="x"))

    await client.post("/dead-letter/purge", json={})
    [entry] = (await client.get("/audit")).json()["entries"]

    assert ("admin.a (admin.a)", {"purged": [job["id"]]}) == (entry["actor"], entry["became"])


@pytest.mark.usefixtures("stored_keys")
async def test_keys_are_made_within_ones_tenant(calls: Calls) -> None:
    """The token is shown once; an admin of a tenant makes and sees keys of that tenant only."""
    root, client = calls("root"), calls("admin.a")
    await root.post("/tenants", json={"name": "a"})

    made = await client.post("/keys", json={"name": "mailer", "role": "producer", "queues": ["mail"]})
    beyond = await client.post("/keys", json={"name": "x", "tenant": "b"})
    above = await root.post("/keys", json={"name": "top", "scopes": ["read", "work"]})
    unknown = await root.post("/keys", json={"name": "x", "tenant": "nobody"})
    own = (await client.get("/keys")).json()["keys"]
    revoked = await client.delete(f"/keys/{made.json()['id']}")
    foreign = await client.delete(f"/keys/{above.json()['id']}")

    assert (201, "a", ["read", "submit"], ["mail"]) == (
        made.status_code,
        made.json()["tenant"],
        made.json()["scopes"],
        made.json()["queues"],
    )
    assert made.json()["token"].startswith("wl_")
    assert [422, 201, 404] == [beyond.status_code, above.status_code, unknown.status_code]
    assert [made.json()["id"]] == [key["id"] for key in own]
    assert "token" not in own[0]
    assert (200, 404) == (revoked.status_code, foreign.status_code)
    assert revoked.json()["revoked_at"] is not None


async def test_tenants_are_made_paused_and_removed(calls: Calls) -> None:
    """Only from above tenants; one's own can be seen and paused; one with jobs cannot be removed."""
    root, client = calls("root"), calls("admin.a")

    made = await root.post("/tenants", json={"name": "a"})
    twice = await root.post("/tenants", json={"name": "a"})
    refused = await client.post("/tenants", json={"name": "c"})
    foreign = await client.get("/tenants/default")
    paused = await client.post("/tenants/a/pause", json={"reason": "unpaid"})
    seen = [(await client.get("/tenants/a")).json(), *(await root.get("/tenants?cursor=%21")).json()["tenants"]]
    await submit(client)
    none = await claim(client)
    resumed = await client.post("/tenants/a/resume")
    kept = await root.delete("/tenants/a")
    names = [tenant["name"] for tenant in (await root.get("/tenants")).json()["tenants"]]

    assert [201, 409, 403, 404, 200, 409] == [
        answer.status_code for answer in (made, twice, refused, foreign, paused, kept)
    ]
    assert ([], 1) == (none, len(await claim(client)))
    assert "a" in names
    assert seen[0] == paused.json() == seen[1]
    assert (True, "unpaid", "admin.a") == (seen[0]["paused"], *(seen[0]["pause"][k] for k in ("reason", "actor")))
    assert (False, None) == (resumed.json()["paused"], resumed.json()["pause"])


async def test_a_tenant_is_changed(calls: Calls) -> None:
    """P39: from its own tenant or above, and audited; what it cannot be is refused."""
    root, client, reader = calls("root"), calls("admin.a"), calls("reader.a")
    await root.post("/tenants", json={"name": "a"})
    until = "2027-01-01T00:00:00Z"

    paused = await client.patch("/tenants/a", json={"paused": True, "reason": "unpaid", "until": until})
    await submit(client)
    none = await claim(client)
    resumed = await root.patch("/tenants/a", json={"paused": False, "reason": "paid"})
    refused = [
        await client.patch("/tenants/a", json={}),
        await client.patch("/tenants/a", json={"name": "b", "paused": True}),
        await client.patch("/tenants/default", json={"paused": True}),
        await reader.patch("/tenants/a", json={"paused": True}),
    ]
    audit = (await client.get("/audit")).json()["entries"]

    assert (True, "unpaid", until) == (
        paused.json()["paused"],
        *(paused.json()["pause"][k] for k in ("reason", "until")),
    )
    assert (200, False, None) == (resumed.status_code, resumed.json()["paused"], resumed.json()["pause"])
    assert ([], 1) == (none, len(await claim(client)))
    assert [422, 422, 404, 403] == [answer.status_code for answer in refused]
    assert ["paid", "unpaid"] == [entry["reason"] for entry in audit if entry["action"] == "tenant.change"]


async def test_duties_show_their_holders(calls: Calls, engine: Engine) -> None:
    """M2: what is done for all tenants, and by which servers, is seen from above tenants alone."""
    listed = await calls("root").get("/duties")
    unknown = await calls("root").post("/duties/nothing/release")
    refused = [await calls(key).get("/duties") for key in ("reader.a", "admin.a")]
    refused.append(await calls("admin.a").post("/duties/promote/release"))

    assert 200 == listed.status_code
    assert {"duties", "servers"} == set(listed.json())
    assert [404, 403, 403, 403] == [answer.status_code for answer in (unknown, *refused)]


async def test_rel_t17_the_reasons_of_pauses_are_shown_without_secrets(calls: Calls, engine: Engine) -> None:
    """L5: wherever a pause is shown: of a queue, a tenant, a schedule, and in the record of acts."""
    client = calls("admin.a")
    why = {"reason": "token=hunter2 is out"}
    await calls("root").post("/tenants", json={"name": "a"})
    made = (await client.post("/schedules", json={"name": "s", "task": "t", "cron": "0 * * * *"})).json()
    await submit(client, queue="q")
    shown = [
        await client.post("/queues/q/pause", json=why),
        await client.get("/queues/q"),
        await client.get("/queues"),
        await client.post(f"/schedules/{made['id']}/pause", json=why),
        await client.get("/schedules"),
        await client.post("/tenants/a/pause", json=why),
        await calls("root").get("/tenants"),
        await client.get("/audit"),
    ]

    assert [200] * len(shown) == [answer.status_code for answer in shown]
    assert [False] * len(shown) == ["hunter2" in answer.text for answer in shown]
    assert [True] * len(shown) == ["token=***" in answer.text for answer in shown]


async def test_health_version_and_figures(calls: Calls, engine: Engine) -> None:
    """Open to everybody: alive, ready, version, and no name of a host; the figures need a key above tenants."""
    client = calls("")
    root = "http://windlass.test"

    open_ = [await client.get(f"{root}{path}") for path in ("/health", "/healthz", "/readyz", "/version")]
    await submit(calls("admin.a"))
    figures = await calls("root").get(f"{root}/metrics")

    assert [200] * 4 == [answer.status_code for answer in open_]
    assert not [answer.url for answer in open_ if engine.name in answer.text]
    assert figures.headers["content-type"].startswith("text/plain")
    assert 'windlass_jobs_submitted_total{queue="default"} 1.0' in figures.text
    assert 'windlass_http_requests_total{route="POST /jobs",status="201"} 1.0' in figures.text


async def test_rel_t9_the_figures_are_written_beside_the_event_loop(calls: Calls, engine: Engine) -> None:
    """A page of many queues takes longer than a request may hold the loop: a thread writes it."""
    slow = SlowFigure()
    slow.go_on.set()
    engine.meters.registry.register(slow)

    figures = await calls("root").get("http://windlass.test/metrics")

    assert 200 == figures.status_code
    assert [False] == [thread is threading.current_thread() for thread in slow.threads]


@pytest.mark.parametrize("query", ["cursor=x", "cursor=1_x_1", "outcome=sad", "since=yesterday"])
async def test_a_list_of_attempts_refuses_what_it_cannot_read(client: httpx2.AsyncClient, query: str) -> None:
    """A cursor that is none of ours is 422."""
    assert 422 == (await client.get(f"/attempts?{query}")).status_code


async def test_a_tenant_is_erased_with_everything_it_has(calls: Calls) -> None:
    """T24: only from above tenants, and told in the audit: that it began, by whom, and how much is gone."""
    root, client = calls("root"), calls("admin.a")
    await root.post("/tenants", json={"name": "a"})
    await submit(client)

    refused = await client.delete("/tenants/a?erase=true")
    # A duty may be writing at this moment, which is waited for.
    while (gone := await root.delete("/tenants/a?erase=true")).status_code == 202:
        pass
    again = await root.delete("/tenants/a?erase=true")
    told = (await root.get("/audit")).json()["entries"]

    assert [403, 404] == [refused.status_code, again.status_code]
    assert gone.status_code in (204, 404)  # a server may have finished it
    assert [("tenant.erase", "a"), ("tenant.erased", "a"), ("tenant.create", "a")] == [
        (entry["action"], entry["subject"]) for entry in told
    ]
    assert ["root (root)"] * 3 == [entry["actor"] for entry in told]
    assert {"jobs": 1, "schedules": 0, "others": 0} == told[1]["became"]["removed"]


async def test_an_erasure_tells_how_far_it_is(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """T24: 202 while it goes on; asking again goes on with it, and is no act of its own."""
    root = calls("root")
    monkeypatch.setattr("windlass.queue.erasure.CHUNK", 1)
    monkeypatch.setattr("windlass.queue.erasure.go_on.__kwdefaults__", {"batches": 3})
    for _ in range(3):
        await submit(root, tenant="a")

    first = await root.delete("/tenants/a?erase=true")
    seen = (await root.get("/tenants/a")).json()
    taken = await root.post("/jobs?tenant=a", json={"task": "t"})
    statuses = [first.status_code]
    while statuses[-1] == 202:
        statuses.append((await root.delete("/tenants/a?erase=true")).status_code)

    assert 202 == first.status_code
    assert first.json() == seen["erasing"]
    assert (409, "being_erased") == (taken.status_code, taken.json()["code"])
    assert 204 == statuses[-1]
    assert ["tenant.erase", "tenant.erased"] == sorted(
        entry["action"] for entry in (await root.get("/audit")).json()["entries"]
    )


async def test_the_content_of_a_job_is_erased(client: httpx2.AsyncClient) -> None:
    """T24: its arguments and errors are shown no more, nor does it run again; the audit has it once."""
    job = await submit_and_claim(client, payload={"to": "secret"})
    live = await client.post(f"/jobs/{job['id']}/erase")
    failed = {**lease(job), "error_type": "ValueError", "error_message": "secret", "retryable": False}
    await client.post(f"/jobs/{job['id']}/fail", json=failed)

    erased = await client.post(f"/jobs/{job['id']}/erase", json={"reason": "asked for"})
    again = await client.post(f"/jobs/{job['id']}/erase")
    shown = await client.get(f"/jobs/{job['id']}")
    listed = await client.get("/dead-letter")
    retried = await client.post(f"/jobs/{job['id']}/retry")
    entries = (await client.get("/audit?action=job.erase")).json()["entries"]

    assert [409, 200, 200, 409] == [answer.status_code for answer in (live, erased, again, retried)]
    told = {"id": job["id"], "erased_at": shown.json()["erased_at"], "waits": False}
    assert erased.json() == again.json() == told
    assert (None, "dead", "Its content was erased.") == tuple(shown.json()[k] for k in ("payload", "state", "reason"))
    assert "secret" not in shown.text + listed.text
    assert "its content was erased" in retried.json()["detail"]
    assert [("asked for", {"erased_at": erased.json()["erased_at"]})] == [(e["reason"], e["became"]) for e in entries]


async def test_rel_t24_an_erased_job_is_202_while_its_bytes_are_in_the_log(
    client: httpx2.AsyncClient, engine: Engine
) -> None:
    """T24: somebody reads a SQLite file from before; asking again is 200 as soon as that has ended."""
    if not isinstance(engine.db, SqliteDatabase):
        pytest.skip("PostgreSQL keeps its own log.")
    job = await submit_and_claim(client, payload={"to": "c4nary"})
    await client.post(f"/jobs/{job['id']}/complete", json=lease(job))
    with closing(sqlite3.connect(engine.db.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM done").fetchall()

        waits = await client.post(f"/jobs/{job['id']}/erase")
    while (gone := await client.post(f"/jobs/{job['id']}/erase")).status_code == 202:
        pass  # one of our own readers

    assert (202, True) == (waits.status_code, waits.json()["waits"])
    assert (200, False) == (gone.status_code, gone.json()["waits"])
    assert waits.json()["erased_at"] == gone.json()["erased_at"]
    assert [] == files_with(engine.db, "c4nary")
