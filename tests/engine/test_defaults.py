"""The options of tasks at every door of an engine, and when two servers and two builds of a worker are about."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from tests.clock import TestClock
from tests.engine.test_signatures import Elapsed, signatures_of
from tests.engine.test_two_servers import hinting as hinting
from tests.engine.test_two_servers import pair as pair
from tests.queue import said
from tests.queue.fired import fire
from tests.queue.planned import made
from tests.queue.steps import Steps
from windlass.db import Database
from windlass.engine import signatures as module
from windlass.engine.engine import Engine
from windlass.queue import backfills, history, tasks
from windlass.queue.control import Actor
from windlass.queue.defaults import FIELDS, opened, sources
from windlass.queue.newjob import NewJob
from windlass.queue.retry import PRESETS
from windlass.queue.views import Job
from windlass.wire.jobs import Policy
from windlass.wire.tasks import Signature, TaskDefaults

PATIENCE_S = 30
ALL_OPEN = opened(*FIELDS)
OF_SCHEDULES = opened(*(set(FIELDS) - {"delay", "unique_key", "unique_for"}))
MAIL = TaskDefaults(
    queue="post",
    priority=7,
    timeout_seconds=None,
    max_attempts=9,
    max_lost=2,
    retry_policy=Policy(kind="fixed", base=5.0),
    labels=("b", "a"),
    tags=("x",),
    headers={"trace": "1"},
    start_within=90,
)


@pytest.fixture
def steps(db: Database, clock: TestClock) -> Steps:
    """The steps of the queue."""
    return Steps(db, clock)


def open_job(**fields: Any) -> NewJob:
    """Return a job that leaves everything open."""
    return NewJob(id=uuid4(), task="mail", defaults=ALL_OPEN, **fields)


async def publish(engine: Engine, **defaults: Any) -> None:
    """Let a worker register here whose task has these options."""
    await engine.signatures.publish("default", {"mail": Signature(extra=True, defaults=TaskDefaults(**defaults))})


async def queue_at(engine: Engine) -> str:
    """Return into which queue an engine would put a job."""
    [job] = await engine.signatures.fill([open_job()])
    return job.queue


async def test_a_row_of_the_outbox_gets_the_options_of_its_task(timely: Engine) -> None:
    """Said in an application's own transaction, by name: what the row leaves open is the task's."""
    await publish(timely, queue="post", max_attempts=9)

    job_id = await said.enqueue(timely.db, "mail", priority=3)

    async with asyncio.timeout(PATIENCE_S):
        while (job := await found(timely.db, job_id)) is None:
            pass
    assert ("post", 9, 3) == (job.queue, job.max_attempts, job.priority)
    assert ("task", "settings", None) == tuple(
        sources(job.defaults).get(name) for name in ("queue", "timeout_seconds", "priority")
    )


@pytest.mark.parametrize(("named", "within_s"), [({"start_within": 60}, 60), ({}, 3600)])
async def test_a_row_of_the_outbox_has_one_start_deadline(timely: Engine, named: dict[str, Any], within_s: int) -> None:
    """Its own, else the task's; both count from when it was said, not from when it was relayed."""
    await publish(timely, start_within=3600)

    job_id = await said.enqueue(timely.db, "mail", **named)

    async with asyncio.timeout(PATIENCE_S):
        while (job := await found(timely.db, job_id)) is None:
            pass
    assert job.start_by is not None
    assert within_s - 55 < (job.start_by - job.created_at).total_seconds() <= within_s


async def test_a_row_that_is_no_json_keeps_no_other_waiting(timely: Engine) -> None:
    """Also where its task is unique by its arguments, so that they must be read before it is looked at."""
    await publish(timely, unique=True)
    await said.put(timely.db, uuid4(), payload="{")
    good = await said.enqueue(timely.db, "mail", payload="{}")

    async with asyncio.timeout(PATIENCE_S):
        while (job := await found(timely.db, good)) is None:
            pass
    assert job.unique_key is not None


async def found(db: Database, job_id: UUID) -> Job | None:
    """Return a job if it is there."""
    jobs = await history.find(db, history.Filter(tenant="default"), limit=10)
    return next((job for job in jobs.jobs if job.id == job_id), None)


async def test_a_slot_that_fires_gets_the_options_of_that_moment(steps: Steps) -> None:
    """What the author of the schedule named stays; a task of the same name of another tenant gives nothing."""
    known = signatures_of(steps.db)
    await known.publish("default", {"mail": Signature(defaults=MAIL)})
    left = await made(steps, "left", defaults=OF_SCHEDULES)
    # The policy that it names says how often, too.
    own = await made(
        steps,
        "own",
        queue="own",
        priority=1,
        tags=("mine",),
        retry=PRESETS["stepped"],
        defaults=opened("max_attempts"),
    )
    other = await made(steps, "other", tenant="other", defaults=OF_SCHEDULES)

    fired = await fire(steps, 3600, given=known.given)

    jobs = {job.schedule_id: job for tenant in ("default", "other") for job in await all_jobs(steps, tenant)}
    job, mine, foreign = (jobs[schedule.id] for schedule in (left, own, other))
    assert {"post": 1, "own": 1, "default": 1} == fired.queues
    assert ("post", "a,b", 7, None, 9, 2, ["x"], '{"trace":"1"}') == (
        *(job.queue, job.labels, job.priority, job.timeout_s, job.max_attempts, job.max_lost, job.tags, job.headers),
    )
    assert job.retry is not None
    assert '"fixed"' in job.retry
    assert job.start_by == job.scheduled_at + timedelta(seconds=90)
    assert ("task", "settings") == (sources(job.defaults)["retry_policy"], sources(job.defaults)["delivery"])
    assert ("own", 1, ["mine"], 4) == (mine.queue, mine.priority, mine.tags, mine.max_attempts)
    assert {"max_attempts": "task"} == sources(mine.defaults)
    assert mine.retry is not None
    assert ("default", 0, [], None) == (foreign.queue, foreign.priority, foreign.tags, foreign.retry)


async def all_jobs(steps: Steps, tenant: str) -> list[Job]:
    """Return the jobs of a tenant."""
    return (await history.find(steps.db, history.Filter(tenant=tenant), limit=10)).jobs


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_slot_that_fires_is_delivered_as_the_task_says(steps: Steps, delivery: Any) -> None:
    """At most once takes the policy away; at least once leaves the schedule's own."""
    known = signatures_of(steps.db)
    await known.publish("default", {"mail": Signature(defaults=TaskDefaults(delivery=delivery))})
    await made(steps, retry=PRESETS["stepped"], max_attempts=4, defaults=opened("delivery", "max_lost"))

    await fire(steps, 3600, given=known.given)

    [job] = await all_jobs(steps, "default")
    expected = (1, 1, True) if delivery == "at_most_once" else (4, 5, False)
    assert expected == (job.max_attempts, job.max_lost, job.retry is None)


async def test_a_backfilled_slot_gets_the_options_of_its_task(steps: Steps) -> None:
    """As one that fires; but no start deadline, which would have passed long ago."""
    known = signatures_of(steps.db)
    await known.publish("default", {"mail": Signature(defaults=MAIL)})
    schedule = await made(steps, defaults=OF_SCHEDULES)
    since = steps.clock.now() - timedelta(hours=5)
    until = since + timedelta(hours=1)
    me = Actor("ann", "they were missed")
    started = await backfills.start(steps.db, steps.ids, schedule, since=since, until=until, actor=me)

    await backfills.advance(steps.db, steps.lanes, steps.ids, backfill=started, given=known.given)

    [job] = await all_jobs(steps, "default")
    assert ("post", 7, 9, None) == (job.queue, job.priority, job.max_attempts, job.start_by)


async def test_another_server_knows_a_new_task_at_once(pair: tuple[Engine, Engine]) -> None:
    """Registered at one, submitted at the other a moment later: with hints and without."""
    first, second = pair
    before = await queue_at(second)
    second.signatures._absent.clear()  # the second that an unknown task is not asked for again has passed

    await publish(first, queue="post")

    assert ("default", "post") == (before, await queue_at(second))


async def test_another_server_hears_of_a_new_build(hinting: tuple[Engine, Engine]) -> None:
    """A hint makes it look before it goes by what it knows."""
    first, second = hinting
    await publish(first, queue="old")
    assert "old" == await queue_at(second)
    heard: list[str | None] = []
    second.wake.on_tasks.append(heard.append)

    # Until the other listens, what is said is not heard.
    number = 0
    async with asyncio.timeout(PATIENCE_S):
        while "default" not in heard:
            number += 1
            await publish(first, queue=f"new{number}")

    assert f"new{number}" == await queue_at(second)


async def test_a_look_that_began_before_a_hint_is_not_enough(
    db: Database, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What commits while a look is under way, and is heard of, is seen by the submit that comes after."""
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)
    reading, go_on = asyncio.Event(), asyncio.Event()
    recent = tasks.recent

    async def slow(*given: Any, **more: Any) -> Any:
        rows = await recent(*given, **more)
        reading.set()
        await go_on.wait()
        return rows

    await known.publish("default", {"mail": Signature(defaults=TaskDefaults(queue="old"))})
    monkeypatch.setattr(tasks, "recent", slow)
    elapsed.now += 2 * module.LOOK_S + 1
    early = asyncio.create_task(known.fill([open_job()]))
    await asyncio.wait_for(reading.wait(), PATIENCE_S)
    clock.advance(10)
    texts = {"mail": msgspec.json.encode(Signature(defaults=TaskDefaults(queue="new"))).decode()}
    await tasks.publish(db, "default", texts)
    known._hear("default")
    late = asyncio.create_task(known.fill([open_job()]))
    go_on.set()

    await asyncio.wait_for(early, PATIENCE_S)
    [job] = await asyncio.wait_for(late, PATIENCE_S)

    assert "new" == job.queue


async def test_a_server_that_idled_looks_before_it_fills_in(db: Database, clock: TestClock) -> None:
    """Without any hint: after a pause the first submit waits for a look."""
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)
    await known.publish("default", {"mail": Signature(defaults=TaskDefaults(queue="old"))})
    await known.fill([open_job()])
    clock.advance(60)
    elapsed.now += 60
    texts = {"mail": msgspec.json.encode(Signature(defaults=TaskDefaults(queue="new"))).decode()}
    await tasks.publish(db, "default", texts)

    [job] = await known.fill([open_job()])

    assert "new" == job.queue


async def test_a_worker_that_goes_on_does_not_become_the_newest_build(db: Database, clock: TestClock) -> None:
    """Its heartbeats renew what it has published; only one that registers brings its options in."""
    elapsed, session = Elapsed(), uuid4()
    known = signatures_of(db, elapsed)
    await known.publish("default", {"mail": Signature(defaults=TaskDefaults(queue="old"))}, session=session)
    clock.advance(10)
    await known.publish("default", {"mail": Signature(defaults=TaskDefaults(queue="new"))})
    clock.advance(module.RENEW_S + 1)
    elapsed.now += module.RENEW_S + 1

    await known.heard("default", session)

    [job] = await known.fill([open_job()])
    assert "new" == job.queue


async def test_what_no_worker_has_published_for_a_week_gives_nothing(db: Database, clock: TestClock) -> None:
    """As on a server that starts then: it is swept from the database."""
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)
    await known.publish("default", {"mail": Signature(defaults=TaskDefaults(queue="old"))})
    clock.advance(tasks.KEPT_MS / 1000 + 60)
    elapsed.now += tasks.KEPT_MS / 1000 + 60

    [job] = await known.fill([open_job()])

    assert "default" == job.queue


def test_a_job_that_names_everything_is_left_as_it_is() -> None:
    """Nothing is open, nothing is filled in, and nothing is told to be a default."""
    assert {} == sources(NewJob(id=uuid4(), task="mail").defaults)
