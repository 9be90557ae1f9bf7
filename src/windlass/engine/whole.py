"""Duties about the whole: minutes rolled up, how the queues are, how many workers there should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windlass import log
from windlass.config import Settings
from windlass.db import Database, Statements
from windlass.engine.duty import Duty, Ran, Run
from windlass.engine.scaling import Figures, ScalingState, depth_per_worker, desired, policy_from
from windlass.job import State
from windlass.queue import duties, stats

ROLL_UP_S = 60.0
SCALE_S = 5.0
SCALE = "scale"


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers there should be, and why; kept with the duty `scale`, so that every server tells the same."""

    desired: int
    pending: int
    running: int
    workers: int
    depth_per_worker: float
    state: ScalingState = ScalingState()


def whole_duties(settings: Settings, monotonic: Callable[[], float]) -> list[Duty]:
    """Return the duties about the whole."""
    return [
        Duty("rollup", _rolling(settings, monotonic), min(ROLL_UP_S, settings.duties.health_seconds)),
        Duty(SCALE, _scaling(settings), SCALE_S),
    ]


async def recommendation(db: Statements, settings: Settings) -> Recommendation:
    """Return what the duty `scale` would find now: more at once, fewer by the cool-down that it counts."""
    now_s, state = await _left_off(db)
    return await _recommend(db, settings, now_s=now_s, state=state)


async def _left_off(db: Statements) -> tuple[float, ScalingState]:
    """Return the time, and the state that the duty left at its last run; a fresh one before the first."""
    for duty in await duties.list_duties(db):
        if duty.name == SCALE:
            # The database's time: the state may be another server's, whose own clock tells us nothing.
            now_s = duty.heartbeat_at.timestamp() + duty.heartbeat_age_s
            kept = _kept(duty.metadata.note)
            return now_s, ScalingState() if kept is None else kept.state
    return 0.0, ScalingState()


def _rolling(settings: Settings, monotonic: Callable[[], float]) -> Run:
    roll_at_s = look_at_s = float("-inf")

    async def run(db: Database, most: int) -> Ran:
        nonlocal roll_at_s, look_at_s
        now_s, rows = monotonic(), 0
        if now_s >= roll_at_s:
            rows = (await stats.roll_up(db)).rows
            roll_at_s = now_s + ROLL_UP_S
        if now_s >= look_at_s:
            await _tell_health(db, settings)
            look_at_s = now_s + settings.duties.health_seconds
        return Ran(rows, max(min(roll_at_s, look_at_s) - monotonic(), 0.0))

    return run


async def _tell_health(db: Database, settings: Settings) -> None:
    found = await stats.overview(db, None)
    counts: dict[str, Any] = {
        "pending": found.pending,
        "in_progress": found.in_progress,
        "scheduled": found.scheduled,
        "failed_24h": found.failed_24h,
        "workers": found.active_workers,
    }
    log.event("queue.health", **counts)
    if found.pending > settings.queue.depth_warning:
        critical = found.pending > settings.queue.depth_critical
        log.event(
            "queue.deep",
            **counts,
            severity="critical" if critical else "warning",
            hint="Start more workers, or see which queue is behind: windlass status.",
        )


def _scaling(settings: Settings) -> Run:
    async def run(db: Database, most: int) -> Ran:
        found = await recommendation(db, settings)
        return Ran(0, note=msgspec.json.encode(found).decode())

    return run


async def _recommend(db: Statements, settings: Settings, *, now_s: float, state: ScalingState) -> Recommendation:
    depths = await stats.depths(db)
    figures = Figures(
        pending_count=sum(depth.jobs for depth in depths if depth.state is State.QUEUED),
        running_count=sum(depth.jobs for depth in depths if depth.state in stats.IN_PROGRESS),
        worker_count=await stats.active_workers(db),
        threads_per_worker=settings.workers.threads,
        run_s=await stats.mean_run_s(db),
        waited_s=max((wait.waited_s for wait in await stats.longest_waits(db)), default=0.0),
    )
    count, state = desired(policy_from(settings), figures, now_s=now_s, state=state)
    return Recommendation(
        desired=count,
        pending=figures.pending_count,
        running=figures.running_count,
        workers=figures.worker_count,
        depth_per_worker=depth_per_worker(figures),
        state=state,
    )


def _kept(note: str | None) -> Recommendation | None:
    try:
        return None if note is None else msgspec.json.decode(note, type=Recommendation)
    except msgspec.DecodeError:  # another version's
        return None
