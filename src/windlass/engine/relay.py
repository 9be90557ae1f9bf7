"""Relay: the duty that does what applications have said in transactions of their own.

Rows of the outbox (queue/outbox.py) are seen only after their commit. Jobs are stored by the ordinary path, in the same
transaction that removes their rows, so a relay that dies in between leaves both or neither; finishes end their jobs.
A row that can never be done is set aside with its error, one that cannot be done now is put off: neither keeps others
waiting. Nobody tells of a commit: with a NOTIFY in the application's transaction all commits of the cluster would wait
for each other. So the duty looks twice a second, and ten times a second while rows come.
A payload that the task's workers would refuse is stored all the same: nobody is there to hear a refusal, and a dead
letter says more, to more people, than a row in a table; the next version of the worker may take it, too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Raw

from windlass import log
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.asked import new_job
from windlass.engine.duty import Duty, Ran, Tell, Waking, tell
from windlass.engine.looks import Looks
from windlass.errors import DutyLost, InvalidInput, TooMany, Unavailable, WindlassError
from windlass.queue import outbox
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.outbox import Kept, Waiting
from windlass.queue.submit import Submitted, submit_requests
from windlass.wire.base import NOT_YET
from windlass.wire.jobs import JobRequest

RELAY = "relay"
LOOK_S = 0.5
SOON_S = 0.1
"""How often it looks while rows come."""
SOON_COUNT = 50
"""So many looks find nothing before it looks more seldom again."""
PUT_OFF_MS = 10_000
"""A row that a cap keeps out is tried again after this."""

Stored = Callable[[Sequence[Sequence[NewJob]], Sequence[list[Submitted] | WindlassError]], None]
"""Told, after the commit, what was stored."""
Fill = Callable[[Sequence[NewJob]], Awaitable[list[NewJob]]]
"""Gives jobs what their tasks have for the options that they left open."""
Asked = tuple[Waiting, NewJob]
"""A row, and the job that it asks for."""

logger = logging.getLogger("windlass")


class Relay:
    """Reads the outbox and does what stands there, under the lease of its duty."""

    def __init__(
        self,
        lanes: Lanes,
        settings: Settings,
        looks: Looks,
        *,
        wake: Waking,
        fill: Fill,
        stored: Stored,
        ended: Tell,
    ) -> None:
        self._lanes = lanes
        self._looks = looks
        self._settings = settings
        self._wake = wake
        self._fill = fill
        self._stored = stored
        self._ended = ended
        self._soon_count = 0

    @property
    def duty(self) -> Duty:
        """The duty, for the loops that hold it."""
        return Duty(RELAY, self.run, LOOK_S, outbox.RELAY_BATCH, self._looks)

    async def run(self, db: Database, most: int) -> Ran:
        """Do one batch of rows."""
        if not self._soon_count and (rest_s := await self._looks.rest_s(RELAY, db)) > 0:
            return Ran(0, rest_s)
        self._looks.acted(RELAY)
        rows, unread = await outbox.waiting(db, limit=most)
        for kept in unread:
            log.event("outbox.refused", row=kept.name, message=kept.error)
        await outbox.keep(db, unread)
        count = len(unread)
        count += await self._enqueue(db, [row for row in rows if row.kind == "enqueue"])
        count += await self._finish(db, [row for row in rows if row.kind == "finish"])
        self._soon_count = SOON_COUNT if count else max(0, self._soon_count - 1)
        # What is left of a full batch is a rival's: it is not asked for again without a pause.
        if count and len(rows) + len(unread) >= most:
            return Ran(count, 0.0)
        return Ran(count, SOON_S if self._soon_count else None)

    async def _enqueue(self, db: Database, rows: Sequence[Waiting]) -> int:
        """Store the jobs of rows; return how many rows wait no more, or wait for later."""
        asked: list[Asked] = []
        refused: list[tuple[Waiting, WindlassError]] = []
        for row in rows:
            try:
                asked.append((row, job_of(row, self._settings)))
            except Exception as problem:
                # Also what nobody foresaw: one row must not stop all that come after it.
                refused.append((row, _refusal(problem)))
        filled = await self._fill([job for _, job in asked])
        asked = [(row, job) for (row, _), job in zip(asked, filled, strict=True)]
        answers = await self._submit(db, asked)
        refused += [
            (row, answer) for (row, _), answer in zip(asked, answers, strict=True) if isinstance(answer, WindlassError)
        ]
        await outbox.keep(db, [_kept(row, error) for row, error in refused])
        return len(refused) + sum(bool(answer) for answer in answers if not isinstance(answer, WindlassError))

    async def _submit(self, db: Database, asked: Sequence[Asked]) -> list[list[Submitted] | WindlassError]:
        if not asked:
            return []
        requests = [[job] for _, job in asked]
        try:
            answers = await submit_requests(db, self._lanes, requests, take=outbox.taking([row for row, _ in asked]))
        except (Unavailable, DutyLost):
            raise
        except Exception as error:
            if len(asked) == 1:
                logger.exception("A row of the outbox could not be stored.")
                return [_refusal(error)]
            # One of them cannot be stored: find it by halves, so that the others are.
            middle = len(asked) // 2
            return [*await self._submit(db, asked[:middle]), *await self._submit(db, asked[middle:])]
        # A request that another relay stores has no answers of ours.
        mine = [number for number, answer in enumerate(answers) if answer]
        self._stored([requests[number] for number in mine], [answers[number] for number in mine])
        return answers

    async def _finish(self, db: Database, rows: Sequence[Waiting]) -> int:
        """End the jobs of rows; return how many rows wait no more."""
        try:
            moved, nowhere = await outbox.end_finished(db, rows)
        except (Unavailable, DutyLost):
            raise
        except Exception as error:
            if len(rows) == 1:
                logger.exception("A finish of the outbox could not be done.")
                await outbox.keep(db, [_kept(rows[0], _refusal(error))])
                return 1
            middle = len(rows) // 2
            return await self._finish(db, rows[:middle]) + await self._finish(db, rows[middle:])
        tell(self._wake, moved)
        await self._ended(moved)
        for job_id in nowhere:
            log.event("outbox.refused", row=str(job_id), message="It finishes a lease that does not wait for it.")
        return len(moved) + len(nowhere)


def job_of(row: Waiting, settings: Settings) -> NewJob:
    """Return the job that a row asks for, with the row's id; InvalidInput if it cannot be one."""
    try:
        options = msgspec.json.decode(row.options or "{}", type=dict[str, Raw])
        for name in NOT_YET.keys() & options:
            raise InvalidInput(name, NOT_YET[name])
        text = msgspec.json.encode({**options, "task": row.task})
        asked = msgspec.json.decode(text, type=JobRequest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput("options", f"{error}") from None
    if row.payload is not None:
        asked = msgspec.structs.replace(asked, payload=Raw(row.payload.encode("utf-8", "surrogatepass")))
    job = new_job(asked, settings, job_id=row.id, tenant=asked.tenant or row.tenant)
    return msgspec.structs.replace(job, asked_ms_ago=row.age_ms)


def _refusal(error: Exception) -> WindlassError:
    return error if isinstance(error, WindlassError) else InvalidInput("outbox", f"it cannot be stored: {error}.")


def _kept(row: Waiting, error: WindlassError) -> Kept:
    """Put off what a cap keeps out, set aside what can never be done."""
    later = isinstance(error, TooMany)
    log.event("outbox.put_off" if later else "outbox.refused", row=str(row.id), task=row.task, message=str(error))
    return Kept(row.name, wait_ms=PUT_OFF_MS) if later else Kept(row.name, error=str(error))
