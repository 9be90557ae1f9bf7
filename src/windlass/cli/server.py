"""`windlass server`: one server of an installation, or all of it."""

from __future__ import annotations

import asyncio

import click
import uvloop

from windlass import log
from windlass.cli.config import config_option, load_settings
from windlass.cli.values import DATABASE_URL
from windlass.config.environment import hide_secrets
from windlass.server.run import is_loopback, keys_required, serve


@click.command()
@config_option
@click.option("--database", type=DATABASE_URL, metavar="URL", help="postgresql://user@host/name or sqlite:///file.db")
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes any free one.  [default: 8000]")
@click.option("--insecure", is_flag=True, help="Let anybody call without a key, beyond this machine too.")
@click.option("--migrate", "migrates", is_flag=True, help="Bring an older schema up to this version first.")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="How log lines look.")
@click.pass_context
def server(
    ctx: click.Context,
    config_path: str | None,
    database: str | None,
    host: str | None,
    port: int | None,
    insecure: bool,
    migrates: bool,
    log_format: str | None,
) -> None:
    """Serve the API and do the background duties, until SIGTERM or Ctrl-C.

    An empty database is set up by itself. Several servers may share one PostgreSQL; a SQLite file has one.

    Example: windlass server --database postgresql://localhost/jobs --port 8080
    """
    loaded = load_settings(
        {
            "config": config_path,
            "database.url": database,
            "server.host": host,
            "server.port": port,
            "server.insecure": insecure or None,
            "log.format": log_format,
        }
    )
    settings = loaded.settings
    hide_secrets()
    log.configure(settings.log.format, settings.log.level, redact=settings.security.redact)
    for warning in loaded.warnings:
        log.event("config.weak", detail=warning)
    if not keys_required(settings):
        where = "from this machine" if is_loopback(settings.server.host) else "from ANYWHERE that reaches this address"
        click.secho(f"No key is needed: everybody {where} may do everything.", fg="yellow", err=True)
    if settings.server.insecure and not is_loopback(settings.server.host) and settings.security.tls_cert is None:
        click.secho("Keys and jobs travel unencrypted: set security.tls_cert, or use a proxy.", fg="yellow", err=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(serve(settings, migrate=migrates, said=lambda text: click.echo(text, err=True)))
    ctx.exit(code)
