"""Zone rules: when they change the next slots are computed anew, and what is due or changed meanwhile is left alone."""

from __future__ import annotations

import zoneinfo
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from tests.queue.fired import again, decisions, fire_all, write
from tests.queue.planned import made
from tests.queue.steps import Steps
from windlass.engine.zones import Zones, installed_rules
from windlass.queue import watches, zonerules
from windlass.queue.cron import Cron, Every
from windlass.queue.plans import untimed
from windlass.queue.schedule import Policy
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
    moved = await zones.go_on(steps.db, untimed)
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


async def test_a_chunk_that_takes_long_is_cut_short(steps: Steps) -> None:
    """Slots that are due do not wait for it: the next chunk begins where this one ended, and none is left out."""
    for number in range(3):
        await by_old_rules(steps, await made(steps, f"s{number}", trigger=BERLIN))

    moved, after = [], zonerules.FIRST_ID
    for _ in range(3):
        renewed = await zonerules.renew(steps.db, after=after, cpu_s=count().__next__)
        moved.append((renewed.moved, renewed.after is None))
        after = renewed.after or after

    assert [(1, False), (1, False), (1, True)] == moved


@pytest.mark.parametrize(
    ("rules", "changed"),
    [
        ("version 2025b", False),
        ("tzdata 2025.2", False),
        ("version 2024a", False),
        ("tzdata 2025.3", True),
        ("version 2026a", True),
        ("mark 0123456789abcdef", True),
    ],
)
async def test_only_newer_rules_move_slots(steps: Steps, rules: str, changed: bool) -> None:
    """The package counts the versions of a year, the file has letters; what cannot be compared counts as new, once."""
    await zonerules.note(steps.db, "version 2025b")

    first = await zonerules.changed(steps.db, rules)
    await zonerules.note(steps.db, rules)
    again = await zonerules.changed(steps.db, rules)
    back = await zonerules.changed(steps.db, "version 2025b")

    assert (changed, False, False) == (first, again, back)


@pytest.mark.breaks_rows
async def test_a_slot_that_new_rules_put_into_the_past_is_late(steps: Steps) -> None:
    """It fires by the policy for late ones, instead of being lost; what was expected of it moves with it."""
    policy = Policy(catch_up="all", expect_within_s=60)
    schedule = await made(steps, trigger=Cron("30 13 * * *", "Europe/London"), policy=policy)
    steps.clock.advance(59 * 60)
    await write(steps, "UPDATE schedule SET zone = 'Europe/Paris' WHERE id = :id", id=schedule.id)

    renewed = await zonerules.renew(steps.db)
    told = (await watches.look(steps.db)).told
    fired = await fire_all(steps)
    found = await again(steps, schedule)

    assert (1, 1, [("12:30:00", "fired")]) == (renewed.moved, fired, await decisions(steps, schedule))
    assert ["run.missing"] == [one.kind for one in told]
    assert schedule.next_at is not None
    assert schedule.next_at + timedelta(hours=23) == found.next_at


@pytest.mark.breaks_rows
@pytest.mark.parametrize("before", [False, True], ids=["first", "second"])
async def test_a_slot_that_new_rules_put_off_comes_once(steps: Steps, before: bool) -> None:
    """Nothing is missing meanwhile, and the slot of the day before, which they put off too, is not run again."""
    schedule = await made(steps, trigger=Cron("30 14 * * *", "Europe/Paris"), policy=Policy(expect_within_s=60))
    if before:
        await fire_all(steps, 24 * 3600)
        [lease] = await steps.claim(await steps.worker())
        await steps.complete(lease)
        await watches.look(steps.db)
    was = await again(steps, schedule)
    await write(steps, "UPDATE schedule SET zone = 'Europe/London' WHERE id = :id", id=schedule.id)

    renewed = await zonerules.renew(steps.db)
    steps.clock.advance(95 * 60)
    told = (await watches.look(steps.db)).told

    assert was.next_at is not None
    assert (1, was.next_at + HOUR, []) == (renewed.moved, (await again(steps, schedule)).next_at, told)


@pytest.mark.parametrize("version", ["tzdata.zi", "+VERSION", None])
def test_the_rules_are_named_by_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """A folder without a version has a mark that follows from its zones; without a folder the package tells."""
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path / "none"), str(tmp_path)))
    package = installed_rules()
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(b"one")
    if version is not None:
        (tmp_path / version).write_text("# version 2025b\n")
    first = installed_rules()
    (tmp_path / "Europe" / "Berlin").write_bytes(b"two")
    second = installed_rules()

    assert "tzdata 20" == package[:9]
    assert ("version 2025b" == first) is (version is not None)
    assert (first == second) is (version is not None)
