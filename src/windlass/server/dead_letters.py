"""Dead letters: jobs that are out of attempts. List them, run them again, remove them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.errors import Conflict, Forbidden, InvalidInput, NotFound
from windlass.job import State
from windlass.queue import history
from windlass.queue.deadletters import Retried
from windlass.server.call import Call, Reply
from windlass.server.jobs import list_jobs
from windlass.server.newjobs import payload_text
from windlass.wire import people as wire
from windlass.wire.jobs import JobList

MOST = 1000
"""How many one request acts on."""


async def find(call: Call) -> JobList:
    """Answer a page of dead letters, newest first."""
    asked: wire.DeadQuery = call.query
    where = _filter(call, asked.queue, asked.task)
    return await list_jobs(call, where, asked)


async def retry_many(call: Call) -> wire.DeadAnswers:
    """Run dead letters again."""
    asked: wire.DeadRetryRequest = call.body
    payload = payload_text(call, asked.payload)
    ids = await _ids(call, asked)
    answers = await call.engine.acts.retry(ids, tenant=call.tenant, actor=call.actor(asked.reason), payload=payload)
    shown = [_retried(job_id, answer) for job_id, answer in zip(ids, answers, strict=True)]
    call.became = {"retried": [answer.id for answer in shown if answer.status == "retried"]}
    return wire.DeadAnswers(count=sum(answer.status == "retried" for answer in shown), jobs=shown)


async def purge_many(call: Call) -> wire.DeadAnswers:
    """Remove dead letters for good."""
    asked: wire.DeadRequest = call.body
    ids = await _ids(call, asked)
    gone = set(await call.engine.acts.purge(ids, tenant=call.tenant))
    call.became = {"purged": sorted(gone)}
    return wire.DeadAnswers(
        count=len(gone),
        jobs=[wire.DeadAnswer(id=job_id, status="purged" if job_id in gone else "not_found") for job_id in ids],
    )


async def purge(call: Call) -> Reply:
    """Remove one dead letter for good."""
    if not await call.engine.acts.purge([call.job_id], tenant=call.tenant):
        job = await history.get(call.engine.db, call.job_id, tenant=call.tenant)
        raise Conflict(f"Job {job.id} is no dead letter: it is {job.state}. Cancel it, or wait.")
    return Reply(204)


async def _ids(call: Call, asked: wire.DeadRequest) -> Sequence[UUID]:
    if asked.ids is not None:
        if asked.queue is not None or asked.task is not None:
            raise InvalidInput("ids", "queue or task is given too. Name the jobs, or say which.")
        ids = list(dict.fromkeys(asked.ids))
        if foreign := await call.foreign_jobs(ids):
            raise Forbidden(f"Job {min(foreign)} is in a queue that this key is not for. Leave it out.")
        call.subject = f"{len(ids)} jobs"
        return ids
    where = _filter(call, asked.queue, asked.task)
    found: list[UUID] = []
    cursor: UUID | None = None
    while len(found) < MOST:
        page = await history.find_keys(call.engine.db, where, limit=MOST - len(found), cursor=cursor)
        found += [key.id for key in page.found]
        cursor = page.next_cursor
        if cursor is None:
            break
    call.subject = f"{len(found)} jobs"
    return found


def _filter(call: Call, queue: str | None, task: str | None) -> history.Filter:
    return history.Filter(tenant=call.tenant, states=frozenset({State.DEAD}), queue=call.one_queue(queue), task=task)


def _retried(job_id: UUID, answer: Retried | Conflict | NotFound) -> wire.DeadAnswer:
    if isinstance(answer, Retried):
        return wire.DeadAnswer(id=job_id, status="retried")
    known = isinstance(answer, Conflict)
    return wire.DeadAnswer(id=job_id, status="conflict" if known else "not_found", detail=str(answer))
