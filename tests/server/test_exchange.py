"""A worker's one request: reports, what its attempts leave behind, and the next jobs with the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.server.api import WORKER, Json, claim, lease, state_of, submit
from windlass.engine import translate
from windlass.engine.engine import Engine
from windlass.errors import Unavailable
from windlass.queue import checkpoints
from windlass.queue.checkpoints import Note

Calls = Callable[[str], httpx2.AsyncClient]


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """The session of a registered worker."""
    name = str(uuid4())
    await client.post("/workers/register", json={"worker_id": WORKER, "session": name, "max_threads": 5})
    return name


async def exchange(client: httpx2.AsyncClient, session: str, **fields: Any) -> httpx2.Response:
    """Send one request of a worker."""
    return await client.post("/jobs/report", json={"worker_id": WORKER, "session": session, **fields})


def completed(job: Json) -> Json:
    """Return the report of a job that succeeded."""
    return {"kind": "complete", "job_id": job["id"], "fence": job["fence"], "result": 1}


def deep() -> Any:
    """Return JSON that is nested too deep to be kept."""
    value: Any = 1
    for _ in range(500):
        value = [value]
    return value


async def test_a_report_brings_the_next_jobs_with_it(client: httpx2.AsyncClient, session: str) -> None:
    """One request tells how an attempt ended and takes what is there at once; with nothing there it does not wait."""
    first, second = await submit(client), await submit(client, payload={"x": 2})

    empty_handed = await exchange(client, session, claim={"count": 1})
    [job] = empty_handed.json()["jobs"]
    answer = await exchange(client, session, reports=[completed(job)], claim={})
    [then] = answer.json()["jobs"]
    last = await exchange(client, session, reports=[completed(then)], claim={"count": 5})

    assert ([], first) == (empty_handed.json()["answers"], job["id"])
    assert (["applied"], second, {"x": 2}, session) == (
        [item["status"] for item in answer.json()["answers"]],
        then["id"],
        then["payload"],
        then["session"],
    )
    assert (["applied"], []) == ([item["status"] for item in last.json()["answers"]], last.json()["jobs"])


async def test_a_worker_that_says_nothing_gets_an_empty_answer(client: httpx2.AsyncClient, session: str) -> None:
    """A request without reports and without a claim is allowed, and changes nothing."""
    await submit(client)

    answer = await exchange(client, session)

    assert (200, {"answers": [], "jobs": [], "cancel": [], "refused": []}) == (answer.status_code, answer.json())


async def test_the_reports_stand_when_the_claim_fails(
    client: httpx2.AsyncClient, session: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that can hand out nothing has recorded the reports: they are answered, and there are no jobs."""
    job_id = await submit(client)
    await submit(client)
    [job] = (await exchange(client, session, claim={"count": 1})).json()["jobs"]

    async def refuse(ask: Any) -> Any:
        raise Unavailable("This server is stopping. Ask another one.")

    monkeypatch.setattr(engine, "claim", refuse)
    answer = await exchange(client, session, reports=[completed(job)], claim={})

    assert (200, ["applied"], []) == (
        answer.status_code,
        [item["status"] for item in answer.json()["answers"]],
        answer.json()["jobs"],
    )
    assert "succeeded" == await state_of(client, job_id)


async def test_the_reports_stand_when_the_session_has_ended(client: httpx2.AsyncClient, session: str) -> None:
    """A session that is closed hands out nothing more; a report of its is answered as ever."""
    await submit(client)
    [job] = (await exchange(client, session, claim={"count": 1})).json()["jobs"]
    await exchange(client, session, reports=[completed(job)])
    await submit(client)
    await client.delete(f"/workers/{WORKER}", params={"session": session})

    answer = await exchange(client, session, reports=[completed(job)], claim={})

    assert (200, ["already"], []) == (
        answer.status_code,
        [item["status"] for item in answer.json()["answers"]],
        answer.json()["jobs"],
    )


async def test_a_claim_without_session_is_refused_before_the_reports(client: httpx2.AsyncClient) -> None:
    """Jobs with the answer are for sessions: a bare caller that asks is told so, and nothing of it is recorded."""
    job_id = await submit(client)
    [job] = (await client.post("/jobs/claim", json={"worker_id": WORKER})).json()["jobs"]

    answer = await client.post("/jobs/report", json={"worker_id": WORKER, "reports": [completed(job)], "claim": {}})

    assert (422, "claim") == (answer.status_code, answer.json()["errors"][0]["field"])
    assert "assigned" == await state_of(client, job_id)


async def test_a_key_for_some_queues_claims_only_there(calls: Calls, client: httpx2.AsyncClient, session: str) -> None:
    """A key kept to queues gets 403 for a claim of others, and its reports are not recorded."""
    await submit(client, queue="other")

    answer = await exchange(calls("worker.a@mail"), session, claim={"queues": ["other"]})

    assert 403 == answer.status_code


async def test_jobs_beyond_the_bound_of_an_answer_go_back(
    client: httpx2.AsyncClient, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer carries so many bytes of payloads; what is beyond is ready again, without an attempt used."""
    monkeypatch.setattr(translate, "ANSWER_BYTES", 100)
    for _ in range(2):
        await submit(client, payload="x" * 90)

    first = (await exchange(client, session, claim={})).json()["jobs"]
    second = (await exchange(client, session, claim={})).json()["jobs"]

    assert (1, 1) == (len(first), len(second))
    assert 1 == second[0]["attempt"]


async def test_jobs_within_the_bound_are_told_where_the_others_cannot_go_back(
    client: httpx2.AsyncClient, engine: Engine, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are leased: an answer without them would leave their leases to nobody."""
    monkeypatch.setattr(translate, "ANSWER_BYTES", 100)
    for _ in range(2):
        await submit(client, payload="x" * 90)

    async def broken(*_: Any) -> Any:
        raise Unavailable("away")

    monkeypatch.setattr(engine, "undo", broken)

    answer = await exchange(client, session, claim={"count": 2})

    assert 1 == len(answer.json()["jobs"])


async def test_all_jobs_of_a_claim_go_back_when_a_checkpoint_cannot_be_read(
    client: httpx2.AsyncClient, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are beyond the bound of the answer too: nobody is told of any."""
    ids = [await submit(client, payload="x" * 90) for _ in range(2)]
    first, _ = (await exchange(client, session, claim={"count": 2})).json()["jobs"]
    note = {"job_id": first["id"], "fence": first["fence"], "checkpoint": 1}
    reports = [{"kind": "release", "job_id": job_id, "fence": 1} for job_id in ids]
    await exchange(client, session, notes=[note], reports=reports)
    monkeypatch.setattr(translate, "ANSWER_BYTES", 100)

    async def broken(*_: Any) -> Any:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "find", broken)
        answer = await client.post("/jobs/claim", json={"worker_id": WORKER, "session": session, "count": 2})

    assert 503 == answer.status_code
    assert ["queued"] * 2 == [await state_of(client, job_id) for job_id in ids]


async def test_what_a_worker_notes_is_shown_and_brought_to_the_next(client: httpx2.AsyncClient, session: str) -> None:
    """Progress and checkpoint come by notes, are shown with the job, and the checkpoint by the next claim."""
    job_id = await submit(client)
    [job] = (await exchange(client, session, claim={})).json()["jobs"]
    told = {"job_id": job_id, "fence": job["fence"], "progress": 0.5, "checkpoint": {"row": 7, "password": "x"}}

    await exchange(client, session, notes=[told])
    shown = (await client.get(f"/jobs/{job_id}")).json()
    released = {"kind": "release", "job_id": job_id, "fence": job["fence"]}
    [again] = (await exchange(client, session, reports=[released], claim={})).json()["jobs"]

    assert (None, 0.5) == (job["checkpoint"], shown["progress"])
    assert {"row": 7, "password": "***"} == shown["checkpoint"]
    assert {"row": 7, "password": "x"} == again["checkpoint"]


async def test_notes_are_kept_before_the_report_that_comes_with_them(client: httpx2.AsyncClient, session: str) -> None:
    """The last words of an attempt travel with its end; they are told first, so its lease still holds."""
    job_id = await submit(client)
    [job] = (await exchange(client, session, claim={})).json()["jobs"]
    named = {"job_id": job_id, "fence": job["fence"]}
    chunk = {**named, "seq": 0, "lines": [{"at": "2026-01-31T12:00:00Z", "text": "bye"}]}

    await exchange(client, session, notes=[{**named, "progress": 1}], logs=[chunk], reports=[completed(job)])
    log = (await client.get(f"/jobs/{job_id}/logs")).json()

    assert 1 == (await client.get(f"/jobs/{job_id}")).json()["progress"]
    assert ["bye"] == [line["text"] for line in log["lines"]]


@pytest.mark.parametrize("way", ["heartbeat", "release", "snooze"])
async def test_a_bare_worker_leaves_a_checkpoint_too(client: httpx2.AsyncClient, way: str) -> None:
    """Heartbeat of one job, release and snooze take a checkpoint; the next claim brings it."""
    job_id = await submit(client)
    [job] = await claim(client)

    more = {"delay": 0} if way == "snooze" else {}
    await client.post(f"/jobs/{job_id}/{way}", json=lease(job, checkpoint=[1, 2], **more))
    if way == "heartbeat":
        await client.post(f"/jobs/{job_id}/release", json=lease(job))
    [again] = await claim(client, wait=20)

    assert (job_id, [1, 2]) == (again["id"], again["checkpoint"])


async def test_progress_comes_with_heartbeats(client: httpx2.AsyncClient, session: str) -> None:
    """A heartbeat of a worker or for one job tells how far its jobs are; another fence tells nothing."""
    job_id = await submit(client)
    [job] = (await exchange(client, session, claim={})).json()["jobs"]
    held = {"job_id": job_id, "fence": job["fence"], "started": True}
    body = {"worker_id": WORKER, "session": session}

    await client.post("/workers/heartbeat", json={**body, "held": [{**held, "progress": {"done": 3}}]})
    first = (await client.get(f"/jobs/{job_id}")).json()["progress"]
    await client.post("/workers/heartbeat", json={**body, "held": [{**held, "fence": 9, "progress": 9}, held]})
    await client.post(f"/jobs/{job_id}/heartbeat", json=lease(job, progress="near"))
    last = (await client.get(f"/jobs/{job_id}")).json()["progress"]

    assert ({"done": 3}, "near") == (first, last)


async def test_a_heartbeat_keeps_nothing_of_leases_that_are_lost(
    client: httpx2.AsyncClient, session: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand leases that nobody has are told as lost, and not one word of them goes to the database."""
    await submit(client)
    [job] = (await exchange(client, session, claim={})).json()["jobs"]
    kept: list[Note] = []

    async def keep(_: object, notes: Iterable[Note]) -> None:
        kept.extend(notes)

    monkeypatch.setattr(engine.trail, "keep", keep)
    unknown = [{"job_id": str(uuid4()), "fence": 1, "progress": 1} for _ in range(10)]
    held = [*unknown, {"job_id": job["id"], "fence": job["fence"], "progress": 2}]

    beat = await client.post("/workers/heartbeat", json={"worker_id": WORKER, "session": session, "held": held})

    assert {lease["job_id"] for lease in unknown} == set(beat.json()["lost"])
    assert [job["id"]] == [str(note.job_id) for note in kept]


async def test_a_bare_worker_tells_progress_of_what_it_holds(client: httpx2.AsyncClient) -> None:
    """Without a session the heartbeat of a worker keeps the progress of the jobs it names as well."""
    await submit(client)
    [job] = await claim(client)
    held = {"job_id": job["id"], "fence": job["fence"], "progress": 4}

    await client.post("/workers/heartbeat", json={"worker_id": WORKER, "held": [held]})

    assert 4 == (await client.get(f"/jobs/{job['id']}")).json()["progress"]


async def test_no_word_refuses_the_reports_that_come_with_it(client: httpx2.AsyncClient, session: str) -> None:
    """A checkpoint that is too large and a line of no time are left out one by one, and told; the rest is kept."""
    job_id = await submit(client)
    [job] = (await exchange(client, session, claim={})).json()["jobs"]
    named = {"job_id": job_id, "fence": job["fence"]}
    lines = [{"at": "0001-01-01T00:00:00Z", "text": "never"}, {"at": "2026-01-31T12:00:00Z", "text": "bye"}]

    answer = await exchange(
        client,
        session,
        notes=[{**named, "progress": 1, "checkpoint": "x" * 2_000_000}],
        logs=[{**named, "seq": 0, "lines": lines}],
        reports=[completed(job)],
    )
    log = (await client.get(f"/jobs/{job_id}/logs")).json()

    assert (200, "succeeded") == (answer.status_code, await state_of(client, job_id))
    assert [(job_id, "logs"), (job_id, "checkpoint")] == [
        (word["job_id"], word["field"]) for word in answer.json()["refused"]
    ]
    assert 1 == (await client.get(f"/jobs/{job_id}")).json()["progress"]
    assert (["bye"], 1) == ([line["text"] for line in log["lines"]], log["dropped"])


async def test_a_trail_that_cannot_be_kept_holds_up_no_report(
    client: httpx2.AsyncClient, session: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that cannot keep lines now records the ends that come with them; lines alone are to be said again."""
    job_id = await submit(client)
    [job] = (await exchange(client, session, claim={})).json()["jobs"]
    chunk = {"job_id": job_id, "fence": job["fence"], "seq": 0, "lines": [{"at": "2026-01-31T12:00:00Z", "text": "x"}]}

    async def refuse(*_: Any) -> None:
        raise Unavailable("The disk is full.")

    monkeypatch.setattr(engine.trail, "keep", refuse)
    alone = await exchange(client, session, logs=[chunk])
    answer = await exchange(client, session, logs=[chunk], reports=[completed(job)])

    assert (503, 200, "succeeded") == (alone.status_code, answer.status_code, await state_of(client, job_id))
    assert [job_id] == [word["job_id"] for word in answer.json()["refused"]]


@pytest.mark.parametrize("progress", ["x" * 2_000_000, deep()], ids=["large", "deep"])
async def test_no_progress_refuses_a_heartbeat(client: httpx2.AsyncClient, session: str, progress: Any) -> None:
    """Whatever is told of one job, the heartbeat renews all leases, and keeps what is told of the others."""
    await submit(client)
    await submit(client)
    bad, good = (await exchange(client, session, claim={"count": 2})).json()["jobs"]
    held = [
        {"job_id": bad["id"], "fence": bad["fence"], "progress": progress},
        {"job_id": good["id"], "fence": good["fence"], "progress": 2},
    ]

    answer = await client.post("/workers/heartbeat", json={"worker_id": WORKER, "session": session, "held": held})

    assert (200, [], [bad["id"]]) == (
        answer.status_code,
        answer.json()["lost"],
        [word["job_id"] for word in answer.json()["refused"]],
    )
    assert 2 == (await client.get(f"/jobs/{good['id']}")).json()["progress"]


async def test_no_progress_refuses_the_heartbeat_of_a_bare_worker(client: httpx2.AsyncClient) -> None:
    """Without a session it is the same, for the worker and for one job."""
    await submit(client)
    [job] = await claim(client)
    held = {"job_id": job["id"], "fence": job["fence"], "progress": deep()}

    of_worker = await client.post("/workers/heartbeat", json={"worker_id": WORKER, "held": [held]})
    of_job = await client.post(f"/jobs/{job['id']}/heartbeat", json=lease(job, progress=held["progress"]))

    assert [(200, ["progress"]), (200, ["progress"])] == [
        (answer.status_code, [word["field"] for word in answer.json()["refused"]]) for answer in (of_worker, of_job)
    ]


async def test_a_key_for_some_queues_tells_nothing_of_others(
    calls: Calls, client: httpx2.AsyncClient, session: str
) -> None:
    """Notes and lines about a job in a queue that the key is not for are 403."""
    job_id = await submit(client, queue="other")
    note = {"job_id": job_id, "fence": 1, "progress": 1}

    answer = await exchange(calls("worker.a@mail"), session, notes=[note])

    assert 403 == answer.status_code
