"""Explain: why a job that waits is not running.

Reads only. Of one job: its pauses, its time, what blocks it, and whether a live worker serves its queue, its task and
its labels. Of a list: the lanes with ready jobs that are paused or that no live worker serves, in one bounded look.
A worker that did not say what it serves when it registered may serve everything.
Of a large fleet those that have run longest are looked at; then it is told how many, and nobody is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from windlass.db import Row, Statements, load
from windlass.job import State, WaitCode
from windlass.queue import views
from windlass.queue.views import Job

SQL = load(__file__)

WORKERS = 2000
"""How many live workers are looked at."""
WORKER_BYTES = 8 << 20
"""How much of what they say is read: of 2,000 workers a hundred tasks each, or of sixty all that they may say."""
LANES = 1000
"""How many lanes with ready jobs are looked at for a list."""
_TIMED = (State.SCHEDULED, State.SLEEPING)
WAITING = (State.QUEUED, State.BLOCKED, *_TIMED)

GiveWay = Callable[[], Awaitable[None]]
"""Called often: lets others have their turn on the event loop when this one has lasted long enough."""


class Reason(msgspec.Struct, frozen=True):
    """One reason: a code for programs, a sentence for people."""

    code: WaitCode
    detail: str


class Route(NamedTuple):
    """The queue, task and labels that a worker needs to run a job; commas part the labels."""

    queue: str
    task: str
    labels: str


class StuckLane(msgspec.Struct, frozen=True):
    """A queue, task and labels whose ready jobs nobody is handed, and why."""

    queue: str
    task: str
    labels: str
    reason: Reason


class Stuck(msgspec.Struct, frozen=True):
    """Lanes whose ready jobs nobody is handed; complete if all ready lanes and all live workers were looked at."""

    lanes: list[StuckLane]
    complete: bool


class Looked:
    """The live workers that were looked at, in kinds that can run the same, and which kinds name what is asked for.

    A set of kinds is an integer whose bit n stands for kind n, so that a lane is not compared with each of them.
    """

    def __init__(self, kinds: Sequence[Row]) -> None:
        self._kinds = kinds
        self.live = kinds[0]["live"] if kinds else 0
        self.count = sum(kind["workers"] for kind in kinds)
        self.complete = self.count == self.live < WORKERS
        self._naming: dict[str, dict[str, int]] = {"queues": {}, "tasks": {}, "labels": {}}
        self._any = dict.fromkeys(self._naming, 0)
        """The kinds that name none, and so take all: who says what it runs and names no label has none."""
        self.silent = 0
        """The kinds that did not say what they run: they only claim."""
        self.silent_count = 0

    async def read(self, routes: Iterable[Route], give_way: GiveWay) -> None:
        """Find out which kinds name what these routes ask for; each different text is read once."""
        for route in routes:
            self._naming["queues"][route.queue] = self._naming["tasks"][route.task] = 0
            self._naming["labels"].update(dict.fromkeys(_names(route.labels), 0))
            await give_way()
        texts: dict[tuple[str, str], int] = {}
        for number, kind in enumerate(self._kinds):
            bit = 1 << number
            if kind["queues"] is None and kind["tasks"] is None:
                self.silent |= bit
                self.silent_count += kind["workers"]
                continue
            for field in self._naming:
                if kind[field] is not None:
                    texts[field, kind[field]] = texts.get((field, kind[field]), 0) | bit
                elif field != "labels":
                    self._any[field] |= bit
            await give_way()
        for (field, text), kinds in texts.items():
            naming = self._naming[field]
            for name in naming.keys() & _names(text):
                naming[name] |= kinds
            await give_way()

    def able(self, route: Route) -> tuple[int, int, int]:
        """Return the kinds that say they serve the queue, those of them that have the task, and the labels too."""
        of_queue = self._any["queues"] | self._naming["queues"][route.queue]
        of_task = of_queue & (self._any["tasks"] | self._naming["tasks"][route.task])
        able = of_task
        for label in _names(route.labels):
            able &= self._naming["labels"][label]
        return of_queue, of_task, able

    def total(self, column: str, kinds: int) -> int:
        """Return how many workers, threads or busy threads these kinds have together."""
        return sum(kind[column] for number, kind in enumerate(self._kinds) if kinds >> number & 1)


async def reasons(db: Statements, job: Job, *, give_way: GiveWay) -> list[Reason]:
    """Return why a job waits, what must end first at the top; an empty list if it does not wait."""
    if job.state not in WAITING:
        return []
    rows = await db.fetch(SQL.pauses_of, tenant=job.tenant, queue=job.queue, name=str(job.id))
    found = [_paused(row, job) for row in rows]
    [servers] = await db.fetch(SQL.servers_live)
    if job.state in _TIMED and job.next_run_at is not None:
        if servers["now_at"] < job.next_run_at:
            again = f"Attempt {job.attempt + 1}" if job.attempt else "The job"
            return [*found, Reason(WaitCode.NOT_DUE, f"{again} is due at {_instant(job.next_run_at)}.")]
        found.append(
            Reason(WaitCode.NOT_PROMOTED, f"It was due at {_instant(job.next_run_at)}; a server makes it ready soon.")
        )
    if job.state is State.BLOCKED:
        before = "the run of its schedule before it" if job.schedule_id else "the jobs before it"
        return [*found, Reason(WaitCode.BLOCKED, f"It waits until {before} has ended.")]
    if found and job.state is State.QUEUED:
        return found
    route = Route(job.queue, job.task, job.labels)
    looked = await _look(db, job.tenant, [route], give_way)
    if not looked.live and not servers["live"]:
        return [*found, Reason(WaitCode.NO_SERVER, "No server and no worker runs. `windlass up` starts both.")]
    return [*found, _missing(looked, route) or _turn(looked, route)]


async def stuck_lanes(db: Statements, tenant: str, *, give_way: GiveWay) -> Stuck:
    """Return the lanes of a tenant, by name, whose ready jobs are paused or that no live worker serves."""
    lanes = await db.fetch(SQL.ready_lanes, tenant=tenant, limit=LANES, most=views.LIST_BYTES)
    if not lanes:
        return Stuck([], complete=True)
    # A lane is there once for each key of its jobs.
    routes = {Route(lane["queue"], lane["task"], lane["labels"]): lane["paused"] for lane in lanes}
    looked = await _look(db, tenant, routes, give_way)
    found = []
    for route, paused in routes.items():
        reason: Reason | None
        if paused & 1:
            reason = Reason(WaitCode.PAUSED_QUEUE, f"Queue {route.queue} is paused.")
        elif paused:
            reason = Reason(WaitCode.PAUSED_TENANT, f"Tenant {tenant} is paused.")
        else:
            reason = _missing(looked, route)
        if reason:
            found.append(StuckLane(*route, reason))
        await give_way()
    return Stuck(found, complete=looked.complete and len(lanes) == lanes[0]["found"] < LANES)


async def _look(db: Statements, tenant: str, routes: Iterable[Route], give_way: GiveWay) -> Looked:
    looked = Looked(await db.fetch(SQL.capabilities, tenant=tenant, limit=WORKERS, most=WORKER_BYTES))
    await looked.read(routes, give_way)
    return looked


def _missing(looked: Looked, route: Route) -> Reason | None:
    """Return what no live worker serves, the first of it; None if one can run the jobs of a lane, or may.

    A caller that has never registered may ask for other jobs only: it counts where nobody else is there.
    """
    if not looked.live:
        return Reason(WaitCode.NO_WORKER, "No worker runs. Start one with `windlass worker MODULE:APP`.")
    of_queue, of_task, able = looked.able(route)
    silent_count = looked.silent_count
    if able or silent_count == looked.count or not looked.complete:
        return None
    some = f"{silent_count} caller that has" if silent_count == 1 else f"{silent_count} callers that have"
    who = f" ({some} not registered may ask for it)" if silent_count else ""
    if not of_queue:
        missing = f"No live worker serves queue {route.queue}{who}."
        return Reason(WaitCode.NO_WORKER_FOR_QUEUE, f"{missing} Start one that does.")
    if not of_task:
        missing = f"No live worker of queue {route.queue} has the task {route.task}{who}."
        return Reason(WaitCode.NO_WORKER_FOR_TASK, f"{missing} Check the name, or start a worker that has it.")
    missing = f"No live worker with the task {route.task} has the labels {route.labels}{who}."
    return Reason(WaitCode.NO_WORKER_FOR_LABELS, f"{missing} Start one with --label.")


def _turn(looked: Looked, route: Route) -> Reason:
    *_, able = looked.able(route)
    kinds = able or looked.silent
    count, threads, busy = (looked.total(column, kinds) for column in ("workers", "threads", "busy"))
    more = " or more" if looked.live >= WORKERS else ""
    only = "" if looked.complete else f" Only {looked.count} of {looked.live}{more} live workers were looked at."
    if not kinds:
        return Reason(WaitCode.TURN, f"It waits for its turn, or for a worker to run it.{only} None of these can.")
    workers = f"{count} worker{'' if count == 1 else 's'}"
    can = "can run it" if able else f"may run it, but {'does' if count == 1 else 'do'} not say so"
    return Reason(WaitCode.TURN, f"It waits for its turn: {workers} {can}; {busy} of {threads} threads are busy.{only}")


def _paused(row: Row, job: Job) -> Reason:
    named = {"queue": f"Queue {job.queue}", "tenant": f"Tenant {job.tenant}", "schedule": "The schedule"}
    by = f" by {row['actor']}" if row["actor"] else ""
    until = f" until {_instant(row['resume_at'])}" if row["resume_at"] else ""
    why = f": {row['reason']}" if row["reason"] else ""
    what = named.get(row["kind"], "The job")
    return Reason(
        WaitCode(f"paused_{row['kind']}"), f"{what} is paused{until}{by}{why}{'' if why.endswith('.') else '.'}"
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
