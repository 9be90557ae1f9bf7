"""Audit: what was done by hand is written down, bounded, and read newest first."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from tests.clock import TestClock
from tests.queue.steps import Steps
from windlass.db import Database
from windlass.errors import InvalidInput
from windlass.ids import Ids
from windlass.queue.audit import MAX_FIELD, MAX_SHOWN, SQL, AuditPage, Entry, Recorded, list_entries, record

FULL = Entry(
    tenant="acme",
    actor="ann",
    address="192.0.2.1",
    request_id="r-1",
    action="job.cancel",
    subject="j",
    reason="she said so",
    was='{"state": "queued"}',
    became='{"state": "cancelled"}',
)


def subjects(page: AuditPage) -> list[str]:
    """Return the subjects of the entries on a page."""
    return [entry.subject for entry in page.entries]


async def write(db: Database, ids: Ids, *entries: Entry) -> list[UUID]:
    """Record entries and return their ids."""
    return [await record(db, ids, entry) for entry in entries]


async def test_rel_t16_an_entry_is_kept_whole(steps: Steps) -> None:
    """X10, T16: who, when, from where, what, to what, why, before and after."""
    entry_id = await record(steps.db, steps.ids, FULL)

    [found] = (await list_entries(steps.db, "acme")).entries

    assert Recorded(**msgspec.structs.asdict(FULL), id=entry_id, happened_at=steps.clock.now()) == found


async def test_what_is_absent_stays_absent(steps: Steps) -> None:
    """An act of the installation itself has no tenant, and may have neither address nor reason."""
    entry = Entry(action="tenant.create", subject="acme")
    entry_id = await record(steps.db, steps.ids, entry)

    [found] = (await list_entries(steps.db)).entries

    assert Recorded(**msgspec.structs.asdict(entry), id=entry_id, happened_at=steps.clock.now()) == found


def test_rel_t16_entries_are_only_added() -> None:
    """T16: no statement of this step changes or removes an entry."""
    texts = [text.upper() for query in SQL for text in (query.postgres_source, query.sqlite_source)]

    assert not [text for text in texts if "UPDATE" in text or "DELETE" in text]


async def test_rel_t16_an_act_that_fails_leaves_no_entry(steps: Steps) -> None:
    """T16: recorded inside the act's transaction, an entry is there if the act is, and only then."""

    async def fail() -> None:
        async with steps.db.transaction() as transaction:
            await record(transaction, steps.ids, FULL)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    assert [] == (await list_entries(steps.db)).entries


async def test_entries_are_listed_newest_first_in_pages(steps: Steps, clock: TestClock) -> None:
    """P39: each once, also when others are added between two pages."""
    for number in range(5):
        await record(steps.db, steps.ids, Entry(action="a", subject=str(number)))
        clock.advance(1)

    first = await list_entries(steps.db, limit=3)
    await record(steps.db, steps.ids, Entry(action="a", subject="later"))
    second = await list_entries(steps.db, limit=3, cursor=first.next_cursor)

    assert ["4", "3", "2"] == subjects(first)
    assert ["1", "0"] == subjects(second)
    assert (first.entries[-1].id, None) == (first.next_cursor, second.next_cursor)


async def test_rel_t5_a_tenant_reads_its_own_entries(steps: Steps) -> None:
    """T5: neither another tenant's nor those above all tenants; without a tenant all are read."""
    await write(
        steps.db, steps.ids, *(Entry(action="a", subject=f"of {tenant}", tenant=tenant) for tenant in ("acme", "b", ""))
    )

    assert ["of acme"] == subjects(await list_entries(steps.db, "acme"))
    assert ["of "] == subjects(await list_entries(steps.db, ""))
    assert [] == subjects(await list_entries(steps.db, "nobody"))
    assert ["of ", "of b", "of acme"] == subjects(await list_entries(steps.db))


@pytest.mark.parametrize("tenant", ["acme", None])
async def test_entries_are_found_by_action_and_subject(steps: Steps, tenant: str | None) -> None:
    """P39: each by itself or both together."""
    await write(
        steps.db,
        steps.ids,
        *(Entry(action=action, subject=subject, tenant="acme") for action in ("a", "b") for subject in ("1", "2")),
    )

    async def found(action: str | None, subject: str | None) -> list[tuple[str, str]]:
        page = await list_entries(steps.db, tenant, action=action, subject=subject)
        return [(entry.action, entry.subject) for entry in page.entries]

    assert [("a", "2"), ("a", "1")] == await found("a", None)
    assert [("b", "1"), ("a", "1")] == await found(None, "1")
    assert [("b", "2")] == await found("b", "2")
    assert [] == await found("c", None)


async def test_what_is_too_long_is_cut(steps: Steps) -> None:
    """An entry must not fail by its size: texts are cut, and JSON that is cut is still JSON."""
    long = msgspec.json.encode(["é" * MAX_SHOWN]).decode()
    entry = Entry(action="a", subject="s" * 5000, actor="n" * 5000, reason="a\x00b", was=long, became="1")

    await record(steps.db, steps.ids, entry)

    [found] = (await list_entries(steps.db)).entries
    assert (MAX_FIELD, MAX_FIELD) == (len(found.subject), len(found.actor or ""))
    assert "a␀b" == found.reason
    assert {"cut": long[:MAX_SHOWN]} == msgspec.json.decode(found.was or "")
    assert "1" == found.became


@pytest.mark.parametrize("fields", [{"was": "{"}, {"became": "nothing"}, {"action": ""}, {"action": "a" * 201}])
async def test_an_entry_that_nobody_could_read_is_refused(steps: Steps, fields: dict[str, str]) -> None:
    """What was and became are JSON, and an act has a name."""
    with pytest.raises(InvalidInput, match=next(iter(fields))):
        await record(steps.db, steps.ids, msgspec.structs.replace(FULL, **fields))

    assert [] == (await list_entries(steps.db)).entries
