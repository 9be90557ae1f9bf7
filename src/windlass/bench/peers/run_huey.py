"""Huey on SQLite with two worker processes, as it is by default: write-ahead log, results kept until they are read."""

from __future__ import annotations

import logging
import sqlite3
import sys
from importlib import import_module
from typing import Any

stage: Any = import_module("stage")
huey: Any = import_module("huey")

PROCESSES = 2
LEAST_DELAY_S = 0.005
MOST_DELAY_S = 0.05
LOCK_S = 60
"""How long it waits for the file: with less, jobs are lost on a busy machine."""
FINISHED = "SELECT count(*) FROM kv"


def application(url: str, tally: Any) -> tuple[Any, Any]:
    """Return the application and its task."""
    app = huey.SqliteHuey("bench", filename=url, timeout=LOCK_S)

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    def noop(order: int, to: str, note: str) -> dict[str, bool]:
        tally.mark()
        result: dict[str, bool] = stage.RESULT
        return result

    return app, noop


def fill(url: str, count: int) -> None:
    """Submit jobs."""
    _, noop = application(url, None)
    for _ in range(count):
        noop(**stage.PAYLOAD)


def work(url: str, folder: str) -> None:
    """Run jobs until SIGTERM."""
    logging.disable()
    app, _ = application(url, stage.Tally(folder))
    stage.ready()
    app.create_consumer(
        workers=PROCESSES,
        worker_type="process",
        periodic=False,
        initial_delay=LEAST_DELAY_S,
        max_delay=MOST_DELAY_S,
    ).run()


def main(verb: str, url: str, *more: str) -> None:
    """Do one of the verbs."""
    if verb == "prepare":
        application(url, None)
    elif verb == "fill":
        fill(url, int(more[0]))
    elif verb == "work":
        work(url, more[0])
    elif verb == "done":
        connection = sqlite3.connect(url)
        stage.until_done(int(more[0]), lambda: connection.execute(FINISHED).fetchone()[0])
    elif verb == "pickup":
        _, noop = application(url, None)
        stage.pickups(more[0], int(more[1]), lambda: noop(**stage.PAYLOAD))


if __name__ == "__main__":
    main(*sys.argv[1:])
