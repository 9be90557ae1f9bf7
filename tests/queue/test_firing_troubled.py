"""Firing beside trouble: a schedule that cannot be fired now keeps no other waiting, and is not given up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.ahead import make_ahead
from tests.queue.fired import again, at, decisions, every_minute, fire, fire_all, jobs_of, write
from tests.queue.planned import made, planned, runs_of
from tests.queue.steps import ANN, Steps
from tests.queue.test_backfills import step
from windlass.queue import backfills, firing, plans, schedules
from windlass.queue.cron import Cron, Every
from windlass.queue.cron import walk as cronwalk
from windlass.queue.schedule import CatchUp, Decision, Policy
from windlass.queue.schedules import Schedule
from windlass.queue.slots import Decided, Known


async def backfilled(steps: Steps, schedule: Schedule, since_s: float) -> int:
    """Backfill the slots of the last so many seconds; return how many there were."""
    now_at = steps.clock.now()
    backfill = await backfills.start(
        steps.db,
        steps.ids,
        schedule,
        since=now_at - timedelta(seconds=since_s),
        until=now_at,
        concurrency=100,
        actor=ANN,
    )
    return len((await step(steps, backfill)).jobs)


async def test_an_outage_that_was_backfilled_stops_nobody(steps: Steps) -> None:
    """All missed slots are decided already: nothing is left to do for them, and others fire at once."""
    daily = await made(steps, "daily", trigger=Cron("0 0 * * *"))
    other = await every_minute(steps, "other")
    steps.clock.advance(days=5)
    await make_ahead(steps.db)
    assert 5 == await backfilled(steps, daily, 5 * 86400)

    await fire_all(steps)

    assert "fired" in {word for _, word in await decisions(steps, other)}
    assert ["backfilled"] * 5 == [word for _, word in await decisions(steps, daily)]
    stands = await again(steps, daily)
    assert stands.next_at is not None
    assert steps.clock.now() < stands.next_at


@pytest.mark.parametrize("catch_up", ["latest", "skip", "all"])
async def test_the_end_of_a_missed_stretch_that_was_backfilled_stops_nobody(steps: Steps, catch_up: CatchUp) -> None:
    """What is known is passed over, whatever the policy; what is not is decided, once."""
    policy = Policy(catch_up=catch_up, catch_up_max=2, misfire_grace_s=5, overlap="allow")
    schedule = await made(steps, trigger=Every(1), policy=policy)
    other = await every_minute(steps, "other")
    await fire_all(steps, 40)
    steps.clock.advance(30)
    assert 20 <= await backfilled(steps, schedule, 20.5)

    await fire_all(steps)

    assert [("12:02:00", "fired")] == await decisions(steps, other)
    rows = await runs_of(steps, schedule.id)
    assert len(rows) == len({row["slot_at"] for row in rows})
    assert 70 == sum(row["slot_count"] for row in rows)
    assert 70 == ((await again(steps, schedule)).last_at - at(0)).total_seconds()  # type: ignore[operator]


async def test_slots_decided_before_are_read_in_portions(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many a backfill has decided: the schedule goes forward, a portion at a time."""
    monkeypatch.setattr(firing, "KNOWN_READ", 7)
    schedule = await made(steps, trigger=Every(1), policy=Policy(catch_up="skip", misfire_grace_s=5, overlap="allow"))
    steps.clock.advance(60)
    assert 50 <= await backfilled(steps, schedule, 50.5)

    looks = 0
    while (await again(steps, schedule)).next_at <= steps.clock.now():  # type: ignore[operator]
        await fire(steps)
        looks += 1

    assert 5 < looks < 20
    rows = await runs_of(steps, schedule.id)
    assert 60 == sum(row["slot_count"] for row in rows)


async def test_a_schedule_that_is_backfilled_all_the_time_is_left_out(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slots are looked at with the next look; those of others are fired now."""
    beset, other = await every_minute(steps, "beset"), await every_minute(steps, "other")
    steps.clock.advance(61)
    await backfilled(steps, beset, 61)

    async def blind(*_: Any, **__: Any) -> dict[UUID, Known]:
        return {beset.id: Known()}

    monkeypatch.setattr(firing, "_read_known", blind)

    fired = await fire(steps)

    assert {Decision.FIRED: 1} == fired.counts
    assert [("12:02:00", "fired")] == await decisions(steps, other)
    assert at(1) == (await again(steps, beset)).next_at


async def test_times_that_cannot_be_computed_are_tried_again(steps: Steps) -> None:
    """An unknown zone: nothing is decided, others fire; when the zone is known the schedule goes on by its policy."""
    broken, fine = await every_minute(steps, "broken"), await every_minute(steps, "fine")
    text = "UPDATE schedule SET zone = :zone WHERE id = :id"
    await write(steps, text, id=broken.id, zone="Mars/Olympus")

    first = await fire(steps, 60)
    left_out = await fire(steps, without=first.failed)
    await write(steps, text, id=broken.id, zone="UTC")
    healed = await fire(steps)

    assert ({Decision.FIRED: 1}, [broken.id]) == (first.counts, first.failed)
    assert ({}, []) == (left_out.counts, left_out.failed)
    assert {Decision.FIRED: 1} == healed.counts
    assert [("12:02:00", "fired")] == await decisions(steps, broken)
    assert [("12:02:00", "fired")] == await decisions(steps, fine)


async def test_a_passing_error_stops_no_schedule(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone's file could not be opened just then: the slot fires with a later look."""
    schedule = await made(steps, trigger=Cron("*/3 * * * *", "America/Halifax"))
    forget_series()
    with monkeypatch.context() as patch:
        patch.setattr(cronwalk, "ZoneInfo", _too_many_files)
        assert [schedule.id] == (await fire(steps, 180)).failed

    await fire(steps)

    assert ["fired"] == [word for _, word in await decisions(steps, schedule)]


async def test_a_broken_schedule_whose_slot_was_backfilled_stops_nobody(steps: Steps) -> None:
    """Its slot is decided already, and its times are unknown: others fire."""
    broken, other = await every_minute(steps, "broken"), await every_minute(steps, "other")
    steps.clock.advance(61)
    assert await backfilled(steps, broken, 61)
    await write(steps, "UPDATE schedule SET zone = 'Mars/Olympus' WHERE id = :id", id=broken.id)

    await fire(steps)

    assert [("12:02:00", "fired")] == await decisions(steps, other)


async def test_one_that_the_database_refuses_is_found_and_left_out(steps: Steps) -> None:
    """The batch is halved until it is alone; all others are fired, and it is named."""
    stored = [planned(steps, f"s{number}", trigger=Cron("* * * * *")) for number in range(9)]
    await schedules.create(steps.db, stored)
    bad = stored[4]
    trouble = _Refusing(steps.db, lambda jobs: any(job[1] == bad.id for job in jobs))
    steps.clock.advance(60)

    fired = await firing.fire(trouble, steps.lanes, steps.ids)  # type: ignore[arg-type]

    assert ({Decision.FIRED: 8}, [bad.id]) == (fired.counts, fired.failed)
    assert 8 == sum([len(await jobs_of(steps, await schedules.get(steps.db, s.id, tenant="default"))) for s in stored])


class _Refusing:
    """A database that fails with an error of its own when it is to make certain jobs."""

    def __init__(self, inner: Any, refuses: Any) -> None:
        self._inner = inner
        self._refuses = refuses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def fetch(self, query: Any, **values: Any) -> Any:
        if query.name == "make_jobs" and self._refuses(values["jobs"]):
            raise ValueError("out of range")
        return await self._inner.fetch(query, **values)

    def transaction(self, **how: Any) -> Any:
        return _RefusingTransaction(self._inner.transaction(**how), self._refuses)


class _RefusingTransaction:
    def __init__(self, inner: Any, refuses: Any) -> None:
        self._inner = inner
        self._refuses = refuses

    async def __aenter__(self) -> _Refusing:
        return _Refusing(await self._inner.__aenter__(), self._refuses)

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._inner.__aexit__(*exc)


def _too_many_files(name: str) -> None:
    raise OSError(24, f"Too many open files: {name}")


def forget_series() -> None:
    """Forget all that was computed before."""
    cronwalk.walk.cache_clear()
    plans.forget()


def row_of(tenant: str, number: int, *, late: bool = False) -> Any:
    """Return as much of a schedule that is due as its turn depends on."""
    return {"id": UUID(int=number), "tenant": tenant, "late": late, "next_at": at(0)}


def test_rel_t9_a_tenant_whose_schedules_take_long_delays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """H6: a look ends when it took long enough; tenants take turns, and what is late has half of the time."""
    now_s = 0

    def decided(row: Any) -> Any:
        nonlocal now_s
        now_s += 1
        return Decided([], at(0), None, 0)

    monkeypatch.setattr(plans, "decided", decided)
    hard = [row_of("a", number) for number in range(10)]
    late = [row_of("c", number, late=True) for number in range(30, 40)]

    fresh = plans.decide_all([*hard, row_of("b", 20)], lambda: now_s, look_s=4)
    shared = plans.decide_all([*hard, row_of("b", 20), *late], lambda: now_s, look_s=4)

    assert ["a", "a", "a", "b"] == [row["tenant"] for row, _ in fresh.found]
    assert ["a", "b", "c", "c"] == [row["tenant"] for row, _ in shared.found]


def test_a_look_decides_about_one_schedule_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes: what is due is not looked at for ever."""
    monkeypatch.setattr(plans, "decided", lambda _: Decided([], at(0), None, 0))

    planned_for = plans.decide_all([row_of("a", 1), row_of("a", 2)], look_s=0.0)

    assert [UUID(int=1)] == [row["id"] for row, _ in planned_for.found]
