"""The process of a runner: what a keeper starts, with one end of a socket between them.

`python -m windlass.worker.runner --fd N [--app TARGET] [--tasks-queues]`. The settings, and the key among them, come as
the first line on the socket: a command line can be read by everybody. The process ends at once when its last word is
said, so that no body runs on without a lease, and when its keeper is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

import msgspec
import uvloop

from windlass import log
from windlass.config import Settings
from windlass.config.environment import forget_secrets
from windlass.errors import SetupError, WindlassError
from windlass.worker.claims import check_tasks
from windlass.worker.declaring import Declaring
from windlass.worker.httplink import HttpLink
from windlass.worker.kinds import with_kinds
from windlass.worker.load import load_app
from windlass.worker.pipekeeping import KeeperGone, PipeKeeping
from windlass.worker.runnable import Runnable
from windlass.worker.runner import Worker

if TYPE_CHECKING:
    from windlass.client.app import App

MOST_QUEUES = 100
"""That one claim may name."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run until told to leave; exit 0 then, 1 for whatever else ends it."""
    parser = argparse.ArgumentParser(description="A worker process; `windlass worker` starts it.")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--app")
    parser.add_argument("--tasks-queues", action="store_true", help="Serve also the queues that its tasks name.")
    given = parser.parse_args(arguments)
    forget_secrets()
    # Its keeper decides; until there is work to leave, nothing else does.
    signal.signal(signal.SIGINT, lambda *_: None)
    keeping = PipeKeeping(socket.socket(fileno=given.fd))
    code = 1
    try:
        settings = msgspec.json.decode(keeping.read_line(), type=Settings)
        log.configure(settings.log.format, settings.log.level, redact=settings.security.redact)
        keeping.read_opened()
        code = _run(keeping, settings, given.app, serves_tasks_queues=given.tasks_queues)
    except KeeperGone:
        pass
    except Exception as error:  # its keeper sees that it died, gives its jobs back and starts another
        log.event("worker.failed", part="process", error=error)
    end(code)


def _run(keeping: PipeKeeping, settings: Settings, target: str | None, *, serves_tasks_queues: bool) -> int:
    try:
        app = None if target is None else load_app(target)
        if app is not None:
            app.use(settings)
        app_tasks = {} if app is None else app.tasks
        if serves_tasks_queues:
            settings = serving(settings, [task.job_options.queue for task in app_tasks.values()])
        keeping.queues = settings.worker.queues
        tasks = with_kinds({**app_tasks}, settings.work_kinds)
        check_tasks(tasks)
        signatures = {name: msgspec.Raw(msgspec.json.encode(task.signature())) for name, task in app_tasks.items()}
    except WindlassError as error:
        keeping.failed(str(error))
        return 1
    except Exception as error:  # a signature that cannot be told is the module's, too
        keeping.failed(f"The tasks of {target} cannot be told: {type(error).__name__}: {error}. Mend them.")
        return 1
    uvloop.run(_work(keeping, settings, app=app, tasks=tasks, signatures=signatures, target=target))
    return 0


def serving(settings: Settings, named: Iterable[str | None]) -> Settings:
    """Return the settings with these queues besides their own; SetupError if they are too many to be served."""
    own = settings.worker.queues
    queues = (*own, *sorted({name for name in named if name is not None} - set(own)))
    if len(queues) > MOST_QUEUES:
        raise SetupError(
            f"The tasks name {len(queues)} queues; a worker serves {MOST_QUEUES} at most. Say which, by --queue."
        )
    worker = msgspec.structs.replace(settings.worker, queues=queues)
    return msgspec.structs.replace(settings, worker=worker)


async def _work(
    keeping: PipeKeeping,
    settings: Settings,
    *,
    app: App | None,
    tasks: dict[str, Runnable],
    signatures: dict[str, msgspec.Raw],
    target: str | None,
) -> None:
    link = HttpLink(settings)
    declaring = None if app is None else Declaring(app)
    worker = Worker(
        tasks,
        link,
        keeping=keeping,
        settings=settings,
        signatures=signatures,
        app_target=target,
        server_url=settings.server.url,
        before_claims=None if declaring is None else declaring.begin,
    )
    loop = asyncio.get_running_loop()
    # A platform may tell every process of a group to stop; Ctrl-C is the fleet's to hear.
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, worker.leave_soon)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        await worker.run()
    finally:
        if declaring is not None:
            await declaring.end()


def end(code: int) -> NoReturn:
    """End this process now, whatever its threads do, after what was said is written."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code)
