"""Races about taking in: acknowledged once, stored once, whatever becomes of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from tests.clock import TestClock
from tests.databases import PATIENT
from tests.proxy import CuttingProxy
from tests.queue.races.orders import Race
from tests.queue.races.pausing import Pausing
from tests.queue.races.stage import Scene, Stage, no_jitter
from tests.queue.races.test_reports import good, say_it
from windlass.db import Database, open_database
from windlass.db.postgres import HOT_SETTINGS
from windlass.errors import CommitAborted, CommitUnknown, InvalidInput, KeyReused, WindlassError
from windlass.job import State
from windlass.queue import history, workers
from windlass.queue.control import Actor
from windlass.queue.deadletters import Retried, retry
from windlass.queue.lanes import Lanes
from windlass.queue.report import Answer, Report, Status, report
from windlass.queue.submit import Submitted, submit, submit_requests


@asynccontextmanager
async def proxied(url: str, clock: TestClock | None) -> AsyncIterator[tuple[CuttingProxy, Database]]:
    """Open the database at `url` behind a proxy that can cut it off at a COMMIT, which by `pooler` each write has."""
    parts = urlsplit(url)
    async with CuttingProxy(parts.hostname or "", parts.port or 5432) as proxy:
        netloc = parts.netloc.replace(f":{parts.port}", f":{proxy.port}")
        # By `pooler` each transaction begins with its settings.
        with patch.dict(HOT_SETTINGS, PATIENT):
            db = await open_database(parts._replace(netloc=netloc, query="pooler=transaction").geturl(), clock=clock)
            try:
                yield proxy, db
            finally:
                await db.close()


async def count(stage: Stage, queue: str) -> int:
    """Return how many jobs a queue has, live or ended."""
    return len((await history.find(stage.db, history.Filter(tenant="default", queue=queue))).jobs)


async def test_rel_x4_cut_before_commit(postgres_stage: Stage, postgres_url: str) -> None:
    """A submit whose COMMIT never arrived says that nothing was written; run again it stores its job once."""
    scene = await postgres_stage.scene(0)
    job = postgres_stage.job(scene.queue, idempotency_key="key")
    async with proxied(postgres_url, postgres_stage.clock) as (proxy, db):
        await postgres_stage.lanes.resolve(db, [job.lane])
        proxy.cut_before_commit()
        with pytest.raises(CommitAborted):
            await submit(db, postgres_stage.lanes, [job])
        assert proxy.fired.is_set()
        assert 0 == await count(postgres_stage, scene.queue)

        [again] = await submit(db, postgres_stage.lanes, [job])

    assert (again.id, again.duplicate) == (job.id, False)
    assert 1 == await count(postgres_stage, scene.queue)
    await postgres_stage.sound()


async def test_rel_x4_cut_after_commit(postgres_stage: Stage, postgres_url: str) -> None:
    """A submit whose COMMIT happened but whose answer got lost is answered as what it is: done, once."""
    scene = await postgres_stage.scene(0)
    jobs = [postgres_stage.job(scene.queue) for _ in range(3)]
    async with proxied(postgres_url, postgres_stage.clock) as (proxy, db):
        await postgres_stage.lanes.resolve(db, [jobs[0].lane])
        proxy.cut_after_commit()
        answers = await submit(db, postgres_stage.lanes, jobs)
        assert proxy.fired.is_set()

    assert [answer.id for answer in answers] == [job.id for job in jobs]
    assert 3 == await count(postgres_stage, scene.queue)
    await postgres_stage.sound()


async def test_rel_x4_commit_still_under_way(postgres_stage: Stage, postgres_url: str) -> None:
    """A submit cut off while its COMMIT is held up waits until the database knows what became of it."""
    scene = await postgres_stage.scene(0)
    job = postgres_stage.job(scene.queue)
    async with proxied(postgres_url, postgres_stage.clock) as (proxy, db):
        await postgres_stage.lanes.resolve(db, [job.lane])
        proxy.hold_commit()
        submitted = asyncio.create_task(submit(db, postgres_stage.lanes, [job]))
        await proxy.fired.wait()
        proxy.cut_all()
        proxy.release()

        with pytest.raises(CommitAborted):
            await submitted

    assert 0 == await count(postgres_stage, scene.queue)
    await postgres_stage.sound()


@pytest.mark.parametrize("said", ["complete", "fail", "snooze", "release"])
async def test_rel_k16_report_of_unknown_fate(postgres_stage: Stage, postgres_url: str, said: str) -> None:
    """A report whose answer got lost is sent again blindly: it is told that it is recorded, and counts once."""
    scene = await postgres_stage.leased()
    item = getattr(scene, said)()
    async with proxied(postgres_url, postgres_stage.clock) as (proxy, db):
        proxy.cut_after_commit()
        with pytest.raises(CommitUnknown):
            await report(db, [item], chance=no_jitter)
        before = await postgres_stage.bytes_of(scene.id)
        assert (await say_it(db, item)).status is Status.ALREADY

    assert before == await postgres_stage.bytes_of(scene.id)
    assert 1 == len(before["attempts"])
    await postgres_stage.sound()


async def test_rel_k16_claim_of_unknown_fate(postgres_stage: Stage, postgres_url: str) -> None:
    """A claim whose answer got lost is not run again: the next heartbeat gives its jobs back, no attempt used."""
    scene = await postgres_stage.scene()
    async with proxied(postgres_url, postgres_stage.clock) as (proxy, db):
        proxy.cut_after_commit()
        with pytest.raises(CommitUnknown):
            await postgres_stage.claim(db, scene.queue, scene.session)
    assert await postgres_stage.state(scene.id) is State.ASSIGNED
    postgres_stage.clock.advance(workers.UNLISTED_MS / 1000)

    [answer] = await workers.heartbeat(postgres_stage.db, [workers.Beat(scene.session, [])])

    job = await postgres_stage.get(scene.id)
    assert answer.released == scene.ids
    assert (job.state, job.attempt, job.lost, job.fence) == (State.QUEUED, 0, 0, 1)


async def test_rel_k16_rescue_of_unknown_fate(postgres_stage: Stage, postgres_url: str) -> None:
    """A rescue whose answer got lost and that is run again counts each loss once."""
    scene = await postgres_stage.leased(started=True)
    await postgres_stage.lapse()
    async with proxied(postgres_url, postgres_stage.clock) as (proxy, db):
        for transaction in ("beat_pulse", "declare_dead", "orphans"):
            held = Pausing(db)
            point = held.hold_before(transaction)
            rescued = asyncio.create_task(postgres_stage.rescue(held))
            await point.reached.wait()
            proxy.cut_after_commit()
            point.release()
            with pytest.raises(CommitUnknown):
                await rescued
        await postgres_stage.rescue(db)

    job = await postgres_stage.get(scene.id)
    assert (job.state, job.lost, job.attempt) == (State.QUEUED, 1, 1)
    await postgres_stage.sound()


async def test_rel_x19_one_key_on_two_servers(stage: Stage) -> None:
    """The same idempotency key on two servers makes one job, and both are answered with it."""

    async def judge(
        scene: Scene, left: list[Submitted] | WindlassError, right: list[Submitted] | WindlassError
    ) -> None:
        [one], [other] = good(left), good(right)
        assert one.id == other.id
        assert {one.duplicate, other.duplicate} == {True, False}
        assert 1 == await count(stage, scene.queue)

    async def send(db: Database, scene: Scene) -> list[Submitted]:
        return await submit(db, Lanes(), [stage.job(scene.queue, idempotency_key=scene.queue)])

    await Race(lambda: stage.scene(0), send, send, judge).in_every_order(stage)


async def test_rel_x19_one_key_other_content(stage: Stage) -> None:
    """The same idempotency key with other content on two servers: one is stored, the other refused."""

    def sender(payload: str) -> Any:
        async def send(db: Database, scene: Scene) -> list[Submitted]:
            jobs = [stage.job(scene.queue), stage.job(scene.queue, idempotency_key=scene.queue, payload=payload)]
            return await submit(db, Lanes(), jobs)

        return send

    async def judge(
        scene: Scene, left: list[Submitted] | WindlassError, right: list[Submitted] | WindlassError
    ) -> None:
        [refused] = [answer for answer in (left, right) if isinstance(answer, WindlassError)]
        assert isinstance(refused, KeyReused)
        assert refused.index == 1
        assert 2 == await count(stage, scene.queue)

    await Race(lambda: stage.scene(0), sender("1"), sender("2"), judge).in_every_order(stage)


async def test_rel_x19_a_key_whose_time_is_over(stage: Stage) -> None:
    """A key whose window has passed is taken by one of two servers, and both are answered with its job."""

    async def prepare() -> Scene:
        scene = await stage.scene(0)
        await submit(stage.db, stage.lanes, [keyed(stage, scene)])
        stage.clock.advance(2)
        return scene

    async def send(db: Database, scene: Scene) -> list[Submitted]:
        return await submit(db, Lanes(), [keyed(stage, scene)])

    async def judge(
        scene: Scene, left: list[Submitted] | WindlassError, right: list[Submitted] | WindlassError
    ) -> None:
        [one], [other] = good(left), good(right)
        assert one.id == other.id
        assert {one.duplicate, other.duplicate} == {True, False}
        assert 2 == await count(stage, scene.queue)

    await Race(prepare, send, send, judge).in_every_order(stage)


def keyed(stage: Stage, scene: Scene) -> Any:
    """Return a job whose idempotency key is held for a second."""
    return stage.job(scene.queue, idempotency_key=scene.queue, idempotency_ms=1000)


Keyed = tuple[Scene, str]


async def unique_scene(stage: Stage) -> Keyed:
    """Return a scene with one lease, whose job holds a unique key, and the key."""
    key = f"unique-{stage.ids.new()}"
    return await stage.leased(unique_key=key), key


async def test_rel_x19_unique_key_beside_the_end_that_frees_it(stage: Stage) -> None:
    """A submit beside the end of the job that holds its unique key: answered with that job, or stored."""

    async def send(db: Database, made: Keyed) -> list[Submitted]:
        return await submit(db, Lanes(), [stage.job(made[0].queue, unique_key=made[1])])

    async def judge(made: Keyed, answer: Answer | WindlassError, sent: list[Submitted] | WindlassError) -> None:
        assert good(answer).status is Status.APPLIED
        [told] = good(sent)
        assert told.duplicate is (told.id == made[0].id)
        assert await count(stage, made[0].queue) == (1 if told.duplicate else 2)

    await Race(
        lambda: unique_scene(stage), lambda db, made: say_it(db, made[0].complete()), send, judge
    ).in_every_order(stage)


async def test_rel_x19_unique_key_beside_retry(stage: Stage) -> None:
    """A unique key is taken by a new job or by the retry of an old one, never by both."""

    async def prepare() -> Keyed:
        scene, key = await unique_scene(stage)
        await say_it(stage.db, scene.fail(retryable=False))
        return scene, key

    async def send(db: Database, made: Keyed) -> list[Submitted]:
        return await submit(db, Lanes(), [stage.job(made[0].queue, unique_key=made[1])])

    async def again(db: Database, made: Keyed) -> Sequence[object]:
        return await retry(db, [made[0].id], tenant="default", actor=Actor())

    async def judge(
        made: Keyed, sent: list[Submitted] | WindlassError, answers: Sequence[object] | WindlassError
    ) -> None:
        [told], [retried] = good(sent), good(answers)
        assert isinstance(retried, Retried) is told.duplicate
        assert told.duplicate is (told.id == made[0].id)

    await Race(prepare, send, again, judge).in_every_order(stage)


async def test_rel_x28_poison_among_many_requests(stage: Stage) -> None:
    """Of a thousand requests in one flush the bad ones are refused by themselves, all others stored."""
    scene = await stage.scene(0)
    bad: dict[int, dict[str, Any]] = {
        7: {"payload": '"\x00"'},
        300: {"payload": "{"},
        500: {"priority": 1000},
        700: {"queue": "a/b"},
        999: {"payload": '"\ud800"'},
    }
    requests = [[stage.job(scene.queue), stage.job(**{"queue": scene.queue} | bad.get(n, {}))] for n in range(1000)]

    answers = await submit_requests(stage.db, stage.lanes, requests)

    refused = {number: answer for number, answer in enumerate(answers) if isinstance(answer, WindlassError)}
    assert refused.keys() == bad.keys()
    assert {1} == {answer.index for answer in refused.values() if isinstance(answer, InvalidInput)}
    stored = [job.id for answer in answers if not isinstance(answer, WindlassError) for job in answer]
    assert len(set(stored)) == 1990
    found = await history.count(stage.db, history.Filter(tenant="default", queue=scene.queue))
    assert found == history.Count(1990, exact=True)
    await stage.sound()


async def test_rel_x28_poison_in_one_batch(stage: Stage) -> None:
    """One bad job refuses its whole request and is named by its index; nothing of it is stored."""
    scene = await stage.scene(0)
    jobs = [stage.job(scene.queue, payload="{" if n == 123 else "{}") for n in range(1000)]

    with pytest.raises(InvalidInput, match=r"jobs\[123\]\.payload"):
        await submit(stage.db, stage.lanes, jobs)

    assert 0 == await count(stage, scene.queue)


NUL = "a\x00b"


@pytest.mark.parametrize("field", ["payload", "headers", "task", "queue", "tenant", "tags", "labels", "unique_key"])
async def test_rel_k14_nul_in_a_job_is_refused(stage: Stage, field: str) -> None:
    """A NUL in any text of a job is refused before any statement, with the name of the field."""
    value = (NUL,) if field in ("tags", "labels") else f'"{NUL}"' if field in ("payload", "headers") else NUL
    fields: dict[str, Any] = {"queue": "queue", field: value}

    with pytest.raises(InvalidInput, match=field):
        await submit(stage.db, stage.lanes, [stage.job(**fields)])


async def test_rel_k14_escaped_nul_is_kept(stage: Stage) -> None:
    """A NUL written as an escape in JSON passes through payload and result byte by byte."""
    text = r'{"a": "\u0000", "b": 1e400, "c":  [ ] }'.replace("1e400", "1e40")
    scene = await stage.leased(payload=text)

    assert scene.lease.payload == text
    assert (await say_it(stage.db, scene.complete(result=text))).status is Status.APPLIED
    assert (await stage.get(scene.id)).result == text


async def test_rel_k14_nul_in_an_error_keeps_the_status(stage: Stage) -> None:
    """A NUL or half a surrogate pair in what a failing task says never costs the record that it failed."""
    scene = await stage.leased(2)
    one, two = scene.leases
    texts = {"error": NUL, "error_type": NUL, "traceback": f"{NUL}\ud800"}
    reports: list[Report] = [
        Scene(scene.queue, scene.worker, scene.session, [one.id], [one]).fail(**texts),
        Scene(scene.queue, scene.worker, scene.session, [two.id], [two]).release(reason=NUL),
    ]

    answers = await report(stage.db, reports, chance=no_jitter)

    assert [answer.status for answer in answers] == [Status.APPLIED, Status.APPLIED]
    [attempt] = (await history.attempts(stage.db, one.id, tenant="default")).items
    assert attempt.error == "a␀b"
    await stage.sound()


async def test_rel_k14_nul_in_a_result_is_refused(stage: Stage) -> None:
    """A NUL in a result is refused with the index of its report; the lease is as it was."""
    scene = await stage.leased()
    before = await stage.bytes_of(scene.id)

    with pytest.raises(InvalidInput, match="result"):
        await say_it(stage.db, scene.complete(result=f'"{NUL}"'))

    assert before == await stage.bytes_of(scene.id)
