"""Slots that lie far apart: found without a look at every day and every change of the clock on the way."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice
from uuid import UUID

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.queue.cron import Cron, preview, series
from windlass.queue.cron import walk as cronwalk
from windlass.queue.cron.walk import CronWalk

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT")
RARE = "59 59 23 29 2 *"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "UTC"])
@pytest.mark.parametrize(
    "expression", [RARE, "0 */20 2 * 3,10,11 SUN", "*/30 * 1,2 * 4,10 *", "* 2 29-31 3 *", "30 1 1 * *"]
)
@pytest.mark.parametrize("exclude", [(), ("SAT", "--03-28"), WEEKDAYS])
def test_a_jump_over_changes_of_the_clock_finds_the_same_slots(
    monkeypatch: pytest.MonkeyPatch, zone: str, expression: str, exclude: tuple[str, ...]
) -> None:
    """T9: the walk that stops at every change, and the one that jumps over those far from a slot, are the same."""
    starts = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=23, hours=5, minutes=7) * step for step in range(12)]

    jumping = [CronWalk(expression, zone, exclude).after(start) for start in starts]
    monkeypatch.setattr(cronwalk, "NEAR", timedelta(days=366 * 60))
    stopping = [CronWalk(expression, zone, exclude).after(start) for start in starts]

    assert stopping == jumping


def test_rare_slots_are_found_without_a_look_at_every_year(monkeypatch: pytest.MonkeyPatch) -> None:
    """F12: a slot every 28 years costs a few years' changes of the clock, not those of all years between."""
    years: list[int] = []
    turns = cronwalk._turns

    def counted(zone: str, year: int) -> tuple[datetime, ...]:
        years.append(year)
        return turns(zone, year)

    monkeypatch.setattr(cronwalk, "_turns", counted)
    slots = series(Cron(RARE, "Europe/Berlin"), schedule_id=UUID(int=1), base_at=NOON, exclude=WEEKDAYS)

    found = slots.between(NOON, datetime(9000, 1, 1, tzinfo=UTC), limit=20)

    assert 20 == len(found)
    assert timedelta(days=365 * 200) < found[-1] - found[0]
    assert len(years) < 20 * 8


def test_a_time_that_every_change_of_the_clock_hides_never_fires() -> None:
    """The last Sunday of March has no minute of the hour 2 in Berlin; that is known without a walk to the year 9999."""
    walk = CronWalk("* 2 29-31 3 *", "Europe/Berlin", WEEKDAYS)
    walked: list[datetime] = []
    next_wall = walk._next_wall

    def counted(wall: datetime, until: date = date.max) -> datetime | None:
        walked.append(wall)
        return next_wall(wall, until)

    walk._next_wall = counted  # type: ignore[method-assign]

    assert walk.after(NOON) is None
    assert len(walked) < 60


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Beirut"])
@pytest.mark.parametrize("expression", ["5 4 * * *", "*/7 4 * * *", "0 0 * * MON"])
@pytest.mark.parametrize(
    "exclude", [("2026-01-01/2074-12-31",), ("MON", "2026-01-01/2074-12-31"), ("2026-01-01/2090-12-31",)]
)
def test_rel_t9_a_long_time_left_out_costs_a_look_at_each_month(
    monkeypatch: pytest.MonkeyPatch, zone: str, expression: str, exclude: tuple[str, ...]
) -> None:
    """H6: what is left out for fifty years is passed by arithmetic, not day by day."""
    looked: list[int] = []
    of_month = cronwalk._Wall.of_month

    def counted(wall: cronwalk._Wall, year: int, month: int) -> int:
        looked.append(month)
        return of_month(wall, year, month)

    monkeypatch.setattr(cronwalk._Wall, "of_month", counted)

    CronWalk(expression, zone, exclude).after(NOON)

    assert len(looked) <= 52 * 12


def test_a_look_back_does_not_look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seventy looks find the last slot before an instant; none of them goes on to the next slot, decades ahead."""
    slots = series(Cron("5 4 * * *"), schedule_id=UUID(int=1), base_at=NOON, exclude=("2026-11-15/2074-12-31",))
    looked: list[int] = []
    of_month = cronwalk._Wall.of_month

    def counted(wall: cronwalk._Wall, year: int, month: int) -> int:
        looked.append(year)
        return of_month(wall, year, month)

    monkeypatch.setattr(cronwalk._Wall, "of_month", counted)

    found = slots.last_before(NOON, floor=NOON - timedelta(days=30))
    between = slots.count_between(NOON - timedelta(days=3), NOON, most=1000)

    assert (datetime(2026, 11, 14, 4, 5, tzinfo=UTC), 2) == (found, between)
    assert 2026 == max(looked)


def test_a_bounded_look_sees_the_second_of_a_repeated_hour() -> None:
    """The wall clock shows 02:59:59 twice that night, and nothing that matches for months after."""
    walk = CronWalk("59 59 2 * 10 SUN", "Europe/Berlin")
    first = datetime(2011, 10, 30, 0, 59, 59, tzinfo=UTC)

    assert first + timedelta(hours=1) == walk.after(first, first + timedelta(days=26))
    assert None is CronWalk("59 59 2 * 10 SUN", "Europe/Berlin").after(first, first + timedelta(minutes=59))
    assert datetime(2012, 10, 7, 0, 59, 59, tzinfo=UTC) == walk.after(first + timedelta(hours=1))


FIELD = st.sampled_from(["*", "*/7", "0", "5,11", "3-9", "10/20"])
DAYS = st.sampled_from(["*", "*/2", "L", "LW", "1", "29", "31", "13-20", "L,3"])
WEEKS = st.sampled_from(["*", "1", "*/2", "5L", "2#5", "0#1,3", "1-5"])
MONTHS = st.sampled_from(["*", "2", "*/5", "4,6", "2,12"])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(second=FIELD, minute=FIELD, hour=FIELD.filter(lambda text: text != "10/20"), day=DAYS, month=MONTHS, week=WEEKS)
def test_times_are_those_that_cronsim_walks_to(
    second: str, minute: str, hour: str, day: str, month: str, week: str
) -> None:
    """What is found by arithmetic is what a walk step by step finds, time by time."""
    expression = " ".join((second, minute, hour, day, month, week))
    start = datetime(2027, 12, 30, 21, 58, 57, tzinfo=UTC)
    wall = start
    for expected in islice(CronSim(expression, start), 8):
        found = cronwalk._Wall(expression).after(wall)
        assert expected == found
        wall = expected


def test_a_slot_once_found_is_known_for_all_instants_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked at when a request was checked is not looked for again when it is stored."""
    walk = CronWalk(RARE, "UTC", WEEKDAYS)
    slot = walk.after(NOON)
    monkeypatch.setattr(cronwalk._Wall, "of_month", lambda *_: pytest.fail("it is known"))

    assert slot == walk.after(NOON) == walk.after(NOON + timedelta(days=700))


def test_rel_t9_what_leaves_out_many_days_is_not_remembered_by_the_thousand() -> None:
    """H4: a walk with 400 exclusions has 80 KB; few of these are kept, whoever asks for their slots."""
    before = [remembered.cache_info().currsize for remembered in (cronwalk.walk, cronwalk.cached_after)]

    for year in range(2100, 2200):
        days = tuple(f"{year}-01-{day:02}" for day in range(1, 30))
        series(Cron("5 4 * * *"), schedule_id=UUID(int=1), base_at=NOON, exclude=days).after(NOON)

    assert before == [remembered.cache_info().currsize for remembered in (cronwalk.walk, cronwalk.cached_after)]
    assert cronwalk.long_walk.cache_info().currsize <= 64


def test_a_preview_ends_when_it_is_enough() -> None:
    """The list is shorter then, and never empty where there is a slot."""
    slots = series(Cron(RARE, "UTC"), schedule_id=UUID(int=1), base_at=NOON)
    asked = iter([False, False, True])

    assert 3 == len(preview(slots, NOON, count=100, enough=lambda: next(asked)))
    assert 1 == len(preview(slots, NOON, count=100, enough=lambda: True))
    assert 100 == len(preview(slots, NOON, count=100))
