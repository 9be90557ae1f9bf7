"""Slots: what becomes of the slots of a schedule that are due. Pure.

A slot is due at its time plus the schedule's jitter. It is *missed* when that is longer ago than `misfire_grace`.

Late slots, by `catch_up`:
every slot inside the grace runs, whatever the policy. Of those that are missed
`skip` runs none;
`latest` runs the newest, and that only if no slot inside the grace is due in the same look: one job for all;
`all` runs the newest `catch_up_max` of those that are not older than `catch_up_window`, in their order.
No slot runs that is past its start deadline (`start_within`): its job would expire at once, so it is missed too.
The missed slots that do not run are recorded together, in one row. So a one-time schedule that is late runs under
`latest`, being the newest of one, and does not under `skip`.

Slots to run, by `overlap`, while the run before is not over (its job lives, or jobs wait behind it):
`skip` makes no job; `allow` makes one that is ready; `queue_one` makes one that waits unless one waits already;
`queue_all` makes one that waits, up to a bound; `cancel_previous` makes one that is ready and cancels all before it.
A job made for a slot counts as the run before the next slot, also within one look.

Slots are decided in their order and in portions. What is decided does not depend on how large the portions are, and
takes bounded time however many slots lie behind. Who writes it down: firing.py. When slots are: cron/.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

import msgspec

from windlass.queue.cron import Series
from windlass.queue.schedule import MAX_WAITING, Decision, Policy

PORTION = 100
"""So many slots of one schedule are decided at once, at most."""
COUNTED = 100
"""Slots passed over together are counted up to this; of more their number is estimated from these."""
MOST_TOLD = 2**31 - 1
SECOND = timedelta(seconds=1)
INSTANT = timedelta(microseconds=1)


class Choice(msgspec.Struct, frozen=True):
    """What becomes of one slot, or of several that are passed over together: then `slot_at` is the last of them."""

    slot_at: datetime
    decision: Decision
    slot_count: int = 1
    first_at: datetime | None = None
    reason: str | None = None


class Decided(msgspec.Struct, frozen=True):
    """A portion of the slots that are due, decided, and where the series stands afterwards."""

    choices: list[Choice]
    last_at: datetime
    """The last slot that was dealt with."""
    next_at: datetime | None
    """When the next slot is due, perhaps at once; None: there is none."""
    waiting_count: int
    offset_s: float = 0.0
    """So much after its time each slot is due."""


class Previous(msgspec.Struct, frozen=True):
    """The run before: whether its job lives, and how many wait behind it."""

    live: bool = False
    waiting_count: int = 0


class Known(msgspec.Struct, frozen=True):
    """Slots that were decided before, by a backfill, from the first that is due on."""

    slots: frozenset[datetime] = frozenset()
    until: datetime | None = None
    """Later ones are not known yet, and not to be decided; None: these are all."""


NOTHING_KNOWN = Known()


class _Stretch(msgspec.Struct, frozen=True):
    """Slots that follow each other."""

    first_at: datetime
    last_at: datetime
    slot_count: int
    counted: bool
    """Else the number is an estimate."""


def decide(
    policy: Policy,
    series: Series,
    *,
    first_at: datetime,
    now_at: datetime,
    previous: Previous,
    most: int = PORTION,
    known: Known = NOTHING_KNOWN,
) -> Decided:
    """Decide up to `most` of the slots due at `now_at`, of which `first_at` is the first.

    Slots that are `known` are passed over in silence.
    """
    choices: list[Choice] = []
    busy, waiting_count = previous.live or previous.waiting_count > 0, previous.waiting_count
    last_at = first_at
    for planned in islice(_planned(policy, series, first_at=first_at, now_at=now_at), most):
        if isinstance(planned, _Stretch):
            stretch = planned
            cut = known.until is not None and stretch.last_at > known.until
            if known.until is not None and cut:
                stretch = _stretch(series, first_at, known.until + INSTANT)
            last_at = stretch.last_at
            if missed := _missed(policy, series, stretch, known.slots):
                choices.append(missed)
            if cut:
                break
            continue
        if known.until is not None and planned > known.until:
            break
        last_at = planned
        if planned in known.slots:
            continue
        decision = _overlap(policy, busy=busy, waiting_count=waiting_count)
        choices.append(Choice(planned, decision))
        if decision is Decision.WAITING:
            waiting_count += 1
        elif decision is Decision.REPLACED:
            waiting_count = 0
        busy = True
    following = series.after(last_at)
    next_at = None if following is None else following + timedelta(seconds=series.offset_s)
    return Decided(choices, last_at, next_at, waiting_count, series.offset_s)


def _overlap(policy: Policy, *, busy: bool, waiting_count: int) -> Decision:
    if not busy or policy.overlap == "allow":
        return Decision.FIRED
    if policy.overlap == "cancel_previous":
        return Decision.REPLACED
    room = {"queue_one": 1, "queue_all": MAX_WAITING}.get(policy.overlap, 0)
    return Decision.WAITING if waiting_count < room else Decision.OVERLAPPED


def _planned(policy: Policy, series: Series, *, first_at: datetime, now_at: datetime) -> Iterator[datetime | _Stretch]:
    """Yield the slots to run, and before them the stretch that is passed over, if there is one."""
    newest_at = now_at - timedelta(seconds=series.offset_s)
    grace_at = newest_at - timedelta(seconds=_shorter(policy.misfire_grace_s, policy.start_within_s))
    begin_at: datetime | None = first_at
    if first_at < grace_at:
        inside_at = series.after(_before(grace_at))
        if inside_at is not None and inside_at > newest_at:
            inside_at = None
        begin_at = _made_up_from(policy, series, first_at, grace_at, newest_at=newest_at, inside_at=inside_at)
        if begin_at is None:
            yield _stretch(series, first_at, grace_at)
            begin_at = inside_at
        elif begin_at > first_at:
            yield _stretch(series, first_at, begin_at)
    while begin_at is not None and begin_at <= newest_at:
        yield begin_at
        begin_at = series.after(begin_at)


def _made_up_from(
    policy: Policy,
    series: Series,
    first_at: datetime,
    grace_at: datetime,
    *,
    newest_at: datetime,
    inside_at: datetime | None,
) -> datetime | None:
    """Return the first missed slot that runs all the same; None: none of them."""
    window_s = policy.start_within_s
    if policy.catch_up == "latest" and inside_at is None:
        last_at = _stretch(series, first_at, grace_at).last_at
        return last_at if window_s is None or last_at >= newest_at - timedelta(seconds=window_s) else None
    if policy.catch_up != "all":
        return None
    since_at: datetime | None = first_at
    if policy.catch_up_window_s is not None:
        window_s = _shorter(policy.catch_up_window_s, window_s)
    if window_s is not None:
        window_at = newest_at - timedelta(seconds=window_s)
        since_at = first_at if first_at >= window_at else series.after(_before(window_at))
    if since_at is None or since_at >= grace_at:
        return None
    return _newest(series, since_at, grace_at, most=policy.catch_up_max)


def _newest(series: Series, since_at: datetime, before_at: datetime, *, most: int) -> datetime:
    """Return the first of the newest `most` slots from `since_at`, which is one, until before `before_at`.

    The span in which they lie is guessed and then halved or doubled, so that few thousand slots are looked at.
    """
    found = _walked(series, since_at, before_at, most=most + 1)
    if len(found) <= most:
        return since_at
    until_at = _before(before_at)
    span = found[-1] - since_at
    short, long = timedelta(0), None
    while True:
        slots = series.between(max(until_at - span, since_at - SECOND), until_at, limit=4 * most)
        if len(slots) < most:
            short, span = span, span * 2 if long is None else _middle(span, long)
        elif len(slots) == 4 * most:
            long, span = span, _middle(short, span)
        else:
            return slots[-most]


def _middle(short: timedelta, long: timedelta) -> timedelta:
    return (short + long) // 2 // SECOND * SECOND


def _walked(series: Series, slot_at: datetime | None, before_at: datetime, *, most: int) -> list[datetime]:
    """Return up to `most` slots from `slot_at` on, by looks that schedules with the same expression share."""
    slots: list[datetime] = []
    while slot_at is not None and slot_at < before_at and len(slots) < most:
        slots.append(slot_at)
        slot_at = series.after(slot_at)
    return slots


def _stretch(series: Series, first_at: datetime, before_at: datetime) -> _Stretch:
    """Return the slots from `first_at`, which is one, until before `before_at`."""
    slots = _walked(series, first_at, before_at, most=COUNTED + 1)
    if len(slots) <= COUNTED:
        return _Stretch(first_at, slots[-1], len(slots), counted=True)
    last_at = series.last_before(_before(before_at), floor=slots[-1] - SECOND) or slots[-1]
    count = round((last_at - first_at) / (slots[-1] - first_at) * COUNTED) + 1
    return _Stretch(first_at, last_at, min(count, MOST_TOLD), counted=False)


def _missed(policy: Policy, series: Series, stretch: _Stretch, known: frozenset[datetime]) -> Choice | None:
    """Return the one row for all slots of a stretch; None if each is known."""
    last_at = _last_unknown(series, stretch, known)
    if last_at is None:
        return None
    count = stretch.slot_count - sum(stretch.first_at <= slot_at <= stretch.last_at for slot_at in known)
    number = "" if stretch.counted else f"About {count} slots. "
    late_s = _shorter(policy.misfire_grace_s, policy.start_within_s)
    within = "" if policy.start_within_s is None else f", start_within is {policy.start_within_s} s"
    return Choice(
        last_at,
        Decision.MISSED,
        max(count, 1),
        stretch.first_at,
        f"{number}More than {late_s} s late; catch_up is {policy.catch_up}{within}.",
    )


def _shorter(span_s: int, other_s: int | None) -> int:
    return span_s if other_s is None else min(span_s, other_s)


def _last_unknown(series: Series, stretch: _Stretch, known: frozenset[datetime]) -> datetime | None:
    """Return the last slot of a stretch that is not known, by one look for each that is."""
    last_at = stretch.last_at
    if last_at not in known:
        return last_at
    for slot_at in sorted((slot_at for slot_at in known if stretch.first_at <= slot_at < last_at), reverse=True):
        following = series.after(slot_at)
        if following is not None and following < last_at:
            return series.last_before(last_at - SECOND, floor=slot_at)
        last_at = slot_at
    return series.last_before(last_at - SECOND, floor=stretch.first_at - SECOND)


def _before(instant: datetime) -> datetime:
    """Return the last whole second before an instant."""
    whole = instant.replace(microsecond=0)
    return whole if whole < instant else whole - SECOND
