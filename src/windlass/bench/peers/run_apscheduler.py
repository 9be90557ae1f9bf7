"""APScheduler with its SQL job store on PostgreSQL: so many one-time jobs due at the same instant."""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

stage: Any = import_module("stage")
background: Any = import_module("apscheduler.schedulers.background")
sql: Any = import_module("apscheduler.jobstores.sqlalchemy")
pool: Any = import_module("apscheduler.executors.pool")

THREADS = 20
SETTLE_S = 5.0
_begun = 0
_last_at = 0.0
_lock = threading.Lock()


def body() -> None:
    """Count itself."""
    global _begun, _last_at
    with _lock:
        _begun += 1
        _last_at = time.time()


def main(url: str, count: str) -> None:
    """Add the jobs, start, and say how long after their instant the last of them began."""
    wanted = int(count)
    scheduler = background.BackgroundScheduler(
        jobstores={"default": sql.SQLAlchemyJobStore(url=url.replace("postgresql://", "postgresql+psycopg://", 1))},
        executors={"default": pool.ThreadPoolExecutor(THREADS)},
        job_defaults={"misfire_grace_time": None},
        timezone=UTC,
    )
    scheduler.start(paused=True)
    # Adding takes a while: they are all put on one instant afterwards, in one statement.
    far = datetime.now(UTC) + timedelta(days=1)
    started = time.monotonic()
    for number in range(50):
        scheduler.add_job(body, "date", run_date=far, id=f"probe-{number}")
    each_s = (time.monotonic() - started) / 50
    scheduler.remove_all_jobs()
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2 * each_s * wanted + SETTLE_S)
    for number in range(wanted):
        scheduler.add_job(body, "date", run_date=at, id=f"job-{number}")
    if datetime.now(UTC) > at:
        sys.exit("Adding the jobs took longer than was expected.")
    scheduler.resume()
    while _begun < wanted:
        time.sleep(0.01)
    stage.tell('{"seconds": %r}' % (_last_at - at.timestamp()))
    scheduler.shutdown(wait=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
