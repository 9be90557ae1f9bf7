"""`windlass worker`: runs the tasks of an application, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio

import click
import msgspec

from windlass import log
from windlass.cli.config import config_option, load_settings
from windlass.config import Loaded, Settings
from windlass.config.address import address_file, read_address, sqlite_file
from windlass.config.environment import forget_secrets
from windlass.worker.run import run_fleet


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False)
@config_option
@click.option("--url", metavar="URL", help="Where the servers are.  [default: that of the SQLite file here]")
@click.option(
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    help="A queue to serve; may be said again.  [default: default, and those that the tasks name]",
)
@click.option("--threads", type=click.IntRange(1, 10_000), help="Jobs of one process at a time.  [default: 20]")
@click.option("--processes", type=click.IntRange(1, 1000), help="How many processes.  [default: 1]")
@click.option("--name", metavar="NAME", help="What the worker is called.  [default: worker-<uuid>]")
@click.option("--label", "labels", metavar="NAME", multiple=True, help="What only this worker has, such as gpu.")
@click.option("--scale", is_flag=True, help="As many processes as the servers recommend, within [workers].")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="How log lines look.")
@click.pass_context
def worker(
    ctx: click.Context,
    app: str | None,
    config_path: str | None,
    url: str | None,
    queues: tuple[str, ...],
    threads: int | None,
    processes: int | None,
    name: str | None,
    labels: tuple[str, ...],
    scale: bool,
    log_format: str | None,
) -> None:
    """Run the tasks of an application, until SIGTERM or Ctrl-C, and the work kinds of your settings.

    Without MODULE:APP it is that of worker.app; without either, only the work kinds.

    The first signal lets jobs finish (worker.drain_seconds), the second gives them back now; neither uses an attempt.

    Example: windlass worker shop.tasks:app --queue mail --queue default --threads 50
    """
    loaded = load_settings(
        {
            "config": config_path,
            "server.url": url,
            "worker.queues": queues or None,
            "worker.threads": threads,
            "workers.threads": threads if scale else None,
            "worker.processes": processes,
            "worker.id": name,
            "worker.labels": labels or None,
            "log.format": log_format,
        }
    )
    settings = _found(loaded)
    # Before it starts anything: what it starts runs tasks.
    forget_secrets()
    log.configure(settings.log.format, settings.log.level, redact=settings.security.redact)
    for warning in loaded.warnings:
        log.event("config.weak", detail=warning)
    work = run_fleet(
        settings,
        _target(app, settings),
        is_scaled=scale,
        serves_tasks_queues=loaded.sources["worker.queues"] == "default",
        said=lambda text: click.echo(text, err=True),
    )
    ctx.exit(asyncio.run(work))


def _target(app: str | None, settings: Settings) -> str | None:
    """Return the application to run; None: only work kinds. UsageError if there are none of these either."""
    app = app or settings.worker.app
    if app is None and not settings.work_kinds:
        raise click.UsageError(
            "There is nothing to run. Name your application: windlass worker MODULE:APP, or worker.app in the "
            "settings; or describe work kinds in windlass.toml."
        )
    return app


def _found(loaded: Loaded) -> Settings:
    """Return the settings; where nobody said where the servers are, with the one that has the SQLite file open."""
    settings = loaded.settings
    file = sqlite_file(settings.database.url)
    if loaded.sources["server.url"] != "default" or file is None:
        return settings
    address = read_address(address_file(file))
    if address is None:
        return settings
    server = msgspec.structs.replace(settings.server, url=address.url)
    return msgspec.structs.replace(settings, server=server)
