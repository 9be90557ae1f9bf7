"""Schedules by the million for `windlass bench schedules`, made by several processes and loaded as an import would.

Those in the background are of 120,960 different expressions, each in two zones, and fire months from now. Forty alike
come one after the other, as when one program makes a schedule for each of its customers.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from windlass.bench.peers.stage import PAYLOAD
from windlass.db import open_database
from windlass.ids import Ids
from windlass.queue.cron import At, Cron
from windlass.queue.schedule import NewSchedule, Policy
from windlass.queue.schedules import load

ALIKE = 40
PORTION = 50_000
"""Schedules that one process makes and loads before it says so."""
CHUNK = 5_000
MINUTE = 60
FAR_MONTHS = 3
"""The background fires in no month before this one from now."""
SPREAD = (60, 24, 28, 3, 2)
"""Minutes, hours, days, months and zones of the background: every one of them with every other."""
_TEXT = msgspec.json.encode(PAYLOAD).decode()

Kind = Literal["background", "minute", "herd"]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules to make: so many of a kind, numbered from `first`; `at` is when their slots begin, or the one slot."""

    kind: Kind
    count: int
    first: int = 0
    at: datetime | None = None
    minutes: int = 1


async def fill(url: str, batch: Batch, *, processes: int, said: Callable[[int], None]) -> None:
    """Load the schedules of `batch`; `said` hears how many are in, from time to time."""
    portions = [
        msgspec.structs.replace(batch, first=batch.first + start, count=min(PORTION, batch.count - start))
        for start in range(0, batch.count, PORTION)
    ]
    loop = asyncio.get_running_loop()
    done = 0
    # Forking a process with a loop in it would fork its connections.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for ended in asyncio.as_completed([loop.run_in_executor(pool, _portion, url, one) for one in portions]):
            done += await ended
            said(done)


def _portion(url: str, batch: Batch) -> int:
    return asyncio.run(_load(url, batch))


async def _load(url: str, batch: Batch) -> int:
    db = await open_database(url, connections=1)
    ids = Ids(db.now)
    try:
        for start in range(0, batch.count, CHUNK):
            numbers = range(batch.first + start, batch.first + min(start + CHUNK, batch.count))
            await load(db, [made(batch, number, ids) for number in numbers])
    finally:
        await db.close()
    return batch.count


def made(batch: Batch, number: int, ids: Ids) -> NewSchedule:
    """Return one schedule of the batch."""
    return NewSchedule(
        id=ids.new(),
        name=f"{batch.kind}-{number}",
        task="noop",
        payload=_TEXT,
        trigger=_trigger(batch, number),
        start_at=batch.at if batch.kind == "minute" else None,
        end_at=_end(batch) if batch.kind == "minute" else None,
        # A slot is not left out because workers are behind: what is measured is firing.
        policy=Policy(overlap="allow", catch_up="all"),
    )


def _trigger(batch: Batch, number: int) -> Cron | At:
    if batch.kind == "herd":
        assert batch.at is not None
        return At(batch.at)
    if batch.kind == "minute":
        return Cron(f"{number % MINUTE} * * * * *")
    digits = []
    number //= ALIKE
    for size in SPREAD:
        number, digit = divmod(number, size)
        digits.append(digit)
    minute, hour, day, month, zone = digits
    month = (datetime.now(UTC).month - 1 + FAR_MONTHS + month) % 12
    return Cron(f"{minute} {hour} {day + 1} {month + 1} *", "Europe/Berlin" if zone else "UTC")


def _end(batch: Batch) -> datetime:
    assert batch.at is not None
    return batch.at + timedelta(seconds=MINUTE * batch.minutes - 1)
