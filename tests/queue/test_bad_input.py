"""Bad input: what a caller sends wrong is refused by name, without a driver's error, and nothing is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from tests.clock import TestClock
from windlass.db import Database
from windlass.errors import AlreadyExists, InvalidInput, WindlassError
from windlass.ids import Ids
from windlass.queue.control import Actor, pause_tenant, resume_tenant
from windlass.queue.history import Count, Filter, Page, count, find
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.submit import submit, submit_requests
from windlass.queue.workers import Beat, Held, NewSession, drain, heartbeat, register

ONE = UUID("019b796d-d600-7000-8000-000000000001")
TWO = UUID("019b796d-d600-7000-8000-000000000002")


@pytest.mark.parametrize(
    ("field", "session"),
    [
        ("worker", NewSession(id=ONE, worker="a\x00b")),
        ("tenant", NewSession(id=ONE, worker="w", tenant="")),
        ("lease_ms", NewSession(id=ONE, worker="w", lease_ms=2**31)),
        ("lease_ms", NewSession(id=ONE, worker="w", lease_ms=0)),
        ("capacity", NewSession(id=ONE, worker="w", capacity=2**40)),
        ("pid", NewSession(id=ONE, worker="w", pid=-1)),
        ("host", NewSession(id=ONE, worker="w", host="a\x00b")),
        ("labels", NewSession(id=ONE, worker="w", labels="\ud800")),
    ],
)
async def test_a_session_that_cannot_be_stored_is_refused(db: Database, field: str, session: NewSession) -> None:
    """Every field of a registration is bounded, and the message names it."""
    with pytest.raises(InvalidInput) as refused:
        await register(db, session)

    assert field == refused.value.field


@pytest.mark.parametrize(
    ("field", "beat"),
    [
        ("busy", Beat(ONE, [], busy=2**31)),
        ("skew_ms", Beat(ONE, [], skew_ms=-(2**31))),
        ("fence", Beat(ONE, [Held(TWO, 0)])),
        ("fence", Beat(ONE, [Held(TWO, 2**63)])),
    ],
)
async def test_a_heartbeat_out_of_range_is_refused(db: Database, field: str, beat: Beat) -> None:
    """Numbers that no column holds are refused by name."""
    await register(db, NewSession(id=ONE, worker="w"))

    with pytest.raises(InvalidInput) as refused:
        await heartbeat(db, [beat])

    assert field == refused.value.field


def test_a_reason_that_cannot_be_kept_is_refused() -> None:
    """Who acts and why is stored with the act, so it must be storable."""
    with pytest.raises(InvalidInput):
        Actor("me", "a\x00b")
    with pytest.raises(InvalidInput):
        Actor("\ud800", None)


async def test_an_id_that_is_taken_is_refused(db: Database, clock: TestClock) -> None:
    """A second job under the id of a live one is a conflict, and the first stands."""
    lanes = Lanes()
    await submit(db, lanes, [NewJob(id=ONE, task="t", payload="1")])

    with pytest.raises(AlreadyExists):
        await submit(db, lanes, [NewJob(id=ONE, task="t", payload="2")])

    assert ["1"] == [job.payload for job in (await find(db, Filter(tenant="default"))).jobs]


async def test_an_id_twice_is_refused_for_its_request_alone(db: Database, clock: TestClock) -> None:
    """Within a request an id stands once; of two requests with one id the first is stored."""
    fine = Ids(clock).new()
    requests = [
        [NewJob(id=ONE, task="t")],
        [NewJob(id=ONE, task="t"), NewJob(id=TWO, task="t")],
        [NewJob(id=TWO, task="t"), NewJob(id=TWO, task="t")],
        [NewJob(id=fine, task="t")],
    ]

    answers = await submit_requests(db, Lanes(), requests)

    assert [False, True, True, False] == [isinstance(answer, WindlassError) for answer in answers]
    assert {ONE, fine} == {job.id for job in (await find(db, Filter(tenant="default"))).jobs}


Look = Callable[[Database, str], Awaitable[Any]]
LOOKS: dict[str, Look] = {
    "find": lambda db, name: find(db, Filter(tenant=name)),
    "find by task": lambda db, name: find(db, Filter(tenant="default", task=name)),
    "find by tag": lambda db, name: find(db, Filter(tenant="default", tag=name)),
    "count": lambda db, name: count(db, Filter(tenant="default", queue=name)),
    "serving": lambda db, name: Lanes().serving(db, "default", [name], tasks=None, labels=[]),
    "drain": lambda db, name: drain(db, tenant="default", worker=name),
    "resume_tenant": lambda db, name: resume_tenant(db, name),
    "pause_tenant": lambda db, name: pause_tenant(db, name, actor=Actor("me", None)),
}


@pytest.mark.parametrize("look", LOOKS)
async def test_a_name_that_is_no_text_is_refused_wherever_it_is_asked_for(db: Database, look: str) -> None:
    """A name that no database takes is the caller's mistake, not a driver's error."""
    with pytest.raises(InvalidInput):
        await LOOKS[look](db, "\ud800")


@pytest.mark.parametrize("look", [look for look in LOOKS if look not in ("find by tag", "pause_tenant")])
async def test_a_name_with_nul_is_refused_or_finds_nothing(db: Database, look: str) -> None:
    """PostgreSQL cannot take it and says so; SQLite can, and has nothing of that name."""
    if db.dialect == "sqlite":
        assert await LOOKS[look](db, "a\x00b") in (Page([], None), Count(0, exact=True), [], 0, False)
    else:
        with pytest.raises(InvalidInput):
            await LOOKS[look](db, "a\x00b")
