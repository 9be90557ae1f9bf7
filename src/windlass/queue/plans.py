"""Plans: what is decided about schedules that are due, before anything is written. Pure, but for the ids of new jobs.

A row as it was read (firing.sql) becomes a series of slots and a policy; slots.py decides. Series without chance in
them are shared by all schedules that ask for the same times. One whose times cannot be computed, as of a zone that this
machine does not know, is named and left out. How plans are carried out: firing.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.db import Row
from windlass.ids import Ids
from windlass.queue.cron import Series, series
from windlass.queue.defaults import BY_TASK, OPEN, Defaults, filled
from windlass.queue.lanes import LaneName
from windlass.queue.newjob import NewJob, tags_text
from windlass.queue.retry import policy_from_json, policy_to_json
from windlass.queue.schedule import CATCH_UPS, MADE, NO_ID, OVERLAPS, Decision, Policy, trigger_from
from windlass.queue.slots import NOTHING_KNOWN, Decided, Known, Previous, decide

SLOTS = 2000
"""So many slots are decided in one transaction; what schedules have beyond that comes next."""
LONG_TEXT = 500
"""Schedules that leave out days by a longer text are not remembered."""
LOOK_S = 0.05
"""So long the schedules of one look are computed; what is left of them comes next."""
NO_BASE = datetime(1970, 1, 1, tzinfo=UTC)
OF_JOBS = ("priority", "max_attempts", "max_lost", "timeout_s", "retry", "headers", "tags", "defaults")
"""What the jobs of a schedule get from it as it was read; their payload is copied from where it lies."""
CRON = 1
INTERVAL = 2


def untimed() -> float:
    """Return the time that was computed, for a caller that sets no bound."""
    return 0.0


class Waiting(NamedTuple):
    """A job that waits for runs of its schedule before it."""

    tenant: str
    schedule_id: UUID
    job_id: UUID
    ahead_count: int


class Plan(msgspec.Struct, frozen=True):
    """A schedule as it was read, what was decided of it, and the ids of the jobs that are made for it."""

    row: Row
    decided: Decided
    job_ids: list[UUID | None]
    """One for each choice; None where no job is made."""

    @property
    def lane(self) -> LaneName:
        """Where its jobs go."""
        row = self.row
        return LaneName(row["tenant"], row["queue"], row["task"], row["labels"])

    @property
    def id(self) -> UUID:
        """The schedule."""
        schedule_id: UUID = self.row["id"]
        return schedule_id

    @property
    def first_at(self) -> datetime:
        """The first of the slots that were due."""
        next_at: datetime = self.row["next_at"]
        return next_at - timedelta(seconds=self.decided.offset_s)

    @property
    def waiting(self) -> list[Waiting]:
        """The jobs that wait for the run before them."""
        ahead = range(self.row["waiting_count"] + 1, self.decided.waiting_count + 1)
        made = zip(self.job_ids, self.decided.choices, strict=True)
        ids = [job_id for job_id, choice in made if job_id and choice.decision is Decision.WAITING]
        return [Waiting(self.lane.tenant, self.id, *pair) for pair in zip(ids, ahead, strict=False)]

    @property
    def let_go(self) -> UUID | None:
        """The last job that waits for nobody, which is the run before the next slot.

        While jobs wait that were made under another policy it stays the one that they wait for: they go one by one.
        """
        if self.row["waiting_count"] and self.decided.waiting_count:
            live_job_id: UUID | None = self.row["live_job_id"]
            return live_job_id
        made = zip(self.job_ids, self.decided.choices, strict=True)
        free = [job_id for job_id, choice in made if job_id and choice.decision is not Decision.WAITING]
        return free[-1] if free else self.row["live_job_id"]


class Planned(msgspec.Struct, frozen=True):
    """What was decided, in the order of ids, and the schedules whose times cannot be computed, with the reasons."""

    found: list[tuple[Row, Decided]]
    broken: dict[UUID, Exception]


def decide_all(rows: Sequence[Row], cpu_s: Callable[[], float] = untimed, *, look_s: float = LOOK_S) -> Planned:
    """Decide about schedules until there are slots enough, or for `look_s`; some may be left out.

    Those that are late have at least half of the slots and of the time. Tenants take turns: what one tenant's schedules
    cost delays its own before those of others.
    """
    late = sorted((row for row in rows if row["late"]), key=lambda row: row["next_at"])
    planned = Planned([], {})
    slots, begun_s = 0, cpu_s()
    for part, share in (([row for row in rows if not row["late"]], 0.5 if late else 1.0), (late, 1.0)):
        for row in in_turns(part):
            if slots >= SLOTS * share or (cpu_s() - begun_s >= look_s * share and (planned.found or planned.broken)):
                break
            try:
                found = decided(row)
            except Exception as error:
                planned.broken[row["id"]] = error
            else:
                planned.found.append((row, found))
                slots += max(len(found.choices), 1)
    planned.found.sort(key=lambda pair: pair[0]["id"])
    return planned


def in_turns(rows: Sequence[Row]) -> list[Row]:
    """Return the rows in an order in which tenants take turns."""
    turns: Counter[str] = Counter()
    ordered = []
    for row in rows:
        turns[row["tenant"]] += 1
        ordered.append((turns[row["tenant"]], row))
    return [row for _, row in sorted(ordered, key=itemgetter(0))]


def decide_again(plans: Sequence[Plan], known: Mapping[UUID, Known]) -> list[tuple[Row, Decided]]:
    """Decide about schedules of which some slots turned out to be decided already."""
    return [(plan.row, decided(plan.row, known[plan.id])) for plan in plans]


def with_ids(found: Sequence[tuple[Row, Decided]], ids: Ids) -> list[Plan]:
    """Return plans, with ids for the jobs that are to be made."""
    plans = []
    for row, found_of in found:
        job_ids = [ids.new() if choice.decision in MADE else None for choice in found_of.choices]
        plans.append(Plan(row, _explained(row, found_of, job_ids), job_ids))
    return plans


def _explained(row: Row, decided: Decided, job_ids: Sequence[UUID | None]) -> Decided:
    """Return the same with a reason at each slot that is skipped: which policy, and which job was not over."""
    if all(choice.decision in MADE for choice in decided.choices):
        return decided
    before, waiting_count = row["live_job_id"], row["waiting_count"]
    choices = []
    for choice, job_id in zip(decided.choices, job_ids, strict=True):
        if choice.decision is Decision.OVERLAPPED:
            waiting = f", and {waiting_count} waited for it" if waiting_count else ""
            reason = f"Overlap policy {OVERLAPS[row['overlap']]}: job {before} was not over{waiting}."
            choice = msgspec.structs.replace(choice, reason=reason)
        elif choice.decision is Decision.WAITING:
            waiting_count += 1
        elif job_id is not None:
            before = job_id
        choices.append(choice)
    return msgspec.structs.replace(decided, choices=choices)


def decided(row: Row, known: Known = NOTHING_KNOWN) -> Decided:
    """Return what becomes of the slots of a schedule that are due."""
    slots = _series_of(row)
    first_at = row["next_at"] - timedelta(seconds=slots.offset_s)
    if row["last_at"] is not None and first_at <= row["last_at"]:
        # Somebody set it back by hand. What was decided stands; it goes on where it was.
        following = slots.after(row["last_at"])
        next_at = None if following is None else following + timedelta(seconds=slots.offset_s)
        return Decided([], row["last_at"], next_at, row["waiting_count"])
    return decide(
        _policy(
            row["catch_up"],
            row["catch_up_max"],
            row["catch_up_window_s"],
            row["misfire_grace_s"],
            row["overlap"],
            row["start_within_s"],
        ),
        slots,
        first_at=first_at,
        now_at=row["now_at"],
        previous=Previous(row["live"] is not None, row["waiting_count"]),
        known=known,
    )


def with_defaults(row: Row, given: Defaults | None) -> Row:
    """Return a schedule as it was read, with what its task gives for the options that its author left open."""
    if given is None or not row["defaults"] & given.options:
        return row
    job = NewJob(
        id=NO_ID,
        task=row["task"],
        tenant=row["tenant"],
        queue=row["queue"],
        labels=tuple(filter(None, row["labels"].split(","))),
        priority=row["priority"],
        max_attempts=row["max_attempts"],
        max_lost=row["max_lost"],
        timeout_s=row["timeout_s"],
        retry=None if row["retry"] is None else policy_from_json(row["retry"]),
        headers=row["headers"],
        defaults=row["defaults"],
    )
    found = filled(job, given)
    taken = found.defaults >> BY_TASK
    attempts, lost = found.limits
    changed: dict[str, Any] = {
        **{name: getattr(found, name) for name in ("queue", "priority", "timeout_s", "headers", "defaults")},
        "labels": found.lane.labels,
        "max_attempts": attempts,
        "max_lost": lost,
        "retry": None if found.delivery == "at_most_once" else policy_to_json(found.retry),
    }
    if taken & OPEN["tags"]:
        changed["tags"] = tags_text(found.tags)
    if taken & OPEN["start_deadline"] and given.start_within_s is not None:
        changed["start_within_s"] = max(1, math.ceil(given.start_within_s))
    return {**row, **changed}


def forget() -> None:
    """Forget the series that were made."""
    _shared_series.cache_clear()


def _series_of(row: Row) -> Series:
    kind, expression = row["kind"], row["expression"]
    own = row["jitter_s"] or kind not in (CRON, INTERVAL) or (kind == CRON and "H" in expression)
    own = own or len(row["exclude"] or "") > LONG_TEXT  # one may have 10 KB
    make = _shared_series.__wrapped__ if own else _shared_series
    return make(
        kind,
        expression,
        row["zone"],
        row["id"] if own else NO_ID,
        row["base_at"] if kind == INTERVAL else NO_BASE,
        row["start_at"],
        row["end_at"],
        row["exclude"],
        row["jitter_s"],
    )


@lru_cache(16_384)
def _shared_series(
    kind: int,
    expression: str | None,
    zone: str,
    schedule_id: UUID,
    base_at: datetime,
    start_at: datetime | None,
    end_at: datetime | None,
    exclude: str | None,
    jitter_s: int,
) -> Series:
    trigger = trigger_from(kind, expression, zone)
    if trigger is None:
        raise ValueError("it has no trigger")
    return series(
        trigger,
        schedule_id=schedule_id,
        base_at=base_at,
        start_at=start_at,
        end_at=end_at,
        exclude=() if exclude is None else msgspec.json.decode(exclude, type=tuple[str, ...]),
        jitter_s=jitter_s,
    )


@lru_cache(1024)
def _policy(
    catch_up: int,
    catch_up_max: int,
    catch_up_window_s: int | None,
    misfire_grace_s: int,
    overlap: int,
    start_within_s: int | None,
) -> Policy:
    return Policy(
        catch_up=CATCH_UPS[catch_up],
        catch_up_max=catch_up_max,
        catch_up_window_s=catch_up_window_s,
        misfire_grace_s=misfire_grace_s,
        overlap=OVERLAPS[overlap],
        start_within_s=start_within_s,
    )
