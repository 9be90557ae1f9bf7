"""Slots: which of those that are due run, which are passed over; in any portions, and in bounded time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.queue.cron import At, Cron, Every, Series, Trigger, series
from windlass.queue.schedule import CATCH_UPS, MAX_WAITING, OVERLAPS, CatchUp, Decision, Policy
from windlass.queue.slots import COUNTED, Choice, Decided, Known, Previous, decide

BASE = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = Cron("* * * * *")
NOBODY = Previous()


def slots_of(trigger: Trigger = MINUTE, **fields: Any) -> Series:
    """Return the slots of a schedule made at the beginning of 2026."""
    return series(trigger, schedule_id=UUID(int=7), base_at=BASE, **fields)


def late(minutes: float, policy: Policy, *, trigger: Trigger = MINUTE, **how: Any) -> Decided:
    """Decide what is due so many minutes after the first slot was."""
    slots = slots_of(trigger)
    first_at = slots.after(BASE)
    assert first_at is not None
    how = {"previous": NOBODY} | how
    return decide(policy, slots, first_at=first_at, now_at=first_at + timedelta(minutes=minutes), **how)


def shown(decided: Decided) -> list[str]:
    """Return the choices in short: minute, decision, number of slots."""
    return [
        f"{(choice.slot_at - BASE) // timedelta(minutes=1)} {choice.decision.word} {choice.slot_count}"
        for choice in decided.choices
    ]


def test_a_slot_on_time_fires() -> None:
    """The next is due a minute later."""
    decided = late(0, Policy())

    assert ["1 fired 1"] == shown(decided)
    assert (BASE + timedelta(minutes=1), BASE + timedelta(minutes=2)) == (decided.last_at, decided.next_at)


def test_every_slot_inside_the_grace_fires() -> None:
    """T7: whatever the policy for those that are missed."""
    for catch_up in CATCH_UPS:
        policy = Policy(catch_up=catch_up, misfire_grace_s=180, overlap="allow")

        assert ["1 fired 1", "2 fired 1", "3 fired 1"] == shown(late(2.5, policy))


def test_a_slot_exactly_as_late_as_the_grace_is_not_missed() -> None:
    """One that is later by a microsecond is."""
    on_time = late(1, Policy(catch_up="skip", overlap="allow"))
    too_late = decide(
        Policy(catch_up="skip", overlap="allow"),
        slots_of(),
        first_at=BASE,
        now_at=BASE + timedelta(seconds=60, microseconds=1),
        previous=NOBODY,
    )

    assert ["1 fired 1", "2 fired 1"] == shown(on_time)
    assert ["0 missed 1", "1 fired 1"] == shown(too_late)


def test_latest_runs_one_job_for_all_that_was_missed() -> None:
    """The newest missed slot, if nothing inside the grace is due; the others are one row."""
    hourly = Cron("0 * * * *")

    decided = late(60 * 9 + 30, Policy(), trigger=hourly)

    assert ["540 missed 9", "600 fired 1"] == shown(decided)
    assert BASE + timedelta(hours=1) == decided.choices[0].first_at


def test_latest_runs_no_missed_slot_beside_one_inside_the_grace() -> None:
    """That one is the job for all."""
    assert ["9 missed 9", "10 fired 1"] == shown(late(9.5, Policy()))


def test_skip_runs_none_of_the_missed() -> None:
    """They are one row; those inside the grace fire."""
    assert ["9 missed 9", "10 fired 1"] == shown(late(9.5, Policy(catch_up="skip")))
    assert ["540 missed 9"] == shown(late(60 * 8 + 30, Policy(catch_up="skip"), trigger=Cron("0 * * * *")))


def test_all_runs_the_newest_in_their_order() -> None:
    """Up to catch_up_max; older ones are one row."""
    policy = Policy(catch_up="all", catch_up_max=3, overlap="allow")

    decided = late(9.5, policy)

    assert ["6 missed 6", "7 fired 1", "8 fired 1", "9 fired 1", "10 fired 1"] == shown(decided)


def test_all_reaches_back_as_far_as_the_window() -> None:
    """Slots missed longer ago are one row."""
    policy = Policy(catch_up="all", catch_up_window_s=300, overlap="allow")

    assert ["5 missed 5", *(f"{n} fired 1" for n in range(6, 11))] == shown(late(9.5, policy))


def test_a_window_shorter_than_the_grace_makes_up_for_nothing() -> None:
    """What is inside the grace fires all the same."""
    policy = Policy(catch_up="all", catch_up_window_s=10, misfire_grace_s=120, overlap="allow")

    assert ["8 missed 8", "9 fired 1", "10 fired 1"] == shown(late(9.5, policy))


def test_a_one_time_schedule_is_never_missed_under_latest() -> None:
    """Being the newest of one, it runs; under skip it does not."""
    how: dict[str, Any] = {"first_at": BASE, "now_at": BASE + timedelta(days=100), "previous": NOBODY}

    ran, skipped = [decide(Policy(catch_up=c), slots_of(At(BASE)), **how) for c in ("latest", "skip")]

    assert (["0 fired 1"], ["0 missed 1"]) == (shown(ran), shown(skipped))
    assert (None, None) == (ran.next_at, skipped.next_at)


@pytest.mark.parametrize(
    ("overlap", "live", "waiting", "decision"),
    [
        ("skip", False, 0, Decision.FIRED),
        ("skip", True, 0, Decision.OVERLAPPED),
        ("skip", False, 1, Decision.OVERLAPPED),
        ("allow", True, 5, Decision.FIRED),
        ("queue_one", False, 0, Decision.FIRED),
        ("queue_one", True, 0, Decision.WAITING),
        ("queue_one", True, 1, Decision.OVERLAPPED),
        ("queue_all", True, 7, Decision.WAITING),
        ("queue_all", True, MAX_WAITING, Decision.OVERLAPPED),
        ("cancel_previous", False, 0, Decision.FIRED),
        ("cancel_previous", True, 0, Decision.REPLACED),
    ],
)
def test_rel_e9_overlap(overlap: Any, live: bool, waiting: int, decision: Decision) -> None:
    """T8: what a slot becomes while the run before it is not over."""
    decided = late(0, Policy(overlap=overlap), previous=Previous(live, waiting))

    assert [decision] == [choice.decision for choice in decided.choices]
    assert waiting + (decision is Decision.WAITING) == decided.waiting_count


def test_a_job_made_for_a_slot_is_the_run_before_the_next() -> None:
    """Also within one look."""
    words = {
        overlap: [choice.decision.word for choice in late(1.9, Policy(overlap=overlap, misfire_grace_s=600)).choices]
        for overlap in OVERLAPS
    }

    assert {
        "skip": ["fired", "overlapped"],
        "allow": ["fired", "fired"],
        "queue_one": ["fired", "waiting"],
        "queue_all": ["fired", "waiting"],
        "cancel_previous": ["fired", "replaced"],
    } == words


def test_a_slot_decided_before_is_passed_over() -> None:
    """A backfill has it; the cursor moves past it, in silence, also at the end of a stretch."""
    policy = Policy(misfire_grace_s=120, overlap="allow")
    known = frozenset(BASE + timedelta(minutes=n) for n in (5, 9, 10))

    decided = late(9.5, policy, known=Known(known))
    nothing = late(0, Policy(), known=Known(frozenset({BASE + timedelta(minutes=1)})))
    shortened = late(9.5, policy, known=Known(frozenset(BASE + timedelta(minutes=n) for n in (7, 8))))

    assert ["8 missed 7"] == shown(decided)
    assert BASE + timedelta(minutes=10) == decided.last_at
    assert ([], BASE + timedelta(minutes=1)) == (nothing.choices, nothing.last_at)
    assert ["6 missed 6", "9 fired 1", "10 fired 1"] == shown(shortened)


@pytest.mark.parametrize("catch_up", CATCH_UPS)
def test_a_slot_past_its_start_deadline_makes_no_job(catch_up: CatchUp) -> None:
    """Its job would expire at once: it is missed, whatever the policy, and the row says why."""
    hourly = Cron("0 * * * *")
    policy = Policy(catch_up=catch_up, start_within_s=600, overlap="allow")

    late_for_all = late(90, policy, trigger=hourly)
    in_time = late(65, policy, trigger=hourly)
    inside_the_grace = late(0.75, Policy(catch_up=catch_up, start_within_s=30), trigger=hourly)

    assert ["120 missed 2"] == shown(late_for_all)
    assert "start_within is 600 s" in (late_for_all.choices[0].reason or "")
    assert {"skip": ["120 missed 2"]}.get(catch_up, ["60 missed 1", "120 fired 1"]) == shown(in_time)
    assert ["60 missed 1"] == shown(inside_the_grace)


def test_nothing_is_decided_beyond_what_is_known() -> None:
    """What a backfill has decided is read in portions: a stretch is cut there, and slots after it wait."""
    known = frozenset(BASE + timedelta(minutes=n) for n in (2, 3))
    until = BASE + timedelta(minutes=3)

    cut = late(9.5, Policy(catch_up="skip"), known=Known(known, until))
    waits = late(2.5, Policy(misfire_grace_s=600, overlap="allow"), known=Known(known, until))

    assert (["1 missed 1"], until, until + timedelta(minutes=1)) == (shown(cut), cut.last_at, cut.next_at)
    assert (["1 fired 1"], until) == (shown(waits), waits.last_at)


def test_jitter_moves_what_is_due_and_not_the_slot() -> None:
    """The grace counts from when a slot is due."""
    slots = slots_of(jitter_s=3600)
    first_at = BASE + timedelta(minutes=1)
    due_at = first_at + timedelta(seconds=slots.offset_s)

    decided = decide(Policy(), slots, first_at=first_at, now_at=due_at, previous=NOBODY)

    assert ["1 fired 1"] == shown(decided)
    assert due_at + timedelta(minutes=1) == decided.next_at


TRIGGERS: list[Trigger] = [
    MINUTE,
    Every(1),
    Every(7),
    Cron("*/15 * * * *"),
    Cron("0 3 * * *", "Europe/Berlin"),
    Cron("0-20 4 * * MON"),
    At(BASE + timedelta(hours=5)),
]


@given(
    trigger=st.sampled_from(TRIGGERS),
    catch_up=st.sampled_from(CATCH_UPS),
    overlap=st.sampled_from(OVERLAPS),
    catch_up_max=st.integers(1, 40),
    window_s=st.none() | st.integers(1, 90_000),
    grace_s=st.integers(1, 5000),
    late_s=st.floats(0, 300_000),
    portion=st.integers(1, 30),
    live=st.booleans(),
    waiting=st.integers(0, 3),
    known=st.sets(st.integers(1, 200), max_size=5),
)
def test_what_is_decided_does_not_depend_on_the_portions(
    trigger: Trigger,
    catch_up: Any,
    overlap: Any,
    catch_up_max: int,
    window_s: int | None,
    grace_s: int,
    late_s: float,
    portion: int,
    live: bool,
    waiting: int,
    known: set[int],
) -> None:
    """One look at everything, and many at a few slots each, decide the same; each slot once, in rising order."""
    policy = Policy(
        catch_up=catch_up,
        overlap=overlap,
        catch_up_max=catch_up_max,
        catch_up_window_s=window_s,
        misfire_grace_s=grace_s,
    )
    slots = slots_of(trigger)
    first_at = slots.after(BASE)
    assert first_at is not None
    how: dict[str, Any] = {
        "now_at": first_at + timedelta(seconds=late_s),
        "known": Known(frozenset(first_at + timedelta(seconds=60 * n) for n in known)),
    }

    whole = decide(policy, slots, first_at=first_at, previous=Previous(live, waiting), most=10**6, **how)
    choices, last = in_portions(policy, slots, first_at, Previous(live, waiting), portion, how)

    assert (whole.choices, whole.last_at, whole.next_at, whole.waiting_count) == (
        choices,
        last.last_at,
        last.next_at,
        last.waiting_count,
    )
    assert sorted({choice.slot_at for choice in choices}) == [choice.slot_at for choice in choices]
    assert whole.next_at is None or whole.next_at > how["now_at"]


def in_portions(
    policy: Policy, slots: Series, first_at: datetime, previous: Previous, portion: int, how: dict[str, Any]
) -> tuple[list[Choice], Decided]:
    """Decide in portions, each from where the last one stopped; return all choices and the last portion."""
    choices: list[Choice] = []
    while True:
        decided = decide(policy, slots, first_at=first_at, previous=previous, most=portion, **how)
        choices += decided.choices
        if decided.next_at is None or decided.next_at > how["now_at"]:
            return choices, decided
        made = any(choice.decision is not Decision.MISSED for choice in decided.choices)
        previous = Previous(previous.live or made, decided.waiting_count)
        first_at = decided.next_at - timedelta(seconds=slots.offset_s)


@given(
    trigger=st.sampled_from(TRIGGERS[:6]),
    catch_up=st.sampled_from(CATCH_UPS),
    catch_up_max=st.integers(1, 30),
    grace_s=st.integers(1, 3000),
    late_s=st.integers(0, 30_000),
)
def test_rel_i13_what_runs_is_what_the_policy_says(
    trigger: Trigger, catch_up: Any, catch_up_max: int, grace_s: int, late_s: int
) -> None:
    """Against the rule written plainly, over a list of all slots; what does not run is counted."""
    policy = Policy(catch_up=catch_up, catch_up_max=catch_up_max, misfire_grace_s=grace_s, overlap="allow")
    slots = slots_of(trigger)
    first_at = slots.after(BASE)
    assert first_at is not None
    now_at = first_at + timedelta(seconds=late_s)
    due = slots.between(BASE, now_at, limit=10**6)
    inside = [slot for slot in due if now_at - slot <= timedelta(seconds=grace_s)]
    missed = [slot for slot in due if slot not in inside]
    kept = {"skip": [], "latest": [] if inside else missed[-1:], "all": missed[-catch_up_max:]}[catch_up]

    decided = decide(policy, slots, first_at=first_at, now_at=now_at, previous=NOBODY, most=10**6)

    assert [*kept, *inside] == [c.slot_at for c in decided.choices if c.decision is Decision.FIRED]
    passed = len(missed) - len(kept)
    counted = sum(choice.slot_count for choice in decided.choices if choice.decision is Decision.MISSED)
    assert counted == passed or (passed > COUNTED and 0.5 < counted / passed < 2)


@pytest.mark.parametrize("trigger", [MINUTE, Every(1), Cron("* * * * * *"), Cron("30 2 * * *", "Europe/Berlin")])
@pytest.mark.parametrize("catch_up", CATCH_UPS)
def test_rel_e8_a_year_behind_is_decided_in_bounded_time(trigger: Trigger, catch_up: Any) -> None:
    """No slot is walked over that is not decided: a second a slot for a year takes a fraction of a second."""
    began_s = time.process_time()

    decided = late(366 * 24 * 60, Policy(catch_up=catch_up, overlap="allow"), trigger=trigger)

    assert time.process_time() - began_s < 5
    assert len(decided.choices) <= 100


def test_rel_e8_thirty_days_at_a_slot_a_minute_say_how_many_there_were() -> None:
    """Beyond what is counted the number is an estimate, and says so."""
    [missed, fired] = late(30 * 24 * 60 + 0.5, Policy()).choices

    assert (43_200, Decision.MISSED, Decision.FIRED) == (missed.slot_count, missed.decision, fired.decision)
    assert missed.reason is not None
    assert "About 43200 slots" in missed.reason
