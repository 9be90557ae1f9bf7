"""A batch of values is counted as if each had come alone."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from prometheus_client import Histogram

from windlass.engine.meters import WAIT_BUCKETS_S, Meters
from windlass.job import Outcome, State
from windlass.queue.lanes import Lanes
from windlass.queue.report import Answer, Complete, Fail, Release, Report, Status


def samples(histogram: Histogram) -> list[tuple[str, dict[str, str], float]]:
    """Return what Prometheus is told of it, but for when it was made."""
    (metric,) = histogram.collect()
    return [(one.name, one.labels, one.value) for one in metric.samples if not one.name.endswith("_created")]


def test_a_batch_counts_like_its_values_one_by_one() -> None:
    """Every value falls into the first bucket that holds it, bounds included; sum and count are theirs."""
    values = [0.0, 0.005, 0.0051, 1.0, 7.0, 299.0, 301.0, 1.0]
    plain = Histogram("windlass_lateness_seconds", "As the library counts.", buckets=WAIT_BUCKETS_S, registry=None)
    for value in values:
        plain.observe(value)
    batched = Meters().lateness

    batched.observe_all(values)

    assert samples(plain) == samples(batched)


def test_an_empty_batch_counts_nothing() -> None:
    """A handout of none leaves the histogram as it was."""
    batched = Meters().lateness
    before = samples(batched)

    batched.observe_all([])

    assert before == samples(batched)


def test_the_reports_of_a_flush_are_counted_by_what_became_of_them() -> None:
    """Only applied ones count: ends by their kind, jobs gone dead, how long they ran; stale ones apart."""
    meters = Meters()
    lease: dict[str, Any] = {"job_id": uuid4(), "fence": 1, "worker": "ann"}
    done, failed = Complete(**lease), Fail(**lease)
    said: list[tuple[Report, Answer]] = [
        (done, Answer(Status.APPLIED, State.SUCCEEDED, lane=1, run_ms=2000)),
        (done, Answer(Status.APPLIED, State.SUCCEEDED, lane=2, run_ms=4000)),
        (done, Answer(Status.ALREADY, State.SUCCEEDED)),
        (failed, Answer(Status.APPLIED, State.DEAD, lane=1, run_ms=1000)),
        (Fail(**lease, outcome=Outcome.CANCELLED), Answer(Status.APPLIED, State.CANCELLED, lane=1)),
        (Release(**lease, reason="Spot termination"), Answer(Status.APPLIED, State.QUEUED, lane=1)),
        (Release(**lease, reason="drained"), Answer(Status.APPLIED, State.QUEUED, lane=1)),
        (done, Answer(Status.STALE)),
    ]

    meters.reported([report for report, _ in said], [answer for _, answer in said], Lanes())

    def value(name: str) -> float | None:
        return meters.registry.get_sample_value(f"windlass_{name}", {"queue": "other"})

    assert (2, 1, 1) == (value("jobs_completed_total"), value("jobs_failed_total"), value("jobs_dead_total"))
    assert (3, 7) == (value("job_duration_seconds_count"), value("job_duration_seconds_sum"))
    assert 1 == meters.registry.get_sample_value("windlass_stale_reports_total")
    assert 1 == meters.registry.get_sample_value("windlass_spot_saved_total")
