"""Signatures: which payloads a task takes, what is remembered of them, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from tests.clock import TestClock, no_pause
from windlass.config import Settings
from windlass.db import Database
from windlass.engine import signatures as module
from windlass.engine.fair import TURN_S
from windlass.engine.outside import Outside
from windlass.engine.payloads import refusal
from windlass.engine.signatures import Signatures
from windlass.engine.wake import Hint, Wake
from windlass.errors import InvalidInput, TooMany
from windlass.ids import Ids
from windlass.queue import tasks, tenants
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.wire.tasks import Parameter, Signature

ADD = Signature(parameters={"x": Parameter(types=("integer",), required=True), "y": Parameter(types=("integer",))})
SHOUT = Signature(parameters={"text": Parameter(types=("string", "null"), required=True)}, single=True)
ANY = Signature(parameters={"first": Parameter(required=True)}, extra=True)


def job(payload: Any, task: str = "add", tenant: str = "default") -> NewJob:
    """Return a job to submit."""
    return NewJob(id=uuid4(), task=task, tenant=tenant, payload=msgspec.json.encode(payload).decode())


class Elapsed:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def signatures_of(db: Database, elapsed: Elapsed | None = None, *, wake: Wake | None = None) -> Signatures:
    """Return what one server knows."""
    outside = Outside() if elapsed is None else Outside(monotonic=elapsed)
    return Signatures(db, Settings(), wake=wake or Wake(db, server=uuid4(), outside=outside), outside=outside)


@pytest.mark.parametrize(
    ("signature", "payload", "field"),
    [
        (ADD, {"x": 1}, None),
        (ADD, {"x": 1, "y": 2}, None),
        (ADD, {"x": 1, "y": 2.0}, "payload.y"),
        (ADD, {}, "payload.x"),
        (ADD, None, "payload.x"),
        (ADD, {"x": "1"}, "payload.x"),
        (ADD, {"x": True}, "payload.x"),
        (ADD, {"x": 1.5}, "payload.x"),
        (ADD, {"x": None}, "payload.x"),
        (ADD, {"x": 1, "z": 2}, "payload.z"),
        (ADD, [1], "payload"),
        (ADD, 5, "payload"),
        (SHOUT, "hi", None),
        (SHOUT, {"text": None}, None),
        (SHOUT, 5, "payload.text"),
        (ANY, {"first": [], "second": {}}, None),
        (ANY, {"second": {}}, "payload.first"),
        (Signature(), None, None),
        (Signature(), {}, None),
        (Signature(), {"x": 1}, "payload.x"),
        (Signature(parameters={"x": Parameter(types=("number",))}), {"x": 1}, None),
        (Signature(parameters={"x": Parameter(types=("object",))}), {"x": {}}, None),
        (Signature(parameters={"x": Parameter(types=("array",))}), {"x": {}}, "payload.x"),
    ],
)
def test_a_payload_fits_a_signature_or_the_argument_is_named(
    signature: Signature, payload: Any, field: str | None
) -> None:
    """Required ones must be there, types must match, unknown names only where they are taken."""
    problem = refusal([signature], msgspec.json.encode(payload).decode(), task="t")

    assert field == (None if problem is None else problem.field)


def test_one_of_several_signatures_is_enough() -> None:
    """While two builds are about, what either of them takes is good; the newest says what is wrong."""
    new = Signature(parameters={"x": Parameter(types=("string",), required=True)})

    both = [refusal([ADD, new], text, task="add") for text in ('{"x": 1}', '{"x": "1"}')]
    problem = refusal([ADD, new], '{"x": []}', task="add")

    assert [None, None] == both
    assert problem is not None
    assert "it is array; task add takes string." == problem.problem


async def test_what_this_server_was_told_counts_at_once(db: Database) -> None:
    """Own registrations are known without a look; other tasks and tenants are not checked; a list names the job."""
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)
    await known.check([job({"wrong": 1})])

    await known.publish("default", {"add": ADD})
    await known.check([job({"x": 1}), job({"wrong": 1}, "other"), job({"wrong": 1}, tenant="b")])
    with pytest.raises(InvalidInput) as one:
        await known.check([job({"wrong": 1})])
    with pytest.raises(InvalidInput) as second:
        await known.check([job({"x": 1}), job({"x": "1"})])

    assert ("payload.x", None) == (one.value.field, one.value.index)
    assert ("payload.x", 1) == (second.value.field, second.value.index)


async def test_what_another_server_was_told_is_known_after_a_look(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server looks at its first submit, then at most every few seconds, and a submit waits for it only then."""
    looks = 0
    recent = tasks.recent

    async def counted(*given: Any, **more: Any) -> Any:
        nonlocal looks
        looks += 1
        return await recent(*given, **more)

    monkeypatch.setattr(tasks, "recent", counted)
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)
    for _ in range(3):
        await known.check([job({"wrong": 1})])
    await tasks.publish(db, "default", {"add": msgspec.json.encode(ADD).decode()})

    await known.check([job({"wrong": 1})])
    elapsed.now += module.LOOK_S + 1
    known._absent[("default", "add")] = elapsed.now
    await known.check([job({"wrong": 1})])
    await asyncio.wait_for(known._looking["default"], 30)

    assert 2 == looks
    with pytest.raises(InvalidInput, match="x"):
        await known.check([job({"wrong": 1})])


async def test_a_signature_counts_for_a_day(db: Database, clock: TestClock) -> None:
    """What no worker has published for a day refuses nothing any more."""
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)
    await known.publish("default", {"add": ADD})
    with pytest.raises(InvalidInput, match="x"):
        await known.check([job({})])

    elapsed.now += tasks.VALID_MS / 1000
    clock.advance(tasks.VALID_MS / 1000 + 60)

    await known.check([job({})])


async def test_a_worker_that_is_heard_keeps_its_signatures_alive(db: Database) -> None:
    """A worker registers once and runs for weeks: its heartbeats renew what it has published."""
    elapsed, session = Elapsed(), uuid4()
    known = signatures_of(db, elapsed)
    await known.publish("default", {"add": ADD}, session=session)

    elapsed.now += tasks.VALID_MS / 1000 - 1
    await known.heard("default", session)
    await known.heard("default", uuid4())
    await known.heard("other", session)
    elapsed.now += 2

    with pytest.raises(InvalidInput, match="x"):
        await known.check([job({})])


async def test_the_newest_signatures_of_a_task_are_remembered(db: Database, clock: TestClock) -> None:
    """However many builds were published, so many are kept in memory."""
    known = signatures_of(db)
    await known.check([job({})])
    for number in range(module.MOST_EACH + 1):
        clock.advance(1)
        await known.publish("default", {"add": Signature(parameters={f"x{number}": Parameter(required=True)})})

    await known.check([job({f"x{module.MOST_EACH}": 1}), job({"x1": 1})])
    with pytest.raises(InvalidInput, match="payload"):
        await known.check([job({"x0": 1})])


async def test_a_tenant_made_again_is_not_bound_to_the_old_ones_tasks(db: Database, clock: TestClock) -> None:
    """M1: also a server that remembers signatures of a deleted tenant goes by what its next owner publishes."""
    elapsed = Elapsed()
    here, there = signatures_of(db, elapsed), signatures_of(db, elapsed)
    session = uuid4()
    await tenants.create(db, "acme", pause=no_pause)
    await here.publish("acme", {"add": ADD}, session=session)
    for server in (here, there):
        with pytest.raises(InvalidInput):
            await server.check([job({}, tenant="acme")])

    clock.advance(module.RENEW_S)
    elapsed.now += module.RENEW_S
    await tenants.delete(db, Lanes(), Ids(db.now), "acme", pause=no_pause)
    here.forget("acme")
    await here.heard("acme", session)
    await tenants.create(db, "acme", pause=no_pause)

    for server in (here, there):
        await server.check([job({}, tenant="acme")])
    assert [] == (await tasks.list_tasks(db, "acme")).tasks


async def test_the_first_submit_under_a_deleted_name_minds_no_late_worker(db: Database) -> None:
    """M1: what the last owner's worker publishes after the delete counts neither then nor later."""
    here, there = signatures_of(db), signatures_of(db)
    await tenants.create(db, "acme", pause=no_pause)
    await tenants.delete(db, Lanes(), Ids(db.now), "acme", pause=no_pause)
    await here.publish("acme", {"add": ADD})

    for server in (here, there):
        await server.check([job({}, tenant="acme")])
    await Lanes().resolve(db, [job({}, tenant="acme").lane])
    for server in (here, there):
        await server.check([job({}, tenant="acme")])


async def published(db: Database, tenant: str, **signatures: Signature) -> None:
    """Publish tasks at another server."""
    texts = {name: msgspec.json.encode(signature).decode() for name, signature in signatures.items()}
    await tasks.publish(db, tenant, texts)


async def test_rel_h4_what_other_tenants_publish_is_not_read(db: Database) -> None:
    """A server knows the tasks of tenants that are asked for here, and of no others."""
    for tenant in ("a", "b"):
        await published(db, tenant, add=ADD, shout=SHOUT)
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)

    with pytest.raises(InvalidInput, match="x"):
        await known.check([job({}, tenant="a")])
    elapsed.now += 2 * module.LOOK_S + 1
    with pytest.raises(InvalidInput, match="x"):
        await known.check([job({}, tenant="a")])

    assert {"a": {"add", "shout"}} == {tenant: set(of.builds) for tenant, of in known._known.items()}


@pytest.mark.parametrize(
    ("hint", "looked"),
    [
        ({"published": ["a"]}, ["a"]),
        ({"published": ["a", "b"]}, ["a", "b"]),
        ({"published": ["c"]}, []),
        ({"tasks": True}, ["a", "b"]),
    ],
)
async def test_rel_t15_what_one_tenant_publishes_costs_others_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch, hint: dict[str, Any], looked: list[str]
) -> None:
    """T15: a hint names its tenant; only the submits of that tenant look anew."""
    wake = Wake(db, server=uuid4(), outside=Outside())
    known = signatures_of(db, wake=wake)
    jobs = {tenant: [job({"x": 1}, tenant=tenant)] for tenant in ("a", "b")}
    for tenant in jobs:
        await published(db, tenant, add=ADD)
        await known.check(jobs[tenant])
    recent, found = tasks.recent, []

    async def counted(db: Database, tenant: str, **more: Any) -> Any:
        found.append(tenant)
        return await recent(db, tenant, **more)

    monkeypatch.setattr(tasks, "recent", counted)
    wake._hear(msgspec.json.encode(Hint(uuid4(), **hint)).decode())
    for _ in range(2):
        for tenant in jobs:
            await known.check(jobs[tenant])

    assert looked == found


async def test_rel_h4_what_is_remembered_of_signatures_has_a_bound(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenants asked for longest ago are forgotten, and read again when they are asked for; one request has all."""
    for tenant in ("a", "b", "c"):
        await published(db, tenant, add=ADD)
    monkeypatch.setattr(module, "MOST_BYTES", 2 * len(msgspec.json.encode(ADD)))
    known = signatures_of(db)
    for tenant in ("a", "b", "a", "c"):
        with pytest.raises(InvalidInput, match="x"):
            await known.check([job({}, tenant=tenant)])

    found = await known._builds({(tenant, "add") for tenant in ("a", "b", "c")})

    assert {("a", "add"), ("b", "add"), ("c", "add")} == set(found)
    assert 2 == len(known._known)


async def test_rel_h4_a_tenant_publishes_so_much_in_a_minute(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """New signatures have a budget of bytes; what is known already costs nothing, and other tenants are let be."""
    monkeypatch.setattr(tasks, "MOST_BYTES", 2 * len(msgspec.json.encode(ADD)))
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)
    await known.publish("a", {"add": ADD, "sum": ADD})

    with pytest.raises(TooMany) as refused:
        await known.publish("a", {"more": ADD})
    await known.publish("a", {"add": ADD})
    await known.publish("b", {"more": ADD})
    elapsed.now += module.WRITES_S + 1
    await known.publish("a", {"more": ADD})

    assert module.WRITES_S == refused.value.retry_after_s


async def test_rel_h4_of_one_tenant_no_more_is_remembered_than_is_stored(
    db: Database, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told longest ago is forgotten, here as in the database, also where there is but one tenant."""
    monkeypatch.setattr(tasks, "MOST_BUILDS", 2)
    elapsed = Elapsed()
    known = signatures_of(db, elapsed)
    for name in ("first", "second", "third"):
        await known.publish("a", {name: ADD})
        elapsed.now += 1
        clock.advance(1)

    assert {"second", "third"} == set(known._known["a"].builds)


@pytest.mark.one_kind
async def test_rel_h4_what_many_workers_publish_is_remembered_once(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the sessions of a fleet only their names are kept, and of these so many."""
    monkeypatch.setattr(module, "MOST_SESSIONS", 3)
    known = signatures_of(db)

    for _ in range(4):
        await known.publish("default", {"add": ADD}, session=uuid4())

    [workers] = known._workers.values()
    assert (3, 1) == (len(workers.sessions), len(workers.told))


async def test_a_long_check_gives_way(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the jobs of a large request others get their turn."""
    elapsed, turns = Elapsed(), 0
    known = signatures_of(db, elapsed)
    await known.publish("default", {"add": ADD})
    going_on = True

    async def other() -> None:
        nonlocal turns
        while going_on:
            turns += 1
            await asyncio.sleep(0)

    def slow(*_: Any, **__: Any) -> None:
        elapsed.now += 2 * TURN_S

    monkeypatch.setattr(module, "refusal", slow)
    beside = asyncio.create_task(other())
    await known.check([job({"x": 1})] * 5)
    going_on = False
    await beside

    assert 5 <= turns


async def test_rel_t9_reading_many_signatures_gives_way(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """T9: what is published of a task is decoded in one go at most, also for what tasks give."""
    elapsed, turns = Elapsed(), 0
    known = signatures_of(db, elapsed)
    await known.publish("default", {str(number): ADD for number in range(5)})
    newest_first = module._newest_first

    def slow(*given: Any) -> Any:
        elapsed.now += 2 * TURN_S
        return newest_first(*given)

    async def counted(_: str) -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(module, "_newest_first", slow)
    monkeypatch.setattr(known._loop_turns, "wait", counted)
    jobs = [job({"x": 1}, str(number)) for number in range(5)]

    await known.check(jobs)
    checked = turns
    await known.given({(one.tenant, one.task) for one in jobs})

    assert (5, 10) == (checked, turns)
