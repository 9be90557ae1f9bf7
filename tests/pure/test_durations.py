"""Durations: text, numbers and timedeltas become timedeltas, everything else is refused."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.durations import LONGEST, parse_duration
from windlass.errors import InvalidInput


@pytest.mark.parametrize(
    ("seconds", "given_as"),
    [
        (90, "90s"),
        (5400, "1h30m"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (172_800, "2d"),
        (604_800, "1w"),
        (60, " 1M "),
        (0, "0s"),
        (0, 0),
        (7, 7),
        (0.5, 0.5),
        (3, timedelta(seconds=3)),
        (LONGEST.total_seconds(), LONGEST),
    ],
)
def test_a_duration_is_read(seconds: float, given_as: str | float | timedelta) -> None:
    """Units may be joined, plain numbers are seconds, case and outer blanks do not matter."""
    assert timedelta(seconds=seconds) == parse_duration(given_as, field="delay")


@pytest.mark.parametrize(
    "given_as",
    [
        "",
        " ",
        "s",
        "90",
        "-1s",
        "1_0s",
        "١s",
        "1 s",
        "1h 30m",
        "1e3s",
        "1y",
        "1s;",
        "s1",
        "1..5s",
        "infs",
        "nans",
        "36501d",
        "1" * 70 + "s",
        "9" * 62 + "w",
        "1s\x00",
        -1,
        -0.001,
        math.nan,
        math.inf,
        -math.inf,
        1e300,
        2**63,
        10**400,
        -(10**400),
        10**5000,
        True,
        False,
        timedelta(seconds=-1),
        timedelta.max,
    ],
    ids=lambda value: str(value)[:20] if not isinstance(value, int) or abs(value) < 10**20 else "huge",
)
def test_no_duration_is_refused(given_as: str | float | timedelta) -> None:
    """What is no duration, negative or longer than a century is InvalidInput and names its field."""
    with pytest.raises(InvalidInput, match=r"^delay: .{1,200}$") as refused:
        parse_duration(given_as, field="delay")

    assert "delay" == refused.value.field


@given(st.text())
def test_any_text_is_a_duration_or_invalid(text: str) -> None:
    """No text raises anything but InvalidInput."""
    try:
        parsed = parse_duration(text, field="delay")
    except InvalidInput:
        return
    assert timedelta(0) <= parsed <= LONGEST


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_joined_units_add_up(days: int, hours: int, minutes: int, seconds: int, ms: int) -> None:
    """The pieces of a duration are summed."""
    text = f"{days}d{hours}h{minutes}m{seconds}s{ms}ms"

    parsed = parse_duration(text, field="delay")

    assert timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms) == parsed
