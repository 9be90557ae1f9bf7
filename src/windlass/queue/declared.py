"""Declared schedules: those of an application are made what its code says, however many of its workers say it at once.

What is new is added, what differs is changed under its id, what is declared no more is removed with its jobs that have
not begun. What it declares as not enabled is paused, and resumed when it declares otherwise; a pause by people is
their word and stays. If nothing differs nothing is written. Workers that start together wait
for each other on the names and rows they write; whoever comes second looks again and finds it done.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.errors import Contention, NameTaken
from windlass.queue import scheduledits, schedulewrites
from windlass.queue.control import Actor
from windlass.queue.newjob import check_name
from windlass.queue.schedule import NewSchedule, Reach
from windlass.queue.schedulerows import as_stored, definition_from
from windlass.queue.schedules import check_all, named
from windlass.queue.schedulewrites import Prepared

SQL = load(__file__)

TRIES = 20
BY_DECLARATION = "Its application declares it so."
"""Why a schedule is paused whose declaration says so: what tells it from a pause by people."""


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What declaring has changed, by name."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int


class Reconciled(msgspec.Struct, frozen=True):
    """What declaring has changed, and the jobs that were cancelled with the schedules removed."""

    declared: Declared
    cancelled: list[UUID]


class _Rival(Exception):
    """Somebody changed what we had looked at."""


class _Stored(msgspec.Struct, frozen=True):
    definition: NewSchedule
    reason: str | None
    """Why it is paused."""


class _Plan(msgspec.Struct, frozen=True):
    added: list[NewSchedule]
    changed: dict[UUID, tuple[NewSchedule, NewSchedule]]
    """What each was, and becomes."""
    removed: dict[UUID, NewSchedule]
    unchanged: int

    @property
    def touched(self) -> dict[UUID, NewSchedule]:
        """Those that are stored and would be others, as they were."""
        return {schedule_id: was for schedule_id, (was, _) in self.changed.items()} | self.removed

    @property
    def shown(self) -> Declared:
        return Declared(
            added=sorted(schedule.name for schedule in self.added),
            changed=sorted(becomes.name for _, becomes in self.changed.values()),
            removed=sorted(schedule.name for schedule in self.removed.values()),
            unchanged=self.unchanged,
        )


async def declare(
    db: Statements,
    owner: str,
    schedules: Sequence[NewSchedule],
    *,
    tenant: str,
    actor: Actor,
    dry_run: bool = False,
    reach: Reach | None = None,
    keep: frozenset[str] = frozenset(),
) -> Reconciled:
    """Make the schedules of `owner` those given, and say what that changed; with `dry_run` what it would change.

    Those of the names in `keep` stay as they are: the application has them, and could not say now what they are.
    NameTaken if one has the name of a schedule that is another's or nobody's, Forbidden if one that would be changed or
    removed is out of the caller's reach; then nothing is changed.
    """
    check_name("owner", owner)
    wanted = [msgspec.structs.replace(schedule, tenant=tenant, owner=owner) for schedule in schedules]
    if wanted:
        check_all(wanted)
    for _ in range(TRIES):
        stored = [was for was in await _of_owner(db, owner, tenant) if was.definition.name not in keep]
        plan = _plan(stored, wanted)
        if dry_run:
            await _prepare(db, plan.added, wanted)
            schedulewrites.keep_within(reach, plan.touched.values())
            await _check_names(db, plan.added, wanted, tenant=tenant)
        if dry_run or not (plan.added or plan.changed or plan.removed):
            return Reconciled(plan.shown, [])
        prepared = await _prepare(db, plan.added, wanted)
        try:
            async with db.transaction(tracked=True) as transaction:
                cancelled = await _apply(transaction, plan, prepared, tenant=tenant, actor=actor, reach=reach)
                if cancelled is None:
                    # In the next statement: the name of a rival that was waited for is seen now.
                    await _check_names(transaction, plan.added, wanted, tenant=tenant)
                    raise _Rival
        except _Rival:
            continue
        if plan.removed:
            cancelled += await scheduledits.cancel_rest(db, list(plan.removed), tenant=tenant, actor=actor)
        return Reconciled(plan.shown, cancelled)
    raise Contention(f"The schedules of {owner} are declared anew faster than they can be read. Try again.")


def _plan(stored: Sequence[_Stored], wanted: Sequence[NewSchedule]) -> _Plan:
    by_name = {was.definition.name: was.definition for was in stored}
    by_people = {was.definition.name for was in stored if was.definition.paused and was.reason != BY_DECLARATION}
    added, changed = [], {}
    for schedule in wanted:
        was = by_name.pop(schedule.name, None)
        if was is None:
            added.append(schedule)
            continue
        paused = schedule.paused or schedule.name in by_people
        becomes = as_stored(msgspec.structs.replace(schedule, id=was.id, paused=paused))
        if becomes != was:
            changed[was.id] = (was, becomes)
    removed = {schedule.id: schedule for schedule in by_name.values()}
    return _Plan(added, changed, removed, len(wanted) - len(added) - len(changed))


async def _apply(
    transaction: Statements,
    plan: _Plan,
    prepared: Prepared,
    *,
    tenant: str,
    actor: Actor,
    reach: Reach | None,
) -> list[UUID] | None:
    """Write what the plan says and return the jobs cancelled with what was removed; None if a name was taken."""
    now = await schedulewrites.open_tenants(transaction, [tenant])
    found = await schedulewrites.lock(transaction, plan.touched, tenant=tenant, reach=reach)
    if plan.touched != {schedule_id: schedule.definition for schedule_id, schedule in found.by_id.items()}:
        raise _Rival
    for schedule_id, (was, becomes) in plan.changed.items():
        pause = found.by_id[schedule_id].pause
        if was.paused and not becomes.paused and pause is not None and pause.reason != BY_DECLARATION:
            raise _Rival  # somebody paused it meanwhile
    changes = [
        schedulewrites.changed(found.by_id[schedule_id], becomes, now=now)
        for schedule_id, (_, becomes) in plan.changed.items()
    ]
    declaring = Actor(actor.name, BY_DECLARATION)
    await schedulewrites.change(transaction, changes, now=now, actor=declaring)
    cancelled = []
    if plan.removed:
        cancelled = await scheduledits.remove(transaction, sorted(plan.removed), tenant=tenant, actor=actor)
    made = await schedulewrites.insert(transaction, prepared, prepared.rows, actor=declaring) if plan.added else {}
    return None if len(made) < len(plan.added) else cancelled


async def _prepare(db: Statements, added: Sequence[NewSchedule], wanted: Sequence[NewSchedule]) -> Prepared:
    """Compute where new ones will stand; InvalidSchedule names the index of one that would never fire."""
    prepared = await schedulewrites.prepare(db, added)
    for index, schedule in enumerate(wanted if prepared.problems else ()):
        if schedule.id in prepared.problems:
            raise named(prepared.problems[schedule.id], index)
    return prepared


async def _check_names(
    db: Statements, added: Sequence[NewSchedule], wanted: Sequence[NewSchedule], *, tenant: str
) -> None:
    """Return if no name of those added is another's; NameTaken names the index among all otherwise."""
    names = sorted((schedule.name,) for schedule in added)
    indexes = {schedule.name: index for index, schedule in enumerate(wanted)}
    for row in await db.fetch(SQL.owners_of_names, tenant=tenant, names=names) if names else ():
        if row["owner"] != (owner := added[0].owner):
            whose = f"{row['owner']} declares" if row["owner"] else "nobody declares: it was made by hand"
            raise NameTaken(
                f'{owner} cannot declare schedule "{row["name"]}": there is one of this name that {whose}. '
                "Choose another name, or delete that one.",
                index=indexes[row["name"]],
            )


async def _of_owner(db: Statements, owner: str, tenant: str) -> list[_Stored]:
    rows = await db.fetch(SQL.of_owner, tenant=tenant, owner=owner)
    return [_Stored(definition_from(row), row["pause_reason"]) for row in rows]
