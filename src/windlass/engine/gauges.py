"""Gauges: what lies in the database at this moment, read when Prometheus asks, at most once in a few seconds.

Every server tells the same of the database; counters of what went by are each server's own (meters.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from windlass.config import Settings
from windlass.db import Database
from windlass.engine.firing import FIRING
from windlass.engine.meters import Names
from windlass.engine.outside import Outside
from windlass.engine.whole import recommendation
from windlass.job import State
from windlass.queue import duties, fleet, stats, watches
from windlass.queue.looks import look

KEPT_S = 5.0


class _Totals(Collector):
    """Counts that the database keeps, by duty; a counter of the library only counts by itself."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self.of_duty: dict[str, int] = {}

    def collect(self) -> Iterator[Metric]:
        """Return the counts as they were read last."""
        metric = CounterMetricFamily(self._name, self._text, labels=["duty"])
        for duty, count in self.of_duty.items():
            metric.add_metric([duty], count)
        yield metric


class Gauges:
    """The gauges of one server."""

    def __init__(
        self, db: Database, settings: Settings, registry: CollectorRegistry, *, queue_name: Names, outside: Outside
    ) -> None:
        self._db = db
        self._settings = settings
        self._queue_name = queue_name
        self._outside = outside
        self.pending = 0
        """Claimable jobs, as they were counted last."""
        self.leaders = 0
        """Servers that held duties of firing then."""
        self._read_s = float("-inf")
        self._reading = asyncio.Lock()
        """Held while figures are read from the database, or written to a page."""
        self._registry = registry
        self._writing: asyncio.Task[bytes] | None = None

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(settings.metrics.prefix + name, text, labels, registry=registry)

        self._depth = gauge("queue_depth", "Jobs in each live state; queued: due and claimable.", "status", "queue")
        self._dead = gauge("dead_letter_jobs", "Dead jobs that nobody has retried or purged.")
        self._oldest = gauge("oldest_queued_seconds", "How long the oldest claimable job has been due.", "queue")
        self._lag = gauge("schedule_lag_seconds", "How long the earliest slot that nobody has decided has been due.")
        self._workers = gauge("active_workers", "Live workers, idle ones included.")
        self._threads = gauge("worker_threads", "Threads of live workers.", "state")
        self._skew = gauge("clock_skew_seconds", "The largest difference of a live worker's clock from the database's.")
        self._desired = gauge("desired_workers", "How many workers there should be.")
        self._per_worker = gauge("queue_depth_per_worker", "Claimable jobs per live worker.")
        self._holders = gauge("duty_holders", "1 if a server has the duty.", "duty")
        self._heartbeat_age = gauge("duty_heartbeat_age_seconds", "Since a duty's holder was heard.", "duty")
        self._progress_age = gauge("duty_progress_age_seconds", "Since a run ended without an error.", "duty")
        self._items = _Totals(settings.metrics.prefix + "duty_items", "What a duty has done so far.")
        self._errors = _Totals(settings.metrics.prefix + "duty_errors", "Runs of a duty that failed so far.")
        for totals in (self._items, self._errors):
            registry.register(totals)
        self._missing = gauge("schedule_runs_missing", "Schedules whose run has not succeeded in time, nor one since.")
        self._dead_rows = gauge("dead_rows", "Rows of hot tables that VACUUM has yet to remove.", "table")
        self._snapshot = gauge("oldest_snapshot_seconds", "Age of the oldest snapshot.", "application")
        self._wal = gauge("sqlite_wal_bytes", "Size of the write-ahead log of a SQLite file.")

    async def page(self) -> bytes:
        """Return all figures, those of this server too, as Prometheus reads them; who asks meanwhile gets the same."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="metrics")
        return await asyncio.shield(self._writing)

    async def _write(self) -> bytes:
        async with self._reading:
            await self._read()
            # Some 50 ms for many queues. The library locks each figure while it is counted or written.
            return await asyncio.to_thread(generate_latest, self._registry)

    async def refresh(self) -> None:
        """Read the figures, unless they were read a moment ago."""
        async with self._reading:
            await self._read()

    async def _read(self) -> None:
        if self._outside.monotonic() - self._read_s < KEPT_S:
            return
        await self._read_depths()
        self._lag.set(max(0.0, -((await look(self._db, whole=False)).left_s("fire") or 0.0)))
        await self._read_workers()
        await self._read_duties()
        self._missing.set(await watches.missing_count(self._db))
        await self._read_storage()
        self._read_s = self._outside.monotonic()

    async def _read_depths(self) -> None:
        self._depth.clear()
        self._oldest.clear()
        dead = pending = 0
        for depth in await stats.depths(self._db):
            if depth.state is State.DEAD:
                dead += depth.jobs
            else:
                pending += depth.jobs if depth.state is State.QUEUED else 0
                self._depth.labels(depth.state.value, self._queue_name(depth.queue)).inc(depth.jobs)
        self._dead.set(dead)
        self.pending = pending
        oldest: dict[str, float] = {}
        for wait in await stats.longest_waits(self._db):
            name = self._queue_name(wait.queue)
            oldest[name] = max(wait.waited_s, oldest.get(name, 0.0))
        for name, waited_s in oldest.items():
            self._oldest.labels(name).set(waited_s)

    async def _read_workers(self) -> None:
        found = await recommendation(self._db, self._settings)
        self._desired.set(found.desired)
        self._per_worker.set(found.depth_per_worker)
        self._workers.set(await stats.active_workers(self._db))
        threads = await fleet.threads(self._db)
        self._threads.labels("busy").set(threads.busy)
        self._threads.labels("free").set(max(0, threads.total - threads.busy))
        self._skew.set(threads.skew_ms / 1000)

    async def _read_duties(self) -> None:
        found = await duties.list_duties(self._db)
        self.leaders = len({duty.holder for duty in found if duty.held_by and duty.name.startswith(FIRING)})
        for duty in found:
            self._holders.labels(duty.name).set(int(duty.held_by is not None))
            self._heartbeat_age.labels(duty.name).set(duty.heartbeat_age_s)
            if duty.progress_age_s is not None:
                self._progress_age.labels(duty.name).set(duty.progress_age_s)
            self._items.of_duty[duty.name] = duty.metadata.items
            self._errors.of_duty[duty.name] = duty.metadata.errors

    async def _read_storage(self) -> None:
        storage = await stats.storage(self._db)
        self._snapshot.clear()
        for table, rows in (storage.dead_rows or {}).items():
            self._dead_rows.labels(table).set(rows)
        if storage.oldest_snapshot is not None and storage.oldest_snapshot.age_s is not None:
            application = (storage.oldest_snapshot.application or "unnamed")[:60]
            self._snapshot.labels(application).set(storage.oldest_snapshot.age_s)
        if storage.wal_bytes is not None:
            self._wal.set(storage.wal_bytes)
