"""Firing: slots that are due become jobs, each slot once.

What is due is read without a lock and decided in memory (slots.py). Then, in one transaction, each schedule is moved on
by a compare-and-set over all that its decision rests on. For those that moved, and only those, what was decided is
written to `schedule_runs`, whose key is (schedule, slot), and the jobs are made from the schedule's own row. So several
servers may fire at once: whoever comes second moves nothing. A slot that a backfill has decided before is passed over.

Jobs that wait for the run before them are let go in following.py, when that run is over.
Slots are fired when they are due, never ahead. Who calls this, and how often: engine/firing.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass import log
from windlass.db import Row, Statements, load
from windlass.db.partitions import make_days
from windlass.errors import Contention, TooMany, Unavailable
from windlass.ids import Ids
from windlass.queue import control
from windlass.queue.control import CANCEL_MARGIN_MS, Actor, Cancelled
from windlass.queue.cron import series
from windlass.queue.lanes import Lane, LaneName, Lanes
from windlass.queue.schedule import CATCH_UPS, MADE, OVERLAPS, SHARDS, Decision, Policy, trigger_from
from windlass.queue.slots import Choice, Decided, Previous, decide

SQL = load(__file__)

FIRE_BATCH = 1000
SLOTS = 2000
"""So many slots are decided in one transaction; what schedules have beyond that comes next."""
FRESH_MS = 5000
"""What is due longer than this waits behind what is due since less: an outage made up for delays nobody else."""
AT_ONCE = 100
"""More schedules than this are decided in a thread beside."""
TRIES = 3
REPLACED = Actor(reason="Replaced by the job of the next slot.")

Terms = int | Mapping[int, int]
"""The term of the duty under which slots are decided, or that of each shard."""


class Look(msgspec.Struct, frozen=True):
    """What there is to do."""

    due_in_s: float | None
    """In how many seconds the next slot is due, none or fewer if it is; None: there is none."""
    behind: bool
    """Whether jobs wait for the run before them."""


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
    late_s: float = 0.0
    """How late the latest of them was."""
    full: bool = False
    """Whether more is due that was not looked at."""

    @property
    def made(self) -> int:
        """How many jobs were made."""
        return sum(self.queues.values())

    @property
    def decided(self) -> int:
        """How many rows were written."""
        return sum(self.counts.values())


class _Plan(msgspec.Struct, frozen=True):
    """A schedule as it was read, what was decided of it, and the ids of the jobs that are made for it."""

    row: Row
    decided: Decided
    job_ids: list[UUID | None]
    """One for each choice; None where no job is made."""

    @property
    def lane(self) -> LaneName:
        row = self.row
        return LaneName(row["tenant"], row["queue"], row["task"], row["labels"], row["concurrency_key"])

    @property
    def id(self) -> UUID:
        schedule_id: UUID = self.row["id"]
        return schedule_id

    @property
    def let_go(self) -> UUID | None:
        """The last job that waits for nobody, which is the run before the next slot."""
        made = zip(self.job_ids, self.decided.choices, strict=True)
        free = [job_id for job_id, choice in made if job_id and choice.decision is not Decision.WAITING]
        return free[-1] if free else self.row["live_job_id"]


class _Known(Exception):
    """Slots that were decided before."""

    def __init__(self, slots: set[tuple[UUID, datetime]]) -> None:
        super().__init__(len(slots))
        self.slots = slots


async def look(db: Statements, *, shards: Collection[int]) -> Look:
    """Return when there is something to do in these shards."""
    [row] = await db.fetch(SQL.look, shards=sorted(shards))
    left_s = None if row["next_at"] is None else (row["next_at"] - row["now_at"]).total_seconds()
    return Look(left_s, bool(row["behind"]))


async def due_in_s(db: Statements, *, shards: Collection[int] = range(SHARDS)) -> float | None:
    """Return in how many seconds the next slot is due, none or fewer if it is; None when there is none."""
    return (await look(db, shards=shards)).due_in_s


async def fire(
    db: Statements,
    lanes: Lanes,
    ids: Ids,
    *,
    shards: Collection[int] = range(SHARDS),
    limit: int = FIRE_BATCH,
    term: Terms = 0,
    margin_ms: int = CANCEL_MARGIN_MS,
) -> Fired:
    """Decide slots that are due, of up to about `limit` schedules, and make their jobs; return what was done."""
    each = -(-limit // len(shards))
    rows = await db.fetch(SQL.due, shards=sorted(shards), each=each, fresh_ms=FRESH_MS)
    if not rows:
        return Fired()
    known: dict[UUID, frozenset[datetime]] = {}
    for _ in range(TRIES):
        plans = await _planned(rows, ids, known)
        full = len(plans) < len(rows) or _full(rows, each, len(shards))
        try:
            return await _write(db, lanes, plans, term=term, margin_ms=margin_ms, full=full)
        except _Known as found:
            for schedule_id, slot_at in found.slots:
                known[schedule_id] = known.get(schedule_id, frozenset()) | {slot_at}
    raise Contention("Slots are backfilled faster than they can be fired. They are tried again.")


def _full(rows: Sequence[Row], each: int, shards: int) -> bool:
    """Say whether one of the looks found as much as it was allowed to."""
    found = Counter((row["shard"], row["late"]) for row in rows)
    return max(found.values()) >= each or len(rows) >= each * shards


async def _planned(rows: Sequence[Row], ids: Ids, known: Mapping[UUID, frozenset[datetime]]) -> list[_Plan]:
    """Decide about schedules until there are slots enough; some may be left out."""
    if len(rows) > AT_ONCE:
        # Times that nobody has computed yet take a while: the server has others to answer meanwhile.
        decided = await asyncio.to_thread(_decide, rows, known)
    else:
        decided = _decide(rows, known)
    return [
        _Plan(row, found, [ids.new() if choice.decision in MADE else None for choice in found.choices])
        for row, found in decided
    ]


def _decide(rows: Sequence[Row], known: Mapping[UUID, frozenset[datetime]]) -> list[tuple[Row, Decided]]:
    """Return what is decided, in the order of ids. Those that are late have at least half of the slots."""
    late = sorted((row for row in rows if row["late"]), key=lambda row: row["next_at"])
    for_fresh = SLOTS // 2 if late else SLOTS
    decided: list[tuple[Row, Decided]] = []
    slots = 0
    for row in (*(row for row in rows if not row["late"]), *late):
        if slots < (SLOTS if row["late"] else for_fresh):
            found = _decided_or_broken(row, known.get(row["id"], frozenset()))
            decided.append((row, found))
            slots += max(len(found.choices), 1)
    return sorted(decided, key=lambda pair: pair[0]["id"])


def _decided_or_broken(row: Row, known: frozenset[datetime]) -> Decided:
    try:
        return _decided(row, known)
    except Exception as error:
        # Its zone may be gone from the machine's rules. It must not keep others waiting; an edit sets it going again.
        log.event("schedule.broken", schedule=str(row["id"]), error=error)
        reason = f"Its times cannot be computed: {error}. Edit the schedule."
        choices = [Choice(row["next_at"], Decision.MISSED, reason=reason)]
        return Decided(choices, row["next_at"], None, row["waiting_count"])


def _decided(row: Row, known: frozenset[datetime]) -> Decided:
    trigger = trigger_from(row["kind"], row["expression"], row["zone"])
    if trigger is None:
        raise ValueError("it has no trigger")
    slots = series(
        trigger,
        schedule_id=row["id"],
        base_at=row["base_at"],
        start_at=row["start_at"],
        end_at=row["end_at"],
        exclude=() if row["exclude"] is None else msgspec.json.decode(row["exclude"], type=tuple[str, ...]),
        jitter_s=row["jitter_s"],
    )
    policy = Policy(
        catch_up=CATCH_UPS[row["catch_up"]],
        catch_up_max=row["catch_up_max"],
        catch_up_window_s=row["catch_up_window_s"],
        misfire_grace_s=row["misfire_grace_s"],
        overlap=OVERLAPS[row["overlap"]],
    )
    first_at = row["next_at"] - timedelta(seconds=slots.offset_s)
    if row["last_at"] is not None and first_at <= row["last_at"]:
        # Somebody set it back by hand. What was decided stands; it goes on where it was.
        following = slots.after(row["last_at"])
        next_at = None if following is None else following + timedelta(seconds=slots.offset_s)
        return Decided([], row["last_at"], next_at, row["waiting_count"])
    return decide(
        policy,
        slots,
        first_at=first_at,
        now_at=row["now_at"],
        previous=Previous(row["live"] is not None, row["waiting_count"]),
        known=known,
    )


async def _write(
    db: Statements, lanes: Lanes, plans: Sequence[_Plan], *, term: Terms, margin_ms: int, full: bool
) -> Fired:
    places, refused = await _resolve(db, lanes, {plan.lane for plan in plans if any(plan.job_ids)})
    if refused:
        plans = [_refused(plan, refused[plan.lane]) if plan.lane in refused else plan for plan in plans]
    await _make_days(db, plans)
    async with db.transaction(tracked=True) as transaction:
        moved = {row["id"] for row in await transaction.fetch(SQL.advance, cursors=[_cursor(plan) for plan in plans])}
        plans = [plan for plan in plans if plan.id in moved]
        await _record(transaction, plans, term)
        made = await _make_jobs(transaction, plans, lanes, places)
        cancelled = await _cancel_replaced(transaction, plans, margin_ms)
    queues = Counter(plan.row["queue"] for plan in plans for job_id in plan.job_ids if job_id)
    return Fired(
        counts=Counter(choice.decision for plan in plans for choice in plan.decided.choices),
        ready={row["lane"]: row["rank"] for row in made if row["rank"] is not None},
        queues=queues,
        cancelled=cancelled,
        late_s=max(((plan.row["now_at"] - plan.row["next_at"]).total_seconds() for plan in plans), default=0.0),
        # What is due and did not move is being fired by a rival.
        full=full and bool(plans),
    )


async def _resolve(
    db: Statements, lanes: Lanes, names: set[LaneName]
) -> tuple[dict[LaneName, Lane], dict[LaneName, TooMany]]:
    """Return the lanes, and why some cannot be made."""
    try:
        return await lanes.resolve(db, names), {}
    except TooMany:
        places: dict[LaneName, Lane] = {}
        refused: dict[LaneName, TooMany] = {}
        for name in sorted(names):
            try:
                places |= await lanes.resolve(db, [name])
            except TooMany as problem:
                refused[name] = problem
        return places, refused


def _refused(plan: _Plan, problem: TooMany) -> _Plan:
    """Return the plan without jobs: their slots are recorded as missed, with the reason."""
    choices = [
        msgspec.structs.replace(choice, decision=Decision.MISSED, reason=str(problem)) if job_id else choice
        for choice, job_id in zip(plan.decided.choices, plan.job_ids, strict=True)
    ]
    decided = msgspec.structs.replace(plan.decided, choices=choices, waiting_count=plan.row["waiting_count"])
    return _Plan(plan.row, decided, [None] * len(choices))


async def _make_days(db: Statements, plans: Sequence[_Plan]) -> None:
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


def _cursor(plan: _Plan) -> tuple[object, ...]:
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


async def _record(transaction: Statements, plans: Sequence[_Plan], term: Terms) -> None:
    """Write down what was decided; _Known names slots that were decided before."""
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
        raise _Known({run[:2] for run in runs} - {(row["schedule_id"], row["slot_at"]) for row in written})


async def _make_jobs(
    transaction: Statements, plans: Sequence[_Plan], lanes: Lanes, places: Mapping[LaneName, Lane]
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


def _jobs(plan: _Plan, places: Mapping[LaneName, Lane]) -> Iterable[tuple[object, ...]]:
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
                row["priority"],
                int(choice.decision is Decision.WAITING),
            )


async def _cancel_replaced(
    transaction: Statements, plans: Sequence[_Plan], margin_ms: int
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
