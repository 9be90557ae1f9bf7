"""How many rows and bytes a request has, and whose it is, for the lines of batch.py. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from windlass.queue.newjob import NewJob
from windlass.queue.report import Report
from windlass.queue.workers import Beat


class Weight(NamedTuple):
    """What a request takes of a line's room, and of whose share."""

    rows: int
    size: int
    tenant: str


def weight_of_jobs(jobs: Sequence[NewJob]) -> Weight:
    """Return the weight of a submit; one for several tenants counts for the first of them."""
    size = sum(len(job.payload) + len(job.headers or "") for job in jobs)
    return Weight(len(jobs), size, jobs[0].tenant if jobs else "")


def weight_of_reports(reports: Sequence[Report]) -> Weight:
    """Return the weight of reports."""
    texts = ("result", "metrics", "error", "traceback", "reason", "checkpoint")
    size = sum(len(getattr(item, field, None) or "") for item in reports for field in texts)
    return Weight(len(reports), size, reports[0].tenant if reports else "")


def weight_of_beat(beat: Beat) -> Weight:
    """Return the weight of a heartbeat."""
    return Weight(1 + len(beat.held or ()), 0, beat.tenant)
