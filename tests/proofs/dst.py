"""Changes of the clock: slots of every zone at every change from 2000 to 2037, compared with an oracle (dstrule.py).

Zones that changed at the same instants by the same offsets are one. Around each change, 36 hours before and after it,
each expression's slots are asked for one after another, and must be those of the written rule; from other instants,
also inside repeated hours, the next slot must be the first of those later.
"""

from __future__ import annotations

import multiprocessing
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from tests.proofs.dstrule import Oracle, is_left_out, second_slots
from tests.proofs.verdict import Line
from windlass.queue.cron import Cron, Every, Series, series

FIXED = (
    *(
        "30 2 * * *",
        "0,30 2 * * *",
        "0,30 2,3 * * *",
        "0 0 * * *",
        "30 0 * * *",
        "15 1 * * *",
        "0 3 * * *",
        "59 23 * * *",
    ),
    *(
        "0 0,12 * * *",
        "0-59/7 2 * * *",
        "10-20 1-3 * * *",
        "45 1,2,3,23 * * *",
        "0 12 * * *",
        "1 0 1 * *",
        "30 2 * * SUN",
    ),
    *(
        "30 2 * * 7",
        "0 2 1-7 * SUN",
        "30 2 L * *",
        "0 1 * MAR,OCT *",
        "20 2 25-31 3,10 0",
        "5/20 0-4 * * *",
        "0 0-23 * * *",
    ),
    *("30 0-23/3 * * *", "29,31 1,2 * * MON-SAT", "0 4 */2 * *", "17 3 * * 0,6", "0 5,1,*/6 * * *", "30 2 31 12 *"),
)
REAL = (
    *(
        "* * * * *",
        "*/15 2 * * *",
        "*/30 2 * * *",
        "30 * * * *",
        "0 * * * *",
        "15 */2 * * *",
        "*/20 0-3 * * *",
        "7 */6 * * *",
    ),
    *(
        "*/45 1-3 * * SUN",
        "* 2 * * *",
        "0 */12 1-15 * *",
        "*/10 23 * * *",
        "*/59 * * * *",
        "0,30 */1 * * *",
        "*/25 2 */2 * 0",
    ),
    *("50 * L * *", "*/7 0 1 */3 MON", "5,*/17 3 * * *"),
)
NAMED_DAYS = ("30 2 LW * *", "30 2 * * SUN#2", "0,30 1-3 * * 0L", "*/15 * * * SAT#4", "30 2 LW * SUN#1", "15 0 * * 5L")
HASHED = ("H 2 * * *", "H H(0-5) * * *", "H/20 * * * *")
"""What `H` stands for is not in the rule: it is read off a day in UTC, and must then hold everywhere."""
MINUTELY = (*FIXED, *REAL, *NAMED_DAYS, *HASHED)
WITH_SECONDS = ("0 30 2 * * *", "*/20 59,0 1-3 * * *", "30 */15 0-4 * * *", "59 29,59 * LW * *", "10 0 2 * * 0L")
LEFT_OUT = (
    ("30 2 * * *", ("SUN",)),
    ("0 0 * * *", ("SUN", "--03-27")),
    ("*/15 2 * * *", ("SAT", "--10-31")),
    ("30 * * * *", ("SUN", "MON")),
)
"""Expressions with days that are left out."""
INTERVALS_S = (1200, 5400, 86_400)
AROUND_S, WARM_S, SECONDS_AROUND_S = 36 * 3600, 30 * 3600, 4 * 3600
LOOK_S = 6 * 3600
"""Between two looks at a zone's offset when its changes are sought."""
ASKED_S = (*range(-2 * 3600, 2 * 3600, 907), *range(-26 * 3600, 26 * 3600, 15_013))
"""Instants from which a next slot is asked for, counted from the change; not whole minutes."""
ID = UUID(int=1)
BASE_AT = datetime(1999, 12, 1, tzinfo=UTC)


class Zone(msgspec.Struct, frozen=True):
    """Zones with the same changes, and the instants of these, in seconds since 1970."""

    names: tuple[str, ...]
    turns: tuple[int, ...]


class Compared(msgspec.Struct):
    """What was compared."""

    turn_count: int = 0
    comparison_count: int = 0
    slot_count: int = 0
    next_count: int = 0
    interval_count: int = 0
    mismatches: list[str] = []

    def add(self, other: Compared) -> None:
        """Take over another's figures."""
        self.turn_count += other.turn_count
        self.comparison_count += other.comparison_count
        self.slot_count += other.slot_count
        self.next_count += other.next_count
        self.interval_count += other.interval_count
        self.mismatches += other.mismatches


def changes(name: str, years: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Return when a zone's offset changed, from which to which, all in seconds."""
    zone = ZoneInfo(name)
    found = []
    at = _second(years[0])
    offset = _offset(zone, at)
    found.append((0, 0, offset))
    while at < _second(years[-1] + 1):
        later = at + LOOK_S
        if _offset(zone, later) != offset:
            early, late = at, later
            while late - early > 1:
                middle = (early + late) // 2
                early, late = (middle, late) if _offset(zone, middle) == offset else (early, middle)
            found.append((late, offset, _offset(zone, late)))
            offset = _offset(zone, later)
        at = later
    return tuple(found)


def _second(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def _offset(zone: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def compare(zone: Zone) -> Compared:
    """Compare all expressions at all changes of a zone."""
    known = Oracle([without_hash(expression) for expression in MINUTELY])
    compared = Compared()
    name = zone.names[0]
    for turn in zone.turns:
        begin, end = (turn - AROUND_S) // 60, (turn + AROUND_S) // 60
        found = known.slots(ZoneInfo(name), begin=begin, end=end, warm=begin - WARM_S // 60)
        span = (60 * begin, 60 * end)
        expected = {
            expression: [60 * at for at in minutes] for expression, minutes in zip(MINUTELY, found, strict=True)
        }
        for expression, seconds in expected.items():
            _compare(compared, Cron(expression, name), span=span, expected=seconds)
            _compare_next(compared, expression, name, turn=turn, expected=seconds)
        for expression, days in LEFT_OUT:
            kept = [at for at in expected[expression] if not is_left_out(at, ZoneInfo(name), days)]
            _compare(compared, Cron(expression, name), span=span, expected=kept, exclude=days)
        _compare_seconds(compared, name, turn)
        _compare_intervals(compared, span)
        compared.turn_count += 1
    return compared


def without_hash(expression: str) -> str:
    """Return an expression with what its `H` stand for."""
    minute, hour, *rest = expression.split()
    if "H" not in minute[0] + hour[0]:
        return expression
    day = datetime(2027, 1, 1, tzinfo=UTC)
    slots = series(Cron(expression), schedule_id=ID, base_at=day)
    found = list(_chain(slots, int(day.timestamp()), int(day.timestamp()) + 86_399))
    minute = ",".join(str(n) for n in sorted({slot.minute for slot in found})) if minute[0] == "H" else minute
    hour = ",".join(str(n) for n in sorted({slot.hour for slot in found})) if hour[0] == "H" else hour
    return " ".join((minute, hour, *rest))


def _compare_intervals(compared: Compared, span: tuple[int, int]) -> None:
    """Intervals count elapsed seconds, whatever clocks do."""
    base_s = int(BASE_AT.timestamp())
    for every_s in INTERVALS_S:
        first_s = base_s - (base_s - span[0]) // every_s * every_s
        _compare(compared, Every(every_s), span=span, expected=list(range(first_s, span[1] + 1, every_s)))
        compared.interval_count += 1


def _compare_seconds(compared: Compared, name: str, turn: int) -> None:
    begin_s, end_s = turn - SECONDS_AROUND_S, turn + SECONDS_AROUND_S
    for expression in WITH_SECONDS:
        expected = second_slots(expression, ZoneInfo(name), begin_s=begin_s, end_s=end_s)
        _compare(compared, Cron(expression, name), span=(begin_s, end_s), expected=expected)


def _compare(
    compared: Compared,
    trigger: Cron | Every,
    *,
    span: tuple[int, int],
    expected: list[int],
    exclude: Sequence[str] = (),
) -> None:
    slots = series(trigger, schedule_id=ID, base_at=BASE_AT, exclude=exclude)
    found = [int(slot.timestamp()) for slot in _chain(slots, *span)]
    compared.comparison_count += 1
    compared.slot_count += len(expected)
    if found != expected:
        wrong = min(set(found) ^ set(expected), default=span[0])
        said = "ours only" if wrong in found else "the oracle's only"
        what = f"{trigger.zone} {trigger.expression!r}" if isinstance(trigger, Cron) else f"every {trigger.every_s} s"
        without = f" without {','.join(exclude)}" if exclude else ""
        compared.mismatches.append(
            f"{what}{without}: {datetime.fromtimestamp(wrong, UTC):%Y-%m-%d %H:%M:%S}Z is {said}"
        )


def _compare_next(compared: Compared, expression: str, name: str, *, turn: int, expected: list[int]) -> None:
    slots = series(Cron(expression, name), schedule_id=ID, base_at=BASE_AT)
    for asked_s in (turn + ahead_s for ahead_s in ASKED_S):
        following = expected[bisect_right(expected, asked_s) :]
        found = slots.after(datetime.fromtimestamp(asked_s, UTC))
        compared.next_count += 1
        later = following[0] if following else None
        if found is None or (found.timestamp() != later if later else found.timestamp() <= turn + AROUND_S):
            said = f"{datetime.fromtimestamp(asked_s, UTC):%Y-%m-%d %H:%M:%S}Z is followed by {found}"
            compared.mismatches.append(f"{name} {expression!r}: {said}")


def _chain(slots: Series, begin_s: int, end_s: int) -> Iterator[datetime]:
    until = datetime.fromtimestamp(end_s, UTC)
    asked = datetime.fromtimestamp(begin_s, UTC) - timedelta(seconds=1)
    slot = slots.after(asked)
    while slot is not None and asked < slot <= until:
        yield slot
        asked, slot = slot, slots.after(slot)


def fold(names: Sequence[str], found: Sequence[tuple[tuple[int, int, int], ...]]) -> list[Zone]:
    """Return the zones that differ, those with most changes first."""
    same: dict[tuple[tuple[int, int, int], ...], list[str]] = {}
    for name, turns in zip(names, found, strict=True):
        same.setdefault(turns, []).append(name)
    folded = [Zone(tuple(names), tuple(at for at, _, _ in turns[1:])) for turns, names in same.items()]
    return sorted(folded, key=lambda zone: -len(zone.turns))


def prove(*, processes: int = 2) -> list[Line]:
    """Compare every zone; return what was found."""
    started_s = time.monotonic()
    names = sorted(available_timezones())
    years = range(2000, 2038)
    total = Compared()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        folded = fold(names, pool.starmap(changes, [(name, years) for name in names], chunksize=8))
        for number, compared in enumerate(pool.imap_unordered(compare, folded), 1):
            total.add(compared)
            if number % 20 == 0:
                print(
                    f"{number} of {len(folded)} zones, {total.turn_count} changes, {len(total.mismatches)} mismatches",
                    flush=True,
                )
    detail = (
        f"{len(names)} zones, {len(folded)} of them different, {total.turn_count} changes from 2000 to 2037, "
        f"{len(MINUTELY)} expressions, {len(WITH_SECONDS)} with seconds, {len(LEFT_OUT)} with days left out, "
        f"{total.comparison_count} comparisons, "
        f"{total.slot_count} slots, {total.next_count} other instants, "
        f"{len(total.mismatches)} mismatches, {time.monotonic() - started_s:.0f} s"
    )
    elapsed = [said for said in total.mismatches if said.startswith("every ")]
    others = [said for said in total.mismatches if not said.startswith("every ")]
    return [
        Line("R14 slots at changes of the clock are those of the written rule", detail, others),
        Line("intervals count elapsed time over changes", f"{total.interval_count} comparisons", elapsed),
    ]
