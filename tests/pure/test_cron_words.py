"""Triggers in words."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from windlass.queue.cron import At, Cron, Every, Trigger, words


@pytest.mark.parametrize(
    ("trigger", "told"),
    [
        (Cron("30 2 * * *", "Europe/Berlin"), "every day at 02:30 (Europe/Berlin)"),
        (Cron("@daily"), "every day at 00:00 (UTC)"),
        (Cron("@hourly"), "every hour (UTC)"),
        (Cron("5 * * * *"), "every hour at minute 5 (UTC)"),
        (Cron("* * * * *"), "every minute (UTC)"),
        (Cron("*/15 * * * *"), "every 15 minutes (UTC)"),
        (Cron("*/1 * * * *"), "every minute (UTC)"),
        (Cron("0 */6 * * *"), "every 6 hours at minute 0 (UTC)"),
        (Cron("0 */1 * * *"), "every hour (UTC)"),
        (Cron("* * * * * *"), "every second (UTC)"),
        (Cron("*/10 * * * * *"), "every 10 seconds (UTC)"),
        (Cron("0 9 * * MON-FRI"), "Monday to Friday at 09:00 (UTC)"),
        (Cron("0 9 * * 7"), "every Sunday at 09:00 (UTC)"),
        (Cron("0 0 1 * *"), "on day 1 of every month at 00:00 (UTC)"),
        (Cron("0 0 L * *"), "on the last day of every month at 00:00 (UTC)"),
        (Cron("0 0 25 12 *"), "every year on 25 December at 00:00 (UTC)"),
        (Cron("15 30 2 * * *"), "every day at 02:30:15 (UTC)"),
        (Cron("0,30 2 * * *"), "at 02:00 and 02:30 every day (UTC)"),
        (Cron("*/7 * * * *"), "every seventh minute of every hour (UTC)"),
        (Cron("0 */7 * * *"), "at minute 0 past every seventh hour, counted anew each day (UTC)"),
        (
            Cron("0 */7 */5 * *"),
            "at minute 0 past every seventh hour on every fifth day of month, counted anew each day and month (UTC)",
        ),
        (Cron("0 0 * * MON#2"), "at 00:00 on the second Monday of the month (UTC)"),
        (Cron("H 2 * * *"), "H 2 * * *, where H is a value of the schedule's own (UTC)"),
        (Every(60), "every minute"),
        (Every(90), "every 1 minute 30 seconds"),
        (Every(7200), "every 2 hours"),
        (Every(86_400), "every day"),
        (At(datetime(2026, 5, 1, 10, tzinfo=UTC)), "once, on 2026-05-01 at 10:00:00 (UTC)"),
        (None, "by hand only"),
    ],
)
def test_a_trigger_in_words(trigger: Trigger | None, told: str) -> None:
    """Common forms are told as people would tell them; the rest is right, if longer."""
    assert told == words(trigger)


def test_spread_is_told_where_the_schedule_is_known() -> None:
    """With the schedule's id, `H` is the value that it stands for."""
    assert words(Cron("H 2 * * *"), schedule_id=UUID(int=1)).startswith("every day at 02:")
