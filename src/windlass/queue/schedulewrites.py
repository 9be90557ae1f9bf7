"""What every act on schedules writes: definitions, where they stand, what they passed over, and their pauses.

Always in the caller's transaction and in one lock order: tenant, `schedule` by id, `schedule_next` by id, then names.
`schedule_next` is what firing compares and sets (firing.py): an act that has locked it is seen by the next firing as
another version. Acts: schedules.py creates, scheduledits.py changes and removes, declared.py reconciles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.db.partitions import make_days
from windlass.errors import Contention, Forbidden, InvalidSchedule
from windlass.queue import cursor, watches
from windlass.queue.control import Actor
from windlass.queue.cursor import Cursor, Passed
from windlass.queue.lanes import refuse_erasing
from windlass.queue.leftovers import remove_late
from windlass.queue.schedule import NewSchedule, Reach, shape_of, shard_of
from windlass.queue.schedulerows import (
    Schedule,
    as_stored,
    own_columns_of,
    schedule_from,
    series_of,
    shape_columns_of,
)

SQL = load(__file__)

NOBODY = Actor()
Item = TypeVar("Item")
Value = TypeVar("Value")
Turn = Callable[[], AbstractAsyncContextManager[None]]
"""Waits until it is somebody's turn, and holds it."""


class Each(Protocol):
    """How times are computed, and payloads looked through: for each of some items, in order, beside the event loop."""

    async def __call__(
        self, work: Callable[[Item], Value], items: Sequence[Item], *, field: str = "cron", counted: bool = True
    ) -> list[Value]:
        """Return what `work` returns for each item.

        InvalidSchedule if it is `counted` and takes more than the caller may use.
        """
        ...


async def in_thread(
    work: Callable[[Item], Value], items: Sequence[Item], *, field: str = "cron", counted: bool = True
) -> list[Value]:
    """Return what `work` returns for each item: one piece of work, without bounds."""
    return await asyncio.to_thread(lambda: [work(item) for item in items])


class Found(msgspec.Struct, frozen=True):
    """Schedules that are locked, by id, and the database's time."""

    by_id: dict[UUID, Schedule]
    now: datetime | None
    """None: there are none."""


class Change(msgspec.Struct, frozen=True):
    """A schedule that is locked, what it becomes, and where it stands then."""

    was: Schedule
    becomes: NewSchedule
    base_at: datetime
    cursor: Cursor
    expected: watches.Expected | None
    """None: what is expected of its runs stays."""


class Prepared(msgspec.Struct, frozen=True):
    """New schedules as they are written, by id, and the time for which they were computed."""

    now: datetime
    rows: dict[UUID, tuple[Any, ...]] = {}
    shapes: list[tuple[Any, ...]] = []
    cursors: dict[UUID, Cursor] = {}
    paused: dict[UUID, NewSchedule] = {}
    expected: dict[UUID, watches.Expected] = {}
    problems: dict[UUID, InvalidSchedule] = {}
    """Those that would never fire, and why."""


async def open_tenants(transaction: Statements, tenants: Iterable[str]) -> datetime:
    """Keep the tenants from being deleted until the transaction ends, making them if need be; return the time.

    Raises BeingErased if one of them is.
    """
    names = sorted(set(tenants))
    while len(rows := await transaction.fetch(SQL.lock_tenants, tenants=names)) < len(names):
        for row in await transaction.fetch(SQL.make_tenants, tenants=names):
            await remove_late(transaction, row["name"])
    for row in rows:
        refuse_erasing(row["name"], row["erasing"])
    now: datetime = rows[0]["clock_at"]
    return now


async def prepare(db: Statements, schedules: Sequence[NewSchedule], each: Each = in_thread) -> Prepared:
    """Compute where new schedules stand, before the transaction: a million times take a while."""
    [row] = await db.fetch(SQL.clock)
    found = Prepared(row["clock_at"])
    shapes: dict[Hashable, tuple[Any, ...]] = {}
    await each(lambda schedule: _prepare(schedule, found, shapes), schedules)
    found.shapes.extend(shapes.values())
    return found


def _prepare(schedule: NewSchedule, found: Prepared, shapes: dict[Hashable, tuple[Any, ...]]) -> None:
    base_at = cursor.base_of(schedule, found.now)
    try:
        stands = cursor.begun(schedule, base_at=base_at, now=found.now)
    except InvalidSchedule as problem:
        found.problems[schedule.id] = problem
        return
    key = _shape_key(schedule)
    if key not in shapes:
        shapes[key] = (len(shapes), *shape_columns_of(schedule), base_at)
    found.rows[schedule.id] = (*own_columns_of(schedule), shapes[key][0])
    found.cursors[schedule.id] = stands
    if schedule.paused:
        found.paused[schedule.id] = schedule
    if schedule.policy.expect_within_s is not None:
        found.expected[schedule.id] = _expected(schedule, base_at, stands)


async def insert(
    transaction: Statements, prepared: Prepared, ids: Iterable[UUID], *, actor: Actor = NOBODY
) -> dict[UUID, Cursor]:
    """Store those of the prepared schedules whose names are free; return where each of these stands."""
    rows = [prepared.rows[found] for found in ids]
    written = await transaction.fetch(SQL.insert_schedules, schedules=rows, shapes=prepared.shapes, at=prepared.now)
    made = [row["id"] for row in written]
    cursors = {found: prepared.cursors[found] for found in made}
    if made:
        await transaction.fetch(
            SQL.insert_next, cursors=[(found, shard_of(found), stands.next_at) for found, stands in cursors.items()]
        )
    paused = [prepared.paused[found] for found in made if found in prepared.paused]
    await keep_pauses(transaction, paused, now=prepared.now, actor=actor)
    await watches.expect(transaction, [prepared.expected[found] for found in made if found in prepared.expected])
    return cursors


def _shape_key(schedule: NewSchedule) -> Hashable:
    shape = shape_of(schedule)
    try:
        hash(shape)
    except TypeError:  # a policy by error type: a shape of its own
        return schedule.id
    return shape


async def lock(transaction: Statements, ids: Iterable[UUID], *, tenant: str, reach: Reach | None = None) -> Found:
    """Lock schedules of a tenant and where they stand, and return them as they are now; others are left out.

    Forbidden if one is out of the caller's reach.
    """
    wanted = sorted(set(ids))
    locked = [row["id"] for row in await transaction.fetch(SQL.lock_schedules, ids=wanted, tenant=tenant)]
    await transaction.fetch(SQL.lock_next, ids=locked)
    # In the next statement: what was committed while the locks were waited for is seen now.
    rows = await transaction.fetch(SQL.schedules_now, ids=locked, tenant=tenant)
    found = Found({row["id"]: schedule_from(row) for row in rows}, rows[0]["clock_at"] if rows else None)
    keep_within(reach, (schedule.definition for schedule in found.by_id.values()))
    return found


def keep_within(reach: Reach | None, schedules: Iterable[NewSchedule]) -> None:
    """Raise Forbidden if the caller may not touch one of these stored schedules."""
    for schedule in schedules:
        if reach is not None and not reach.holds(schedule):
            raise Forbidden(
                f'Schedule "{schedule.name}" is not for a queue of this key. Choose another name, or use another key.'
            )


async def read(db: Statements, ids: Iterable[UUID], *, tenant: str) -> Found:
    """Return schedules of a tenant as they are now, without a lock: their changes are computed before it is taken."""
    rows = await db.fetch(SQL.schedules_now, ids=sorted(set(ids)), tenant=tenant)
    return Found({row["id"]: schedule_from(row) for row in rows}, rows[0]["clock_at"] if rows else None)


async def change(
    transaction: Statements,
    changes: Sequence[Change],
    *,
    now: datetime,
    actor: Actor = NOBODY,
    until: datetime | None = None,
) -> None:
    """Write down what locked schedules become; their versions rise."""
    if not changes:
        return
    written = await transaction.fetch(
        SQL.change_schedules,
        schedules=[
            (*own_columns_of(c.becomes), *shape_columns_of(c.becomes), c.base_at, c.was.version) for c in changes
        ],
        at=now,
    )
    moved = await transaction.fetch(
        SQL.move_next, cursors=[(c.was.id, c.was.version, c.cursor.next_at, c.cursor.last_at) for c in changes]
    )
    if not len(changes) == len(written) == len(moved):
        raise Contention("A schedule was changed by somebody else at the same time. Try again.")
    await pass_over(transaction, [(c.was.id, c.cursor.passed) for c in changes if c.cursor.passed is not None])
    paused = [c.becomes for c in changes if c.becomes.paused and not c.was.definition.paused]
    resumed = [c.becomes for c in changes if c.was.definition.paused and not c.becomes.paused]
    await keep_pauses(transaction, paused, now=now, actor=actor, until=until)
    await drop_pauses(transaction, resumed)
    await watches.expect(transaction, [c.expected for c in changes if c.expected is not None])


def changed(was: Schedule, becomes: NewSchedule, *, now: datetime) -> Change:
    """Return the change that gives a locked schedule another definition under its own id."""
    definition = as_stored(msgspec.structs.replace(becomes, id=was.id))
    base_at = was.base_at if definition.trigger == was.definition.trigger else cursor.base_of(definition, now)
    return moved(was, definition, cursor.edited(was, definition, base_at=base_at, now=now), base_at=base_at)


def moved(was: Schedule, becomes: NewSchedule, stands: Cursor, *, base_at: datetime | None = None) -> Change:
    """Return the change to a definition that stands elsewhere."""
    base_at = base_at or was.base_at
    others = _other_runs(was.definition, becomes)
    return Change(was, becomes, base_at, stands, _expected(becomes, base_at, stands) if others else None)


def _other_runs(was: NewSchedule, becomes: NewSchedule) -> bool:
    """Say whether other runs are expected of a schedule than before; if not, what is expected stays."""
    within = (was.policy.expect_within_s, becomes.policy.expect_within_s)
    same = within[0] == within[1] and was.paused == becomes.paused and cursor.same_times(was, becomes)
    return within != (None, None) and not same


def _expected(schedule: NewSchedule, base_at: datetime, stands: Cursor) -> watches.Expected:
    slots = series_of(schedule, base_at)
    if slots is None or stands.next_at is None:
        return schedule.id, None, None
    since = cursor.slot_of(slots, stands.next_at) - cursor.JUST_BEFORE
    return schedule.id, *watches.expected(slots, within_s=schedule.policy.expect_within_s, after=since)


async def pass_over(transaction: Statements, passed: Sequence[tuple[UUID, Passed]]) -> None:
    """Write down slots that were passed over, one row for those of a schedule."""
    if not passed:
        return
    await make_days(transaction, "schedule_runs", [slots.slot_at for _, slots in passed])
    rows = [
        (found, slots.slot_at, int(slots.decision), None, slots.slot_count, slots.first_at, slots.reason)
        for found, slots in passed
    ]
    await transaction.fetch(SQL.record_slots, slots=rows)


async def keep_pauses(
    transaction: Statements,
    schedules: Sequence[NewSchedule],
    *,
    now: datetime,
    actor: Actor = NOBODY,
    until: datetime | None = None,
) -> None:
    """Remember who paused schedules."""
    if schedules:
        pauses = [(schedule.tenant, str(schedule.id)) for schedule in schedules]
        await transaction.fetch(
            SQL.keep_schedule_pauses, pauses=pauses, reason=actor.reason, actor=actor.name, at=now, until=until
        )


async def drop_pauses(transaction: Statements, schedules: Sequence[NewSchedule]) -> None:
    """Forget that schedules were paused."""
    if schedules:
        await transaction.fetch(
            SQL.drop_schedule_pauses, pauses=[(schedule.tenant, str(schedule.id)) for schedule in schedules]
        )
