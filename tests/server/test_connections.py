"""Nobody can hold all connections of a server: each kind of call that stays has its share of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from tests.server.frame import KeyRing, client_of
from tests.server.test_live import following, status
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.fair import Cap
from windlass.engine.outside import Outside
from windlass.ids import Ids
from windlass.server.app import CONNECTIONS, create_app

PATIENCE_S = 30.0


@pytest.mark.parametrize(
    ("connections", "shares"), [(CONNECTIONS, (9000, 5000, 4000)), (896, (806, 448, 358)), (1, (1, 1, 1))]
)
def test_rel_t15_caps_are_shares_of_the_connections(connections: int, shares: tuple[int, int, int]) -> None:
    """T15: waiting calls take nine tenths of the connections, a tenant's one half, a key's two fifths."""
    cap = Cap.of_connections("waiting calls", connections)

    assert shares == (cap.most, cap.each, cap.each_key)


@pytest.mark.one_kind
async def test_rel_t15_streams_and_waits_share_the_cap(db: Database) -> None:
    """T15: on a server that takes 10 connections a tenant has 5 waits and streams together; another has room."""
    engine = Engine(db, Settings(), name="scheduler_test_1", ids=Ids(), outside=Outside())
    door = create_app(engine, Settings(), cast(Any, KeyRing()), connections=10)
    async with engine.running(), AsyncExitStack() as opened, asyncio.timeout(PATIENCE_S):
        for key in ("reader.a", "producer.a", "admin.a", "admin.a", "operator.a"):
            assert 200 == await status(await opened.enter_async_context(following(door, key)))
        stream = await status(await opened.enter_async_context(following(door, "reader.a")))
        client = await opened.enter_async_context(client_of(door, "worker.a"))
        wait = await client.post("/api/v1/jobs/claim", json={"worker_id": "ann", "wait": 5})
        without_wait = await client.post("/api/v1/jobs/claim", json={"worker_id": "ann"})
        other = await status(await opened.enter_async_context(following(door, "reader.b")))

    assert (429, 429, 204, 200) == (stream, wait.status_code, without_wait.status_code, other)
