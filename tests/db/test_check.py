"""`windlass check`: a healthy database keeps every invariant, and each broken one is found and named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest

from tests.ahead import make_ahead
from tests.clock import START, TestClock
from windlass.db import Database
from windlass.db.partitions import PARTITIONED
from windlass.db.sqlfile import qualify
from windlass.ids import Ids
from windlass.queue.check import SHOWN, Violation, check
from windlass.queue.claim import Group, Want, claim
from windlass.queue.control import Actor, pause_job
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Fail, report
from windlass.queue.submit import submit
from windlass.queue.workers import Beat, Held, NewSession, heartbeat, register

WORKED = ("leased", "running", "done", "gone", "again")
WAITING = ("ready", "later", "unique", "held")
ANN = Actor("ann", "why")


@dataclass(frozen=True)
class World:
    """A healthy database with a job in each place, by a name for each."""

    db: Database
    ids: dict[str, UUID]

    async def damage(self, *statements: str) -> None:
        """Run statements in which `{name}` stands for the id of a job."""
        for statement in statements:
            text = statement.format(**{name: f"'{job_id}'" for name, job_id in self.ids.items()})
            await self.db.run(f"{qualify(text) if self.db.dialect == 'postgres' else text};\n")

    async def violations(self) -> set[tuple[str, str, str]]:
        """Return what the check finds: invariant, the name of the job, detail."""
        names = {str(job_id): name for name, job_id in self.ids.items()}
        return {(v.invariant, names.get(v.subject, v.subject), v.detail) for v in await check(self.db)}


@pytest.fixture
async def world(db: Database, clock: TestClock) -> World:
    """Jobs that are ready, timed, unique, held, leased, running, done, dead and waiting to be retried."""
    clock.advance(10)
    ids, lanes = Ids(clock), Lanes()
    jobs = {name: NewJob(id=ids.new(), task="t", queue="work") for name in WORKED}
    jobs |= {
        "ready": NewJob(id=ids.new(), task="t"),
        "later": NewJob(id=ids.new(), task="t", run_at=START + timedelta(hours=1)),
        "unique": NewJob(id=ids.new(), task="t", unique_key="one"),
        "held": NewJob(id=ids.new(), task="t"),
        "session": NewJob(id=ids.new(), task="t"),  # only its id is used
    }
    session = jobs.pop("session").id
    answers = await submit(db, lanes, list(jobs.values()))
    [lane] = {answer.lane for answer, name in zip(answers, jobs, strict=True) if name in WORKED}
    assert lane is not None
    await register(db, NewSession(id=session, worker="w"))
    clock.advance(10)
    leases = {lease.id: lease.fence for lease in await claim(db, [Group([Want(lane)], [session] * len(WORKED))])}
    running = jobs["running"].id
    clock.advance(5)
    await heartbeat(db, [Beat(session, [Held(job, fence, started=job == running) for job, fence in leases.items()])])
    clock.advance(5)
    named = {name: {"job_id": jobs[name].id, "fence": leases[jobs[name].id], "worker": "w"} for name in WORKED}
    await report(
        db,
        [
            Complete(**named["done"]),  # type: ignore[arg-type]
            Fail(**named["gone"], error="no", retryable=False),  # type: ignore[arg-type]
            Fail(**named["again"], error="no"),  # type: ignore[arg-type]
        ],
        chance=lambda: 0.0,
    )
    await pause_job(db, jobs["held"].id, tenant="default", actor=ANN)
    return World(db, {name: job.id for name, job in jobs.items()} | {"session": session})


async def test_a_healthy_database_keeps_every_invariant(world: World) -> None:
    """With a job in each place and each kind of end, the check finds nothing."""
    assert set() == await world.violations()


COPY_DONE = "INSERT INTO done SELECT * FROM done WHERE id = {done}"
CASES: list[tuple[str, str, str, str]] = [
    ("i3_unique_keys", "unique", "unique key one is not held by this live job", "DELETE FROM dedup"),
    (
        "i3_unique_keys",
        "done",
        "unique key one is held by a job that is not live",
        "UPDATE dedup SET job_id = {done} WHERE expires_at IS NULL",
    ),
    (
        "i3_unique_keys",
        "unique",
        "unique key one is not marked on the place",
        "UPDATE queue SET flags = 0 WHERE id = {unique}",
    ),
    (
        "i3_unique_keys",
        "later",
        "unique key two is not marked on the timer",
        "UPDATE job SET unique_key = 'two' WHERE id = {later}",
    ),
    ("i4_one_end", "gone", "in done and in dead", "UPDATE done SET id = {gone} WHERE id = {done}"),
    ("i4_one_end", "ready", "live and in dead", "UPDATE dead SET id = {ready}"),
    ("i4_one_end", "ready", "live and in done", "UPDATE done SET id = {ready}"),
    ("i4_one_end", "done", "ended more than once", COPY_DONE),
    ("i4_one_end", "done", "in done with outcome 1", "UPDATE done SET outcome = 1"),
    ("i5_fences", "done", "fence 1 ended more than once", COPY_DONE),
    (
        "i5_fences",
        "leased",
        "fence 1 is below that of an ended attempt",
        "UPDATE attempt SET job_id = {leased}, fence = 2 WHERE job_id = {again}",
    ),
    (
        "i5_fences",
        "leased",
        "fence 1 is leased and has ended",
        "UPDATE attempt SET job_id = {leased} WHERE job_id = {again}",
    ),
    ("i5_fences", "again", "fence 1 is below that of an ended attempt", "UPDATE attempt SET fence = 2"),
    ("i10_attempts", "leased", "attempt 4 of 3, lost 0 of 5", "UPDATE queue SET attempt = 4 WHERE id = {leased}"),
    ("i10_attempts", "again", "attempt 4 of 3, lost 0 of 5", "UPDATE timer SET attempt = 4 WHERE id = {again}"),
    ("i10_attempts", "ready", "attempt 0 of 3, lost 5 of 5", "UPDATE queue SET lost = 5 WHERE id = {ready}"),
    ("i10_attempts", "gone", "attempt 1 of 3, lost 6 of 5", "UPDATE dead SET lost = 6"),
    ("i10_attempts", "ready", "attempt -1 of 3, lost 0 of 5", "UPDATE queue SET attempt = -1 WHERE id = {ready}"),
    ("i10_attempts", "ready", "attempt 0 of 3, lost -1 of 5", "UPDATE queue SET lost = -1 WHERE id = {ready}"),
    ("i12_pending", "ready", "place 0 with 1 open parents", "UPDATE queue SET pending = 1 WHERE id = {ready}"),
    ("i12_pending", "leased", "place 1 with 1 open parents", "UPDATE queue SET pending = 1 WHERE id = {leased}"),
    ("i12_pending", "ready", "place 2 with 0 open parents", "UPDATE queue SET place = 2 WHERE id = {ready}"),
    ("i12_pending", "held", "place 3 with -1 open parents", "UPDATE queue SET pending = -1 WHERE id = {held}"),
    (
        "i15_limits",
        "default/work",
        "2 leased, limit 1",
        "UPDATE lane SET max_running = 1 WHERE queue = 'work' AND task = ''",
    ),
    (
        "i20_times",
        "leased",
        "times of the job are out of order",
        "UPDATE job SET created_at = (SELECT max(finished_at) FROM done) WHERE id = {leased}",
    ),
    (
        "i20_times",
        "done",
        "times of the job are out of order",
        "UPDATE done SET claimed_at = finished_at, finished_at = claimed_at",
    ),
    (
        "i20_times",
        "again",
        "times of attempt 1 are out of order",
        "UPDATE attempt SET claimed_at = finished_at, finished_at = claimed_at",
    ),
    ("i21_one_place", "ready", "a job without a place", "DELETE FROM queue WHERE id = {ready}"),
    ("i21_one_place", "later", "a job without a place", "DELETE FROM timer WHERE id = {later}"),
    ("i21_one_place", "ready", "in queue without a job", "DELETE FROM job WHERE id = {ready}"),
    ("i21_one_place", "later", "in timer without a job", "DELETE FROM job WHERE id = {later}"),
    (
        "i21_one_place",
        "ready",
        "in queue and in timer",
        "INSERT INTO timer SELECT {ready}, due_at, lane, 0, 0, 0, 0, 0, 0, NULL FROM timer WHERE id = {later}",
    ),
    (
        "i22_leases",
        "leased",
        "leased without session, fence or claim time",
        "UPDATE queue SET session = NULL WHERE id = {leased}",
    ),
    (
        "i22_leases",
        "leased",
        "leased without session, fence or claim time",
        "UPDATE queue SET fence = 0 WHERE id = {leased}",
    ),
    (
        "i22_leases",
        "leased",
        "leased without session, fence or claim time",
        "UPDATE queue SET claimed_at = NULL WHERE id = {leased}",
    ),
    ("i22_leases", "leased", "leased by a session that does not exist", "DELETE FROM session"),
    (
        "i22_leases",
        "running",
        "started, with a time-out and without a deadline",
        "UPDATE queue SET deadline_at = NULL WHERE id = {running}",
    ),
    (
        "i22_leases",
        "ready",
        "not leased, with a session, claim, start or deadline",
        "UPDATE queue SET session = {session} WHERE id = {ready}",
    ),
    (
        "i22_leases",
        "running",
        "not leased, with a session, claim, start or deadline",
        "UPDATE queue SET session = NULL, place = 0 WHERE id = {running}",
    ),
    (
        "i22_leases",
        "ready",
        "cancel asked of a job that is not leased",
        "UPDATE queue SET flags = 2 WHERE id = {ready}",
    ),
    ("i22_leases", "ready", "unknown place 7", "UPDATE queue SET place = 7 WHERE id = {ready}"),
    (
        "outbox",
        "ready",
        "a finish of fence 1 that no held lease waits for",
        "INSERT INTO outbox (id, kind, task, fence) VALUES ({ready}, 'finish', '', 1)",
    ),
    (
        "outbox",
        "ready",
        "set aside: no. Delete the row, or clear its error to have it tried again.",
        "INSERT INTO outbox (id, task, error) VALUES ({ready}, 't', 'no.')",
    ),
    ("pauses", "default/work", "lane * has pause bits 1", "UPDATE lane SET paused = 1 WHERE queue = 'work'"),
    (
        "pauses",
        "default/work",
        "lane * has pause bits 0",
        (
            "INSERT INTO pause SELECT 'tenant', 'default', '', reason, actor, paused_at, resume_at "
            "FROM pause WHERE kind = 'job'"
        ),
    ),
    ("pauses", "held", "ready and paused", "UPDATE queue SET place = 0 WHERE id = {held}"),
    ("pauses", "held", "held and not paused", "UPDATE queue SET flags = 0 WHERE id = {held}"),
    ("pauses", "held", "paused, and nobody said so", "DELETE FROM pause"),
    ("pauses", "later", "a paused timer, and nobody said so", "UPDATE timer SET flags = 1 WHERE id = {later}"),
    ("references", "ready", "in queue, of no lane", "UPDATE queue SET lane = 999 WHERE id = {ready}"),
    ("references", "later", "in timer, of no lane", "UPDATE timer SET lane = 999 WHERE id = {later}"),
    ("references", "done", "in done, of no lane", "UPDATE done SET lane = 999"),
    ("references", "gone", "in dead, of no lane", "UPDATE dead SET lane = 999"),
]


@pytest.mark.parametrize(("invariant", "subject", "detail", "statement"), CASES)
async def test_each_broken_invariant_is_named(
    world: World, invariant: str, subject: str, detail: str, statement: str
) -> None:
    """Rows broken by hand are found, with the invariant, the job and what is wrong with it."""
    await world.damage(statement)

    found = await world.violations()

    before, _, after = detail.partition("*")
    assert any(
        (invariant, subject) == violation[:2] and violation[2].startswith(before) and violation[2].endswith(after)
        for violation in found
    ), found


async def test_fewer_than_two_days_ahead_are_named(postgres_db: Database, clock: TestClock) -> None:
    """internals 12: the check tells two days before a day that is not there, what is missing and what to do."""
    clock.advance(days=5)  # migrated until 2026-01-08; now it is 2026-01-06
    early = await check(postgres_db)
    clock.advance(days=1)

    found = await check(postgres_db)

    advice = (
        "so nothing can be written to it then. Run `windlass migrate` or start a server: either makes the days ahead."
    )
    expected = [
        Violation("partitions", table, f"no partition for 2026-01-09, {advice}") for table in sorted(PARTITIONED)
    ]
    assert ([], expected) == (early, sorted(found, key=lambda violation: violation.subject))


async def test_every_missing_day_is_named(postgres_db: Database, clock: TestClock) -> None:
    """Too late, it names today too, until somebody has made the days."""
    clock.advance(days=30)

    found = await check(postgres_db)
    await make_ahead(postgres_db)

    told = sorted((v.subject, v.detail.split(", so no")[0]) for v in found)
    days = "no partition for 2026-01-31, 2026-02-01, 2026-02-02"
    jobs = ("job", "no partition for the days after 2026-01-11")
    assert sorted([*((table, days) for table in PARTITIONED), jobs]) == told
    assert [] == await check(postgres_db)


async def test_only_the_first_violations_are_shown(world: World) -> None:
    """A thousand rows broken alike are told by the first few of them."""
    ids = Ids(world.db.now)
    jobs = [NewJob(id=ids.new(), task="t") for _ in range(SHOWN + 10)]
    await submit(world.db, Lanes(), jobs)

    await world.damage("UPDATE queue SET lane = 999 WHERE place = 0")

    found = [violation for violation in await check(world.db) if violation.invariant == "references"]
    assert SHOWN == len(found)
    assert all(isinstance(violation, Violation) for violation in found)
