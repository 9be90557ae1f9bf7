"""`windlass migrate`: bring the schema up to this version."""

from __future__ import annotations

import asyncio

import click

from windlass.cli.database import database_option, opened
from windlass.config.redact import whole_url as without_password
from windlass.db.migrate import migrate as apply_migrations


@click.command()
@database_option
@click.option("--dry-run", is_flag=True, help="Only say what would be applied.")
def migrate(url: str, dry_run: bool) -> None:
    """Apply the migrations that the database lacks; safe to run again and by several at once.

    Example: windlass migrate --database postgresql://localhost/jobs
    """
    asyncio.run(_migrate(url, dry_run))


async def _migrate(url: str, dry_run: bool) -> None:
    # A dry run changes nothing, so it may look beside a running server.
    async with opened(url, role="client" if dry_run else "server") as db:
        applied = await apply_migrations(db, dry_run=dry_run)
        version = await db.version()
    verb = "Would apply" if dry_run else "Applied"
    for migration in applied:
        click.echo(f"{verb} {migration.number:04d}_{migration.name}")
    schema = f"the schema of {without_password(url)} is current ({version})."
    if not applied:
        click.echo(f"Nothing to apply: {schema}")
    elif dry_run:
        click.echo(f"Nothing was written to {without_password(url)}.")
    else:
        click.echo(f"T{schema[1:]}")
