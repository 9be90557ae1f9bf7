"""Run a fleet in this process: its keepers, its scaler, its probe, spot notices and signals, until all have left.

SIGTERM, SIGINT and SIGHUP drain (W10); a notice of the cloud drains within what it leaves (W11). server/run.py is the
like for a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

from windlass import log
from windlass.config import Settings
from windlass.config.redact import whole_url as without_password
from windlass.engine.outside import Outside
from windlass.job import SPOT_REASON
from windlass.worker.child import Child, start_runner
from windlass.worker.fleet import Fleet, pool_settings
from windlass.worker.frames import Ready
from windlass.worker.health import answering
from windlass.worker.httplink import HttpLink
from windlass.worker.scaler import follow
from windlass.worker.spot import wait_for_notice

SHOWN_TASKS = 50
"""Names in the line that tells the tasks; `windlass check-app` lists all."""


async def run_fleet(
    settings: Settings,
    app_target: str | None,
    *,
    is_scaled: bool = False,
    serves_tasks_queues: bool = False,
    said: Callable[[str], None],
) -> int:
    """Keep workers until a signal; return the exit code. `said` is told, in a sentence each, what is to be known."""
    outside = Outside()
    settings = pool_settings(settings) if is_scaled else settings
    count = settings.workers.default_count if is_scaled else settings.worker.processes
    name = settings.worker.id or f"worker-{uuid4()}"

    async def start() -> Child:
        return await start_runner(settings, app_target, serves_tasks_queues=serves_tasks_queues)

    def ready(ready: Ready | None) -> None:
        if ready is not None:
            said(_tasks(settings, ready.tasks))
        said(_sentence(settings, name, count=count, ready=ready))

    link = HttpLink(settings)
    fleet = Fleet(
        settings, start, link=link, name=name, count=count, is_scaled=is_scaled, outside=outside, on_ready=ready
    )
    try:
        with _on_signals(fleet.signalled):
            scaling = _beside(follow(fleet, settings, outside)) if is_scaled else contextlib.nullcontext()
            async with _beside(_spot(fleet, settings, outside)), _probed(fleet, settings), scaling:
                code = await fleet.run()
        if fleet.reason == SPOT_REASON:
            log.event("spot.saved", jobs=fleet.finished_count)
        return code
    finally:
        await link.aclose()


def _tasks(settings: Settings, names: list[str]) -> str:
    told = [f"{name} (work kind)" if name in settings.work_kinds else name for name in sorted(names)]
    more = f" and {len(told) - SHOWN_TASKS} more" if len(told) > SHOWN_TASKS else ""
    return f"Tasks served: {', '.join(told[:SHOWN_TASKS])}{more}."


def _sentence(settings: Settings, name: str, *, count: int, ready: Ready | None) -> str:
    queues = settings.worker.queues if ready is None else ready.queues
    told = [
        f"{_counted(count, 'process', 'es')} with {_counted(settings.worker.threads, 'thread')} each",
        *([] if ready is None else [_counted(len(ready.tasks), "task")]),
        f"queue{'s' if len(queues) > 1 else ''} {', '.join(queues)}",
        f"at {without_password(settings.server.url)}",
    ]
    return f"Windlass worker {name} is ready: {', '.join(told)}."


def _counted(count: int, what: str, several: str = "s") -> str:
    return f"{count} {what}{several if count != 1 else ''}"


async def _spot(fleet: Fleet, settings: Settings, outside: Outside) -> None:
    """Drain the fleet when the cloud takes the machine away."""
    notice = await wait_for_notice(settings, outside)
    if notice is None:
        return
    within_s = min(notice.within_s, settings.worker.drain_seconds)
    log.event("spot.notice", cloud=notice.cloud, jobs=fleet.held_count, within_s=within_s)
    fleet.drain(SPOT_REASON, within_s=within_s)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do the work while the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _probed(fleet: Fleet, settings: Settings) -> AsyncIterator[None]:
    address = settings.worker.health_address
    if address is None:
        yield
        return
    async with answering(address, fleet.problems):
        yield


@contextmanager
def _on_signals(hear: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # Who started it with SIGHUP ignored, as nohup does, wants it to go on.
    hang_up = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    numbers = (signal.SIGTERM, signal.SIGINT, *hang_up)
    for number in numbers:
        loop.add_signal_handler(number, hear)
    try:
        yield
    finally:
        for number in numbers:
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)
