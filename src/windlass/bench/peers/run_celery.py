"""Celery on Redis, as its guide to optimizing says for many short tasks: a large prefetch, and no gossip.

Two processes of its prefork pool, acknowledged early, as by default. Results are kept in Redis, which is in memory.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

stage: Any = import_module("stage")
celery: Any = import_module("celery")
redis: Any = import_module("redis")

PROCESSES = 2
PREFETCH = 128
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR", "--pool=prefork")


def application(url: str, tally: Any) -> tuple[Any, Any]:
    """Return the application and its task."""
    app = celery.Celery("bench", broker=url, backend=url)
    app.conf.update(
        worker_prefetch_multiplier=PREFETCH,
        task_ignore_result=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
    )

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    def noop(order: int, to: str, note: str) -> dict[str, bool]:
        tally.mark()
        result: dict[str, bool] = stage.RESULT
        return result

    return app, noop


def fill(url: str, count: int) -> None:
    """Submit jobs, on one connection."""
    app, noop = application(url, None)
    with app.producer_or_acquire() as producer:
        for _ in range(count):
            noop.apply_async(kwargs=stage.PAYLOAD, producer=producer)


def work(url: str, folder: str) -> None:
    """Run jobs until SIGTERM."""
    app, _ = application(url, stage.Tally(folder))
    stage.ready()
    app.worker_main(["worker", f"--concurrency={PROCESSES}", *QUIET])


def looked(url: str, count: int) -> None:
    """Say when so many results are there."""
    connection = redis.Redis.from_url(url)
    # Beside the results there are the keys of the queue's binding and of what is not acknowledged yet.
    stage.until_done(count, lambda: connection.dbsize() - connection.exists("_kombu.binding.celery", "unacked"))


def timed(url: str, folder: str, count: int) -> None:
    """Submit one job at a time."""
    _, noop = application(url, None)
    stage.pickups(folder, count, lambda: noop.apply_async(kwargs=stage.PAYLOAD))


def main(verb: str, url: str, *more: str) -> None:
    """Do one of the verbs."""
    if verb == "prepare":
        redis.Redis.from_url(url).flushall()
    elif verb == "fill":
        fill(url, int(more[0]))
    elif verb == "work":
        work(url, more[0])
    elif verb == "done":
        looked(url, int(more[0]))
    elif verb == "pickup":
        timed(url, more[0], int(more[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
