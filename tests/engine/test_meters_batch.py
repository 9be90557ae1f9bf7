"""A batch of values is counted as if each had come alone."""

from __future__ import annotations

from prometheus_client import Histogram

from windlass.engine.meters import WAIT_BUCKETS_S, Meters


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
