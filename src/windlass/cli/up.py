"""`windlass up`: a server and its workers in one command; `windlass dev` (dev.py) starts the workers anew on a change.

This process is the server; the workers are one child (pool.py). Ctrl-C lets the workers drain while the server still
hears them, then stops the server: what was running is finished or given back, and no attempt is used.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
import msgspec
import uvloop

from windlass import log
from windlass.cli.banner import SAMPLE, SAMPLE_DATABASE, banner
from windlass.cli.config import config_option, load_settings
from windlass.cli.look import look
from windlass.cli.pool import READY, Pool
from windlass.cli.values import DATABASE_URL
from windlass.cli.watch import changes, folder_of, names_of
from windlass.config import Loaded, Settings
from windlass.config.environment import for_workers, hide_secrets
from windlass.config.redact import whole_url as without_password
from windlass.errors import SetupError
from windlass.server.run import Stopping, keys_required, serve

Command = TypeVar("Command", bound=Callable[..., Any])
Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
DRAIN_S = 10.0
"""How long the workers of `up` finish their jobs: on a laptop nobody waits for longer."""


class Upping(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be brought up."""

    loaded: Loaded
    app: str | None
    """None: the work kinds of the configuration alone."""
    is_reloading: bool
    config_path: str | None


class _Stopping(Stopping):
    """The signals of `up`: the workers stop first, then the server; a third ends all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: Pool | None = None
        self._count = 0

    def hear(self, number: int) -> None:
        """Stop the workers, then the server."""
        self._count += 1
        if self.pool is not None:
            self.pool.stop()
        if self.pool is None or self.pool.is_over or self._count > 2:
            super().hear(number)
        elif self._count == 1:
            click.echo("Stopping: what runs is finished within seconds, or given back. Ctrl-C again: now.", err=True)


def up_options(command: Command) -> Command:
    """Add what can be said of `up` and of `dev`."""
    for option in (
        click.option(
            "--database",
            type=DATABASE_URL,
            metavar="URL",
            help="[default: sqlite:///windlass.db; of the sample, windlass-sample.db]",
        ),
        click.option("--port", type=click.IntRange(0, 65535), help="0 takes any free one.  [default: 8000]"),
        click.option("--workers", type=click.IntRange(0, 1000), help="Processes always there.  [default: 2]"),
        click.option("--max-workers", type=click.IntRange(1, 1000), help="Up to so many when busy.  [default: 8]"),
        click.option("--threads", type=click.IntRange(1, 10_000), help="Jobs of a process at a time.  [default: 1]"),
        click.option("--log-level", type=click.Choice(LEVELS), help="[default: warning]"),
    ):
        command = option(command)
    return config_option(command)


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--reload", "is_reloading", is_flag=True, help="Start the workers anew when the code changes.")
@up_options
@click.pass_context
def up(
    ctx: click.Context,
    app: str | None,
    is_reloading: bool,
    config_path: str | None,
    database: str | None,
    port: int | None,
    workers: int | None,
    max_workers: int | None,
    threads: int | None,
    log_level: str | None,
) -> None:
    """Run everything on this machine: a server, its workers, one SQLite file. Ctrl-C stops all; nothing is lost.

    Without MODULE:APP, and without worker.app and work kinds in the settings, the workers run the sample application,
    on a database of its own: windlass-sample.db.

    Example: windlass up shop.tasks:app --port 8080
    """
    flags: dict[str, object] = {
        "config": config_path,
        "database.url": database,
        "server.port": port,
        "workers.default_count": workers,
        "workers.max_count": max_workers,
        "workers.threads": threads,
        "log.level": log_level,
    }
    flags = _wide_enough(flags)
    loaded = load_settings(flags)
    check_workers_key(loaded.settings)
    app = app or loaded.settings.worker.app or (None if loaded.settings.work_kinds else SAMPLE)
    named = SAMPLE_DATABASE if app == SAMPLE else app and _database_of(app, is_reloading=is_reloading)
    if named is not None and loaded.sources["database.url"] == "default":
        loaded = load_settings({**flags, "database.url": named})
    hide_secrets()
    ctx.exit(run(Upping(loaded=loaded, app=app, is_reloading=is_reloading, config_path=config_path)))


def _database_of(app: str, *, is_reloading: bool) -> str | None:
    """Return the database that an application names; SetupError if it cannot be imported and no save is waited for."""
    looked = look(app)
    if looked.problem is not None and not is_reloading:
        raise SetupError(looked.problem)
    return looked.database


def check_workers_key(settings: Settings) -> None:
    """Return if the workers may call the server; SetupError if they would need a key and have none."""
    if keys_required(settings) and not settings.client.key:
        raise SetupError(
            "Callers of this server need a key (security.keys_required, or a server.host that others reach), and its "
            "workers have none. Make one with `windlass migrate` and `windlass keys create NAME --role worker "
            f"--database {without_password(settings.database.url)}`, and set it as client.key."
        )


def run(upping: Upping) -> int:
    """Bring everything up, until a signal; return the exit code."""
    settings = upping.loaded.settings
    log.configure(settings.log.format, level_of(upping.loaded), redact=settings.security.redact)
    for warning in upping.loaded.warnings:
        log.event("config.weak", detail=warning)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_up(upping))


def level_of(loaded: Loaded) -> Level:
    """Return how much is logged: on a laptop warnings, unless somebody wants more or less."""
    return "warning" if loaded.sources["log.level"] == "default" else loaded.settings.log.level


async def _up(upping: Upping) -> int:
    settings = upping.loaded.settings
    stopping = _Stopping()
    tasks: list[asyncio.Task[None]] = []
    codes: list[int] = []

    async def work(pool: Pool) -> None:
        codes.append(await pool.run())
        # Only now: until its last report a worker needs the server.
        Stopping.hear(stopping, signal.SIGINT)

    async def watch(pool: Pool) -> None:
        assert upping.app is not None
        async for paths in changes(folder_of(upping.app, Path.cwd())):
            click.echo(f"Changed: {names_of(paths)}. The workers start anew.", err=True)
            pool.renew()

    def opened(url: str) -> None:
        stopping.pool = pool = _pool(upping, url)
        banner(upping.loaded, url, app=upping.app)
        tasks.append(asyncio.create_task(work(pool), name="workers"))
        if upping.is_reloading:
            tasks.append(asyncio.create_task(watch(pool), name="watch"))

    is_sqlite = settings.database.url.startswith("sqlite:")
    try:
        code = await serve(settings, migrate=is_sqlite, opened=opened, stopping=stopping)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ended = next(iter(codes), 0)
    return code or (ended if ended >= 0 else 1)


def _pool(upping: Upping, url: str) -> Pool:
    threads = upping.loaded.settings.workers.threads
    log_format = upping.loaded.settings.log.format
    if log_format == "auto":  # the child speaks to a pipe
        log_format = "text" if sys.stderr.isatty() else "json"
    # Short enough for tables; the host is told beside it.
    name = [] if upping.loaded.settings.worker.id else ["--name", f"up-{os.getpid()}"]
    app = [] if upping.app is None else [upping.app]
    command = [sys.executable, "-P", "-m", "windlass", "worker", *app, "--scale", "--url", url]
    return Pool(
        [*command, "--threads", str(threads), "--log-format", log_format, *name],
        worker_environment(upping, os.environ),
        said=lambda text: click.echo(text, err=True),
        passed=_pass_on,
        is_reloading=upping.is_reloading,
    )


def _pass_on(line: bytes) -> None:
    if READY in line:
        line = b"Workers are ready.\n"
    sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()


def worker_environment(upping: Upping, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the workers: what they need of ours, with what the command line has said."""
    loaded = upping.loaded
    said = {
        "WINDLASS_WORKERS_DEFAULT_COUNT": str(loaded.settings.workers.default_count),
        "WINDLASS_WORKERS_MAX_COUNT": str(loaded.settings.workers.max_count),
        # Unless somebody wants more or less, the ends of jobs are seen.
        "WINDLASS_LOG_LEVEL": loaded.settings.log.level,
        # What the child prints is to be seen when it is printed.
        "PYTHONUNBUFFERED": "1",
    }
    if loaded.sources["worker.drain_seconds"] == "default":
        said["WINDLASS_WORKER_DRAIN_SECONDS"] = str(DRAIN_S)
    if upping.config_path is not None:
        said["WINDLASS_CONFIG"] = upping.config_path
    return {**for_workers(ours), **said}


def _wide_enough(flags: dict[str, object]) -> dict[str, object]:
    """Return the flags so that more workers than the usual most are no error where no other most is named."""
    wanted = flags["workers.default_count"]
    if not isinstance(wanted, int) or flags["workers.max_count"] is not None:
        return flags
    most = load_settings({"config": flags["config"]}).settings.workers.max_count
    return {**flags, "workers.max_count": max(most, wanted)}
