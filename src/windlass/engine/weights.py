"""How many rows and bytes a request has, for the lines of batch.py. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.queue.newjob import NewJob
from windlass.queue.report import Report
from windlass.queue.workers import Beat


def weight_of_jobs(jobs: Sequence[NewJob]) -> tuple[int, int]:
    """Return the weight of a submit."""
    return len(jobs), sum(len(job.payload) + len(job.headers or "") for job in jobs)


def weight_of_reports(reports: Sequence[Report]) -> tuple[int, int]:
    """Return the weight of reports."""
    texts = ("result", "metrics", "error", "traceback", "reason", "checkpoint")
    return len(reports), sum(len(getattr(item, field, None) or "") for item in reports for field in texts)


def weight_of_beat(beat: Beat) -> tuple[int, int]:
    """Return the weight of a heartbeat."""
    return 1 + len(beat.held or ()), 0
