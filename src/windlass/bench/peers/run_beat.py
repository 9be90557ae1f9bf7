"""Celery beat with Redis as its broker: so many entries due at the same minute."""

from __future__ import annotations

import sys
import threading
import time
from importlib import import_module
from typing import Any

stage: Any = import_module("stage")
celery: Any = import_module("celery")
schedules: Any = import_module("celery.schedules")
redis: Any = import_module("redis")

LOOK_S = 0.05
MINUTE = 60


def watch(url: str, count: int) -> None:
    """Say how long after the minute the last message was in the queue, and end the process."""
    connection = redis.Redis.from_url(url)
    first_at = 0.0
    while (found := connection.llen("celery")) < count:
        if found and not first_at:
            first_at = time.time()
        time.sleep(LOOK_S)
    now = time.time()
    stage.tell('{"seconds": %r}' % (now - (first_at or now) // MINUTE * MINUTE))


def main(url: str, count: str) -> None:
    """Run beat with so many entries."""
    app = celery.Celery("bench", broker=url)
    app.conf.update(broker_connection_retry_on_startup=True, worker_redirect_stdouts=False)
    entry = {"task": "noop", "schedule": schedules.crontab(), "kwargs": stage.PAYLOAD}
    app.conf.beat_schedule = {f"entry-{number}": dict(entry) for number in range(int(count))}
    threading.Thread(target=watch, args=(url, int(count)), daemon=True).start()
    app.Beat(loglevel="ERROR", schedule="beat", quiet=True).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
