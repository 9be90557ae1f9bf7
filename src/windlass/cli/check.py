"""`windlass check`: prove that the database keeps every invariant."""

from __future__ import annotations

import asyncio

import click

from windlass.cli.database import database_option, opened
from windlass.config.redact import whole_url as without_password
from windlass.db.migrate import check_schema
from windlass.queue.check import INVARIANTS, Violation
from windlass.queue.check import check as find_violations


@click.command()
@database_option
@click.pass_context
def check(ctx: click.Context, url: str) -> None:
    """Look for anything that must not be: lost or doubled jobs, leases without owner, limits broken.

    Reads only, beside running servers. Exit code 0: all invariants hold; 1: each violation is named.

    Example: windlass check --database postgresql://localhost/jobs
    """
    violations = asyncio.run(_check(url))
    for violation in violations:
        click.echo(f"{violation.invariant}: {violation.subject}: {violation.detail}")
    if violations:
        click.echo(f"{len(violations)} violations of the invariants above, in {without_password(url)}.", err=True)
        ctx.exit(1)
    click.echo(f"All {len(INVARIANTS)} invariants of {without_password(url)} hold.")


async def _check(url: str) -> list[Violation]:
    async with opened(url, role="client") as db:
        await check_schema(db)
        return await find_violations(db)
