"""`windlass top`: a live picture of an installation: queues, rates, workers, the last jobs."""

from __future__ import annotations

import contextlib
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from windlass.cli.calls import Server, asks_server
from windlass.cli.jobreport import stuck_lines
from windlass.cli.jobs import COLUMNS as JOB_COLUMNS
from windlass.cli.queues import COLUMNS as QUEUE_COLUMNS
from windlass.cli.shown import console, plain, table_of
from windlass.cli.waiting import stuck_tasks, with_reasons
from windlass.cli.workers import COLUMNS as WORKER_COLUMNS
from windlass.cli.workers import LIVE
from windlass.errors import Unavailable

LOOK_S = 1.0
JOBS = 10
ROWS = 12
"""Queues and workers shown; the rest is counted."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a server told at one moment."""

    at: float
    """Of the monotonic clock."""
    whole: dict[str, Any]
    queues: list[Any]
    workers: list[Any]
    jobs: list[Any]
    stuck: list[Any]


@click.command()
@click.option("--once", is_flag=True, help="Print one picture and end; so too where there is no terminal.")
@asks_server
def top(server: Server, once: bool) -> None:
    """Watch what waits, runs and ends; q or Ctrl-C ends it.

    Example: windlass top
    """
    if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        before = look(server)
        time.sleep(LOOK_S)
        console().print(picture(server.url, before, look(server)))
        return
    with contextlib.suppress(KeyboardInterrupt), _keys() as pressed:
        _watch(server, pressed)


def look(server: Server) -> Look:
    """Ask a server for all that a picture shows."""
    workers = [worker for worker in server.pages("/workers", "workers", limit=1000) if worker["status"] in LIVE]
    stuck = stuck_tasks(server)
    return Look(
        at=time.monotonic(),
        whole=server.get("/admin/queue/status"),
        queues=list(server.pages("/queues", "queues", limit=1000)),
        workers=workers,
        jobs=list(with_reasons(server.pages("/jobs", "jobs", limit=JOBS), stuck)),
        stuck=stuck,
    )


def picture(url: str, before: Look, now: Look) -> RenderableType:
    """Return the picture of the second look; the rates are between the two."""
    whole = now.whole
    passed_s = max(now.at - before.at, 0.001)
    done = max(0, whole["completed_24h"] - before.whole["completed_24h"]) / passed_s
    died = max(0, whole["failed_24h"] - before.whole["failed_24h"]) / passed_s
    about = "about " if whole["pending_is_estimate"] else ""
    head = Text.assemble(
        (f"Windlass at {url}\n", "bold"),
        f"{about}{whole['pending']:,} pending   {whole['in_progress']:,} in progress   "
        f"{whole['scheduled']:,} scheduled   {whole['dead_letter_jobs']:,} dead letters\n",
        f"{done:,.1f}/s succeed   {died:,.1f}/s die   average wait {whole['average_wait_seconds']:.2f} s   "
        f"in 24 h {whole['completed_24h']:,} completed, {whole['failed_24h']:,} failed",
    )
    parts: list[RenderableType] = [head]
    if now.stuck:
        parts += [Text(), stuck_lines(now.stuck)]
    for title, rows, columns in (
        ("queues", sorted(now.queues, key=lambda queue: -queue["pending"]), QUEUE_COLUMNS),
        ("workers", sorted(now.workers, key=lambda worker: -worker["busy_threads"]), WORKER_COLUMNS),
        ("last jobs", now.jobs, JOB_COLUMNS),
    ):
        parts.append(Text())
        parts.append(table_of(rows[:ROWS], columns) if rows else Text(f"no {title}", style="dim"))
        if len(rows) > ROWS:
            parts.append(Text(f"and {len(rows) - ROWS} more {title}", style="dim"))
    return Group(*parts)


def _watch(server: Server, pressed: Any) -> None:
    before = now = look(server)
    with Live(picture(server.url, before, now), console=console(), screen=True, auto_refresh=False) as live:
        while not pressed(LOOK_S):
            try:
                before, now = now, look(server)
                live.update(picture(server.url, before, now), refresh=True)
            except Unavailable as error:  # it may come back
                live.update(Group(plain(str(error)), Text("Looking again …", style="dim")), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Hear single keys within the block; yields a function that waits so long and says whether q was pressed."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([fd], [], [], seconds)
        return bool(ready) and sys.stdin.read(1) in ("q", "Q", "\x1b")

    try:
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
