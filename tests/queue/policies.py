"""The table of docs/schedule-policies.md: every catch_up beside every overlap, played on the tests' clock.

`python -m tests.queue.policies` plays it on SQLite and writes the document; test_policies.py plays it on both
databases and holds the document to it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.clock import TestClock
from tests.databases import make_sqlite_template
from tests.queue.fired import fire_all, follow
from tests.queue.planned import planned, runs_of
from tests.queue.steps import Steps, Worker
from windlass.db import open_database
from windlass.job import State
from windlass.queue import schedules
from windlass.queue.claim import Claimed
from windlass.queue.cron import Cron
from windlass.queue.schedule import CATCH_UPS, OVERLAPS, CatchUp, Decision, NewSchedule, Overlap, Policy

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "schedule-policies.md"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SLOTS = [NOON + timedelta(minutes=n) for n in range(10, 70, 10)]
DOWN = (NOON + timedelta(minutes=15), NOON + timedelta(minutes=45))
FIRST_ENDS = NOON + timedelta(minutes=55)
LENGTH = timedelta(minutes=8)
STEP = timedelta(minutes=1)
END = NOON + timedelta(minutes=100)

TEXT = """# Late and overlapping slots

What becomes of a slot that is late, or due while the run before it is not over. This page is made by a test that plays
every case on a clock of its own (`python -m tests.queue.policies`), on SQLite and on PostgreSQL.

**Late.** A slot is due at its time, plus the schedule's jitter. One that is later than `misfire_grace` (60 s) is
*missed*; every slot inside the grace runs. Of those that are missed

- `catch_up: skip` runs none;
- `catch_up: latest`, the default, runs the newest, and that only if no slot inside the grace is due in the same look:
  one job for all that was missed. So a one-time schedule that is late always runs;
- `catch_up: all` runs the newest `catch_up_max` (1000) of those not older than `catch_up_window`, in their order.

A slot that is past its start deadline (`start_within`) does not run under any of them: its job would expire at once.
Missed slots that do not run are recorded together, in one row of the schedule's history.

**Overlapping.** The run before is not over while its job lives: it waits, runs, or is to be retried; or while jobs wait
behind it. Then

- `overlap: skip`, the default, makes no job, and records the slot as *overlapped*;
- `overlap: allow` makes one that is ready at once;
- `overlap: queue_one` makes one that waits, unless one waits already;
- `overlap: queue_all` makes one that waits, up to 1000 of them; they run one by one in the order of their slots;
- `overlap: cancel_previous` makes one that is ready at once, and cancels the run before and what waits behind it.

A job made for a slot is the run before the next slot, also when both are decided in one look after an outage. The last
one that was let go counts: of several that run side by side under `allow` only the last holds up a slot, or is
cancelled, after an edit to another policy. Jobs run by hand and jobs of a backfill do not count. Jobs that wait when a
schedule is edited are let go all the same, one by one.

## Every case

A schedule of `*/10 * * * *`, from 12:10 to 13:00. The run of 12:10 takes until 12:55, every other one eight minutes;
its worker takes every job that is ready. From 12:15 to 12:45 no server is up: 12:20, 12:30 and 12:40 are seen late.

"""


@dataclass
class Case:
    """One schedule with its worker, what the worker runs and until when, and what it ran."""

    schedule: NewSchedule
    worker: Worker
    running: list[tuple[Claimed, datetime, int]] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)


def cases() -> Iterator[tuple[CatchUp, Overlap]]:
    """Yield every policy for late slots beside every one for overlapping slots."""
    for overlap in OVERLAPS:
        for catch_up in CATCH_UPS:
            yield catch_up, overlap


async def play(steps: Steps) -> str:
    """Play all cases at once and return the document."""
    played = []
    for catch_up, overlap in cases():
        name = f"{catch_up}-{overlap}"
        policy = Policy(catch_up=catch_up, overlap=overlap)
        schedule = planned(steps, name, queue=name, trigger=Cron("*/10 * * * *"), end_at=SLOTS[-1], policy=policy)
        played.append(Case(schedule, await steps.worker(name, lease_s=36_000)))
    await schedules.create(steps.db, [case.schedule for case in played])
    while steps.clock.now() < END:
        steps.clock.advance((STEP - (steps.clock.now() - NOON) % STEP).total_seconds())
        for case in played:
            await _end_runs(steps, case)
        if not DOWN[0] <= steps.clock.now() < DOWN[1]:
            await fire_all(steps)
            await follow(steps)
        for case in played:
            await _end_runs(steps, case)
            await _begin_runs(steps, case)
    lines = ["catch_up", "overlap", *(f"{slot:%H:%M}" for slot in SLOTS), "runs"]
    table = [_line(lines), _line("---" for _ in lines)]
    for case in played:
        policy = case.schedule.policy
        words = await _words(steps, case)
        table.append(_line([f"`{policy.catch_up}`", f"`{policy.overlap}`", *words, "; ".join(case.ran)]))
    return TEXT + "\n".join(table) + "\n"


async def _end_runs(steps: Steps, case: Case) -> None:
    """Let the worker end what it has run long enough, or is told to stop."""
    for run in list(case.running):
        lease, ends_at, number = run
        if State.CANCELLING is await steps.state_of(lease.id):
            await steps.fail(lease)
            case.ran[number] += f", cancelled {steps.clock.now():%H:%M}"
        elif steps.clock.now() >= ends_at:
            await steps.complete(lease)
        else:
            continue
        case.running.remove(run)


async def _begin_runs(steps: Steps, case: Case) -> None:
    """Let the worker take what is ready."""
    for lease in await steps.claim(case.worker, 10, queue=case.schedule.queue):
        slot_at = (await steps.get(lease.id)).slot_at
        assert slot_at is not None
        ends_at = FIRST_ENDS if slot_at == SLOTS[0] else steps.clock.now() + LENGTH
        case.running.append((lease, ends_at, len(case.ran)))
        case.ran.append(f"{slot_at.astimezone(UTC):%H:%M} at {steps.clock.now():%H:%M}")


async def _words(steps: Steps, case: Case) -> list[str]:
    """Return what became of each slot."""
    words = {}
    for row in await runs_of(steps, case.schedule.id):
        first_at = row["slot_at"] if row["first_at"] is None else row["first_at"]
        for slot in SLOTS:
            if first_at <= slot <= row["slot_at"]:
                words[slot] = Decision(row["decision"]).word
    return [words[slot] for slot in SLOTS]


def _line(cells: Iterator[str] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


async def _made() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policies.db"
        await asyncio.to_thread(make_sqlite_template, path)
        clock = TestClock(NOON + timedelta(minutes=1))
        db = await open_database(f"sqlite:///{path}?synchronous=off", clock=clock)
        try:
            return await play(Steps(db, clock))
        finally:
            await db.close()


if __name__ == "__main__":
    DOCUMENT.write_text(asyncio.run(_made()), encoding="utf-8")
