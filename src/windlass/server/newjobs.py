"""A job as it is asked for over HTTP: for whom, and into which queue, its caller's key decides.

How the rest becomes the job that the queue stores: engine/asked.py.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Raw, UnsetType

from windlass.engine import asked as asking
from windlass.engine.translate import json_text
from windlass.queue.newjob import NewJob
from windlass.server.call import Call
from windlass.wire.jobs import JobRequest


def new_job(call: Call, asked: JobRequest, job_id: UUID) -> NewJob:
    """Return the job to store; InvalidInput or Forbidden if this caller may not submit it like that."""
    tenant = call.tenant if asked.tenant is None else call.name_tenant(asked.tenant)
    call.allow_queue(asked.queue)
    return asking.new_job(asked, call.settings, job_id=job_id, tenant=tenant)


def payload_text(call: Call, raw: Raw | UnsetType) -> str | None:
    """Return a payload as it was received, None if there is none; PayloadTooLarge past the limit of the settings."""
    return json_text("payload", raw, longest=call.settings.jobs.max_payload_bytes)
