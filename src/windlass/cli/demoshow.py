"""How the demonstration shows its jobs: while they run, and in the end; and whether they ended as planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from windlass.cli.demojobs import JOBS
from windlass.cli.shown import Column, Row, spent, table_of
from windlass.job import FINAL_STATES, State

_RUNNING = (State.ASSIGNED, State.RUNNING, State.CANCELLING)


def progress_of(jobs: Sequence[Any]) -> RenderableType:
    """Return how far the jobs are: a bar, and counts by task."""
    ended = sum(job["state"] in FINAL_STATES for job in jobs)
    head = Table.grid(padding=(0, 2))
    head.add_row(f"{ended} of {len(jobs)} jobs have ended", ProgressBar(total=len(jobs), completed=ended, width=40))
    columns: tuple[Column, ...] = (
        ("task", lambda row: row["task"]),
        ("wait#", lambda row: _some(row["jobs"] - row["running"] - row["ended"])),
        ("run#", lambda row: _some(row["running"])),
        ("succeeded#", lambda row: _some(row["succeeded"])),
        ("dead#", lambda row: _some(row["dead"])),
        ("cancelled#", lambda row: _some(row["cancelled"])),
    )
    return Group(head, table_of(by_task(jobs), columns))


def summary(jobs: Sequence[Any]) -> RenderableType:
    """Return how the jobs ended, by task: attempts, and how long they took."""
    columns: tuple[Column, ...] = (
        ("task", lambda row: row["task"]),
        ("jobs#", lambda row: str(row["jobs"])),
        ("succeeded#", lambda row: _some(row["succeeded"])),
        ("dead#", lambda row: _some(row["dead"])),
        ("cancelled#", lambda row: _some(row["cancelled"])),
        ("attempts#", lambda row: str(row["attempts"])),
        ("p50#", lambda row: spent(share(row["took_ms"], 0.5))),
        ("p95#", lambda row: spent(share(row["took_ms"], 0.95))),
    )
    return table_of(by_task(jobs), columns)


def by_task(jobs: Sequence[Any]) -> list[Row]:
    """Return counts by task, in the order in which the jobs are planned."""
    found: list[Row] = []
    for task in dict.fromkeys(one.task for one in JOBS):
        own = [job for job in jobs if job["task"] == task]
        states = Counter(job["state"] for job in own)
        found.append(
            {
                "task": task,
                "jobs": len(own),
                "running": sum(states[state] for state in _RUNNING),
                "ended": sum(states[state] for state in FINAL_STATES),
                **{state.value: states[state] for state in FINAL_STATES},
                "attempts": sum(job["attempts"] for job in own),
                "took_ms": sorted(job["execution_time_ms"] for job in own if job["execution_time_ms"] is not None),
            }
        )
    return found


def share(ordered: Sequence[float], part: float) -> float | None:
    """Return the value below which that part lies; None of nothing."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def wrong_ends(jobs: Sequence[Any]) -> list[str]:
    """Return a sentence for each task whose jobs did not end as planned."""
    planned = Counter({(one.task, one.end.value, one.attempts): one.count for one in JOBS})
    ended = Counter((job["task"], job["state"], job["attempts"]) for job in jobs)
    return [
        f"{task}: {ended[key]} jobs are {state} after {attempts} attempts, {planned[key]} should be."
        for key in sorted({*planned, *ended})
        for task, state, attempts in [key]
        if planned[key] != ended[key]
    ]


def _some(count: int) -> str:
    return str(count) if count else ""
