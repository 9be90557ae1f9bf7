"""Declared schedules: those of an application are made what its code says, however many of its workers say it at once.

What is new is added, what differs is changed under its id, what is declared no more is removed with its jobs that have
not begun. What it declares as not enabled is paused, and resumed when it declares otherwise; a pause by people is
their word and stays. If nothing differs nothing is written. Workers that start together wait
for each other on the names and rows they write; whoever comes second looks again and finds it done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import Contention, Forbidden, InvalidInput, NameTaken, WindlassError
from windlass.queue import scheduledits, schedulewrites
from windlass.queue.control import Actor
from windlass.queue.newjob import check_name
from windlass.queue.schedule import NewSchedule, Reach
from windlass.queue.schedulerows import Schedule, as_stored, definition_from
from windlass.queue.schedules import COMPUTED_AGAIN, check_all, named
from windlass.queue.schedulewrites import Change, Each, Prepared, Turn, in_thread

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
    """What declaring has changed, the jobs that were cancelled with what was removed, and why others were refused."""

    declared: Declared
    cancelled: list[UUID]
    refused: dict[str, WindlassError] = {}


class _Rival(Exception):
    """Somebody changed what we had looked at."""


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


class _Computed(msgspec.Struct, frozen=True):
    prepared: Prepared | None
    """What is added; None: nothing is."""
    changes: dict[UUID, Change]
    problems: dict[str, WindlassError]


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
    may_pause: bool = True,
    skip_refused: bool = False,
    each: Each = in_thread,
    turn: Turn = nullcontext,
) -> Reconciled:
    """Make the schedules of `owner` those given, and say what that changed; with `dry_run` what it would change.

    Those of the names in `keep` stay as they are: the application has them, and could not say now what they are.
    NameTaken if one has the name of a schedule that is another's or nobody's, Forbidden if one that would be changed or
    removed is out of the caller's reach, or paused or resumed by a caller that may not; then nothing is changed.
    With `skip_refused` those that are refused by themselves are named in the answer instead, and stay as they are.
    Times are computed by `each`, before the `turn` to write is waited for.
    """
    check_name("owner", owner)
    wanted = [msgspec.structs.replace(schedule, tenant=tenant, owner=owner) for schedule in schedules]
    if wanted:
        await check_all(wanted, each)
    refused: dict[str, WindlassError] = {}
    for _ in range(TRIES):
        rows = await db.fetch(SQL.of_owner, tenant=tenant, owner=owner)
        rows = [row for row in rows if row["name"] not in keep and row["name"] not in refused]
        plan = await _plan(rows, [schedule for schedule in wanted if schedule.name not in refused], each)
        computed = await _compute(db, plan, tenant=tenant, may_pause=may_pause, each=each)
        if computed.problems:
            _raise_first(computed.problems, wanted, skip=skip_refused)
            refused |= computed.problems
            continue
        if dry_run:
            schedulewrites.keep_within(reach, plan.touched.values())
        if dry_run or not (plan.added or plan.changed or plan.removed):
            return Reconciled(plan.shown, [], refused)
        try:
            async with turn(), db.transaction(tracked=True) as transaction:
                cancelled = await _apply(transaction, plan, computed, tenant=tenant, actor=actor, reach=reach)
        except _Rival:
            continue
        if plan.removed:
            cancelled += await scheduledits.cancel_rest(db, list(plan.removed), tenant=tenant, actor=actor)
        return Reconciled(plan.shown, cancelled, refused)
    raise Contention(f"The schedules of {owner} are declared anew faster than they can be read. Try again.")


async def _plan(rows: Sequence[Row], wanted: Sequence[NewSchedule], each: Each) -> _Plan:
    stored = await each(definition_from, rows)
    by_name = {was.name: was for was in stored}
    by_people = {row["name"] for row in rows if row["paused"] and row["pause_reason"] != BY_DECLARATION}

    def becomes(schedule: NewSchedule) -> NewSchedule | None:
        if (was := by_name.get(schedule.name)) is None:
            return None
        paused = schedule.paused or schedule.name in by_people
        return as_stored(msgspec.structs.replace(schedule, id=was.id, paused=paused))

    added, changed = [], {}
    for schedule, definition in zip(wanted, await each(becomes, wanted), strict=True):
        if definition is None:
            added.append(schedule)
        elif definition != (was := by_name.pop(schedule.name)):
            changed[was.id] = (was, definition)
    removed = {schedule.id: schedule for schedule in by_name.values()}
    return _Plan(added, changed, removed, len(wanted) - len(added) - len(changed))


async def _compute(db: Statements, plan: _Plan, *, tenant: str, may_pause: bool, each: Each) -> _Computed:
    """Compute where new schedules and changed ones will stand, and which of them are refused."""
    computed = _Computed(await schedulewrites.prepare(db, plan.added, each) if plan.added else None, {}, {})
    if computed.prepared is not None:
        never = computed.prepared.problems
        computed.problems.update({schedule.name: never[schedule.id] for schedule in plan.added if schedule.id in never})
        computed.problems.update(await _taken(db, plan.added, tenant=tenant))
    if not may_pause:
        computed.problems.update(_pausing(plan))
    if not plan.changed:
        return computed
    found = await schedulewrites.read(db, plan.changed, tenant=tenant)

    def change(was: Schedule) -> None:
        becomes = plan.changed[was.id][1]
        try:
            if found.now is not None:
                computed.changes[was.id] = schedulewrites.changed(was, becomes, now=found.now)
        except InvalidInput as problem:
            computed.problems[becomes.name] = problem

    await each(change, list(found.by_id.values()))
    return computed


def _pausing(plan: _Plan) -> dict[str, WindlassError]:
    """Return why those of the changed ones are refused that are paused or resumed."""
    return {
        was.name: Forbidden(
            f"This key lacks the scope operate: it cannot {'pause' if becomes.paused else 'resume'} "
            f'schedule "{was.name}" by declaring it. Use a key with that scope.'
        )
        for was, becomes in plan.changed.values()
        if was.paused != becomes.paused
    }


def _raise_first(problems: Mapping[str, WindlassError], wanted: Sequence[NewSchedule], *, skip: bool) -> None:
    """Raise the first of the problems, with the index of its schedule, unless they are skipped."""
    for index, schedule in enumerate(() if skip else wanted):
        problem = problems.get(schedule.name)
        if isinstance(problem, InvalidInput):
            raise named(problem, index)
        if isinstance(problem, (NameTaken, Forbidden)):
            problem.index = index
            raise problem


async def _apply(
    transaction: Statements,
    plan: _Plan,
    computed: _Computed,
    *,
    tenant: str,
    actor: Actor,
    reach: Reach | None,
) -> list[UUID]:
    """Write what the plan says and return the jobs cancelled with what was removed."""
    now = await schedulewrites.open_tenants(transaction, [tenant])
    found = await schedulewrites.lock(transaction, plan.touched, tenant=tenant, reach=reach)
    if plan.touched != {schedule_id: schedule.definition for schedule_id, schedule in found.by_id.items()}:
        raise _Rival
    for schedule_id, (was, becomes) in plan.changed.items():
        pause = found.by_id[schedule_id].pause
        if was.paused and not becomes.paused and pause is not None and pause.reason != BY_DECLARATION:
            raise _Rival  # somebody paused it meanwhile
    changes = computed.changes
    now_is = found.by_id
    moved = [found for found in plan.changed if found not in changes or changes[found].was != now_is[found]]
    if len(moved) > COMPUTED_AGAIN:
        raise _Rival
    for schedule_id in moved:
        becomes = plan.changed[schedule_id][1]
        changes[schedule_id] = schedulewrites.changed(found.by_id[schedule_id], becomes, now=now)
    declaring = Actor(actor.name, BY_DECLARATION)
    await schedulewrites.change(transaction, list(changes.values()), now=now, actor=declaring)
    cancelled = []
    if plan.removed:
        cancelled = await scheduledits.remove(transaction, sorted(plan.removed), tenant=tenant, actor=actor)
    if computed.prepared is not None:
        made = await schedulewrites.insert(transaction, computed.prepared, computed.prepared.rows, actor=declaring)
        if len(made) < len(plan.added):
            raise _Rival  # a name was taken meanwhile: the next look finds whose it is
    return cancelled


async def _taken(db: Statements, added: Sequence[NewSchedule], *, tenant: str) -> dict[str, WindlassError]:
    """Return why those of the new ones are refused whose names are another's."""
    names = sorted((schedule.name,) for schedule in added)
    found: dict[str, WindlassError] = {}
    for row in await db.fetch(SQL.owners_of_names, tenant=tenant, names=names):
        if row["owner"] != (owner := added[0].owner):
            whose = f"{row['owner']} declares" if row["owner"] else "nobody declares: it was made by hand"
            found[row["name"]] = NameTaken(
                f'{owner} cannot declare schedule "{row["name"]}": there is one of this name that {whose}. '
                "Choose another name, or delete that one."
            )
    return found
