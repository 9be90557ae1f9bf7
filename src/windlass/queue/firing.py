"""Firing: slots that are due become jobs, each slot once.

What is due is read without a lock and decided in memory (plans.py, slots.py). Then, in one transaction, each schedule
is moved on by a compare-and-set over all that its decision rests on. For those that moved, and only those, what was
decided is written to `schedule_runs`, whose key is (schedule, slot), and the jobs are made from the schedule's own row.
So several servers may fire at once: whoever comes second moves nothing. A slot that a backfill has decided before is
passed over. A schedule that cannot be fired is left out, and keeps none of the others waiting.

Jobs that wait for the run before them are let go in following.py, when that run is over.
Slots are fired when they are due, never ahead. Who calls this, and how often: engine/firing.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

import msgspec

from windlass import log
from windlass.db import Row, Statements, load
from windlass.db.partitions import make_days
from windlass.errors import BeingErased, DutyLost, SetupError, TooMany, Unavailable
from windlass.ids import Ids
from windlass.queue import control
from windlass.queue.control import CANCEL_MARGIN_MS, Actor, Cancelled
from windlass.queue.defaults import Given, nothing_given
from windlass.queue.lanes import Lane, LaneName, Lanes
from windlass.queue.plans import OF_JOBS, Plan, Waiting, decide_again, decide_all, untimed, with_defaults, with_ids
from windlass.queue.schedule import SHARDS, Decision
from windlass.queue.slots import Known

SQL = load(__file__)

FIRE_BATCH = 1000
FRESH_MS = 5000
"""What is due longer than this waits behind what is due since less: an outage made up for delays nobody else."""
AT_ONCE = 100
"""More schedules than this, and late ones, of which each may have many slots, are decided in a thread beside."""
LOOP_S = 0.01
"""So long a look computes on the event loop; what is left comes with the next look."""
KNOWN_READ = 2000
"""So many rows about slots decided before are read at once."""
TOLD = 20
"""So many broken schedules of a look are told of, one by one."""
MOST_REFUSED = 10
REPLACED = Actor(reason="Replaced by the job of the next slot.")

Terms = int | Mapping[int, int]
"""The term of the duty under which slots are decided, or that of each shard."""


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch did."""

    counts: dict[Decision, int] = {}
    """How many rows were written, by what was decided."""
    ready: dict[int, int] = {}
    """The lanes that have got jobs which can be claimed, each with the least rank of these."""
    queues: dict[str, int] = {}
    """How many jobs were made, by queue."""
    cancelled: list[tuple[str, Cancelled]] = []
    """Jobs that were replaced, with their tenants."""
    waiting: list[Waiting] = []
    """Jobs that wait for the run before them."""
    late_s: float = 0.0
    """How late the latest of them was."""
    full: bool = False
    """Whether more is due that was not looked at."""
    failed: list[UUID] = []
    """Schedules that could not be fired: their times cannot be computed, or the database refused."""

    @property
    def made(self) -> int:
        """How many jobs were made."""
        return sum(self.queues.values())

    @property
    def decided(self) -> int:
        """How many rows were written."""
        return sum(self.counts.values())


class _Conflict(Exception):
    """Some slots of these schedules were decided before."""

    def __init__(self, schedule_ids: set[UUID]) -> None:
        super().__init__(len(schedule_ids))
        self.schedule_ids = schedule_ids


async def fire(
    db: Statements,
    lanes: Lanes,
    ids: Ids,
    *,
    shards: Collection[int] = range(SHARDS),
    limit: int = FIRE_BATCH,
    term: Terms = 0,
    margin_ms: int = CANCEL_MARGIN_MS,
    without: Collection[UUID] = (),
    given: Given = nothing_given,
    cpu_s: Callable[[], float] = untimed,
) -> Fired:
    """Decide slots that are due, of up to about `limit` schedules, and make their jobs; return what was done.

    Schedules that cannot be fired are named in the answer. The caller leaves them out for a while: `without`.
    `cpu_s` is the clock that bounds what a look computes.
    """
    each = -(-limit // len(shards))
    rows = await db.fetch(SQL.due, shards=sorted(shards), each=each, fresh_ms=FRESH_MS, without=sorted(without))
    if not rows:
        return Fired()
    of_tasks = await given({(row["tenant"], row["task"]) for row in rows})
    if of_tasks:
        rows = [with_defaults(row, of_tasks.get((row["tenant"], row["task"]))) for row in rows]
    if len(rows) > AT_ONCE or any(row["late"] for row in rows):
        # Times that nobody has computed yet take a while: the server has others to answer meanwhile.
        planned = await asyncio.to_thread(decide_all, rows, cpu_s)
    else:
        planned = decide_all(rows, cpu_s, look_s=LOOP_S)
    for schedule_id, error in islice(planned.broken.items(), TOLD):
        log.event("schedule.broken", schedule=str(schedule_id), error=error)
    batch = _Batch(db, lanes, ids, term=term, margin_ms=margin_ms)
    await batch.fire(with_ids(planned.found, ids))
    failed = [*planned.broken, *batch.refused]
    more = len(planned.found) + len(planned.broken) < len(rows) or _full(rows, each, len(shards))
    # What is due and did not move is being fired by a rival.
    return _together(batch.fired, failed=failed, full=more and bool(batch.fired or failed))


def _together(parts: Sequence[Fired], *, failed: list[UUID], full: bool) -> Fired:
    """Return what several transactions did as one."""
    counts: Counter[Decision] = Counter()
    queues: Counter[str] = Counter()
    ready: dict[int, int] = {}
    for part in parts:
        counts.update(part.counts)
        queues.update(part.queues)
        for lane, rank in part.ready.items():
            ready[lane] = min(rank, ready.get(lane, rank))
    return Fired(
        counts=counts,
        ready=ready,
        queues=queues,
        cancelled=[answer for part in parts for answer in part.cancelled],
        waiting=[job for part in parts for job in part.waiting],
        late_s=max((part.late_s for part in parts), default=0.0),
        full=full,
        failed=failed,
    )


def _full(rows: Sequence[Row], each: int, shards: int) -> bool:
    """Say whether one of the looks found as much as it was allowed to."""
    found = Counter((row["shard"], row["late"]) for row in rows)
    return max(found.values()) >= each or len(rows) >= each * shards


class _Batch:
    """Plans that are carried out together, or in smaller parts where one of them cannot be."""

    def __init__(self, db: Statements, lanes: Lanes, ids: Ids, *, term: Terms, margin_ms: int) -> None:
        self._db = db
        self._lanes = lanes
        self._ids = ids
        self._term = term
        self._margin_ms = margin_ms
        self.fired: list[Fired] = []
        """What was done, by transaction."""
        self.refused: list[UUID] = []
        """Schedules that the database cannot take."""

    async def fire(self, plans: Sequence[Plan]) -> None:
        """Carry plans out. One that fails is found by halving, so that its neighbours are fired."""
        try:
            await self._fire_unknown(plans)
        except (Unavailable, DutyLost, SetupError):
            raise
        except Exception as error:
            if len(plans) == 1:
                log.event("schedule.refused", schedule=str(plans[0].id), error=error)
                self.refused.append(plans[0].id)
                return
            middle = len(plans) // 2
            for half in (plans[:middle], plans[middle:]):
                # Where many fail one after another it is nobody's own fault: the rest waits for the next look.
                if len(self.refused) < MOST_REFUSED:
                    await self.fire(half)

    async def _fire_unknown(self, plans: Sequence[Plan]) -> None:
        """Carry plans out, less the slots that a backfill has decided before."""
        known: dict[UUID, Known] = {}
        while plans:
            try:
                if fired := await self._write(plans):
                    self.fired.append(fired)
                return
            except _Conflict as conflict:
                # Read once. Who meets another is being backfilled at this moment, and waits for the next look.
                concerned = [plan for plan in plans if plan.id in conflict.schedule_ids and plan.id not in known]
                known |= await _read_known(self._db, concerned)
                again = await asyncio.to_thread(decide_again, concerned, known)
                others = [plan for plan in plans if plan.id not in conflict.schedule_ids]
                plans = sorted([*others, *with_ids(again, self._ids)], key=lambda plan: plan.id)

    async def _write(self, plans: Sequence[Plan]) -> Fired | None:
        """Carry plans out in one transaction; None: nothing moved."""
        db, lanes = self._db, self._lanes
        places, refused = await _resolve(db, lanes, {plan.lane for plan in plans if any(plan.job_ids)})
        if refused:
            plans = [_refused(plan, refused[plan.lane]) if plan.lane in refused else plan for plan in plans]
        await _make_days(db, plans)
        async with db.transaction(tracked=True) as transaction:
            cursors = [_cursor(plan) for plan in plans]
            moved = {row["id"] for row in await transaction.fetch(SQL.advance, cursors=cursors)}
            plans = [plan for plan in plans if plan.id in moved]
            await _record(transaction, plans, self._term)
            made = await _make_jobs(transaction, plans, lanes, places)
            cancelled = await _cancel_replaced(transaction, plans, self._margin_ms)
        if not plans:
            return None
        return Fired(
            counts=Counter(choice.decision for plan in plans for choice in plan.decided.choices),
            ready={row["lane"]: row["rank"] for row in made if row["rank"] is not None},
            queues=Counter(plan.row["queue"] for plan in plans for job_id in plan.job_ids if job_id),
            cancelled=cancelled,
            waiting=[job for plan in plans for job in plan.waiting],
            late_s=max((plan.row["now_at"] - plan.row["next_at"]).total_seconds() for plan in plans),
        )


async def _read_known(db: Statements, plans: Sequence[Plan]) -> dict[UUID, Known]:
    """Return which slots of schedules are decided already, from their cursors on; of some perhaps only the first."""
    if not plans:
        return {}
    most = max(KNOWN_READ // len(plans), 1)
    slots: dict[UUID, list[datetime]] = {plan.id: [] for plan in plans}
    for row in await db.fetch(SQL.known, since=[(plan.id, plan.first_at) for plan in plans], limit=most):
        slots[row["schedule_id"]].append(row["slot_at"])
    return {
        schedule_id: Known(frozenset(found), found[-1] if len(found) >= most else None)
        for schedule_id, found in slots.items()
    }


async def _resolve(
    db: Statements, lanes: Lanes, names: set[LaneName]
) -> tuple[dict[LaneName, Lane], dict[LaneName, TooMany | BeingErased]]:
    """Return the lanes, and why some cannot be made."""
    try:
        return await lanes.resolve(db, names), {}
    except (TooMany, BeingErased):
        places: dict[LaneName, Lane] = {}
        refused: dict[LaneName, TooMany | BeingErased] = {}
        for name in sorted(names):
            try:
                places |= await lanes.resolve(db, [name])
            except (TooMany, BeingErased) as problem:
                refused[name] = problem
        return places, refused


def _refused(plan: Plan, problem: TooMany | BeingErased) -> Plan:
    """Return the plan without jobs: their slots are recorded as missed, with the reason."""
    choices = [
        msgspec.structs.replace(choice, decision=Decision.MISSED, reason=str(problem)) if job_id else choice
        for choice, job_id in zip(plan.decided.choices, plan.job_ids, strict=True)
    ]
    decided = msgspec.structs.replace(plan.decided, choices=choices, waiting_count=plan.row["waiting_count"])
    return Plan(plan.row, decided, [None] * len(choices))


async def _make_days(db: Statements, plans: Sequence[Plan]) -> None:
    """Make the partitions of slots long gone; those of yesterday and later are there."""
    if not db.capabilities.partitions:
        return
    old = {
        choice.slot_at
        for plan in plans
        for choice in plan.decided.choices
        if plan.row["now_at"] - choice.slot_at > timedelta(days=1)
    }
    await make_days(db, "schedule_runs", old)


def _cursor(plan: Plan) -> tuple[object, ...]:
    row, decided = plan.row, plan.decided
    return (
        row["id"],
        row["version"],
        row["next_at"],
        row["last_at"],
        row["live_job_id"],
        row["waiting_count"],
        decided.next_at,
        decided.last_at,
        plan.let_go,
        decided.waiting_count,
    )


async def _record(transaction: Statements, plans: Sequence[Plan], term: Terms) -> None:
    """Write down what was decided; _Conflict names schedules with slots that were decided before."""
    runs = [
        (
            plan.id,
            choice.slot_at,
            int(choice.decision),
            job_id,
            term if isinstance(term, int) else term.get(plan.row["shard"], 0),
            choice.slot_count,
            choice.first_at,
            choice.reason,
        )
        for plan in plans
        for choice, job_id in zip(plan.decided.choices, plan.job_ids, strict=True)
    ]
    if not runs:
        return
    written = await transaction.fetch(SQL.record, runs=runs)
    if len(written) < len(runs):
        fresh = {(row["schedule_id"], row["slot_at"]) for row in written}
        raise _Conflict({run[0] for run in runs if run[:2] not in fresh})


async def _make_jobs(
    transaction: Statements, plans: Sequence[Plan], lanes: Lanes, places: Mapping[LaneName, Lane]
) -> list[Row]:
    """Make the jobs; return what each lane has got."""
    jobs = [job for plan in plans for job in _jobs(plan, places)]
    if not jobs:
        return []
    made = await transaction.fetch(SQL.make_jobs, jobs=jobs)
    if sum(row["made"] for row in made) < len(jobs):
        for tenant in {plan.row["tenant"] for plan in plans}:
            lanes.forget(tenant)
        raise Unavailable("Lanes of a deleted tenant were remembered. They are looked up again.")
    return made


def _jobs(plan: Plan, places: Mapping[LaneName, Lane]) -> Iterable[tuple[object, ...]]:
    row = plan.row
    within_s = row["start_within_s"]
    offset = timedelta(seconds=plan.decided.offset_s)
    for choice, job_id in zip(plan.decided.choices, plan.job_ids, strict=True):
        if job_id is not None:
            due_at = choice.slot_at + offset
            yield (
                job_id,
                plan.id,
                choice.slot_at,
                due_at,
                None if within_s is None else due_at + timedelta(seconds=within_s),
                places[plan.lane].id,
                *(row[name] for name in OF_JOBS),
                int(choice.decision is Decision.WAITING),
            )


async def _cancel_replaced(
    transaction: Statements, plans: Sequence[Plan], margin_ms: int
) -> list[tuple[str, Cancelled]]:
    """Cancel what the jobs just made replace; return what became of it, with the tenants."""
    replacing = {plan.id: plan for plan in plans if any(c.decision is Decision.REPLACED for c in plan.decided.choices)}
    if not replacing:
        return []
    replaced: dict[str, set[UUID]] = {}
    for plan in replacing.values():
        former = replaced.setdefault(plan.row["tenant"], set())
        former.update(job_id for job_id in plan.job_ids if job_id and job_id != plan.let_go)
        if plan.row["live"] is not None:
            former.add(plan.row["live_job_id"])
    behind = [plan.id for plan in replacing.values() if plan.row["waiting_count"]]
    for row in await transaction.fetch(SQL.drop_waits, schedule_ids=behind) if behind else ():
        replaced[replacing[row["schedule_id"]].row["tenant"]].add(row["job_id"])
    await transaction.fetch(SQL.lock_jobs, ids=sorted(set().union(*replaced.values())))
    cancelled: list[tuple[str, Cancelled]] = []
    for tenant, job_ids in sorted(replaced.items()):
        answers = await control.cancel(transaction, sorted(job_ids), tenant=tenant, actor=REPLACED, margin_ms=margin_ms)
        cancelled += [(tenant, answer) for answer in answers if isinstance(answer, Cancelled) and not answer.already]
    return cancelled
