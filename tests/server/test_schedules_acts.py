"""What people do to schedules over HTTP: run by hand, pause, resume, backfill, declare; and who may."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.clock import TestClock
from tests.server.api import WORKER, Json, claim, lease
from tests.server.test_defaults import publish
from tests.server.test_schedules import NIGHTLY, make, names, one_database
from windlass.engine.engine import Engine
from windlass.server.route import Route, documented_path
from windlass.server.routes import ROUTES

Calls = Callable[[str], httpx2.AsyncClient]
ROOT = "http://windlass.test"
OF_SCHEDULES = [route for route in ROUTES if route.bound == "schedule"]


async def ask(client: httpx2.AsyncClient, route: Route, value: str) -> httpx2.Response:
    """Call a route about a schedule, with a body that would do."""
    body = {"name": "stolen", "task": "t", "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
    assert route.body is None or route.body.__struct_fields__
    fields = {name: text for name, text in body.items() if route.body and name in route.body.__struct_fields__}
    url = ROOT + re.sub(r"\{\w+\}", value, documented_path(route))
    return await client.request(route.method, url, json=fields if route.body else None)


def yesterday(clock: TestClock) -> Json:
    """Return a range with three full hours."""
    midnight = clock.now().replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    return {"since": midnight.isoformat(), "until": (midnight + timedelta(hours=3)).isoformat()}


async def ended_backfill(client: httpx2.AsyncClient, backfill: str) -> Json:
    """Look until a backfill makes no more jobs."""
    async with asyncio.timeout(60):
        while True:
            found: Json = (await client.get(f"/backfills/{backfill}")).json()
            if found["status"] != "running":
                return found
            for job in await claim(client, wait=0.2):
                await client.post(f"/jobs/{job['id']}/complete", json=lease(job))


async def test_a_job_is_made_by_hand_beside_the_series(client: httpx2.AsyncClient) -> None:
    """T11: 201 with the job, which is ready at once; the next slot stays, and the history tells of it."""
    made = await make(client, payload={"day": 1})

    usual = await client.post("/schedules/nightly/run")
    other = await client.post("/schedules/nightly/run", json={"payload": {"day": 2}, "reason": "asked for"})

    assert [201, 201] == [usual.status_code, other.status_code]
    assert [{"day": 1}, {"day": 2}] == [job["payload"] for job in await claim(client)]
    runs = (await client.get("/schedules/nightly/runs")).json()["runs"]
    assert ["manual", "manual"] == [run["decision"] for run in runs]
    assert {usual.json()["id"], other.json()["id"]} == {run["job_id"] for run in runs}
    assert made["next_run_at"] == (await client.get("/schedules/nightly")).json()["next_run_at"]
    of_schedule = (await client.get(f"/jobs?schedule_id={made['id']}")).json()
    assert 2 == of_schedule["total"]


async def test_what_became_of_a_run_stands_in_the_history(client: httpx2.AsyncClient) -> None:
    """P40, M20: status, when it ran and for how long, by whom."""
    await make(client)
    job_id = (await client.post("/schedules/nightly/run")).json()["id"]
    [job] = await claim(client)
    await client.post(f"/jobs/{job_id}/complete", json=lease(job))

    [run] = (await client.get("/schedules/nightly/runs?decision=manual&limit=5")).json()["runs"]

    assert (job_id, "succeeded", WORKER, 1) == tuple(run[k] for k in ("job_id", "status", "worker_id", "attempt"))
    assert run["scheduled_at"] == run["slot_at"]
    assert [] == (await client.get("/schedules/nightly/runs?decision=missed")).json()["runs"]


async def test_a_paused_schedule_tells_why_and_resumes(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """X5: reason, who and until when; nothing is due meanwhile, and the next slot is told after."""
    made = await make(client)
    until = (clock.now() + timedelta(days=1)).isoformat()

    paused = (await client.post("/schedules/nightly/pause", json={"reason": "audit", "until": until})).json()
    shown = (await client.get("/schedules/nightly")).json()
    resumed = (await client.post("/schedules/nightly/resume")).json()

    assert paused == shown
    assert ("paused", True, False, None) == tuple(paused[k] for k in ("status", "paused", "enabled", "next_run_at"))
    assert ("schedule", "audit", "admin.a") == tuple(paused["pause"][k] for k in ("of", "reason", "actor"))
    assert datetime.fromisoformat(until) == datetime.fromisoformat(paused["pause"]["until"])
    assert ("active", None, made["next_run_at"]) == tuple(resumed[k] for k in ("status", "pause", "next_run_at"))


async def test_a_pause_that_has_ended_before_it_begins_is_refused(
    client: httpx2.AsyncClient, calls: Calls, clock: TestClock
) -> None:
    """X5: 422 names `until`, for schedules, queues, tenants and jobs alike, and nothing is paused."""
    made = await make(client)
    job = (await client.post("/schedules/nightly/run")).json()["id"]
    paths = ["/schedules/nightly", f"/jobs/{made['id']}", f"/jobs/{job}", "/queues/default", "/tenants/a"]
    before = [(await client.get(path)).json()["paused"] for path in paths]

    until = (clock.now() - timedelta(seconds=1)).isoformat()
    answers = [await client.post(f"{path}/pause", json={"until": until}) for path in paths]

    assert [(422, "until")] * 5 == [(a.status_code, a.json()["errors"][0]["field"]) for a in answers]
    assert [False] * 5 == before == [(await client.get(path)).json()["paused"] for path in paths]


async def test_one_that_is_not_enabled_is_stored_and_paused(client: httpx2.AsyncClient) -> None:
    """T1: it can be run by hand, and is enabled by a patch or a resume."""
    made = await make(client, enabled=False)

    run = await client.post("/schedules/nightly/run")
    enabled = (await client.patch("/schedules/nightly", json={"enabled": True})).json()
    disabled = (await client.patch("/schedules/nightly", json={"enabled": False})).json()

    assert ("paused", None, 201) == (made["status"], made["next_run_at"], run.status_code)
    assert ["active", "paused"] == [enabled["status"], disabled["status"]]
    assert enabled["next_run_at"] is not None


async def test_a_definition_without_a_word_on_it_leaves_a_pause(client: httpx2.AsyncClient) -> None:
    """X5: PUT, a replacement by name and a list keep it paused, or running; only an explicit `enabled` changes that."""
    await make(client)
    body = {**NIGHTLY, "tags": ["new"]}
    asked = {**body, "replace_existing": True}

    async def given(**enabled: bool) -> list[bool]:
        answers = [
            await client.put("/schedules/nightly", json={**body, **enabled}),
            await client.post("/schedules", json={**asked, **enabled}),
            await client.post("/schedules/batch", json={"schedules": [{**asked, **enabled}]}),
        ]
        assert [200, 200, 201] == [answer.status_code for answer in answers], [answer.text for answer in answers]
        return [answers[0].json()["paused"], (await client.get("/schedules/nightly")).json()["paused"]]

    running = await given()
    await client.post("/schedules/nightly/pause", json={"reason": "audit"})
    kept = await given()
    reason = (await client.get("/schedules/nightly")).json()["pause"]["reason"]
    enabled = await given(enabled=True)
    disabled = await given(enabled=False)
    by_name = (await client.post("/schedules", json={**asked, "enabled": True})).json()
    would = await client.post("/schedules", json={**asked, "dry_run": True})

    assert ([False, False], [True, True], "audit") == (running, kept, reason)
    assert ([False, False], [True, True]) == (enabled, disabled)
    assert (False, True) == (by_name["paused"], by_name["next_run_at"] is not None)
    assert [] == would.json()["differences"]


@one_database
async def test_rel_t4_pausing_by_a_definition_needs_the_scope_for_it(calls: Calls) -> None:
    """N2: 403 where `enabled` would pause or resume, and nothing is changed; what a dry run shows is for readers."""
    owner, client = calls("admin.a"), calls("submitter.a")
    await make(owner, payload={"pin": "swordfish"})
    body = {**NIGHTLY, "payload": {"pin": "swordfish"}}
    asked = {**body, "replace_existing": True}

    refused = []
    for enabled in (False, True):
        refused += [
            await client.put("/schedules/nightly", json={**body, "enabled": enabled}),
            await client.patch("/schedules/nightly", json={"enabled": enabled}),
            await client.post("/schedules", json={**asked, "enabled": enabled}),
            await client.post("/schedules/batch", json={"schedules": [{**asked, "enabled": enabled}]}),
        ]
        assert enabled == (await owner.get("/schedules/nightly")).json()["paused"]
        await owner.post("/schedules/nightly/pause")
    looks = [
        await client.patch("/schedules/nightly", json={"payload": {}, "dry_run": True}),
        await client.put("/schedules/nightly", json={**NIGHTLY, "dry_run": True}),
        await client.post("/schedules", json={**asked, "dry_run": True}),
    ]
    allowed = await client.patch("/schedules/nightly", json={"priority": 3, "enabled": False})

    assert [403] * 11 == [answer.status_code for answer in (*refused, *looks)]
    assert not any("swordfish" in answer.text for answer in (*refused, *looks))
    assert 200 == allowed.status_code


async def test_an_edit_without_a_version_loses_nothing_to_a_rival(
    client: httpx2.AsyncClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M4: it is made of what is there when it is written: a pause that came between stays."""
    await make(client)
    edit, paused = engine.schedules.edit, False

    async def late(*arguments: Any, **named: Any) -> Any:
        nonlocal paused
        if not paused:
            paused = True
            await client.post("/schedules/nightly/pause")
        return await edit(*arguments, **named)

    monkeypatch.setattr(engine.schedules, "edit", late)
    changed = await client.patch("/schedules/nightly", json={"priority": 3})

    assert (200, True, 3) == (changed.status_code, changed.json()["paused"], changed.json()["priority"])


async def test_deleting_cancels_what_has_not_begun(client: httpx2.AsyncClient) -> None:
    """M4: waiting jobs are cancelled, running ones go on."""
    await make(client)
    running = (await client.post("/schedules/nightly/run")).json()["id"]
    await claim(client)
    waiting = (await client.post("/schedules/nightly/run")).json()["id"]

    await client.delete("/schedules/nightly")

    states = [(await client.get(f"/jobs/{job_id}")).json()["state"] for job_id in (running, waiting)]
    assert ["assigned", "cancelled"] == states


async def test_what_happened_to_a_schedule_is_told(client: httpx2.AsyncClient) -> None:
    """X10, O13: that it was made, what people did to it and why, by its name and by its id; unknown is 404."""
    made = await make(client)
    await client.post("/schedules/nightly/pause", json={"reason": "stocktaking"})
    await client.post("/schedules/nightly/resume")

    by_name = (await client.get("/schedules/nightly/events")).json()["events"]
    by_id = (await client.get(f"/schedules/{made['id']}/events")).json()["events"]

    assert ["submitted", "paused", "resumed"] == [event["kind"] for event in by_name]
    assert "stocktaking" in by_name[1]["detail"]
    assert by_name == by_id
    assert 404 == (await client.get("/schedules/nobody/events")).status_code


async def test_past_slots_are_run_afterwards(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """T13: 202; each slot of the range once, a second time none; told by the list and by its id."""
    await make(client, cron="0 * * * *", timezone="UTC")
    span = {**yesterday(clock), "concurrency": 2}

    begun = await client.post("/schedules/nightly/backfill", json=span)
    first = await ended_backfill(client, begun.json()["id"])
    again = await client.post("/schedules/nightly/backfill", json=span)
    second = await ended_backfill(client, again.json()["id"])

    assert (202, "running") == (begun.status_code, begun.json()["status"])
    assert ("done", 3, 0) == tuple(first[k] for k in ("status", "made", "known"))
    assert ("done", 0, 3) == tuple(second[k] for k in ("status", "made", "known"))
    listed = (await client.get("/schedules/nightly/backfills")).json()["backfills"]
    assert [second, first] == listed
    runs = (await client.get("/schedules/nightly/runs?decision=backfilled")).json()["runs"]
    assert ["succeeded"] * 3 == [run["status"] for run in runs]


async def test_a_backfill_is_stopped(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """Its jobs that nobody has are cancelled; stopping twice is no harm; a range that makes no sense is 422."""
    await make(client, cron="0 * * * *", timezone="UTC")
    span = yesterday(clock)
    backfill = (await client.post("/schedules/nightly/backfill", json=span)).json()["id"]

    stopped = await client.post(f"/backfills/{backfill}/stop", json={"reason": "a mistake"})
    twice = await client.post(f"/backfills/{backfill}/stop")
    backwards = await client.post("/schedules/nightly/backfill", json={"since": span["until"], "until": span["since"]})
    ahead = {**span, "until": "2100-01-01T00:00:00Z"}
    future = await client.post("/schedules/nightly/backfill", json=ahead)

    assert (200, "stopped") == (stopped.status_code, stopped.json()["status"])
    assert stopped.json() == twice.json()
    assert [(422, "until")] * 2 == [(a.status_code, a.json()["errors"][0]["field"]) for a in (backwards, future)]
    assert 404 == (await client.get(f"/backfills/{uuid4()}")).status_code
    assert 404 == (await client.get("/backfills/nonsense")).status_code


async def declare(client: httpx2.AsyncClient, *schedules: Json, **fields: Any) -> httpx2.Response:
    """Declare the schedules of the shop."""
    return await client.post("/schedules/declared", json={"owner": "shop", "schedules": list(schedules), **fields})


async def test_declared_schedules_follow_the_declaration(client: httpx2.AsyncClient) -> None:
    """Added, changed, removed; the same again changes nothing; others' schedules are left alone."""
    one, two = {**NIGHTLY, "name": "one"}, {**NIGHTLY, "name": "two"}
    await make(client)

    dry = (await declare(client, one, two, dry_run=True)).json()
    first = (await declare(client, one, two)).json()
    same = (await declare(client, one, two)).json()
    changed = (await declare(client, {**one, "cron": "0 3 * * *"})).json()
    taken = await declare(client, one, NIGHTLY)

    assert dry == first
    assert (["one", "two"], [], [], 0) == tuple(first[k] for k in ("added", "changed", "removed", "unchanged"))
    assert ([], [], [], 2) == tuple(same[k] for k in ("added", "changed", "removed", "unchanged"))
    assert ([], ["one"], ["two"], 0) == tuple(changed[k] for k in ("added", "changed", "removed", "unchanged"))
    assert (409, "name_taken") == (taken.status_code, taken.json()["code"])
    assert ["one"] == await names(client, "?owner=shop")
    bad = await declare(client, one, {**two, "cron": "0 25 * * *"})
    assert (422, "schedules[1].cron") == (bad.status_code, bad.json()["errors"][0]["field"])


async def test_rel_t5_acts_on_schedules_are_audited(client: httpx2.AsyncClient) -> None:
    """X10: who, what, why, and how it was; nothing for what was only looked at, or changed nothing."""
    made = await make(client)
    await client.patch("/schedules/nightly", json={"cron": "0 3 * * *", "reason": "later"})
    await client.patch("/schedules/nightly", json={"cron": "0 4 * * *", "dry_run": True})
    await client.post("/schedules/nightly/pause", json={"reason": "audit"})
    await client.post("/schedules/nightly/resume")
    await client.post("/schedules/nightly/run")
    await declare(client)
    await client.delete("/schedules/nightly?reason=moved")

    entries = (await client.get("/audit")).json()["entries"][::-1]

    assert ["create", "change", "pause", "resume", "run", "delete"] == [
        entry["action"].removeprefix("schedule.") for entry in entries
    ]
    assert {made["id"]} == {entry["subject"] for entry in entries}
    assert ("later", "audit", "moved") == tuple(entries[index]["reason"] for index in (1, 2, 5))
    assert {"name": "nightly", "version": 1, "cron": "30 2 * * *"} == entries[1]["was"]
    assert {"name": "nightly", "version": 2, "cron": "0 3 * * *"} == entries[1]["became"]


async def test_rel_t5_the_audit_says_what_a_replacement_changed(client: httpx2.AsyncClient) -> None:
    """X10: by PUT and by name what differs, arguments only by name; a schedule that was made as a job is there too."""
    await make(client, payload={"pin": "swordfish"}, priority=1)
    asked = {**NIGHTLY, "payload": {"pin": "swordfishes"}}

    await client.put("/schedules/nightly", json={**asked, "priority": 2})
    await client.post("/schedules", json={**asked, "priority": 3, "replace_existing": True})
    job = await client.post("/jobs", json={"task": "report", "schedule": "0 * * * *"})
    answer = await client.get("/audit")
    by_job, by_name, by_put, _ = answer.json()["entries"]

    assert ({"priority": 1}, {"priority": 2, "payload": "changed"}) == (
        changes(by_put["was"]),
        changes(by_put["became"]),
    )
    assert ({"priority": 2}, {"priority": 3}) == (changes(by_name["was"]), changes(by_name["became"]))
    assert ("schedule.create", job.json()["id"], "report") == (
        by_job["action"],
        by_job["subject"],
        by_job["became"]["task"],
    )
    assert "swordfish" not in answer.text


def changes(entry: Json) -> Json:
    """Return what an entry tells beside the name and the version."""
    return {name: value for name, value in entry.items() if name not in ("name", "version")}


async def test_rel_t6_a_foreign_schedule_is_like_none(calls: Calls) -> None:
    """N1: every route about a schedule answers for another tenant's as for one that never was, by id and by name."""
    made = await make(calls("admin.b"))
    client = calls("admin.a")

    for route in OF_SCHEDULES:
        for known, unknown in ((made["id"], str(uuid4())), ("nightly", "never")):
            foreign, none = await ask(client, route, known), await ask(client, route, unknown)
            assert 404 == foreign.status_code == none.status_code, (route.name, foreign.text)
            assert none.text.replace(unknown, known) == foreign.text

    assert made == (await calls("admin.b").get("/schedules/nightly")).json()
    assert [] == await names(client)


async def test_rel_t6_a_foreign_backfill_is_like_none(calls: Calls, clock: TestClock) -> None:
    """N1: look and stop are 404, and it goes on."""
    owner = calls("admin.b")
    await make(owner, cron="0 * * * *", timezone="UTC")
    backfill = (await owner.post("/schedules/nightly/backfill", json=yesterday(clock))).json()["id"]

    looked = await calls("admin.a").get(f"/backfills/{backfill}")
    stopped = await calls("admin.a").post(f"/backfills/{backfill}/stop")

    assert [404, 404] == [looked.status_code, stopped.status_code]
    assert "running" == (await owner.get(f"/backfills/{backfill}")).json()["status"]


async def test_rel_t4_a_key_kept_to_queues_touches_no_other_schedules(calls: Calls) -> None:
    """N2: every route about a schedule of another queue is 403 and tells nothing of it; nothing becomes of it."""
    made = await make(calls("admin.a"), queue="theirs")
    client = calls("admin.a@own")

    for route in OF_SCHEDULES:
        for value in (made["id"], "nightly"):
            answer = await ask(client, route, value)
            assert 403 == answer.status_code, (route.name, answer.text)
            assert "theirs" not in answer.text
    by_job = await client.delete(f"/jobs/{made['id']}")

    assert 403 == by_job.status_code
    assert made == (await calls("admin.a").get("/schedules/nightly")).json()


async def test_rel_t4_a_key_kept_to_queues_makes_schedules_for_its_own(calls: Calls) -> None:
    """N2: neither a new one, a batch, an edit nor a declaration reaches another queue; lists show its own."""
    client = calls("admin.a@own")
    await make(calls("admin.a"), name="foreign", queue="other")
    await make(client, queue="own")
    other = {**NIGHTLY, "name": "x", "queue": "other"}

    refused = [
        await client.post("/schedules", json=other),
        await client.post("/schedules/batch", json={"schedules": [other]}),
        await client.put("/schedules/nightly", json=other),
        await client.patch("/schedules/nightly", json={"queue": "other"}),
        await declare(client, other),
        await client.get("/schedules?queue=other"),
    ]
    await declare(calls("admin.a"), other)
    removing = await declare(client)

    assert [403] * 7 == [answer.status_code for answer in (*refused, removing)]
    assert ["nightly"] == await names(client)
    assert ["foreign", "nightly", "x"] == await names(calls("admin.a"))


async def test_rel_t4_a_schedule_that_leaves_its_queue_open_is_for_keys_of_the_queue_of_its_task(
    calls: Calls, clock: TestClock
) -> None:
    """N2: its jobs go where its task says: the queue of the settings is not enough to touch or find one."""
    client, owner = calls("admin.a@default"), calls("admin.a")
    made = await make(owner)
    await publish(owner, task=NIGHTLY["task"], queue="theirs")
    shown = (await owner.get("/schedules/nightly")).json()
    backfill = (await owner.post("/schedules/nightly/backfill", json=yesterday(clock))).json()["id"]

    touched = [await ask(client, route, value) for route in OF_SCHEDULES for value in (made["id"], "nightly")]
    touched += [await client.delete(f"/jobs/{made['id']}"), await client.get(f"/backfills/{backfill}")]
    listed = [await names(client), (await client.get("/jobs?include=schedules")).json()["jobs"]]

    assert {403} == {answer.status_code for answer in touched}
    assert [[], []] == listed
    assert shown == (await owner.get("/schedules/nightly")).json()
    theirs = calls("admin.a@theirs")
    run = (await theirs.post("/schedules/nightly/run")).json()["id"]
    assert "theirs" == (await theirs.get(f"/jobs/{run}")).json()["queue"]
    await owner.delete(f"/jobs/{made['id']}")
    left = [await whose.get(f"/jobs/{made['id']}") for whose in (client, theirs)]
    assert [403, 200] == [answer.status_code for answer in left]


async def test_rel_t4_a_key_kept_to_queues_settles_the_queue_of_what_it_makes(calls: Calls) -> None:
    """N2: the queue that the task has then must be the key's own, and the task cannot send the jobs elsewhere later."""
    client, owner = calls("admin.a@default"), calls("admin.a")
    plain, other = {**NIGHTLY, "task": "mine"}, {**NIGHTLY, "name": "b", "task": "other"}
    await publish(owner, task="other", queue="theirs")

    refused = [
        await client.post("/schedules", json=other),
        await client.post("/schedules/batch", json={"schedules": [other]}),
        await client.post("/jobs", json={"task": "other", "schedule": "0 3 * * *"}),
        await declare(client, other),
    ]
    await make(client, task="mine")
    by_job = await client.post("/jobs", json={"task": "mine", "schedule": "0 3 * * *"})
    declared = await declare(client, {**plain, "name": "told"})
    refused.append(await client.put("/schedules/nightly", json=other))
    await publish(owner, task="mine", queue="theirs")

    assert [403] * 5 == [answer.status_code for answer in refused], [answer.text for answer in refused]
    assert [201, 200] == [by_job.status_code, declared.status_code]
    for made in ("nightly", "told", by_job.json()["id"]):
        found = (await client.get(f"/schedules/{made}")).json()
        assert ("default", None) == (found["queue"], found["defaults"].get("queue")), found
    run = (await client.post("/schedules/nightly/run")).json()["id"]
    assert "default" == (await client.get(f"/jobs/{run}")).json()["queue"]


async def test_rel_t4_a_key_kept_to_queues_declares_what_another_key_left_open(calls: Calls) -> None:
    """A worker's key declares what its owner declared before, while the queue of the task is its own; else 403."""
    client, owner = calls("admin.a@default"), calls("admin.a")
    await declare(owner, NIGHTLY, {**NIGHTLY, "name": "b", "task": "other"})
    await publish(owner, task="other", queue="theirs")

    refused = await declare(client, {**NIGHTLY, "priority": 3})
    await declare(owner, NIGHTLY)
    done = await declare(client, {**NIGHTLY, "priority": 3})

    assert [403, 200] == [refused.status_code, done.status_code]
    found = (await client.get("/schedules/nightly")).json()
    assert (3, "default", None) == (found["priority"], found["queue"], found["defaults"].get("queue"))


@one_database
async def test_rel_t4_a_key_kept_to_queues_sends_no_task_elsewhere(calls: Calls) -> None:
    """The queue that a worker publishes for its task must be its key's own: 403, and nothing is known of the task."""
    client = calls("admin.a@own")
    body = {"worker_id": "w", "tasks": ["t"], "signatures": {"t": {"extra": True, "defaults": {"queue": "other"}}}}

    refused = await client.post("/workers/register", json=body)
    await publish(client, task="mine", queue="own")

    assert (403, True) == (refused.status_code, "not for queue other" in refused.json()["detail"])
    assert ["mine"] == [task["name"] for task in (await calls("admin.a").get("/tasks")).json()["tasks"]]


@one_database
async def test_a_declaration_spares_others_of_one_that_the_key_is_not_for(calls: Calls) -> None:
    """With skip_refused the one of another queue is told and left out, alone or among others."""
    client = calls("admin.a@own")
    own, other = {**NIGHTLY, "queue": "own"}, {**NIGHTLY, "name": "x", "queue": "other"}

    both = (await declare(client, other, own, skip_refused=True)).json()
    alone = (await declare(client, other, skip_refused=True)).json()

    assert (["nightly"], ["x"]) == (both["added"], [one["name"] for one in both["refused"]])
    assert "This key is not for queue other" in both["refused"][0]["reason"]
    assert (["nightly"], ["x"]) == (alone["removed"], [one["name"] for one in alone["refused"]])


async def test_rel_t4_a_key_kept_to_queues_takes_no_name_of_another_queue_over(calls: Calls) -> None:
    """N2: 403 by replace_existing and skip_existing, in a list, a declaration and a dry run; nothing of it is told."""
    client, owner = calls("admin.a@own"), calls("admin.a")
    made = await make(owner, queue="theirs", payload={"pin": "swordfish"})
    asked = {**NIGHTLY, "queue": "own", "replace_existing": True}
    plain = {**NIGHTLY, "queue": "own"}

    refused = [
        await client.post("/schedules", json=asked),
        await client.post("/schedules", json={**asked, "dry_run": True}),
        await client.post("/schedules/batch", json={"schedules": [asked]}),
        await client.post("/schedules/batch", json={"schedules": [plain], "replace_existing": True}),
        await client.post("/schedules/batch", json={"schedules": [plain], "skip_existing": True}),
    ]
    await owner.delete("/schedules/nightly")
    await declare(owner, {**NIGHTLY, "queue": "theirs"})
    declared = (await owner.get("/schedules/nightly")).json()
    for dry_run in (False, True):
        body = {"owner": declared["owner"], "schedules": [plain], "dry_run": dry_run}
        refused.append(await client.post("/schedules/declared", json=body))

    assert [403] * 7 == [answer.status_code for answer in refused], [answer.text for answer in refused]
    assert not any("swordfish" in answer.text or "theirs" in answer.text for answer in refused)
    assert made["id"] != declared["id"]
    assert declared == (await owner.get("/schedules/nightly")).json()


@one_database
async def test_a_tenant_may_be_named_by_who_is_above_them(calls: Calls) -> None:
    """S1: in the body of a new one, in the query of all else; by nobody else."""
    root = calls("root")

    made = await root.post("/schedules", json={**NIGHTLY, "tenant": "b"})
    refused = await calls("admin.a").post("/schedules", json={**NIGHTLY, "tenant": "b"})
    crossed = await root.put("/schedules/nightly?tenant=b", json={**NIGHTLY, "tenant": "c"})

    assert (201, "b") == (made.status_code, made.json()["tenant"])
    assert [(422, "tenant")] * 2 == [(a.status_code, a.json()["errors"][0]["field"]) for a in (refused, crossed)]
    assert ["nightly"] == await names(calls("admin.b"))
    assert "schedule.create" == (await calls("admin.b").get("/audit")).json()["entries"][0]["action"]


async def test_a_declaration_that_is_refused_spares_the_others(client: httpx2.AsyncClient) -> None:
    """With `skip_refused` each bad one is answered with its reason, and what was stored under its name stays."""
    good, old, new = ({**NIGHTLY, "name": name} for name in ("good", "old", "new"))
    await client.post("/schedules", json={**NIGHTLY, "name": "by-hand"})
    before = (await declare(client, old)).json()
    bad = {**old, "cron": "0 25 * * *"}
    never = {**new, "start": "2030-01-01T00:00:00Z", "end": "2030-01-01T00:01:00Z"}

    answer = await declare(client, good, bad, never, {**good, "name": "by-hand"}, keep=["kept"], skip_refused=True)
    strict = await declare(client, good, bad)

    assert (200, 422) == (answer.status_code, strict.status_code)
    assert (["good"], [], [], ["old"]) == (
        *(answer.json()[part] for part in ("added", "changed", "removed")),
        before["added"],
    )
    refused = {one["name"]: one["reason"] for one in answer.json()["refused"]}
    assert ["by-hand", "new", "old"] == sorted(refused)
    assert refused["old"].startswith('cron: "0 25 * * *"')
    assert "nobody declares: it was made by hand" in refused["by-hand"]
    assert "30 2 * * *" == (await client.get("/schedules/old")).json()["cron"]


async def test_what_an_application_keeps_is_not_removed(client: httpx2.AsyncClient) -> None:
    """`keep` names schedules that the application could not say this time; they stay as they are."""
    one, two = ({**NIGHTLY, "name": name} for name in ("one", "two"))
    await declare(client, one, two)

    answer = (await declare(client, keep=["two"])).json()

    assert (["one"], 200) == (answer["removed"], (await client.get("/schedules/two")).status_code)
    assert 422 == (await declare(client, two, keep=["two"])).status_code
