"""What triggers, zones and exclusions are refused, with the place of the fault; nothing takes long or much memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.errors import InvalidSchedule, code_of
from windlass.queue.cron import At, Cron, Every, check_exclusions, check_trigger, check_zone, series
from windlass.queue.cron import walk as cronwalk

MOST_BYTES = 5_000_000
"""What the reading of one expression may take; the guard of K15 allows ten times as much."""
SIGNS = "0123456789*/,-#()LWHSUNMONJANFEB? @"


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Fail a test that takes much memory at once."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MOST_BYTES


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("0 25 * * *", '"0 25 * * *" has hour 25 (field 2); hours go from 0 to 23.'),
        ("0 0 25 * * *", '"0 0 25 * * *" has hour 25 (field 3); hours go from 0 to 23.'),
        ("60 * * * *", '"60 * * * *" has minute 60 (field 1); minutes go from 0 to 59.'),
        ("0 0 0 * *", '"0 0 0 * *" has day 0 (field 3); days go from 1 to 31.'),
        ("0 0 * 13 *", '"0 0 * 13 *" has month 13 (field 4); months go from 1 to 12.'),
        ("0 0 * * 8", '"0 0 * * 8" has weekday 8 (field 5); weekdays go from 0 to 7.'),
        ("*/0 * * * *", '"*/0 * * * *" has step 0 (field 1); steps of minutes go from 1 to 60.'),
        ("*/90 * * * *", '"*/90 * * * *" has step 90 (field 1); steps of minutes go from 1 to 60.'),
        ("5-1 * * * *", '"5-1 * * * *" has minutes 5-1 (field 1); a range goes from the lower to the higher value.'),
        ("0 0 30 2 *", '"0 0 30 2 *" never fires: no month has such a day. Change its day or its month.'),
        ("0 0 31 2,4,JUN *", '"0 0 31 2,4,JUN *" never fires: no month has such a day. Change its day or its month.'),
        ("0 0 */30 * MON#3", '"0 0 */30 * MON#3" never fires: no month has such a day. Change its day or its month.'),
        (
            "0 0 * * MON#6",
            '"0 0 * * MON#6" has weekday "MON#6" (field 5); a weekday comes from #1 to #5 times in a month.',
        ),
        ("0 0 15W * *", '"0 0 15W * *" has day "15W" (field 3); days go from 1 to 31.'),
        (
            "* * * *",
            '"* * * *" has 4 fields; five are taken (minute hour day month weekday), or six with the second first.',
        ),
        (
            "\u0663 * * * *",
            "\"\u0663 * * * *\" has '\\u0663' (character 1); only digits, names and * / , - # are taken.",
        ),
        (
            "@reboot",
            '"@reboot" is not known; known are @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.',
        ),
        ("0 0 H(1-31) * *", '"0 0 H(1-31) * *" has H(1-31) (field 3); H of a day goes up to 28.'),
    ],
)
def test_a_fault_is_named_with_its_place(expression: str, text: str) -> None:
    """What is wrong, in which field, and what would be right."""
    with pytest.raises(InvalidSchedule) as refused:
        check_trigger(Cron(expression))

    assert text == refused.value.problem
    assert "cron" == refused.value.field
    assert ("invalid_schedule", 422) == (code_of(type(refused.value)), refused.value.status)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "expression",
    [
        *(" ".join(["*"] * count) for count in (0, 1, 2, 3, 4, 7, 8)),
        *("*/-1 * * * *", "0-99999999 * * * *", "0 0 * 99999999 *", "0/0 * * * *", "1-2-3 * * * *", "1--2 * * * *"),
        *(
            "*/1/1 * * * *",
            "/5 * * * *",
            ", * * * *",
            "1,, * * * *",
            "- * * * *",
            "* * ? * *",
            "* * W * *",
            "* * L/2 * *",
        ),
        *(
            "* * * * L",
            "* * * * 9L",
            "* * * * MONL",
            "* * * * #2",
            "* * * * MON#",
            "* * * * MON#0",
            "L * * * *",
            "* * 32L * *",
        ),
        *(
            "* * * * MON#1#2",
            "* * * * MON-",
            "MON * * * *",
            "* * * MON *",
            "* * * * JAN",
            "* * * * MONDAY",
            "H(5-2) * * * *",
        ),
        *(
            "H( * * * *",
            "H() * * * *",
            "H(1) * * * *",
            "H(0-99) * * * *",
            "HH * * * *",
            "@every -1s",
            "@every 5m",
            "@",
            "@daily x",
        ),
        *(
            "* * * * *\n",
            "*\u00a0* * * *",
            "\uff11 * * * *",
            "* * * * *; ls",
            "*\x00 * * * *",
            "0x1 * * * *",
            "1e1 * * * *",
        ),
        *(
            "1" * 10**6,
            "* " * 10**6,
            ",".join("1" * 1000) + " * * * *",
            ",".join("1" * 61) + " * * * *",
            "9" * 190 + " * * * *",
        ),
    ],
)
def test_rel_k15_bad_expressions_are_refused_at_once(expression: str) -> None:
    """Whatever is sent, the answer is InvalidSchedule, short, and made from little memory."""
    with pytest.raises(InvalidSchedule) as refused:
        check_trigger(Cron(expression))

    assert len(str(refused.value)) < 300


@pytest.mark.usefixtures("little_memory")
def test_a_long_list_is_refused_before_it_is_expanded() -> None:
    """Sixty elements are taken, one more is not."""
    sixty = ",".join("1" * 60)

    check_trigger(Cron(f"{sixty} * * * *"))
    with pytest.raises(InvalidSchedule, match="a list of 61 elements"):
        check_trigger(Cron(f"{sixty},1 * * * *"))


@settings(deadline=5000, max_examples=400)
@given(st.lists(st.text(SIGNS, min_size=1, max_size=8), min_size=4, max_size=7).map(" ".join))
def test_rel_k15_any_text_is_refused_or_has_a_next(expression: str) -> None:
    """Each expression is either refused with a place or has a slot, within the guard of 5 s."""
    try:
        check_trigger(Cron(expression))
    except InvalidSchedule:
        return

    slots = series(Cron(expression, "Europe/Berlin"), schedule_id=UUID(int=1), base_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert slots.after(datetime(2026, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.parametrize("every_s", [0, -1, 366 * 86_400 + 1])
def test_an_interval_has_bounds(every_s: int) -> None:
    """From a second to 366 days."""
    check_trigger(Every(1))
    check_trigger(Every(366 * 86_400))

    with pytest.raises(InvalidSchedule) as refused:
        check_trigger(Every(every_s))
    assert "every" == refused.value.field


def test_one_time_needs_a_zone() -> None:
    """An instant without offset could be any of many."""
    check_trigger(At(datetime(2026, 1, 1, tzinfo=UTC)))
    check_trigger(None)

    with pytest.raises(InvalidSchedule, match="has no zone"):
        check_trigger(At(datetime(2026, 1, 1)))  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize(
    "name",
    [
        *("", "europe/berlin", "Europe/berlin", "posixrules", "localtime", "../etc/passwd", "/etc/localtime", "Europe"),
        *(
            "Europe/Berlin\x00",
            "posix/Europe/Berlin",
            "right/Europe/Berlin",
            "CET+1",
            "+01:00",
            "Europe/../UTC",
            "Mars/One",
        ),
        "x" * 10**6,
    ],
)
def test_only_iana_names_are_zones(name: str) -> None:
    """No paths, no files that lie beside the zones, no other spelling."""
    with pytest.raises(InvalidSchedule) as refused:
        check_zone(name)

    assert "timezone" == refused.value.field
    assert len(str(refused.value)) < 250


def test_a_zone_is_found_by_its_name() -> None:
    """The names that this installation has are taken, and the right spelling is told."""
    assert "Europe/Berlin" == check_zone("Europe/Berlin").key
    assert "UTC" == check_zone("UTC").key
    with pytest.raises(InvalidSchedule, match="did you mean Europe/Berlin"):
        check_zone("europe/berlin")


@pytest.mark.parametrize(
    "item",
    [
        *(
            "",
            "2026-13-01",
            "2026-02-30",
            "--02-30",
            "--13-01",
            "2026-12-24/2026-12-23",
            "2026-12-24/",
            "saturday",
            "2026-1-1",
        ),
        *("20261224", "--12-25/--12-26", "0000-01-01", "\u0662026-01-01", "2026-12-24T00:00", "SAT,SUN", "x" * 10**6),
    ],
)
def test_a_day_to_leave_out_must_be_one(item: str) -> None:
    """A date, a range, a day of each year or a weekday, as calendars have them."""
    with pytest.raises(InvalidSchedule) as refused:
        check_exclusions(["2026-12-25", item])

    assert "exclude" == refused.value.field
    assert len(str(refused.value)) < 300


def test_so_many_days_can_be_left_out() -> None:
    """Four hundred are taken, one more is not."""
    check_exclusions(["SAT", "--02-29", "2026-12-24/2027-01-01", "2026-12-25"] * 100)

    with pytest.raises(InvalidSchedule, match="401 days"):
        check_exclusions(["SAT"] * 401)


def test_what_is_remembered_has_a_bound() -> None:
    """The memory of next slots, walks and changes of the clock is bounded."""
    bounds = [
        remembered.cache_info().maxsize
        for remembered in (cronwalk.cached_after, cronwalk.walk, cronwalk._turns, cronwalk._ever)
    ]

    assert [512, 512, 16_384, 4096] == bounds


def test_schedules_that_share_an_expression_share_the_work() -> None:
    """The next slot of a line of cron is computed once for all who ask for it."""
    at = datetime(2031, 7, 1, tzinfo=UTC)
    first, second = (
        series(Cron("7 3 * * *", "Europe/Paris"), schedule_id=UUID(int=number), base_at=at) for number in (1, 2)
    )
    first.after(at)
    hits = cronwalk.cached_after.cache_info().hits

    second.after(at)

    assert hits + 1 == cronwalk.cached_after.cache_info().hits
