"""Jobs as they are asked for over HTTP: for whom, and into which queue, their caller's key decides.

How the rest becomes the jobs that the queue stores: engine/asked.py; what their tasks give them: engine/signatures.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, UnsetType

from windlass.engine import asked as asking
from windlass.engine.translate import json_text
from windlass.errors import InvalidInput
from windlass.queue.newjob import NewJob
from windlass.server.call import Call
from windlass.wire.jobs import JobRequest


async def new_jobs(call: Call, asked: Sequence[JobRequest], *, listed: bool) -> list[NewJob]:
    """Return the jobs to store; InvalidInput or Forbidden if this caller may not submit one of them like that.

    Of jobs that stand in a list the error tells which one.
    """
    jobs, pace = [], call.pace()
    for index, one in enumerate(asked):
        await pace.give_way()
        try:
            tenant = call.tenant if one.tenant is None else call.name_tenant(one.tenant)
            jobs.append(asking.new_job(one, call.settings, job_id=call.engine.ids.new(), tenant=tenant))
        except InvalidInput as problem:
            raise problem.at(index) if listed else problem from None
    jobs = await call.engine.signatures.fill(jobs)
    for job in jobs:
        call.allow_queue(job.queue)
    await call.engine.signatures.check(jobs)
    return jobs


def payload_text(call: Call, raw: Raw | UnsetType) -> str | None:
    """Return a payload as it was received, None if there is none; PayloadTooLarge past the limit of the settings."""
    return json_text("payload", raw, longest=call.settings.jobs.max_payload_bytes)
