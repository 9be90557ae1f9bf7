"""Meters: what this server has seen go by, in Prometheus' terms.

Counters and histograms are of this process; Prometheus adds the servers up. What lies in the database (depths, workers,
duties) is read when it is asked for (server/metrics.py). Labels are bounded: beyond so many names comes `other`.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from windlass.engine.line import Handed
from windlass.job import Outcome, State
from windlass.queue.lanes import Lane
from windlass.queue.report import Answer, Complete, Fail, Report, Status

MOST_NAMES = 200
DURATION_BUCKETS_S = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600)
WAIT_BUCKETS_S = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
ROWS_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FLUSH_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


class Names:
    """Values of a label, at most so many of them."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._known: set[str] = set()
        self._most = most

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return "other"
        self._known.add(name)
        return name


class Meters:
    """The counters and histograms of one server."""

    def __init__(self, prefix: str = "windlass_") -> None:
        self.registry = CollectorRegistry()
        self.queue_name = Names()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(prefix + name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(prefix + name, text, labels, buckets=buckets, registry=self.registry)

        self.submitted = counter("jobs_submitted_total", "Jobs accepted.", "queue")
        self.claimed = counter("jobs_claimed_total", "Jobs handed to workers.", "queue")
        self.completed = counter("jobs_completed_total", "Attempts that succeeded.", "queue")
        self.failed = counter("jobs_failed_total", "Attempts that failed or timed out.", "queue")
        self.dead = counter("jobs_dead_total", "Jobs gone dead.", "queue")
        self.leases_lost = counter("leases_lost_total", "Leases of workers that fell silent.", "queue")
        self.stale_reports = counter("stale_reports_total", "Reports refused because the lease was another's.")
        self.unfenced_reports = counter("unfenced_reports_total", "Reports taken without a fence.")
        self.released_unheard = counter("claims_unheard_total", "Jobs given back because their claimer had gone.")
        self.duration = histogram(
            "job_duration_seconds", "Running time of ended attempts.", DURATION_BUCKETS_S, "queue"
        )
        self.wait = histogram(
            "queue_wait_seconds", "From due or created to claimed, of first attempts.", WAIT_BUCKETS_S, "queue"
        )
        self.lateness = histogram(
            "lateness_seconds", "From the time asked for to claimed, of first attempts.", WAIT_BUCKETS_S
        )
        self.batch_rows = histogram("batch_rows", "Rows of one flush.", ROWS_BUCKETS, "line")
        self.batch_seconds = histogram("batch_seconds", "Time of one flush.", FLUSH_BUCKETS_S, "line")
        self.claim_slots = histogram("claim_slots", "Slots asked for in one claim statement.", ROWS_BUCKETS)
        self.requests = counter("http_requests_total", "HTTP requests answered.", "route", "status")
        self.request_seconds = histogram(
            "http_request_seconds", "Time to answer, long polls left out.", FLUSH_BUCKETS_S, "route"
        )
        self.long_polls = Gauge(prefix + "long_polls", "Claims that wait at this server.", registry=self.registry)

    def flushed(self, line: str, rows: int, seconds: float) -> None:
        """Count one flush of a batcher."""
        self.batch_rows.labels(line).observe(rows)
        self.batch_seconds.labels(line).observe(seconds)

    def handed(self, jobs: Sequence[Handed], slots: int) -> None:
        """Count jobs that were just handed out."""
        self.claim_slots.observe(slots)
        for handed in jobs:
            queue = self.queue_name(handed.lane.queue)
            self.claimed.labels(queue).inc()
            if handed.job.attempt == 1:
                due_at = max(handed.job.scheduled_at, handed.job.created_at)
                self.wait.labels(queue).observe(max((handed.job.claimed_at - due_at).total_seconds(), 0.0))
                late_s = (handed.job.claimed_at - handed.job.scheduled_at).total_seconds()
                self.lateness.observe(max(late_s, 0.0))

    def reported(self, report: Report, answer: Answer, lane: Lane | None) -> None:
        """Count one report and what became of it."""
        if answer.status is Status.STALE:
            self.stale_reports.inc()
        if answer.status is not Status.APPLIED:
            return
        queue = self.queue_name(lane.name.queue if lane is not None else "other")
        if answer.run_ms is not None:
            self.duration.labels(queue).observe(answer.run_ms / 1000)
        if isinstance(report, Complete):
            self.completed.labels(queue).inc()
        elif isinstance(report, Fail) and report.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
            self.failed.labels(queue).inc()
        if answer.state is State.DEAD:
            self.dead.labels(queue).inc()
