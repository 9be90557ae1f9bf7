"""Jobs, for users: submit, look, wait, cancel, change, pause, retry, replay."""

from __future__ import annotations

import msgspec

from windlass.errors import InvalidInput
from windlass.queue import submit as step
from windlass.server.call import Call, Reply
from windlass.server.newjobs import new_job
from windlass.wire import jobs as wire


async def submit(call: Call) -> Reply:
    """Store a job, or answer with the one that its key named before."""
    asked: wire.JobRequest = call.body
    header = call.headers.get("idempotency-key")
    if header is not None:
        if asked.idempotency_key not in (None, header):
            raise InvalidInput("idempotency_key", "it differs from the header Idempotency-Key. Give one of them.")
        asked = msgspec.structs.replace(asked, idempotency_key=header)
    [answer] = await call.engine.submit([new_job(call, asked, call.engine.ids.new())])
    return Reply(200 if answer.duplicate else 201, _submitted(call, answer))


async def submit_batch(call: Call) -> wire.Batch:
    """Store all jobs of the request, or none."""
    asked: wire.BatchRequest = call.body
    jobs = []
    for index, job in enumerate(asked.jobs):
        try:
            jobs.append(new_job(call, job, call.engine.ids.new()))
        except InvalidInput as problem:
            raise problem.at(index) from None
    return wire.Batch(jobs=[_submitted(call, answer) for answer in await call.engine.submit(jobs)])


def _submitted(call: Call, answer: step.Submitted) -> wire.Submitted:
    return wire.Submitted(
        id=answer.id,
        status=None if answer.state is None else call.word(answer.state),
        state=answer.state,
        next_run_at=answer.next_run_at,
        duplicate=answer.duplicate,
    )
