"""Schedules stored and found: all or none, names unique in a tenant, lists by name at a bounded cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.queue.planned import HOURLY, NOON, made, planned
from tests.queue.steps import ANN, Steps
from windlass.errors import InvalidInput, InvalidSchedule, NameTaken, NotFound
from windlass.queue import scheduledits, schedules
from windlass.queue.cron import At, Cron, Every
from windlass.queue.retry import PRESETS
from windlass.queue.schedule import NewSchedule, Policy
from windlass.queue.schedulerows import as_stored

FULL: dict[str, Any] = {
    "owner": "shop",
    "trigger": Cron("30 2 * * *", "Europe/Berlin"),
    "start_at": datetime(2026, 1, 5, tzinfo=UTC),
    "end_at": datetime(2027, 1, 5, 3, 4, 5, 678, tzinfo=UTC),
    "exclude": ("2026-12-25", "SAT"),
    "jitter_s": 30,
    "payload": '{"a": [1, 2]}',
    "queue": "reports",
    "labels": ("gpu", "big"),
    "headers": '{"trace":"1"}',
    "tags": ("x", "y"),
    "priority": -3,
    "timeout_s": None,
    "max_attempts": 4,
    "max_lost": 2,
    "retry": PRESETS["stepped"],
    "policy": Policy(
        catch_up="all",
        catch_up_max=5,
        catch_up_window_s=600,
        misfire_grace_s=7,
        overlap="queue_all",
        expect_within_s=60,
        start_within_s=30,
    ),
}


async def test_a_schedule_is_read_back_as_it_was_stored(steps: Steps) -> None:
    """Every setting survives; labels are a set, and instants are in UTC."""
    asked = planned(steps, **FULL)

    [stored] = await schedules.create(steps.db, [asked])

    found = await schedules.get(steps.db, "nightly", tenant="default")
    assert msgspec.structs.replace(asked, labels=("big", "gpu")) == found.definition
    assert (asked.id, "nightly", found.next_at, False) == msgspec.structs.astuple(stored)
    assert (1, NOON, NOON, None, 0) == (
        found.version,
        found.created_at,
        found.changed_at,
        found.last_at,
        found.waiting_count,
    )


async def test_at_most_once_is_kept_as_the_limits_of_its_jobs(steps: Steps) -> None:
    """A job made from the row alone has one attempt, and no policy of retries."""
    found = await made(steps, delivery="at_most_once", retry=PRESETS["stepped"], max_attempts=9)

    assert (1, 1, None) == (found.definition.max_attempts, found.definition.max_lost, found.definition.retry)


@pytest.mark.parametrize(
    ("fields", "next_at"),
    [
        ({"trigger": HOURLY}, NOON + timedelta(minutes=59)),
        ({"trigger": Every(60)}, NOON + timedelta(minutes=1)),
        ({"trigger": Every(60), "start_at": NOON + timedelta(days=1)}, NOON + timedelta(days=1)),
        ({"trigger": Every(3600), "start_at": NOON - timedelta(minutes=90)}, NOON + timedelta(minutes=30)),
        ({"trigger": At(NOON + timedelta(days=2))}, NOON + timedelta(days=2)),
        ({"trigger": At(NOON - timedelta(days=2))}, NOON - timedelta(days=2)),
        ({"trigger": None}, None),
        ({"trigger": HOURLY, "paused": True}, None),
    ],
    ids=["cron", "every", "start", "start past", "at", "rel_e7 at past", "by hand", "paused"],
)
async def test_a_new_schedule_stands_before_its_first_slot(
    steps: Steps, fields: dict[str, Any], next_at: datetime | None
) -> None:
    """The first slot after now; a start in the past is fine; one time that is past is due at once."""
    found = await made(steps, **fields)

    assert next_at == found.next_at


async def test_jitter_puts_off_when_the_slot_is_due(steps: Steps) -> None:
    """The slot stays the whole hour; it is due later by a part of the jitter that is always the same."""
    found = await made(steps, jitter_s=600)

    series = found.series()
    assert series is not None
    assert found.next_at == NOON + timedelta(minutes=59, seconds=series.offset_s)
    assert 0 < series.offset_s < 600


async def test_a_paused_one_says_since_when(steps: Steps) -> None:
    """What is stored paused has a pause as one that was paused later."""
    found = await made(steps, paused=True)

    assert found.pause is not None
    assert ("schedule", NOON, None) == (found.pause.of, found.pause.paused_at, found.pause.resume_at)


async def test_a_taken_name_stores_nothing(steps: Steps) -> None:
    """All or none: the error names the index, and the others of the request are not there."""
    await made(steps, "b")

    with pytest.raises(NameTaken, match=r'schedules\[2\].name: there is a schedule "b" already') as taken:
        await schedules.create(steps.db, [planned(steps, name) for name in ("c", "a", "b")])

    assert 2 == taken.value.index
    assert ["b"] == [s.definition.name for s in (await schedules.find(steps.db, "default")).schedules]


async def test_taken_names_may_be_left_out(steps: Steps) -> None:
    """The others are stored and returned in order; what was there stays as it is."""
    before = await made(steps, "b")

    stored = await schedules.create(steps.db, [planned(steps, name) for name in ("c", "b", "a")], skip=True)

    assert ["c", "a"] == [one.name for one in stored]
    assert before == await schedules.get(steps.db, "b", tenant="default")
    assert [] == await schedules.create(steps.db, [planned(steps, "a")], skip=True)


async def test_a_name_is_free_in_another_tenant(steps: Steps) -> None:
    """Names are unique in a tenant, not in the database; each sees its own."""
    mine = await made(steps)
    theirs = await made(steps, tenant="other")

    assert mine == await schedules.get(steps.db, "nightly", tenant="default")
    assert theirs == await schedules.get(steps.db, "nightly", tenant="other")


async def test_a_foreign_schedule_is_not_there(steps: Steps) -> None:
    """By its id too: it belongs to its tenant."""
    found = await made(steps, tenant="other")

    for ref in (found.id, "nightly"):
        with pytest.raises(NotFound):
            await schedules.get(steps.db, ref, tenant="default")


async def test_replacing_keeps_the_id_and_the_history(steps: Steps) -> None:
    """The definition changes under its id, its version rises; others of the request are new."""
    was = await made(steps, task="old", paused=True)
    steps.clock.advance(10)

    asked = [planned(steps, "fresh"), planned(steps, task="new", owner="shop")]
    [fresh, replaced] = await schedules.create(steps.db, asked, replace=True)

    found = await schedules.get(steps.db, "nightly", tenant="default")
    assert (asked[0].id, False) == (fresh.id, fresh.replaced)
    assert (was.id, True, None) == (replaced.id, replaced.replaced, replaced.next_at)
    assert (was.id, "new", 2, was.created_at) == (found.id, found.definition.task, found.version, found.created_at)
    assert found.definition.paused  # the pause is the operator's word, not the application's
    assert was.pause == found.pause


async def test_what_moves_between_the_look_and_the_lock_is_computed_again(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T6: changes are computed before the lock; what somebody does meanwhile counts, and nothing is refused for it."""
    for name in ("one", "two"):
        await made(steps, name)
    compute = schedules._changes

    async def rival(*arguments: Any) -> Any:
        computed = await compute(*arguments)
        found = await schedules.get(steps.db, "one", tenant="default")
        await scheduledits.pause(steps.db, found.id, tenant="default", actor=ANN)
        return computed

    monkeypatch.setattr(schedules, "_changes", rival)

    asked = [planned(steps, name, trigger=HOURLY, task="new") for name in ("one", "two")]
    stored = await schedules.create(steps.db, asked, replace=True)

    found = [await schedules.get(steps.db, name, tenant="default") for name in ("one", "two")]
    assert [("new", True, 3), ("new", False, 2)] == [(f.definition.task, f.definition.paused, f.version) for f in found]
    assert [f.next_at for f in found] == [one.next_at for one in stored]


async def test_replacing_by_the_same_changes_nothing(steps: Steps) -> None:
    """An application that starts again and says the same raises no version and loses no slot."""
    was = await made(steps, **FULL)
    steps.clock.advance(7)

    await schedules.create(steps.db, [planned(steps, **FULL)], replace=True)

    assert was == await schedules.get(steps.db, was.id, tenant="default")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"trigger": Cron("0 25 * * *")}, InvalidSchedule),
        ({"trigger": Every(0)}, InvalidSchedule),
        ({"trigger": Cron("* * * * *", "Europe/Atlantis")}, InvalidSchedule),
        ({"start_at": NOON, "end_at": NOON - timedelta(1)}, InvalidSchedule),
        ({"exclude": ("someday",)}, InvalidSchedule),
        ({"payload": "{"}, InvalidInput),
        ({"name": "a/b"}, InvalidInput),
        ({"name": "."}, InvalidInput),
        ({"name": ".."}, InvalidInput),
        ({"policy": Policy(misfire_grace_s=0)}, InvalidInput),
    ],
    ids=["hour", "interval", "zone", "end", "exclusion", "payload", "name", "name .", "name ..", "policy"],
)
async def test_bad_input_is_refused_and_nothing_is_stored(
    steps: Steps, fields: dict[str, Any], problem: type[InvalidInput]
) -> None:
    """The index in the request is named, and the good one beside it is not stored either."""
    with pytest.raises(problem) as refused:
        await schedules.create(steps.db, [planned(steps, "good"), planned(steps, **fields)])

    assert (1, "schedules") == (refused.value.index, refused.value.batch)
    assert [] == (await schedules.find(steps.db, "default")).schedules


async def test_a_name_twice_in_a_request_is_refused(steps: Steps) -> None:
    """Nobody can say which of them is meant."""
    with pytest.raises(InvalidInput, match=r"schedules\[1\].name: 'a' stands twice"):
        await schedules.create(steps.db, [planned(steps, "a"), planned(steps, "a")])


async def test_a_thousand_are_a_handful_of_statements(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of a thousand is stored by as many statements as one of two."""
    counts = []
    for number, size in enumerate((2, 1000)):
        counting = Counting(steps)
        with monkeypatch.context() as patch:
            counting.patch(patch)
            await schedules.create(steps.db, [planned(steps, f"{number}-{n}") for n in range(size)])
        counts.append(counting.count)

    assert counts[0] == counts[1] <= 6


class Counting:
    """Counts the statements that schedules write by."""

    def __init__(self, steps: Steps) -> None:
        self.count = 0
        self._steps = steps

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Count from here on."""
        transaction = self._steps.db.transaction

        def opened(**options: bool) -> object:
            return _Counted(transaction(**options), self)

        patch.setattr(self._steps.db, "transaction", opened)


class _Counted:
    def __init__(self, inner: object, counting: Counting) -> None:
        self._inner = inner
        self._counting = counting

    async def __aenter__(self) -> object:
        statements = await self._inner.__aenter__()  # type: ignore[attr-defined]
        fetch = statements.fetch

        async def counted(query: object, **parameters: object) -> object:
            self._counting.count += 1
            return await fetch(query, **parameters)

        statements.fetch = counted
        return statements

    async def __aexit__(self, *error: object) -> object:
        return await self._inner.__aexit__(*error)  # type: ignore[attr-defined]


async def test_pages_go_by_name(steps: Steps) -> None:
    """By bytes, on both databases; each page says where the next one begins."""
    names = ["B", "a", "a-1", "a1", "ä", "𝄞"]
    await schedules.create(steps.db, [planned(steps, name) for name in reversed(names)])

    pages, cursor = [], None
    for _ in range(3):
        page = await schedules.find(steps.db, "default", limit=2, cursor=cursor)
        pages.append([schedule.definition.name for schedule in page.schedules])
        cursor = page.next_cursor

    assert [names[:2], names[2:4], names[4:]] == pages
    assert cursor is None


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"task": "special"}, ["a"]),
        ({"queue": "reports"}, ["ab"]),
        ({"owner": "shop"}, ["b"]),
        ({"paused": True}, ["c"]),
        ({"paused": False}, ["a", "ab", "b"]),
        ({"prefix": "a"}, ["a", "ab"]),
        ({"prefix": "ab", "paused": False}, ["ab"]),
        ({"task": "special", "queue": "reports"}, []),
    ],
    ids=str,
)
async def test_lists_are_filtered(steps: Steps, filters: dict[str, Any], names: list[str]) -> None:
    """All filters together."""
    await made(steps, "a", task="special")
    await made(steps, "ab", queue="reports")
    await made(steps, "b", owner="shop")
    await made(steps, "c", paused=True)
    await made(steps, "a", tenant="other", task="special", queue="reports", owner="shop")

    page = await schedules.find(steps.db, "default", **filters)

    assert names == [schedule.definition.name for schedule in page.schedules]
    assert page.next_cursor is None


async def test_a_rare_one_is_found_over_short_pages(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at so many names and no more; the cursor goes on after the last one looked at."""
    monkeypatch.setattr(schedules, "EXAMINED", 3)
    await schedules.create(steps.db, [planned(steps, f"s{n}", task="rare" if n == 4 else "mail") for n in range(6)])

    first = await schedules.find(steps.db, "default", task="rare")
    second = await schedules.find(steps.db, "default", task="rare", cursor=first.next_cursor)

    assert ([], "s2") == (first.schedules, first.next_cursor)
    assert ["s4"] == [schedule.definition.name for schedule in second.schedules]


async def test_a_load_can_be_run_again(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is left as it is, also by a rival's name; only the others are stored and counted."""
    monkeypatch.setattr(schedules, "CHUNK", 3)
    was = await made(steps, "s3", task="old")

    first = await schedules.load(steps.db, (planned(steps, f"s{n}") for n in range(5)))
    second = await schedules.load(steps.db, (planned(steps, f"s{n}") for n in range(7)))

    assert (4, 2) == (first, second)
    assert was == await schedules.get(steps.db, "s3", tenant="default")
    page = await schedules.find(steps.db, "default")
    assert [f"s{n}" for n in range(7)] == [schedule.definition.name for schedule in page.schedules]


async def test_a_load_refuses_what_create_refuses(steps: Steps) -> None:
    """The first that cannot be stored is named by its place in the whole."""
    asked = [planned(steps, "good"), planned(steps, "bad", trigger=Cron("* * * * * * *"))]

    with pytest.raises(InvalidSchedule) as refused:
        await schedules.load(steps.db, asked)

    assert 1 == refused.value.index
    assert [] == (await schedules.find(steps.db, "default")).schedules


def test_what_is_stored_alike_is_equal() -> None:
    """Order of labels, zone of an instant and ways to say the limits do not count."""
    fields: dict[str, Any] = {"name": "n", "task": "t", "max_attempts": 1, "max_lost": 1}
    berlin = datetime.fromisoformat("2026-01-01T13:01:00+01:00")
    one = NewSchedule(id=UUID(int=1), **fields, labels=("b", "a"), trigger=At(berlin))
    other = NewSchedule(id=UUID(int=1), **fields, labels=("a", "b", "a"), trigger=At(NOON), delivery="at_most_once")

    assert as_stored(one) == as_stored(other)
