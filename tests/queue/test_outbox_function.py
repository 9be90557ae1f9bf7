"""The functions of a shared PostgreSQL, as an application sees them: what they refuse, and how little they need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.clock import START, TestClock
from tests.databases import connected
from tests.queue import said
from tests.queue.steps import Steps
from windlass.db import Database
from windlass.job import State

ENQUEUE = "SELECT windlass.enqueue($1, CAST($2::text AS json), CAST($3::text AS jsonb))"
GRANTS = """
GRANT USAGE ON SCHEMA windlass TO {role};
GRANT EXECUTE ON FUNCTION windlass.enqueue(text, json, jsonb), windlass.finish(uuid, integer, json) TO {role};
"""


@pytest.fixture
async def application(postgres_url: str) -> AsyncIterator[Any]:
    """A connection of an application, as the owner of everything; its database is on the clock of the tests."""
    async with connected(postgres_url) as connection:
        await connection.execute(f"SET windlass.now = '{START.isoformat()}'")
        yield connection


@pytest.fixture
async def role(application: Any) -> AsyncIterator[str]:
    """A role that was never granted anything, dropped afterwards."""
    name = f"windlass_app_{uuid4().hex[:12]}"
    try:
        await application.execute(f"CREATE ROLE {name}")
    except asyncpg.InsufficientPrivilegeError:
        pytest.skip("the user of the tests may not create roles")
    yield name
    await application.execute("RESET SESSION AUTHORIZATION")
    await application.execute(f"DROP OWNED BY {name}")
    await application.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("", None, "{}"), "task: 0 characters"),
        ((None, None, "{}"), "task: 0 characters"),
        (("x" * 201, None, "{}"), "task: 201 characters"),
        (("t", None, "[]"), "options: an object"),
        (("t", None, None), "options: an object"),
        (("t", None, '{"colour": 1}'), '"colour"'),
        (("t", None, '{"concurrency_key": "k"}'), "concurrency_key: it would limit nothing yet. Leave it out"),
        (("t", '"' + "x" * 262_144 + '"', "{}"), "payload: 262146 bytes"),
    ],
)
async def test_enqueue_refuses_what_is_cheap_to_see(application: Any, arguments: Any, problem: str) -> None:
    """The caller's own statement fails, with what is wrong, and nothing is written."""
    with pytest.raises(asyncpg.PostgresError) as refused:
        await application.fetchval(ENQUEUE, *arguments)

    assert problem in str(refused.value)
    assert 0 == await application.fetchval("SELECT count(*) FROM windlass.outbox")


async def test_the_payload_is_kept_as_written(application: Any) -> None:
    """S9: byte for byte, spaces and order too."""
    text = '{"b":  1, "a": "\\u0000"}'

    await application.fetchval(ENQUEUE, "t", text, "{}")

    assert text == await application.fetchval("SELECT payload FROM windlass.outbox")


async def test_the_id_tells_its_time(application: Any) -> None:
    """It is a UUIDv7, as every id of a job, so that jobs sort by it."""
    await application.execute("RESET windlass.now")

    ids = [await application.fetchval(ENQUEUE, "t", None, "{}") for _ in range(20)]

    assert [7] * 20 == [made.version for made in ids]
    assert ids == sorted(ids)


async def test_a_tenant_may_be_named(postgres_db: Database, clock: TestClock, application: Any) -> None:
    """The job is that tenant's."""
    job_id = await application.fetchval(ENQUEUE, "t", None, '{"tenant": "acme"}')

    await said.relay(postgres_db)

    assert "acme" == (await Steps(postgres_db, clock).get(job_id, tenant="acme")).tenant


@pytest.mark.parametrize("call", ["SELECT windlass.enqueue('t')", "SELECT windlass.finish(gen_random_uuid(), 1)"])
async def test_nobody_may_call_them_without_a_grant(application: Any, role: str, call: str) -> None:
    """Neither function is for everybody, also where the schema is."""
    await application.execute(f"GRANT USAGE ON SCHEMA windlass TO {role}")
    await application.execute(f"SET SESSION AUTHORIZATION {role}")

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await application.execute(call)


async def test_two_grants_are_enough(postgres_db: Database, clock: TestClock, application: Any, role: str) -> None:
    """S11: a role with these grants enqueues and finishes, and sees no table."""
    steps = Steps(postgres_db, clock)
    lease = await steps.running(await steps.worker())
    await application.execute(GRANTS.format(role=role))
    await application.execute(f"SET SESSION AUTHORIZATION {role}")

    job_id = await application.fetchval("SELECT windlass.enqueue('mail', '{\"to\": 1}', '{\"queue\": \"post\"}')")
    await application.execute("SELECT windlass.finish($1, $2, '{\"n\": 1}')", lease.id, lease.fence)
    for table in ("outbox", "queue", "job", "lane", "jobs"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await application.execute(f"SELECT * FROM windlass.{table}")

    await said.relay(postgres_db)
    assert State.QUEUED is await steps.state_of(job_id)
    assert State.SUCCEEDED is await steps.state_of(lease.id)


async def test_another_schema_in_the_path_changes_nothing(
    postgres_db: Database, clock: TestClock, application: Any
) -> None:
    """The functions run with the rights of their owner, so a caller's search path must not lead them elsewhere."""
    await application.execute("CREATE TEMP TABLE outbox (id uuid)")
    await application.execute("CREATE FUNCTION pg_temp.length(text) RETURNS int LANGUAGE sql AS 'SELECT 1/0'")
    await application.execute("SET search_path = pg_temp, windlass, public")

    job_id = await application.fetchval(ENQUEUE, "t", None, "{}")

    await said.relay(postgres_db)
    assert State.QUEUED is await Steps(postgres_db, clock).state_of(job_id)


@pytest.mark.parametrize("late", ["other fence", "given back", "ended", "finished", "unknown"])
async def test_a_finish_without_its_lease_is_refused(
    postgres_db: Database, clock: TestClock, application: Any, late: str
) -> None:
    """R13: the exception rolls the application's work back; it says why, and has a code of its own."""
    steps = Steps(postgres_db, clock)
    lease = await steps.running(await steps.worker())
    if late == "given back":
        await steps.release(lease)
    elif late == "ended":
        await steps.complete(lease)
    elif late == "finished":
        await said.finish(postgres_db, lease.id, lease.fence)
    job_id = uuid4() if late == "unknown" else lease.id
    fence = lease.fence + (late == "other fence")

    with pytest.raises(asyncpg.PostgresError) as refused:
        await application.execute("SELECT windlass.finish($1, $2)", job_id, fence)

    assert ("WL409", True) == (refused.value.sqlstate, str(job_id) in str(refused.value))


async def test_a_result_that_is_too_large_is_refused(postgres_db: Database, clock: TestClock, application: Any) -> None:
    """S9: results have the same limit as in a report."""
    steps = Steps(postgres_db, clock)
    lease = await steps.running(await steps.worker())

    with pytest.raises(asyncpg.PostgresError, match="result: 262146 bytes"):
        await application.execute(
            "SELECT windlass.finish($1, $2, CAST($3::text AS json))", lease.id, lease.fence, '"' + "x" * 262_144 + '"'
        )
