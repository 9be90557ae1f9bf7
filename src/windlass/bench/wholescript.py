"""The verbs of our own sides (peers/stage.py), run as `python -m windlass.bench.wholescript WHERE TASK … VERB URL …`.

WHERE is the address of a server, which a fleet then works for, or `in-process`: an engine and a worker in this process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import sleep
from urllib.parse import urlsplit

import asyncpg
import msgspec
import uvloop

from windlass.bench.peers import stage
from windlass.bench.scratch import is_postgres
from windlass.bench.wholeapp import application
from windlass.bench.wholeours import IN_PROCESS
from windlass.client.app import App
from windlass.config import Settings
from windlass.config.settings import Worker as WorkerSettings
from windlass.db import open_database
from windlass.db.migrate import migrate
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.ids import Ids
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.submit import submit
from windlass.worker.enginelink import EngineLink
from windlass.worker.keeping import OwnKeeping
from windlass.worker.runner import Worker

FILL = 1_000
PAYLOAD = msgspec.json.encode(stage.PAYLOAD).decode()


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """Who plays."""

    where: str
    task: str
    processes: int
    threads: int
    url: str

    @property
    def is_in_process(self) -> bool:
        """Whether worker and engine share this process."""
        return self.where == IN_PROCESS


async def prepare(cast: Cast) -> None:
    """Make the tables; a server has done so."""
    if cast.is_in_process:
        db = await open_database(cast.url)
        await migrate(db)
        await db.close()


async def fill(cast: Cast, count: int, payload: str) -> None:
    """Submit jobs, straight into the store."""
    db = await open_database(cast.url)
    lanes, ids = Lanes(), Ids(db.now)
    for start in range(0, count, FILL):
        size = min(FILL, count - start)
        await submit(db, lanes, [NewJob(id=ids.new(), task=cast.task, payload=payload) for _ in range(size)])
    await db.close()


def fleet(cast: Cast, folder: str) -> None:
    """Run `windlass worker`; its runners wait for the word while they import the application."""
    command = ["-m", "windlass", "worker", "windlass.bench.wholeapp:app", "--url", cast.where, "--log-format", "json"]
    command += ["--processes", str(cast.processes), "--threads", str(cast.threads)]
    process = os.posix_spawn(sys.executable, [sys.executable, *command], os.environ | {stage.FOLDER_VARIABLE: folder})
    signal.signal(signal.SIGTERM, lambda *_: os.kill(process, signal.SIGTERM))
    while len(list(Path(folder).glob("loaded-*"))) < cast.processes:
        if os.waitpid(process, os.WNOHANG) != (0, 0):
            sys.exit("The fleet ended before its runners were loaded.")
        sleep(stage.LOOK_S)
    stage.ready()
    (Path(folder) / stage.WORD).touch()
    os.waitpid(process, 0)


@asynccontextmanager
async def engine_of(cast: Cast, settings: Settings) -> AsyncIterator[Engine]:
    """Run an engine in this process."""
    db = await open_database(cast.url)
    try:
        engine = Engine(db, settings, name=f"bench-{os.getpid()}", outside=Outside())
        async with engine.running():
            yield engine
    finally:
        await db.close()


async def work(cast: Cast, folder: str) -> None:
    """Run an engine and a worker until SIGTERM, once the word is given."""
    async with worker_of(cast, folder) as (_, worker):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: worker.drain("Done.", within_s=0))
        await asyncio.to_thread(stage.ready)
        await worker.run()


async def pick_up(cast: Cast, folder: str, count: int) -> None:
    """Submit one job at a time to the engine beside the worker."""
    async with worker_of(cast, folder) as (engine, worker):
        loop, working = asyncio.get_running_loop(), asyncio.create_task(worker.run())

        def submit_one() -> None:
            job = NewJob(id=engine.ids.new(), task=cast.task, payload=PAYLOAD)
            asyncio.run_coroutine_threadsafe(engine.submit([job]), loop).result()

        try:
            await asyncio.to_thread(stage.pickups, folder, count, submit_one)
        finally:
            worker.drain("Done.", within_s=0)
            await working


@asynccontextmanager
async def worker_of(cast: Cast, folder: str) -> AsyncIterator[tuple[Engine, Worker]]:
    """Yield an engine that runs in this process and a worker on it."""
    settings = msgspec.structs.replace(
        Settings(), worker=WorkerSettings(threads=cast.threads or WorkerSettings().threads)
    )
    async with engine_of(cast, settings) as engine:
        link = EngineLink(engine)
        tasks = application(folder).tasks
        yield engine, Worker(tasks, link, keeping=OwnKeeping(link, settings), settings=settings)


def finished_count(cast: Cast, runner: asyncio.Runner) -> Callable[[], int]:
    """Return how to look how many jobs have succeeded."""
    if is_postgres(cast.url):
        connection = runner.run(asyncpg.connect(cast.url))
        return lambda: int(runner.run(connection.fetchval("SELECT count(*) FROM windlass.done WHERE outcome = 0")))
    file = sqlite3.connect(urlsplit(cast.url).path.removeprefix("/"))
    return lambda: int(file.execute("SELECT count(*) FROM done WHERE outcome = 0").fetchone()[0])


def main(where: str, task: str, processes: str, threads: str, verb: str, url: str, *more: str) -> None:
    """Do one of the verbs."""
    cast = Cast(where=where, task=task, processes=int(processes), threads=int(threads), url=url)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if verb == "prepare":
            runner.run(prepare(cast))
        elif verb == "fill":
            runner.run(fill(cast, int(more[0]), more[1] if len(more) > 1 else PAYLOAD))
        elif verb == "done":
            stage.until_done(int(more[0]), finished_count(cast, runner))
        elif verb == "work" and not cast.is_in_process:
            fleet(cast, more[0])
        elif verb == "work":
            runner.run(work(cast, more[0]))
        elif verb == "pickup" and cast.is_in_process:
            runner.run(pick_up(cast, more[0], int(more[1])))
        elif verb == "pickup":
            client = App(url=cast.where)
            stage.pickups(more[0], int(more[1]), lambda: client.enqueue(cast.task, stage.PAYLOAD))


if __name__ == "__main__":
    main(*sys.argv[1:])
