"""Connections of a pool, taken and given back without a round of the event loop.

The pool's own ways make a task each, and whoever waits for one waits for two rounds: with a busy loop that is most of
what a short statement takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from windlass.db.postgres_errors import is_over, translated
from windlass.errors import Unavailable

CONNECT_TIMEOUT_S = 5.0


@asynccontextmanager
async def acquired(pool: asyncpg.Pool[Any]) -> AsyncIterator[Any]:
    """Give a connection for a block; Unavailable if there is none in time."""
    try:
        connection = await translated(_take, pool)
    except Unavailable as error:
        if isinstance(error.__cause__, TimeoutError) and pool.get_size() == pool.get_max_size():
            raise Unavailable(
                f"All {pool.get_max_size()} connections were in use for {CONNECT_TIMEOUT_S:g} s. Try again."
            ) from error
        raise
    try:
        yield connection
    except BaseException as error:
        if is_over(error):
            terminate(connection)
        raise
    finally:
        await _give_back(pool, connection)


async def _take(pool: asyncpg.Pool[Any]) -> Any:
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        return await pool.acquire()


async def _give_back(pool: asyncpg.Pool[Any], connection: Any) -> None:
    """Give a connection back at once; one whose statement is being cancelled when that is over.

    One that the pool closes, after many statements, is cut off if its server does not answer in time.
    """
    taken = connection._con  # not published
    with suppress(TimeoutError):
        if taken is None or taken._protocol._is_cancelling():
            await pool.release(connection, timeout=CONNECT_TIMEOUT_S)
            return
        taken._on_release()
        await connection._holder.release(CONNECT_TIMEOUT_S)


def terminate(connection: Any) -> None:
    """Cut a connection off."""
    with suppress(asyncpg.InterfaceError):  # broken, the pool has taken it back already
        connection.terminate()  # the server rolls back what it had
