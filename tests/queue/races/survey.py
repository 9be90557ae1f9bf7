"""What servers and people read of the whole, in four steps: every query of the lists, counts and look-ups."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from tests.queue.races.stage import Scene, Stage
from tests.queue.steps import at_once
from windlass.db import Database
from windlass.errors import NotFound
from windlass.job import FINAL_STATES, State
from windlass.queue import attempts, claim, explain, fleet, history, presence, queues, recent, recurring, stats, workers


async def survey_lists(_: Stage, db: Database, scene: Scene) -> object:
    """Read lists of jobs by each filter."""
    for where in _filters():
        await history.find(db, where)
        await history.count(db, where)
        await recurring.find(db, where)
        await recurring.count(db, where)
    await recurring.read_clock(db)
    await history.ending_in(db, str(scene.id)[-6:], tenant="default")
    return await history.live(db, scene.ids)


async def survey_workers(stage: Stage, db: Database, scene: Scene) -> object:
    """Read everything that can be read of workers and queues."""
    await claim.heads(db)
    await stage.lanes.learn(db, [0])
    await workers.find_sessions(db, [scene.session])
    await workers.heartbeat(db, [workers.Beat(scene.session)])
    await presence.register(db, workers.NewSession(id=stage.ids.new(), worker="nobody"), lease_asked=False)
    await presence.appear(db, workers.BareSession(stage.ids.new(), "nobody", "default", 30_000))
    await workers.find_lease(db, scene.id, tenant="default")
    await fleet.list_workers(db, "default")
    with suppress(NotFound):
        await fleet.get_worker(db, "default", "nobody")
    await fleet.threads(db)
    await queues.list_queues(db, "default")
    return await queues.get_queue(db, "default", scene.queue)


async def survey_whole(stage: Stage, db: Database, scene: Scene) -> object:
    """Read reports, attempts, events and statistics."""
    now = stage.clock.now()
    await history.report(db, scene.id, tenant="default")
    await attempts.find_attempts(db, attempts.AttemptFilter(tenant="default"))
    await recent.events_since(db, "default", since=now - timedelta(hours=1))
    await stats.roll_up(db)
    for tenant in (None, "default"):
        await stats.overview(db, tenant)
    await stats.series(db, tenant="default", since=now - timedelta(hours=1), until=now)
    await stats.mean_run_s(db)
    await stats.storage(db)
    return await stats.longest_waits(db)


async def survey_waits(stage: Stage, db: Database, scene: Scene) -> object:
    """Read why jobs wait."""
    await explain.reasons(db, await stage.get(scene.id), give_way=at_once)
    await explain.stuck_lanes(db, "default", give_way=at_once)
    return await claim.kept_for(db, scene.session)


def _filters() -> list[history.Filter]:
    wanted = (frozenset[State](), *(frozenset({state}) for state in State), FINAL_STATES)
    plain = [history.Filter(tenant="default", states=states) for states in wanted]
    return [*plain, history.Filter(tenant="default", stale=True)]
