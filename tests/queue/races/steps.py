"""Every step of `queue/` that writes, with a scene on which it has something to do and what it must have done.

For tests that put every step through the same trouble: a pooler, a killed connection, a cancelled task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from tests.clock import no_pause
from tests.queue import said
from tests.queue.races import planning
from tests.queue.races.beside import backfill, backfilled, expected, look_out
from tests.queue.races.scheduled import followed, gave_up_waiting, let_go, look_and_fire, replaced
from tests.queue.races.stage import LEASE_MS, Scene, Stage, no_jitter
from tests.queue.races.survey import survey_lists, survey_waits, survey_whole, survey_workers
from windlass.db import Database
from windlass.errors import Conflict, JobFinished
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import (
    audit,
    checkpoints,
    control,
    deadletters,
    deadlines,
    duties,
    erasure,
    history,
    keys,
    lanes,
    limits,
    logs,
    looks,
    outbox,
    retention,
    tasks,
    tenants,
    timers,
    vacuum,
    workers,
)
from windlass.queue import claim as claims
from windlass.queue.control import Actor
from windlass.queue.lanes import LaneName, Lanes
from windlass.queue.newjob import EARLIEST
from windlass.queue.report import Report, report
from windlass.queue.retry import PRESETS
from windlass.queue.submit import submit

ME = Actor("me", "for a test")


@dataclass(frozen=True)
class Step:
    """A step: how its scene is made, what it does there, and the state its job is in afterwards."""

    prepare: Callable[[Stage], Awaitable[Scene]]
    act: Callable[[Stage, Database, Scene], Awaitable[object]]
    after: State


async def ready(stage: Stage) -> Scene:
    """Return a scene with one ready job."""
    return await stage.scene()


async def ready_long(stage: Stage) -> Scene:
    """Return a scene with one ready job whose payload is read by a query of its own."""
    return await stage.scene(payload=f'"{"x" * 20_000}"')


async def leased(stage: Stage) -> Scene:
    """Return a scene with one lease."""
    return await stage.leased(unique_key=f"unique-{stage.ids.new()}")


async def lapsed(stage: Stage) -> Scene:
    """Return a scene whose worker has not been heard for its lease."""
    scene = await stage.leased(started=True)
    await stage.lapse()
    return scene


async def unlisted(stage: Stage) -> Scene:
    """Return a scene with a lease so old that a heartbeat must name it."""
    scene = await stage.leased()
    stage.clock.advance(workers.UNLISTED_MS / 1000)
    return scene


async def overdue(stage: Stage) -> Scene:
    """Return a scene whose job has run past its time-out."""
    scene = await stage.leased(started=True, timeout_s=1)
    stage.clock.advance(workers.TIMEOUT_GRACE_MS / 1000 + 2)
    return scene


async def due(stage: Stage) -> Scene:
    """Return a scene whose timer is due."""
    scene = await stage.scene(delay_ms=1000)
    stage.clock.advance(2)
    return scene


async def too_late(stage: Stage) -> Scene:
    """Return a scene whose job was not started in time."""
    scene = await stage.scene(start_by=stage.clock.now() + timedelta(seconds=1))
    stage.clock.advance(2)
    return scene


async def kept(stage: Stage) -> Scene:
    """Return a scene whose job has failed and is kept for its worker."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    await report(stage.db, [scene.fail()], chance=no_jitter)
    return scene


async def dead(stage: Stage) -> Scene:
    """Return a scene whose job is dead."""
    scene = await stage.leased(unique_key=f"unique-{stage.ids.new()}")
    await report(stage.db, [scene.fail(retryable=False)], chance=no_jitter)
    return scene


async def cancelled(stage: Stage) -> Scene:
    """Return a scene whose job was cancelled."""
    scene = await stage.scene()
    await control.cancel(stage.db, scene.ids, tenant="default", actor=ME)
    return scene


async def cancelling(stage: Stage) -> Scene:
    """Return a scene whose worker was told to stop."""
    scene = await stage.leased()
    await control.cancel(stage.db, scene.ids, tenant="default", actor=ME)
    return scene


async def held(stage: Stage) -> Scene:
    """Return a scene whose job is paused until a time that has come."""
    scene = await stage.scene()
    until = stage.clock.now() + timedelta(seconds=1)
    await control.pause_job(stage.db, scene.id, tenant="default", actor=ME, until=until)
    stage.clock.advance(2)
    return scene


async def limited(stage: Stage) -> Scene:
    """Return a scene whose queue has limits of every kind."""
    scene = await stage.scene()
    await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=1, rate_per_s=1.0, burst=5)
    return scene


async def limited_while_leased(stage: Stage) -> Scene:
    """Return a scene whose queue got its limit after a job of it was leased, and no older claim can be under way."""
    scene = await stage.leased()
    await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=1)
    stage.clock.advance(limits.UNSEEN_MS / 1000 + 1)
    return scene


async def written(stage: Stage) -> Scene:
    """Return a scene whose job an application has written into the outbox."""
    scene = await stage.scene(0)
    job_id = await said.enqueue(stage.db, "task", queue=scene.queue)
    return Scene(scene.queue, scene.worker, scene.session, [job_id])


async def finished(stage: Stage) -> Scene:
    """Return a scene whose lease an application has finished."""
    scene = await leased(stage)
    await said.finish(stage.db, scene.lease.id, scene.lease.fence)
    return scene


async def resubmit(stage: Stage, db: Database, scene: Scene) -> object:
    """Submit a job with keys twice, as a caller does who got no answer."""
    jobs = [stage.job(scene.queue, idempotency_key=scene.queue, unique_key=scene.queue) for _ in range(2)]
    await submit(db, Lanes(), jobs[:1])
    other = stage.job(scene.queue, unique_key=scene.queue, idempotency_key=f"{scene.queue}-b")
    return await submit(db, Lanes(), [*jobs[1:], other])


async def relay(stage: Stage, db: Database, scene: Scene) -> object:
    """Relay, and set a row aside that cannot be done."""
    await outbox.is_waiting(db, scene.id, tenant="default")
    await outbox.keep(db, [outbox.Kept(str(stage.ids.new()), error="no such row")])
    with suppress(JobFinished):
        await control.change(db, stage.lanes, scene.id, tenant="default", actor=ME, priority=0)
    return await said.relay(db)


async def serve(stage: Stage, db: Database, scene: Scene) -> object:
    """Look up lanes as a server does, and claim for a bare caller."""
    served = await Lanes().serving(db, "default", [scene.queue], tasks=None, labels=[])
    wants = [claims.Want(lane.id) for lane in served]
    ids = Ids(stage.clock)
    return await workers.claim_bare(
        db,
        ids,
        lambda transaction, sessions: claims.claim(transaction, [claims.Group(wants, sessions)]),
        count=3,
        worker="bare",
        tenant="default",
        lease_ms=LEASE_MS,
    )


async def claim_limited(stage: Stage, db: Database, scene: Scene) -> object:
    """Claim from a limited queue."""
    own = LaneName("default", scene.queue)
    queue = (await Lanes().resolve(db, [own]))[own].id
    served = await Lanes().serving(db, "default", [scene.queue], tasks=None, labels=[])
    return (await limits.claim_limited(db, queue, [lane.id for lane in served], [scene.session] * 3)).jobs


async def claim_twice(stage: Stage, db: Database, scene: Scene) -> object:
    """Claim from a limited queue that is full: the first claim marks its leases, the second counts these."""
    return [await claim_limited(stage, db, scene) for _ in range(2)]


async def leave_words(stage: Stage, db: Database, scene: Scene) -> object:
    """Tell how far the job is, twice, with lines, and read it back."""
    lease: dict[str, Any] = {
        "job_id": scene.id,
        "fence": scene.lease.fence,
        "worker": scene.worker,
        "session": scene.session,
    }
    line = logs.Line(stage.clock.now(), "a line")
    for _ in range(2):
        await checkpoints.keep(db, [checkpoints.Note(**lease, progress="1", checkpoint="2")])
        await logs.keep(db, [logs.Chunk(**lease, seq=0, lines=[line])])
    await checkpoints.sizes(db, scene.ids)
    assert 1 == len((await logs.read(db, scene.id)).lines)
    return await checkpoints.find(db, scene.ids)


async def beat(_: Stage, db: Database, scene: Scene) -> object:
    """Tell that the job has begun."""
    begun = [workers.Held(scene.lease.id, scene.lease.fence, started=True), workers.Held(UUID(int=1), 1)]
    return await workers.heartbeat(db, [workers.Beat(scene.session, begun, busy=1, skew_ms=5)])


async def register_and_drain(stage: Stage, db: Database, scene: Scene) -> object:
    """Let another worker come, be asked to leave, and say goodbye."""
    session = uuid4()
    await workers.register(db, workers.NewSession(id=session, worker=f"{scene.worker}-b"))
    await workers.open_session(db, session, worker=f"{scene.worker}-b", tenant="default", lease_ms=30_000)
    await workers.drain(db, tenant="default", worker=f"{scene.worker}-b")
    await workers.close(db, session, tenant="default", reason="done")
    await workers.forget_ended(db, keep_ms=10**10, keep_bare_ms=10**10)
    return await claim_limited(stage, db, scene)


async def pause_and_resume(_: Stage, db: Database, scene: Scene) -> object:
    """Pause and resume the queue and the tenant, and pause the job."""
    queue = LaneName("default", scene.queue)
    await control.pause_queue(db, Lanes(), queue, actor=ME)
    await control.pause_tenant(db, "default", actor=ME)
    await control.resume_tenant(db, "default")
    await control.resume_queue(db, queue)
    return await control.pause_job(db, scene.id, tenant="default", actor=ME)


async def pause_timer(_: Stage, db: Database, scene: Scene) -> object:
    """Pause and resume a timer, and look when the next is due."""
    await control.pause_job(db, scene.id, tenant="default", actor=ME)
    await control.resume_job(db, scene.id, tenant="default", actor=ME)
    return (await looks.look(db)).left_s("promote")


async def look(stage: Stage, db: Database, scene: Scene) -> object:
    """Read everything that can be read of a job."""
    await history.attempts(db, scene.id, tenant="default")
    await history.timeline(db, scene.id, tenant="default")
    where = history.Filter(tenant="default", queue=scene.queue)
    await history.read(db, where, [history.Key(scene.id, EARLIEST)])  # it has moved since it was listed
    return await history.find(db, where)


async def put_off(stage: Stage, db: Database, scene: Scene) -> object:
    """Move a waiting job to another time and priority."""
    at = stage.clock.now() + timedelta(hours=1)
    return await control.change(db, stage.lanes, scene.id, tenant="default", actor=ME, run_at=at, priority=3)


async def prefer(stage: Stage, db: Database, scene: Scene) -> object:
    """Give a waiting job another priority; its time stays."""
    return await control.change(db, stage.lanes, scene.id, tenant="default", actor=ME, priority=3)


async def configure(_: Stage, db: Database, scene: Scene) -> object:
    """Set a limit on the queue."""
    await lanes.configure(db, LaneName("default", scene.queue), max_running=5)
    return None


async def repeat(_: Stage, db: Database, scene: Scene) -> object:
    """Report twice, as a worker does that got no answer."""
    await report(db, [scene.complete()], chance=no_jitter)
    return await report(db, [scene.complete()], chance=no_jitter)


async def refuse_change(stage: Stage, db: Database, scene: Scene) -> object:
    """Try to change a job that is leased."""
    try:
        return await put_off(stage, db, scene)
    except Conflict:
        return None


async def sweep(stage: Stage, db: Database, scene: Scene) -> object:
    """Run retention, and remove a dead job."""
    await retention.sweep(db, days=365, dead_days=365)
    return await stage.claim(db, scene.queue, scene.session)


async def do_duties(_: Stage, db: Database, __: Scene) -> object:
    """Be a server: live, take a duty, look what is to be done, and give it up."""
    me, name = uuid4(), f"duty-{uuid4()}"
    await duties.beat_server(db, me, name="me", version="1", address=None, lease_ms=6000)
    await duties.touch_server(db, me)
    await duties.take(db, [name], holder=me, server="me", lease_ms=6000)
    held = [duties.Held(name, 1, duties.Metadata())]
    await duties.renew(db, held, holder=me, lease_ms=6000)
    await looks.look(db)
    await vacuum.vacuum(db)
    await duties.resign(db, held, holder=me)
    await duties.release(db, name)
    await duties.close_server(db, me)
    return await duties.list_duties(db), await duties.list_servers(db)


async def replay(stage: Stage, db: Database, scene: Scene) -> object:
    """Replay a dead job, and purge one that is not there."""
    await deadletters.purge(db, [uuid4()], tenant="default")
    return await deadletters.replay(db, Lanes(), stage.ids, scene.id, tenant="default", actor=ME)


async def erase(stage: Stage, db: Database, scene: Scene) -> object:
    """Erase a tenant with a job, and the content of a dead job."""
    name = f"{scene.queue}-{stage.ids.new()}"
    await submit(db, Lanes(), [stage.job(scene.queue, tenant=name)])
    await erasure.begin(db, Lanes(), name, actor="me")
    await erasure.under_way(db, limit=1)
    await erasure.go_on(db, stage.ids, name)
    await erasure.forget_names(db, age_ms=-1, limit=1)
    return await erasure.erase_job(db, scene.id, tenant="default", actor=ME)


async def administer(stage: Stage, db: Database, scene: Scene) -> object:
    """Make a tenant and keys, look at them, end them, and write it down."""
    name = f"{scene.queue}-{stage.ids.new()}"
    await tenants.create(db, name, pause=no_pause)
    reader = keys.NewKey(name=name, scopes=keys.ROLES["reader"], tenant=name)
    maker, _ = await keys.create(db, reader)
    key, _ = await keys.create(db, reader, maker=maker.id)
    token = keys.make_token()
    for _ in range(2):
        await keys.bootstrap(db, token)
    await keys.find(db, [key.id])
    await keys.queues_of(db, scene.ids, tenant="default")
    await keys.queues_held(db, scene.ids, tenant="default")
    await keys.list_keys(db, name)
    for made in (maker, key):
        await keys.revoke(db, made.id, tenant=name)
    await tenants.get(db, name)
    await tenants.list_tenants(db)
    await tenants.delete(db, Lanes(), Ids(db.now), name, pause=no_pause)
    await lanes.make(db, name, [LaneName(name, scene.queue)], per_tenant=1)
    await tasks.publish(db, name, {"t": "{}"})
    await tasks.of_tasks(db, [(name, "t")])
    await tasks.recent(db, name)
    await tasks.tenant_made(db, name)
    await tasks.renew(db, name, [("t", tasks.fingerprint("{}"))])
    await tasks.list_tasks(db, name)
    await audit.record(db, stage.ids, audit.Entry(action="tenant.delete", subject=name, tenant=name))
    await audit.list_entries(db, name)
    return await audit.list_entries(db)


def saying(say: Callable[[Scene], Report]) -> Callable[[Stage, Database, Scene], Awaitable[object]]:
    """Return the act of sending a report."""

    async def act(_: Stage, db: Database, scene: Scene) -> object:
        return await report(db, [say(scene)], chance=no_jitter)

    return act


STEPS = {
    "submit": Step(ready, resubmit, State.QUEUED),
    "relay": Step(written, lambda _, db, __: said.relay(db), State.QUEUED),
    "relay_finish": Step(finished, relay, State.SUCCEEDED),
    "claim": Step(ready, lambda stage, db, scene: stage.claim(db, scene.queue, scene.session), State.ASSIGNED),
    "claim_long": Step(
        ready_long, lambda stage, db, scene: stage.claim(db, scene.queue, scene.session), State.ASSIGNED
    ),
    "claim_bare": Step(ready, serve, State.ASSIGNED),
    "claim_limited": Step(limited, claim_limited, State.ASSIGNED),
    "claim_twice": Step(limited_while_leased, claim_twice, State.ASSIGNED),
    "claim_back": Step(
        kept,
        lambda _, db, scene: claims.claim_back(
            db, [(scene.id, scene.lease.fence)], session=scene.session, tenant="default"
        ),
        State.ASSIGNED,
    ),
    "start": Step(leased, beat, State.RUNNING),
    "give_back": Step(
        unlisted, lambda _, db, scene: workers.heartbeat(db, [workers.Beat(scene.session, [])]), State.QUEUED
    ),
    "register": Step(limited, register_and_drain, State.ASSIGNED),
    "close": Step(
        leased, lambda _, db, scene: workers.close(db, scene.session, tenant="default", reason="drain"), State.QUEUED
    ),
    "lose": Step(
        leased,
        lambda _, db, scene: workers.lose(db, scene.session, tenant="default", reason="It died.", chance=no_jitter),
        State.QUEUED,
    ),
    "note": Step(leased, leave_words, State.ASSIGNED),
    "complete": Step(leased, saying(lambda scene: scene.complete(result="1")), State.SUCCEEDED),
    "repeat": Step(leased, repeat, State.SUCCEEDED),
    "confirm_cancel": Step(cancelling, saying(lambda scene: scene.fail()), State.CANCELLED),
    "configure": Step(ready, configure, State.QUEUED),
    "fail": Step(leased, saying(lambda scene: scene.fail(error="no")), State.SCHEDULED),
    "die": Step(leased, saying(lambda scene: scene.fail(retryable=False)), State.DEAD),
    "snooze": Step(leased, saying(lambda scene: scene.snooze()), State.SCHEDULED),
    "release": Step(leased, saying(lambda scene: scene.release()), State.QUEUED),
    "rescue": Step(lapsed, lambda stage, db, _: stage.rescue(db), State.QUEUED),
    "end_overdue": Step(overdue, lambda _, db, __: deadlines.end_overdue(db, chance=no_jitter), State.SCHEDULED),
    "expire": Step(too_late, lambda _, db, __: deadlines.expire(db), State.EXPIRED),
    "promote": Step(due, lambda _, db, __: timers.promote(db), State.QUEUED),
    "cancel": Step(
        ready, lambda _, db, scene: control.cancel(db, scene.ids, tenant="default", actor=ME), State.CANCELLED
    ),
    "cancel_leased": Step(
        leased, lambda _, db, scene: control.cancel(db, scene.ids, tenant="default", actor=ME), State.CANCELLING
    ),
    "change": Step(ready, put_off, State.SCHEDULED),
    "change_priority": Step(ready, prefer, State.QUEUED),
    "refuse_change": Step(leased, refuse_change, State.ASSIGNED),
    "change_timer": Step(due, put_off, State.SCHEDULED),
    "pause": Step(ready, pause_and_resume, State.QUEUED),
    "pause_timer": Step(due, pause_timer, State.SCHEDULED),
    "resume": Step(
        held, lambda _, db, scene: control.resume_job(db, scene.id, tenant="default", actor=ME), State.QUEUED
    ),
    "resume_due": Step(held, lambda _, db, __: control.resume_due(db), State.QUEUED),
    "duties": Step(ready, do_duties, State.QUEUED),
    "replay": Step(dead, replay, State.DEAD),
    "retry": Step(
        dead, lambda _, db, scene: deadletters.retry(db, scene.ids, tenant="default", actor=ME), State.QUEUED
    ),
    "retry_cancelled": Step(
        cancelled, lambda _, db, scene: deadletters.retry(db, scene.ids, tenant="default", actor=ME), State.QUEUED
    ),
    "retry_waiting": Step(
        gave_up_waiting, lambda _, db, scene: deadletters.retry(db, scene.ids, tenant="default", actor=ME), State.QUEUED
    ),
    "look": Step(cancelled, look, State.CANCELLED),
    "undo": Step(leased, lambda _, db, scene: claims.undo(db, scene.leases), State.QUEUED),
    "survey_lists": Step(cancelled, survey_lists, State.CANCELLED),
    "survey_waits": Step(ready, survey_waits, State.QUEUED),
    "survey_whole": Step(cancelled, survey_whole, State.CANCELLED),
    "survey_workers": Step(cancelled, survey_workers, State.CANCELLED),
    "administer": Step(ready, administer, State.QUEUED),
    "erase": Step(dead, erase, State.DEAD),
    "sweep": Step(ready, sweep, State.ASSIGNED),
    "backfill": Step(backfilled, backfill, State.CANCELLED),
    "watch": Step(expected, look_out, State.SUCCEEDED),
    "plan": Step(ready, planning.plan, State.QUEUED),
    "replan": Step(planning.by_hand, planning.replan, State.QUEUED),
    "unplan": Step(planning.by_hand, planning.unplan, State.CANCELLED),
    "declare": Step(ready, planning.declare, State.QUEUED),
    "fire": Step(replaced, look_and_fire, State.CANCELLED),
    "follow": Step(followed, let_go, State.QUEUED),
}
