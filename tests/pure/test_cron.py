"""Cron times: the rule for changes of the clock, bounds of a series, days left out, intervals, spread."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.queue.cron import At, Cron, Every, Series, Trigger, preview, series

ID = UUID("01976f5e-0000-7000-8000-000000000001")
BASE = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SPRING, AUTUMN = datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 10, 24, 22, tzinfo=UTC)
"""The first instants of the days on which the clock changes in Berlin."""
HARD = (
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Antarctica/Troll",
    "America/Santiago",
    "Asia/Beirut",
)
EXPRESSIONS = (
    *("30 2 * * *", "*/15 2 * * *", "0 0 * * *", "5,35 * * * *", "15 */2 1-7 * MON", "0 0 29 2 *", "0 12 L * *"),
    *("59 23 * * 5L", "*/20 1 * * * *", "@weekly", "H H * * *"),
)
INSTANTS = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - zone beside


def slots_of(trigger: Trigger, **asked: object) -> Series:
    """Return the series of the test's schedule."""
    values = {"schedule_id": ID, "base_at": BASE, **asked}
    return series(trigger, **values)  # type: ignore[arg-type]


def berlin(expression: str, day: datetime) -> list[str]:
    """Return what the wall clock in Berlin shows at the slots of one day there."""
    zone = ZoneInfo("Europe/Berlin")
    end = (day.astimezone(zone) + timedelta(days=1)).astimezone(UTC)
    slots = slots_of(Cron(expression, "Europe/Berlin")).between(day - SECOND, end - SECOND, limit=100)
    return [f"{slot.astimezone(zone):%H:%M%z}" for slot in slots]


def utc(text: str) -> datetime:
    """Return an instant."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "day", "expected"),
    [
        ("30 2 * * *", SPRING, ["03:00+0200"]),
        ("0,30 2 * * *", SPRING, ["03:00+0200"]),
        ("0,30 2,3 * * *", SPRING, ["03:00+0200", "03:30+0200"]),
        ("30 2 * * *", AUTUMN, ["02:30+0200"]),
        ("*/30 2 * * *", SPRING, []),
        ("*/30 2 * * *", AUTUMN, ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]),
        ("0 30 2 * * *", SPRING, []),
        ("0 30 2 * * *", AUTUMN, ["02:30+0200", "02:30+0100"]),
        (
            "30 */2 * * *",
            AUTUMN,
            ["00:30+0200", "02:30+0200", "02:30+0100", *(f"{h:02}:30+0100" for h in range(4, 24, 2))],
        ),
    ],
)
def test_rel_e5_clock_changes_follow_the_written_rule(expression: str, day: datetime, expected: list[str]) -> None:
    """Fixed times run once: right after a gap, first in a repeated hour; everything else follows real time."""
    assert expected == berlin(expression, day)


@pytest.mark.parametrize(("day", "hours"), [(SPRING, 23), (AUTUMN, 25)])
def test_every_hour_is_every_elapsed_hour(day: datetime, hours: int) -> None:
    """`30 * * * *` has 23 slots on the spring day, 25 on the autumn day, an hour apart."""
    slots = slots_of(Cron("30 * * * *", "Europe/Berlin")).between(day, day + timedelta(hours=hours), limit=100)

    assert [day + timedelta(minutes=30, hours=hour) for hour in range(hours)] == slots


def test_inside_a_repeated_hour_the_next_fixed_time_is_not_past() -> None:
    """Asked in the second 02:15, the next 02:30 is that of the next day."""
    slots = slots_of(Cron("30 2 * * *", "Europe/Berlin"))

    assert utc("2026-10-26T01:30") == slots.after(utc("2026-10-25T01:15"))


def test_a_change_of_half_an_hour_is_walked_right() -> None:
    """On Lord Howe the clock goes from 02:00 to 02:30: the quarters that do not exist are skipped, no others."""
    slots = slots_of(Cron("*/15 2 * * *", "Australia/Lord_Howe"))

    spring = slots.between(utc("2026-10-03T12:00"), utc("2026-10-04T12:00"), limit=10)

    assert [utc("2026-10-03T15:30"), utc("2026-10-03T15:45")] == spring


def test_a_day_that_never_was_has_one_run() -> None:
    """Samoa left out 30 December 2011: its noon runs once, at the first instant of the 31st."""
    slots = slots_of(Cron("0 12 * * *", "Pacific/Apia"))

    found = slots.between(utc("2011-12-29T12:00"), utc("2011-12-31T12:00"), limit=10)

    assert [utc("2011-12-29T22:00"), utc("2011-12-30T10:00"), utc("2011-12-30T22:00")] == found


def test_intervals_count_elapsed_time_over_clock_changes() -> None:
    """Every twelve hours is twelve hours later, whatever clocks show; the base is the start, else the making."""
    free = slots_of(Every(12 * 3600))
    started = slots_of(Every(12 * 3600), start_at=utc("2026-03-28T05:30:10.7"))

    assert [utc("2026-03-29T00:00"), utc("2026-03-29T12:00")] == free.between(
        SPRING, SPRING + timedelta(days=1), limit=9
    )
    assert utc("2026-03-28T05:30:10") == started.after(BASE)
    assert utc("2026-03-29T05:30:10") == started.after(utc("2026-03-28T17:30:10"))


def test_an_interval_counts_back_too() -> None:
    """Slots before the base exist for a backfill, on the same grid."""
    slots = slots_of(Every(3600))

    assert utc("2025-12-31T22:00") == slots.after(utc("2025-12-31T21:30"))
    assert utc("2026-01-01T01:00") == slots.after(BASE)


def test_one_time_is_one_slot() -> None:
    """A trigger of one instant has it as its only slot, in whole seconds."""
    at = utc("2026-05-01T10:00:00.9")
    slots = slots_of(At(at))

    assert [utc("2026-05-01T10:00")] == slots.between(BASE, utc("2027-01-01T00:00"), limit=10)
    assert None is slots.after(utc("2026-05-01T10:00"))
    assert None is slots_of(At(at), exclude=["2026-05-01"]).after(BASE)


def test_start_and_end_are_within() -> None:
    """A slot at the start or at the end belongs to the series; nothing outside does."""
    slots = slots_of(Cron("0 * * * *"), start_at=utc("2026-02-01T10:00"), end_at=utc("2026-02-01T12:00"))

    found = slots.between(BASE, utc("2026-03-01T00:00"), limit=10)

    assert [utc("2026-02-01T10:00"), utc("2026-02-01T11:00"), utc("2026-02-01T12:00")] == found
    assert None is slots.after(utc("2026-02-01T12:00"))
    assert None is slots.last_before(utc("2026-03-01T00:00"), floor=utc("2026-02-01T12:00"))


def test_an_instant_between_seconds_counts_as_passed() -> None:
    """Strictly later: a slot at the whole second of the instant is over."""
    slots = slots_of(Cron("* * * * * *"))

    assert utc("2026-01-01T00:00:01") == slots.after(BASE + timedelta(microseconds=1))
    assert utc("2026-01-01T00:00:01") == slots.after(BASE)
    assert BASE == slots.after(BASE - timedelta(microseconds=1))


def test_rel_e6_rare_days_are_found() -> None:
    """29 February comes each fourth year, not in 2100; last days and fifth weekdays where a month has them."""
    leap = slots_of(Cron("0 0 29 2 *"))
    fifth = slots_of(Cron("0 0 * * MON#5"))

    assert [2028, 2032] == [slot.year for slot in leap.between(BASE, utc("2035-01-01T00:00"), limit=9)]
    assert utc("2104-02-29T00:00") == leap.after(utc("2096-02-29T00:00"))
    assert [utc("2026-03-30T00:00"), utc("2026-06-29T00:00")] == fifth.between(BASE, utc("2026-08-01T00:00"), limit=9)


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 * * SAT-SUN", [3, 4, 10, 11]),
        ("0 0 * * 0,sat", [3, 4, 10, 11]),
        ("0 0 * * 7", [4, 11]),
        ("0 0 5-5/3 * *", [5]),
        ("0 0 5/3 * *", [5, 8, 11]),
        ("0 0 */4 * MON", [5]),
        ("0 0 2,3 * MON", [2, 3, 5, 12]),
        ("0 0 * jan-feb tue-thu/2", [1, 6, 8]),
        ("0 0 H(5-5)/3 * *", [5]),
    ],
)
def test_fields_mean_what_they_say(expression: str, days: list[int]) -> None:
    """Ranges, steps and names; a day and a weekday must both match if one begins with a star, else either."""
    slots = slots_of(Cron(expression)).between(BASE - SECOND, utc("2026-01-12T00:00"), limit=99)

    assert days == [slot.day for slot in slots]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles", "Europe/Berlin"])
@pytest.mark.parametrize("expression", ["0 0 1 1 *", "*/5 * * * *", "0 0 29 2 *", "* * * * * *"])
def test_rel_e6_the_calendar_has_an_end(expression: str, zone: str) -> None:
    """From the last days of 9999 there is no next slot, and from the first of 1970 there is one."""
    slots = slots_of(Cron(expression, zone))

    assert None is slots.after(utc("9999-12-31T23:59:59"))
    assert None is slots.after(utc("9999-12-29T00:00"))
    assert None is slots_of(Cron(expression, zone), end_at=utc("9999-12-31T23:59:59")).after(utc("9999-12-29T00:00"))
    first = slots.after(datetime.min.replace(tzinfo=UTC))
    assert first is not None
    assert 1970 <= first.year <= 1972


def test_days_left_out_go_by_the_local_date() -> None:
    """Dates, ranges, days of each year and weekdays are those of the zone."""
    slots = slots_of(
        Cron("0 0 * * *", "Pacific/Auckland"), exclude=["2026-03-03", "2026-03-05/2026-03-08", "--03-10", "sat", "SUN"]
    )

    found = slots.between(utc("2026-03-01T11:30"), utc("2026-03-16T00:00"), limit=99)

    zone = ZoneInfo("Pacific/Auckland")
    assert [4, 9, 11, 12, 13, 16] == [slot.astimezone(zone).day for slot in found]


def test_ranges_left_out_may_lie_in_one_another() -> None:
    """A day inside a range does not end it."""
    slots = slots_of(Cron("0 0 * * *"), exclude=["2026-01-10", "2026-01-01/2026-01-20", "2026-01-15/2026-01-22"])

    assert utc("2026-01-23T00:00") == slots.after(utc("2026-01-10T12:00"))


def test_a_slot_moved_into_a_day_left_out_is_left_out() -> None:
    """It is the date of the slot itself that counts, not that of the time which never was."""
    noon = Cron("0 12 * * *", "Pacific/Apia")
    asked = (utc("2011-12-29T23:00"), utc("2011-12-31T12:00"))

    moved_from = slots_of(noon, exclude=["2011-12-30"]).between(*asked, limit=9)
    moved_to = slots_of(noon, exclude=["2011-12-31"]).between(*asked, limit=9)

    assert [utc("2011-12-30T10:00"), utc("2011-12-30T22:00")] == moved_from
    assert [] == moved_to


@pytest.mark.parametrize(
    "trigger", [Cron("*/5 * * * *"), Cron("0 0 * * MON", "Asia/Tokyo"), Every(7 * 86_400), Every(1)]
)
@pytest.mark.parametrize(
    "exclude",
    [
        ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"],
        ["1970-01-01/9999-12-31"],
        ["2026-01-01/2050-01-01", "2049-12-31/2099-01-01"],
        [f"--{day:%m-%d}" for day in (datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=d) for d in range(366))],
    ],
)
def test_only_days_left_out_is_never(trigger: Trigger, exclude: list[str]) -> None:
    """A series all of whose days are left out for fifty years has no slots, and says so after a bounded search."""
    assert None is slots_of(trigger, exclude=exclude).after(BASE)


def test_its_own_weekday_left_out_is_never() -> None:
    """Other days being open is no help to a schedule of Mondays."""
    assert None is slots_of(Cron("0 0 * * MON"), exclude=["MON"]).after(BASE)
    assert None is slots_of(Every(7 * 86_400), exclude=["THU"]).after(BASE)


@pytest.mark.parametrize("trigger", [Cron("*/5 * * * *"), Cron("0 0 * * *"), Every(1), Every(86_400)])
def test_a_long_time_left_out_is_jumped_over(trigger: Trigger) -> None:
    """What is left out is not walked slot by slot."""
    slots = slots_of(trigger, exclude=["2026-01-01/2050-01-01", "SUN"])

    assert utc("2050-01-03T00:00") == slots.after(BASE)


def test_an_interval_goes_over_days_left_out() -> None:
    """The grid of an interval stays where it is; slots on days left out are missing from it."""
    slots = slots_of(Every(90 * 60), exclude=["2026-01-02"])

    found = slots.between(utc("2026-01-01T22:00"), utc("2026-01-03T02:00"), limit=9)

    assert [utc("2026-01-01T22:30"), utc("2026-01-03T00:00"), utc("2026-01-03T01:30")] == found


def test_jitter_is_the_schedules_own() -> None:
    """The offset is the same at every look, less than the jitter, and spread over schedules."""
    offsets = [slots_of(Every(60), schedule_id=UUID(int=number), jitter_s=30).offset_s for number in range(200)]

    assert offsets[7] == slots_of(Cron("0 0 * * *"), schedule_id=UUID(int=7), jitter_s=30).offset_s
    assert all(0 <= offset < 30 for offset in offsets)
    assert max(offsets) > 28
    assert min(offsets) < 2
    assert 0 == slots_of(Every(60)).offset_s


def test_spread_is_the_schedules_own() -> None:
    """`H` gives each schedule a value of its own, always the same, within its range and step."""
    minutes = set()
    for number in range(300):
        slots = slots_of(Cron("H(10-29) H/8 H * *"), schedule_id=UUID(int=number))
        found = slots.between(BASE, utc("2026-02-01T00:00"), limit=9)
        assert found == slots_of(Cron("H(10-29) H/8 H * *"), schedule_id=UUID(int=number)).between(
            BASE, utc("2026-02-01T00:00"), limit=9
        )
        assert 3 == len(found)
        assert {8} == {later.hour - first.hour for first, later in itertools.pairwise(found)}
        assert found[0].day <= 28
        minutes.add(found[0].minute)

    assert set(range(10, 30)) == minutes


def test_preview_marks_what_clock_changes_do() -> None:
    """A moved slot and both of a repeated hour are marked; a slot that stands where it was named is not."""
    fixed = slots_of(Cron("30 2 * * *", "Europe/Berlin"))
    real = slots_of(Cron("*/30 2 * * *", "Europe/Berlin"))
    met = slots_of(Cron("0,30 2,3 * * *", "Europe/Berlin"))

    assert [("2026-03-29T03:00:00+02:00", "moved out of a gap"), ("2026-03-30T02:30:00+02:00", None)] == [
        (shown.local, shown.mark) for shown in preview(fixed, SPRING, count=2)
    ]
    assert ["first of a repeated hour", None] == [shown.mark for shown in preview(fixed, AUTUMN, count=2)]
    assert [*["first of a repeated hour"] * 2, *["second of a repeated hour"] * 2, None] == [
        shown.mark for shown in preview(real, AUTUMN, count=5)
    ]
    assert [None] == [shown.mark for shown in preview(met, SPRING, count=1)]
    assert ["2026-01-01T00:01:00+00:00"] == [shown.local for shown in preview(slots_of(Every(60)), BASE, count=1)]


def test_a_preview_ends_with_its_series() -> None:
    """Fewer slots than asked for are shown where there are no more."""
    assert [] == preview(slots_of(At(BASE)), BASE, count=5)
    assert 1 == len(preview(slots_of(At(BASE)), BASE - SECOND, count=5))


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(EXPRESSIONS), st.sampled_from(HARD), INSTANTS)
def test_slots_rise(expression: str, zone: str, instant: datetime) -> None:
    """Each slot is later than what was asked for, and there is none between: asking just before it gives it again."""
    slots = slots_of(Cron(expression, zone))

    for _ in range(5):
        slot = slots.after(instant)

        assert slot is not None
        assert instant < slot
        assert slot == slots.after(slot - SECOND)
        assert slot == slots.after(instant + (slot - SECOND - instant) / 2)
        instant = slot


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(EXPRESSIONS), st.sampled_from(HARD), INSTANTS, st.integers(1, 5 * 86_400))
def test_the_last_before_is_the_last_of_those_between(expression: str, zone: str, until: datetime, span_s: int) -> None:
    """Halving finds what walking finds."""
    slots = slots_of(Cron(expression, zone))
    floor = until - timedelta(seconds=span_s)

    walked = slots.between(floor, until, limit=10_000)

    assert (walked[-1] if walked else None) == slots.last_before(until, floor=floor)
    assert len(walked) == slots.count_between(floor, until, most=10_000)
    assert walked[:3] == slots.between(floor, until, limit=3)
    assert min(3, len(walked)) == slots.count_between(floor, until, most=3)


def test_every_zone_can_be_walked() -> None:
    """No zone of this installation makes a walk fail."""
    for zone in sorted(available_timezones()):
        slots = slots_of(Cron("*/30 2 * * *", zone))
        assert 2 == len(slots.between(utc("2026-06-20T00:00"), utc("2026-06-21T00:00"), limit=5))
