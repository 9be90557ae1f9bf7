"""The door with its real gate: keys made over HTTP, what they allow, and that a revoked one ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.clock import TestClock
from tests.server.frame import bearer, client_of
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.queue.keys import bootstrap, make_token
from windlass.server.app import create_app
from windlass.server.auth import Gate

API = "/api/v1"


@pytest.fixture
async def admin(engine: Engine, db: Database, clock: TestClock) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the first key, an admin's above tenants."""
    token = make_token()
    await bootstrap(db, token)
    door = create_app(engine, engine.settings, Gate(db, keys_required=True, clock=clock))
    async with client_of(door, token) as client:
        yield client


async def make_key(admin: httpx2.AsyncClient, **fields: object) -> dict[str, str]:
    """Make a key of tenant acme and return its id and the header that carries it."""
    await admin.post(f"{API}/tenants", json={"name": "acme"})
    made = await admin.post(f"{API}/keys", json={"name": "k", "tenant": "acme", **fields})
    assert made.status_code == 201, made.text
    return {"id": made.json()["id"], **bearer(made.json()["token"])}


async def test_a_key_does_what_its_role_says(admin: httpx2.AsyncClient) -> None:
    """A producer submits and reads, a worker works, in the tenant of the key; X-API-Key is the same, two are 401."""
    producer = await make_key(admin, role="producer")
    worker = await make_key(admin, role="worker")
    key = {"X-API-Key": worker["Authorization"].removeprefix("Bearer ")}

    made = await admin.post(f"{API}/jobs", json={"task": "t"}, headers=producer)
    shown = await admin.get(f"{API}/jobs/{made.json()['id']}", headers=producer)
    refused = await admin.post(f"{API}/jobs", json={"task": "t"}, headers=worker)
    plain = admin.build_request("POST", f"{API}/jobs/claim", json={"worker_id": "w"}, headers=key)
    del plain.headers["Authorization"]
    claimed = await admin.send(plain)
    both = await admin.post(f"{API}/jobs/claim", json={"worker_id": "w"}, headers={**producer, **key})

    assert [201, 200, 403] == [a.status_code for a in (made, shown, refused)]
    assert "acme" == shown.json()["tenant"]
    assert [made.json()["id"]] == [job["id"] for job in claimed.json()["jobs"]]
    assert 401 == both.status_code


async def test_a_key_of_a_queue_is_for_that_queue(admin: httpx2.AsyncClient) -> None:
    """Submitting to another queue or claiming from it is 403."""
    producer = await make_key(admin, role="producer", queues=["mail"])
    worker = await make_key(admin, role="worker", queues=["mail"])

    own = await admin.post(f"{API}/jobs", json={"task": "t", "queue": "mail"}, headers=producer)
    other = await admin.post(f"{API}/jobs", json={"task": "t"}, headers=producer)
    inside = await admin.post(
        f"{API}/jobs/batch", json={"jobs": [{"task": "t", "queue": "mail"}, {"task": "t"}]}, headers=producer
    )
    claimed = await admin.post(f"{API}/jobs/claim", json={"worker_id": "w", "queues": ["mail"]}, headers=worker)
    beyond = await admin.post(
        f"{API}/jobs/claim", json={"worker_id": "w", "queues": ["mail", "default"]}, headers=worker
    )

    assert [201, 403, 403] == [a.status_code for a in (own, other, inside)]
    assert [200, 403] == [claimed.status_code, beyond.status_code]


async def test_rel_t3_a_revoked_key_is_refused(admin: httpx2.AsyncClient, clock: TestClock) -> None:
    """Within five seconds everywhere; the answer is the one of a key that never was."""
    key = await make_key(admin, role="reader")
    before = await admin.get(f"{API}/jobs", headers=key)

    await admin.delete(f"{API}/keys/{key['id']}")
    clock.advance(5)
    after = await admin.get(f"{API}/jobs", headers=key)
    never = await admin.get(f"{API}/jobs", headers=bearer(make_token()))
    none = await admin.get(f"{API}/jobs", headers={"Authorization": ""})

    assert [200, 401, 401, 401] == [a.status_code for a in (before, after, never, none)]
    assert after.content == never.content == none.content


async def test_a_key_in_the_query_is_401(admin: httpx2.AsyncClient) -> None:
    """Also a good one, and beside a good one in the header; `key` is a filter of lists."""
    token = (await make_key(admin))["Authorization"].removeprefix("Bearer ")

    answers = [await admin.get(f"{API}/jobs?{name}={token}") for name in ("api_key", "token", "access_token")]
    filtered = await admin.get(f"{API}/jobs?key=mine")

    assert [401, 401, 401] == [answer.status_code for answer in answers]
    assert 200 == filtered.status_code
