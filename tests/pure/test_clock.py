"""Instants: whole microseconds since 1970, there and back without loss."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from windlass.clock import EPOCH, from_us, system_clock, to_us

INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001


@given(INSTANTS)
def test_microseconds_are_exact(instant: datetime) -> None:
    """No instant loses a microsecond, in any century."""
    assert instant == from_us(to_us(instant))


@given(INSTANTS, st.integers(-14 * 60, 14 * 60))
def test_the_zone_does_not_matter(instant: datetime, offset_m: int) -> None:
    """The same instant written in another zone is the same number."""
    elsewhere = instant.astimezone(timezone(timedelta(minutes=offset_m)))

    assert to_us(instant) == to_us(elsewhere)


def test_the_known_instants() -> None:
    """1970 is 0, and the microsecond before it is -1."""
    assert 0 == to_us(EPOCH)
    assert -1 == to_us(EPOCH - timedelta(microseconds=1))
    assert datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC) == from_us(2**31 * 1_000_000)


def test_the_system_clock_has_a_zone() -> None:
    """The machine's clock answers in UTC, never naive."""
    assert UTC == system_clock().tzinfo
