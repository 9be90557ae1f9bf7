"""Zone rules: when they change the next slots are computed anew, and what is due or changed meanwhile is left alone."""

from __future__ import annotations

from datetime import timedelta

from tests.queue.fired import again, fire_all, write
from tests.queue.planned import made
from tests.queue.steps import Steps
from windlass.engine.zones import Zones, installed_rules
from windlass.queue import zonerules
from windlass.queue.cron import Cron, Every
from windlass.queue.schedules import Schedule

BERLIN = Cron("30 14 * * *", "Europe/Berlin")
HOUR = timedelta(hours=1)


async def by_old_rules(steps: Steps, schedule: Schedule) -> None:
    """Let the next slot be due an hour later, as rules may have said that are no more."""
    assert schedule.next_at is not None
    await write(
        steps,
        "UPDATE schedule_next SET next_at = :next WHERE id = :id",
        id=schedule.id,
        next=schedule.next_at + HOUR,
    )


async def test_rel_e5_new_rules_move_the_next_slots_of_their_zones(steps: Steps) -> None:
    """Only those in zones with rules; a look goes from chunk to chunk, once, and is then noted."""
    zoned = [await made(steps, f"s{number}", trigger=BERLIN, jitter_s=number) for number in range(3)]
    elapsed = await made(steps, "elapsed", trigger=Every(3600))
    for schedule in (*zoned, elapsed):
        await by_old_rules(steps, schedule)
    await zonerules.note(steps.db, "old")
    zones = Zones("new")

    await zones.begin(steps.db)
    moved = await zones.go_on(steps.db)
    await zones.begin(steps.db)

    assert (3, False) == (moved, zones.busy)
    assert [s.next_at for s in zoned] == [(await again(steps, schedule)).next_at for schedule in zoned]
    assert elapsed.next_at != (await again(steps, elapsed)).next_at


async def test_the_first_rules_are_noted(steps: Steps) -> None:
    """Who starts first has computed everything by them: there is nothing to look at, then or later."""
    first = await zonerules.changed(steps.db, "a")
    same = await zonerules.changed(steps.db, "a")
    other = await zonerules.changed(steps.db, "b")

    assert (False, False, True) == (first, same, other)


async def test_a_slot_that_is_due_fires_as_it_is(steps: Steps) -> None:
    """Its time has come by the rules of then."""
    schedule = await made(steps, trigger=BERLIN)
    await by_old_rules(steps, schedule)
    assert schedule.next_at is not None
    steps.clock.advance((schedule.next_at + HOUR - steps.clock.now()).total_seconds())

    renewed = await zonerules.renew(steps.db)

    assert (0, None) == (renewed.moved, renewed.after)
    assert 1 == await fire_all(steps)


async def test_chunks_follow_each_other(steps: Steps) -> None:
    """Each says where the next begins."""
    for number in range(5):
        await by_old_rules(steps, await made(steps, f"s{number}", trigger=BERLIN))

    first = await zonerules.renew(steps.db, limit=3)
    assert first.after is not None
    second = await zonerules.renew(steps.db, after=first.after, limit=3)

    assert (3, 2, None) == (first.moved, second.moved, second.after)


def test_the_rules_have_a_version() -> None:
    """As their file or package tells."""
    assert "unknown" != installed_rules()
