"""Durations: what people write is read exactly, or refused with a hint."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.durations import MAX_S, parse_duration
from windlass.errors import InvalidInput

# Python writes out no integer of so many digits, so pytest needs names for them.
HUGE = pytest.param(10**5000, id="huge")
HUGE_NEGATIVE = pytest.param(-(10**5000), id="huge-negative")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("250ms", 0.25),
        ("1m500ms", 60.5),
        ("1.5h", 5400.0),
        ("1w2d3h4m5s6ms", 788_645.006),
        ("0", 0.0),
        ("90", 90.0),
        ("0.1", 0.1),
        (" 5m ", 300.0),
        ("PT5M", 300.0),
        ("PT1H30M", 5400.0),
        ("P1DT12H", 129_600.0),
        ("P2W", 1_209_600.0),
        ("PT0.5S", 0.5),
        (7, 7.0),
        (0.25, 0.25),
        (timedelta(minutes=2, milliseconds=1), 120.001),
        (MAX_S, float(MAX_S)),
    ],
)
def test_a_duration_is_read_exactly(written: Any, seconds: float) -> None:
    """Units, ISO 8601, plain numbers and timedeltas all become seconds."""
    assert seconds == parse_duration(written)


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "s",
        "5 minutes",
        "5x",
        "1h 30m",
        "-5s",
        "+5s",
        "1e3",
        "1_0s",
        "١٢٣",
        "5m\n",
        "NaN",
        "inf",
        ".5s",
        "5.s",
        "P",
        "PT",
        "P1Y",
        "P1M",
        "P1DT",
        "5M",
        "0x10",
        "1" * 5000,
        True,
        None,
        [],
        b"5s",
        float("nan"),
        float("inf"),
    ],
)
def test_what_is_no_duration_is_refused(written: Any) -> None:
    """Anything else is refused, with the field and an example of how to write it."""
    with pytest.raises(InvalidInput, match=r"(?s)^timeout: .* is no duration; write seconds"):
        parse_duration(written, "timeout")


@pytest.mark.parametrize("written", ["30m1h", "5s5s", "1ms1s"])
def test_units_stand_once_and_in_order(written: str) -> None:
    """A unit named twice or out of order is a slip of the pen."""
    with pytest.raises(InvalidInput, match=f"'{written}' names a unit twice or out of order"):
        parse_duration(written)


@pytest.mark.parametrize("written", [-1, -0.001, timedelta(seconds=-1), HUGE_NEGATIVE])
def test_a_duration_is_never_negative(written: Any) -> None:
    """Time does not run backwards."""
    with pytest.raises(InvalidInput, match="is negative"):
        parse_duration(written)


@pytest.mark.parametrize("written", ["36501d", "P36501D", MAX_S + 1, 1e300, HUGE, timedelta.max])
def test_a_duration_has_an_end(written: Any) -> None:
    """More than a hundred years is a mistake, also where Python could not even write it out."""
    with pytest.raises(InvalidInput, match="is longer than 100 years"):
        parse_duration(written)


@given(st.text(alphabet="0123456789.wdhmsPTDHMS -+eE", max_size=20) | st.text(max_size=20))
def test_every_text_is_read_or_refused(text: str) -> None:
    """No text brings anything but a span within bounds or our own error."""
    try:
        seconds = parse_duration(text)
    except InvalidInput:
        return

    assert 0 <= seconds <= MAX_S


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_units_and_iso_agree(days: int, hours: int, minutes: int, seconds: int) -> None:
    """The same span written with units, in ISO 8601 and as a timedelta is the same number."""
    span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)

    assert parse_duration(span) == parse_duration(f"{days}d{hours}h{minutes}m{seconds}s")
    assert parse_duration(span) == parse_duration(f"P{days}DT{hours}H{minutes}M{seconds}S")
