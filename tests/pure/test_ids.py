"""Ids: UUIDv7, strictly increasing whatever the clock does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import START, TestClock
from windlass.clock import EPOCH, to_us
from windlass.ids import Ids, first_id_at

LARGEST_COUNTER = 2**30 - 1
STEPS = st.lists(st.integers(-1_000, 5_000), min_size=1, max_size=50)


def ms_of(made: UUID) -> int:
    """Return the milliseconds since 1970 that an id carries."""
    return made.int >> 80


def all_ones(bits: int) -> int:
    """Stand for the least lucky source of random bits."""
    return (1 << bits) - 1


def test_an_id_is_a_uuid_of_version_7(clock: TestClock) -> None:
    """Version and variant are those of RFC 9562, and the millisecond stands in front."""
    made = Ids(clock).new()

    assert 7 == made.version
    assert RFC_4122 == made.variant
    assert to_us(START) // 1000 == ms_of(made)


@given(STEPS)
def test_ids_increase_also_when_the_clock_steps_back(steps_ms: list[int]) -> None:
    """One maker's ids are strictly increasing, as numbers and as text, while its clock steps back by little."""
    clock = TestClock()
    ids = Ids(clock)

    made = [ids.new()]
    for step_ms in steps_ms:
        clock.advance(step_ms / 1000)
        made += [ids.new(), ids.new()]

    assert sorted(set(made)) == made
    assert sorted(map(str, made)) == [str(one) for one in made]
    assert {7} == {one.version for one in made}


def test_ids_follow_a_clock_that_is_set_right(clock: TestClock) -> None:
    """A clock that was a month fast for a moment: what it made must not put every later job there."""
    ids = Ids(clock)
    clock.advance(days=30)
    far = ids.new()
    clock.advance(days=-30)

    made = [ids.new() for _ in range(3)]

    assert to_us(START) // 1000 == ms_of(made[0])
    assert sorted(made) == made
    assert made[-1] < far


def test_a_full_counter_borrows_the_next_millisecond(clock: TestClock) -> None:
    """More ids in a millisecond than the counter holds go on in the next one."""
    ids = Ids(clock, random_bits=all_ones)
    ids.new()
    ids._counter = LARGEST_COUNTER - 1

    last, borrowed, following = ids.new(), ids.new(), ids.new()

    assert last < borrowed < following
    assert ms_of(last) + 1 == ms_of(borrowed) == ms_of(following)


def test_the_counter_keeps_half_of_its_room(clock: TestClock) -> None:
    """The random start leaves 2^29 ids in the same millisecond, also in the worst case."""
    ids = Ids(clock, random_bits=all_ones)

    ids.new()

    assert 2**29 <= LARGEST_COUNTER - ids._counter


def test_a_clock_before_1970_still_makes_ids() -> None:
    """A machine that lost its clock battery makes ids that increase."""
    ids = Ids(lambda: datetime(1969, 1, 1, tzinfo=UTC))

    first, second = ids.new(), ids.new()

    assert 7 == first.version
    assert first < second


def test_two_makers_do_not_meet(clock: TestClock) -> None:
    """Servers that make ids in the same millisecond differ by their random bits."""
    servers = [Ids(clock) for _ in range(100)]

    assert 100 == len({ids.new() for ids in servers})


@pytest.mark.parametrize("shift_s", [-3600, 0, 3600])
def test_ids_of_an_instant_begin_with_its_first(shift_s: int) -> None:
    """An id made at an instant is not below the first of that instant, and below the first of the next millisecond."""
    clock = TestClock()
    made = Ids(clock).new()
    shift = timedelta(seconds=shift_s)

    first = first_id_at(clock.now() - shift, shift=shift)

    assert first <= made < first_id_at(clock.now() + timedelta(milliseconds=1))
    assert first_id_at(EPOCH, shift=timedelta(days=-1)) == first_id_at(EPOCH)
