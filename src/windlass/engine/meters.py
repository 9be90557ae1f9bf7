"""Meters: what this server has seen go by, in Prometheus' terms.

Counters and histograms are of this process; Prometheus adds the servers up. What lies in the database (depths, workers,
duties) is read when it is asked for (server/metrics.py). Labels are bounded: beyond so many names comes `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as Total

from windlass.engine.line import Handed
from windlass.job import SPOT_REASON, Outcome, State
from windlass.queue.firing import Fired
from windlass.queue.lanes import Lane, Lanes
from windlass.queue.moves import Move
from windlass.queue.report import Answer, Complete, Fail, Release, Report, Status

MOST_NAMES = 200
OTHER = "other"
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
            return OTHER
        self._known.add(name)
        return name


class _Histogram(Histogram):
    """A histogram that takes the values of a whole batch at once: one by one costs five times as much."""

    def observe_all(self, values: Sequence[float]) -> None:
        """Count every value."""
        self._sum.inc(sum(values))
        for index, count in Counter(bisect_left(self._upper_bounds, value) for value in values).items():
            self._buckets[index].inc(count)


class _OfQueue:
    """The counters and histograms of one queue, found once: finding them for each job costs more than counting."""

    def __init__(self, meters: Meters, queue: str) -> None:
        self.submitted = meters.submitted.labels(queue)
        self.claimed = meters.claimed.labels(queue)
        self.completed = meters.completed.labels(queue)
        self.failed = meters.failed.labels(queue)
        self.dead = meters.dead.labels(queue)
        self.leases_lost = meters.leases_lost.labels(queue)
        self.duration = meters.duration.labels(queue)
        self.wait = meters.wait.labels(queue)


class Meters:
    """The counters and histograms of one server."""

    def __init__(self, prefix: str = "windlass_") -> None:
        self.registry = CollectorRegistry()
        self.queue_name = Names()
        self._of_queue: dict[str, _OfQueue] = {}

        def counter(name: str, text: str, *labels: str) -> Total:
            return Total(prefix + name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> _Histogram:
            return _Histogram(prefix + name, text, labels, buckets=buckets, registry=self.registry)

        self.submitted = counter("jobs_submitted_total", "Jobs accepted.", "queue")
        self.claimed = counter("jobs_claimed_total", "Jobs handed to workers.", "queue")
        self.completed = counter("jobs_completed_total", "Attempts that succeeded.", "queue")
        self.failed = counter("jobs_failed_total", "Attempts that failed or timed out.", "queue")
        self.dead = counter("jobs_dead_total", "Jobs gone dead.", "queue")
        self.slots = counter("schedule_slots_total", "Slots of schedules that were decided.", "decision")
        self.left_out = Gauge(
            prefix + "schedules_left_out",
            "Schedules that this server could not fire, and tries again in a while.",
            registry=self.registry,
        )
        self.leases_lost = counter("leases_lost_total", "Leases of workers that fell silent.", "queue")
        self.stale_reports = counter("stale_reports_total", "Reports refused because the lease was another's.")
        self.spot_saved = counter("spot_saved_total", "Jobs given back because their machine was withdrawn.")
        self.unfenced_reports = counter("unfenced_reports_total", "Reports taken without a fence.")
        self.released_unheard = counter("claims_unheard_total", "Jobs given back because their claimer had gone.")
        self.duration = histogram(
            "job_duration_seconds", "Running time of ended attempts.", DURATION_BUCKETS_S, "queue"
        )
        self.wait = histogram(
            "queue_wait_seconds", "From due or created to claimed, of first attempts.", WAIT_BUCKETS_S, "queue"
        )
        self.lateness = histogram(
            "lateness_seconds", "From the time asked for to the start, of first attempts.", WAIT_BUCKETS_S
        )
        self.runs_missing = counter("schedule_run_alarms_total", "Slots whose run had not succeeded in time.")
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

    def stored(self, counts: Mapping[str, int]) -> None:
        """Count jobs that were just stored, by queue."""
        for queue, count in counts.items():
            self._queue(queue).submitted.inc(count)

    def fired(self, fired: Fired) -> None:
        """Count the slots that were just decided, and the jobs that were made for them."""
        for decision, count in fired.counts.items():
            self.slots.labels(decision.word).inc(count)
        self.stored(fired.queues)

    def handed(self, jobs: Sequence[Handed], slots: int) -> None:
        """Count jobs that were just handed out."""
        self.claim_slots.observe(slots)
        counts: Counter[str] = Counter()
        waits: defaultdict[str, list[float]] = defaultdict(list)
        for handed in jobs:
            job, queue = handed.job, handed.lane.queue
            counts[queue] += 1
            if job.attempt == 1:
                waited = job.claimed_at - max(job.scheduled_at, job.created_at)
                waits[queue].append(max(waited.total_seconds(), 0.0))
        for queue, waits_s in waits.items():
            self._queue(queue).wait.observe_all(waits_s)
        for queue, count in counts.items():
            self._queue(queue).claimed.inc(count)

    def reported(self, reports: Sequence[Report], answers: Sequence[Answer], lanes: Lanes) -> None:
        """Count the reports of one flush and what became of them."""
        completed: Counter[int | None] = Counter()
        runs: defaultdict[int | None, list[float]] = defaultdict(list)
        self.lateness.observe_all([answer.late_ms / 1000 for answer in answers if answer.late_ms is not None])
        for report, answer in zip(reports, answers, strict=True):
            if answer.status is Status.STALE:
                self.stale_reports.inc()
            if answer.status is not Status.APPLIED:
                continue
            if answer.run_ms is not None:
                runs[answer.lane].append(answer.run_ms / 1000)
            if isinstance(report, Complete):
                completed[answer.lane] += 1
            elif isinstance(report, Fail) and report.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
                self._of_number(answer.lane, lanes).failed.inc()
            elif isinstance(report, Release) and report.reason == SPOT_REASON:
                self.spot_saved.inc()
            if answer.state is State.DEAD:
                self._of_number(answer.lane, lanes).dead.inc()
        for number, count in completed.items():
            self._of_number(number, lanes).completed.inc(count)
        for number, ran_s in runs.items():
            self._of_number(number, lanes).duration.observe_all(ran_s)

    def moved(self, move: Move, lane: Lane | None) -> None:
        """Count a lease that a duty has ended."""
        of_queue = self._of_lane(lane)
        if move.late_ms is not None:
            self.lateness.observe_all([move.late_ms / 1000])
        if move.record.outcome is Outcome.SUCCEEDED:
            of_queue.completed.inc()
        elif move.record.outcome is Outcome.LOST:
            of_queue.leases_lost.inc()
        elif move.record.outcome is Outcome.TIMED_OUT:
            of_queue.failed.inc()
        if move.to == "dead":
            of_queue.dead.inc()

    def _of_number(self, number: int | None, lanes: Lanes) -> _OfQueue:
        return self._of_lane(None if number is None else lanes.get(number))

    def _of_lane(self, lane: Lane | None) -> _OfQueue:
        return self._queue(OTHER if lane is None else lane.name.queue)

    def _queue(self, name: str) -> _OfQueue:
        known = self._of_queue.get(name)
        if known is None:
            label = self.queue_name(name)
            known = self._of_queue.get(label) or _OfQueue(self, label)
            self._of_queue[label] = known
        return known
