"""Schedules: what makes jobs at set times, stored and found.

A schedule is a definition, and a narrow row that says when its next slot is due. It is made here, by one request for up
to a thousand or loaded by the million; names are unique in a tenant. scheduledits.py changes and removes schedules,
declared.py keeps those of an application in step with its code, firing.py makes their jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime
from itertools import islice
from uuid import UUID

import msgspec

from windlass.db import Statements
from windlass.db import load as load_queries
from windlass.errors import Contention, InvalidInput, NameTaken, NotFound
from windlass.queue import schedulewrites, views
from windlass.queue.newjob import MAX_BATCH
from windlass.queue.schedule import NewSchedule, Reach, check_payload, check_rules, check_schedule
from windlass.queue.schedule import differences as differences
from windlass.queue.schedulerows import Schedule as Schedule
from windlass.queue.schedulerows import schedule_from
from windlass.queue.schedulewrites import Change, Each, Prepared, Turn, in_thread

SQL = load_queries(__file__)

TRIES = 10
MAX_PAGE = 500
EXAMINED = 10_000
"""How many schedules a page by filters looks at; where that is not enough, a short one says where to go on."""
COMPUTED_AGAIN = 20
"""So many schedules may move between a look and the lock; their changes are computed again under it."""
CHUNK = 10_000
"""So many schedules are loaded in one transaction."""
LAST = "\U0010ffff"
"""Sorts after every name."""


class Stored(msgspec.Struct, frozen=True):
    """A schedule that was stored, in short."""

    id: UUID
    name: str
    next_at: datetime | None
    replaced: bool = False


class SchedulePage(msgspec.Struct, frozen=True):
    """A page of schedules by name, and the name after which the next one begins; None on the last."""

    schedules: list[Schedule]
    next_cursor: str | None


class _Rival(Exception):
    """Somebody made a schedule of this name while we looked."""


async def create(
    db: Statements,
    schedules: Sequence[NewSchedule],
    *,
    replace: bool = False,
    skip: bool = False,
    reach: Reach | None = None,
    each: Each = in_thread,
    turn: Turn = nullcontext,
) -> list[Stored]:
    """Store schedules, all or none, and return them in order; NameTaken if one has the name of another.

    With `replace` that other one gets the definition instead, under its own id: its history stays, and so do its owner
    and a pause, which only `resume` ends. With `skip` those whose names are taken are left out, here and in what is
    returned. Of either, Forbidden if the other one is out of the caller's reach.
    Times are computed by `each`, before the `turn` to write is waited for.
    """
    await check_all(schedules, each)
    prepared = await schedulewrites.prepare(db, schedules, each)
    for _ in range(TRIES):
        changes = await _changes(db, schedules, each) if replace else None
        try:
            async with turn(), db.transaction(tracked=True) as transaction:
                return await _create(transaction, schedules, prepared, changes=changes, skip=skip, reach=reach)
        except _Rival:
            continue
    raise Contention("Schedules of these names are made and removed faster than they can be replaced. Try again.")


async def load(db: Statements, schedules: Iterable[NewSchedule]) -> int:
    """Store many schedules, some thousands in a transaction; return how many.

    Those whose names are taken are left out, so that a load that was interrupted is finished by running it again. Of
    two with one name in a chunk, unless they are the same, the second is refused.
    """
    stored = loaded = 0
    rest = iter(schedules)
    while chunk := list(islice(rest, CHUNK)):
        await in_thread(_named_by(check_schedule), list(enumerate(chunk, loaded)))
        _check_names(chunk, loaded)
        prepared = await schedulewrites.prepare(db, chunk)
        for index, schedule in enumerate(chunk if prepared.problems else (), loaded):
            if schedule.id in prepared.problems:
                raise named(prepared.problems[schedule.id], index)
        loaded += len(chunk)
        async with db.transaction(tracked=True) as transaction:
            await schedulewrites.open_tenants(transaction, {schedule.tenant for schedule in chunk})
            stored += len(await schedulewrites.insert(transaction, prepared, prepared.rows))
    return stored


def _check_names(chunk: Sequence[NewSchedule], first: int) -> None:
    """Return if those of one name are the same; which of them was meant nobody can say otherwise."""
    seen: dict[tuple[str, str], NewSchedule] = {}
    for index, schedule in enumerate(chunk, first):
        same = seen.setdefault(_name(schedule), schedule)
        if same is not schedule and msgspec.structs.replace(schedule, id=same.id) != same:
            problem = InvalidInput("name", f"{schedule.name!r} stands twice, with other settings. Rename one of them.")
            raise named(problem, index)


async def get(db: Statements, ref: UUID | str, *, tenant: str) -> Schedule:
    """Return the schedule with this id or name; NotFound if the tenant has none."""
    if isinstance(ref, UUID):
        rows = await db.fetch(SQL.get_by_id, id=ref, tenant=tenant)
    else:
        rows = await db.fetch(SQL.get_by_name, name=ref, tenant=tenant)
    if not rows:
        raise NotFound(f"There is no schedule {ref}.")
    return schedule_from(rows[0])


async def find(
    db: Statements,
    tenant: str,
    *,
    limit: int = 100,
    cursor: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    named_queue: bool = False,
    owner: str | None = None,
    paused: bool | None = None,
    prefix: str | None = None,
) -> SchedulePage:
    """Return up to `limit` schedules of a tenant by name, those after `cursor`, as many as fit; all filters together.

    With `named_queue` only those that name their queue themselves. A bounded number is looked at: a page may be short,
    or empty, and have a cursor.
    """
    limit = max(1, min(limit, MAX_PAGE))
    names = {"cursor": cursor or "", "first": prefix or "", "last": (prefix or "") + LAST}
    filters = {"task": task, "queue": queue, "owner": owner, "paused": None if paused is None else int(paused)}
    filters["named"] = 1 if named_queue else None
    examined = EXAMINED if any(value is not None for value in filters.values()) else limit + 1
    bounds = {"limit": limit + 1, "examined": examined, "most": views.LIST_BYTES}
    rows = await db.fetch(SQL.find_schedules, tenant=tenant, **bounds, **names, **filters)
    found = [schedule_from(row) for row in rows[:limit]]
    if rows and rows[0]["found"] > len(found):
        return SchedulePage(found, found[-1].definition.name)
    if examined == EXAMINED:
        [seen] = await db.fetch(SQL.examined, tenant=tenant, examined=examined, **names)
        if seen["examined"] == examined:
            return SchedulePage(found, seen["name"])
    return SchedulePage(found, None)


async def _create(
    transaction: Statements,
    schedules: Sequence[NewSchedule],
    prepared: Prepared,
    *,
    changes: dict[UUID, Change] | None,
    skip: bool,
    reach: Reach | None,
) -> list[Stored]:
    now = await schedulewrites.open_tenants(transaction, {schedule.tenant for schedule in schedules})
    known = {} if changes is None else await _known(transaction, schedules, reach)
    for index, schedule in enumerate(schedules):
        if schedule.id in prepared.problems and _name(schedule) not in known:
            raise named(prepared.problems[schedule.id], index)
    fresh = [schedule.id for schedule in schedules if _name(schedule) not in known]
    made = await schedulewrites.insert(transaction, prepared, fresh) if fresh else {}
    if skip:
        if reach is not None:
            await _known(transaction, [schedule for schedule in schedules if schedule.id not in made], reach)
        schedules = [schedule for schedule in schedules if schedule.id in made]
    for index, schedule in enumerate(schedules):
        if schedule.id not in made and _name(schedule) not in known:
            if changes is not None:
                raise _Rival
            raise name_taken(schedule.name, index=index)
    changes = _changes_now(changes or {}, known, schedules, now)
    await schedulewrites.change(transaction, [c for c in changes.values() if c.becomes != c.was.definition], now=now)
    return [
        Stored(schedule.id, schedule.name, made[schedule.id].next_at)
        if schedule.id in made
        else Stored(known[_name(schedule)].id, schedule.name, changes[known[_name(schedule)].id].cursor.next_at, True)
        for schedule in schedules
    ]


async def _changes(db: Statements, schedules: Sequence[NewSchedule], each: Each) -> dict[UUID, Change]:
    """Compute what becomes of the schedules that have these names, as they stand now."""
    rows = await db.fetch(SQL.ids_of_names, names=sorted(_name(schedule) for schedule in schedules))
    known: dict[tuple[str, str], tuple[Schedule, datetime | None]] = {}
    for tenant in sorted({row["tenant"] for row in rows}):
        found = await schedulewrites.read(db, (row["id"] for row in rows if row["tenant"] == tenant), tenant=tenant)
        known |= {_name(schedule.definition): (schedule, found.now) for schedule in found.by_id.values()}

    def replaced(pair: tuple[int, NewSchedule]) -> Change | None:
        was, now = known.get(_name(pair[1]), (None, None))
        return None if was is None or now is None else _replaced(was, pair[1], now, pair[0])

    changes = await each(replaced, list(enumerate(schedules)))
    return {change.was.id: change for change in changes if change is not None}


def _changes_now(
    changes: dict[UUID, Change],
    known: dict[tuple[str, str], Schedule],
    schedules: Sequence[NewSchedule],
    now: datetime,
) -> dict[UUID, Change]:
    """Return what becomes of schedules that are locked; what was computed counts for those that have not moved."""
    current: dict[UUID, Change] = {}
    again = 0
    for index, schedule in enumerate(schedules):
        if (was := known.get(_name(schedule))) is None:
            continue
        change = changes.get(was.id)
        if change is None or change.was != was:
            again += 1
            if again > COMPUTED_AGAIN:
                raise _Rival
            change = _replaced(was, schedule, now, index)
        current[was.id] = change
    return current


def _replaced(was: Schedule, becomes: NewSchedule, now: datetime, index: int) -> Change:
    paused = becomes.paused or was.definition.paused
    owner = becomes.owner or was.definition.owner
    try:
        return schedulewrites.changed(was, msgspec.structs.replace(becomes, paused=paused, owner=owner), now=now)
    except InvalidInput as problem:
        raise named(problem, index) from None


def name_taken(name: str, *, index: int | None = None) -> NameTaken:
    """Return the error for a name that another schedule has."""
    where = "" if index is None else f"schedules[{index}].name: "
    return NameTaken(f'{where}there is a schedule "{name}" already. Choose another name, or replace it.', index=index)


async def _known(
    transaction: Statements, schedules: Sequence[NewSchedule], reach: Reach | None
) -> dict[tuple[str, str], Schedule]:
    """Lock the schedules that have these names; return them by tenant and name."""
    rows = await transaction.fetch(SQL.ids_of_names, names=sorted(_name(schedule) for schedule in schedules))
    known: dict[tuple[str, str], Schedule] = {}
    for tenant in sorted({row["tenant"] for row in rows}):
        ids = [row["id"] for row in rows if row["tenant"] == tenant]
        found = await schedulewrites.lock(transaction, ids, tenant=tenant, reach=reach)
        known |= {_name(schedule.definition): schedule for schedule in found.by_id.values()}
    return known


def _name(schedule: NewSchedule) -> tuple[str, str]:
    return schedule.tenant, schedule.name


async def check_all(schedules: Sequence[NewSchedule], each: Each) -> None:
    """Return if the schedules of one request may be stored together; the error names the index of one that may not."""
    if not 1 <= len(schedules) <= MAX_BATCH:
        raise InvalidInput("schedules", f"{len(schedules)} schedules in one request; 1 to {MAX_BATCH} are accepted.")
    await each(_named_by(check_rules), list(enumerate(schedules)))
    await each(_named_by(check_payload), list(enumerate(schedules)), counted=False)
    seen: set[tuple[str, str]] = set()
    for index, schedule in enumerate(schedules):
        if _name(schedule) in seen:
            raise InvalidInput(
                "name", f"{schedule.name!r} stands twice in the request.", index=index, batch="schedules"
            )
        seen.add(_name(schedule))


def _named_by(check: Callable[[NewSchedule], None]) -> Callable[[tuple[int, NewSchedule]], None]:
    """Return the same check for a schedule with its index, which the error names."""

    def check_one(pair: tuple[int, NewSchedule]) -> None:
        index, schedule = pair
        try:
            check(schedule)
        except InvalidInput as problem:
            raise named(problem, index) from None

    return check_one


def named(problem: InvalidInput, index: int) -> InvalidInput:
    """Return the same error, naming the schedule at `index` of the request."""
    return type(problem)(problem.field, problem.problem, index=index, batch="schedules")
