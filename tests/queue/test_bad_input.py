"""Bad input: what a caller sends wrong is refused by name, without a driver's error, and nothing is stored."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from tests.clock import TestClock
from tests.queue.steps import Steps
from windlass.db import Database
from windlass.errors import AlreadyExists, InvalidInput, WindlassError
from windlass.ids import Ids
from windlass.queue import newjob, report
from windlass.queue.control import Actor, pause_tenant, resume_tenant
from windlass.queue.history import Count, Filter, Page, count, find
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob, check_json
from windlass.queue.report import Complete
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


LARGE = "[" + ",".join(["[]"] * 50_000) + "]"
"""Two of these are more than is checked on the event loop."""


@pytest.mark.parametrize("count", [1, 2])
async def test_rel_t9_much_json_is_not_checked_on_the_event_loop(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """T9: the payloads of a large batch, and the results of a large report, are walked by a thread."""
    here: list[bool] = []

    def watched(field: str, text: str, **bounds: Any) -> None:
        here.append(threading.current_thread() is threading.main_thread())
        check_json(field, text, **bounds)

    worker = await steps.worker()
    leases = [await steps.lease(worker) for _ in range(count)]
    for module in (newjob, report):
        monkeypatch.setattr(module, "check_json", watched)

    jobs = [NewJob(id=UUID(int=number + 1), task="t", payload=LARGE) for number in range(count)]
    await submit(steps.db, steps.lanes, jobs)
    await steps.report(*(Complete(**steps.named(lease), result=LARGE) for lease in leases))
    with pytest.raises(InvalidInput, match="nested more than 64 deep") as refused:
        await submit(steps.db, steps.lanes, [*jobs, NewJob(id=ONE, task="t", payload="[" * 65 + "]" * 65)])

    assert [count == 1] * (3 * count + 1) == here
    assert count == refused.value.index


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
