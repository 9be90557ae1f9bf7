"""Relay: the duty that does what applications have said in transactions of their own.

Rows of the outbox (queue/outbox.py) are seen only after their commit. Jobs are stored by the ordinary path, in the same
transaction that removes their rows, so a relay that dies in between leaves both or neither; finishes end their jobs.
A row that can never be done is set aside with its error, one that cannot be done now is put off: neither keeps others
waiting. A hint of the commit wakes the duty at once; without one it looks twice a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from windlass import log
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.asked import new_job
from windlass.engine.duty import Duty, Ran, Waking, tell
from windlass.errors import DutyLost, InvalidInput, TooMany, Unavailable, WindlassError
from windlass.queue import outbox
from windlass.queue.lanes import Lanes
from windlass.queue.moves import Moved
from windlass.queue.newjob import NewJob
from windlass.queue.outbox import Kept, Waiting
from windlass.queue.submit import Submitted, submit_requests
from windlass.wire.jobs import JobRequest

RELAY = "relay"
LOOK_S = 0.5
PUT_OFF_MS = 10_000
"""A row that a cap keeps out is tried again after this."""

Stored = Callable[[Sequence[Sequence[NewJob]], Sequence[list[Submitted] | WindlassError]], None]
"""Told, after the commit, what was stored."""

logger = logging.getLogger("windlass")


class Relay:
    """Reads the outbox and does what stands there, under the lease of its duty."""

    def __init__(
        self,
        lanes: Lanes,
        settings: Settings,
        *,
        wake: Waking,
        stored: Stored,
        ended: Callable[[Sequence[Moved]], None],
    ) -> None:
        self._lanes = lanes
        self._settings = settings
        self._wake = wake
        self._stored = stored
        self._ended = ended
        self._hinted = asyncio.Event()

    @property
    def duty(self) -> Duty:
        """The duty, for the loops that hold it."""
        return Duty(RELAY, self.run, LOOK_S, outbox.RELAY_BATCH, hint=self._hint)

    def notice(self) -> None:
        """Look at once: somebody has committed."""
        self._hinted.set()

    async def _hint(self) -> None:
        await self._hinted.wait()

    async def run(self, db: Database, most: int) -> Ran:
        """Do one batch of rows."""
        # Before the look: what is committed while we look is looked for again.
        self._hinted.clear()
        rows = await outbox.waiting(db, limit=most)
        await self._enqueue(db, [row for row in rows if row.kind == "enqueue"])
        await self._finish(db, [row for row in rows if row.kind == "finish"])
        return Ran(len(rows), 0.0 if len(rows) >= most else None)

    async def _enqueue(self, db: Database, rows: Sequence[Waiting]) -> None:
        jobs: list[NewJob] = []
        refused: list[tuple[Waiting, WindlassError]] = []
        asked: list[Waiting] = []
        for row in rows:
            try:
                jobs.append(job_of(row, self._settings))
                asked.append(row)
            except InvalidInput as problem:
                refused.append((row, problem))
        answers = await self._submit(db, [[job] for job in jobs])
        refused += [
            (row, answer) for row, answer in zip(asked, answers, strict=True) if isinstance(answer, WindlassError)
        ]
        await outbox.keep(db, [_kept(row, error) for row, error in refused])

    async def _submit(
        self, db: Database, requests: Sequence[Sequence[NewJob]]
    ) -> list[list[Submitted] | WindlassError]:
        if not requests:
            return []
        try:
            answers = await submit_requests(db, self._lanes, requests, take=outbox.take)
        except (Unavailable, DutyLost):
            raise
        except Exception as error:
            if len(requests) == 1:
                logger.exception("A row of the outbox could not be stored.")
                problem = InvalidInput("outbox", f"it cannot be stored: {error}")
                return [error if isinstance(error, WindlassError) else problem]
            answers = []
        if not answers:
            # One of them cannot be stored: find it by halves, so that the others are.
            middle = len(requests) // 2
            return [*await self._submit(db, requests[:middle]), *await self._submit(db, requests[middle:])]
        # A request that another relay stores has no answers of ours.
        mine = [number for number, answer in enumerate(answers) if answer]
        self._stored([requests[number] for number in mine], [answers[number] for number in mine])
        return answers

    async def _finish(self, db: Database, rows: Sequence[Waiting]) -> None:
        moved, nowhere = await outbox.end_finished(db, rows)
        tell(self._wake, moved)
        self._ended(moved)
        for job_id in nowhere:
            log.event("outbox.refused", row=str(job_id), message="It finishes a lease that does not wait for it.")


def job_of(row: Waiting, settings: Settings) -> NewJob:
    """Return the job that a row asks for, with the row's id; InvalidInput if it cannot be one."""
    try:
        options = msgspec.json.decode(row.options or "{}", type=dict[str, Raw])
        text = msgspec.json.encode({**options, "task": row.task})
        asked = msgspec.json.decode(text, type=JobRequest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput("options", f"{error}") from None
    if row.payload is not None:
        asked = msgspec.structs.replace(asked, payload=Raw(row.payload.encode("utf-8", "surrogatepass")))
    return new_job(asked, settings, job_id=row.id, tenant=asked.tenant or row.tenant)


def _kept(row: Waiting, error: WindlassError) -> Kept:
    """Put off what a cap keeps out, set aside what can never be done."""
    later = isinstance(error, TooMany)
    log.event("outbox.put_off" if later else "outbox.refused", row=str(row.id), task=row.task, message=str(error))
    return Kept(row.id, wait_ms=PUT_OFF_MS) if later else Kept(row.id, error=str(error))
