"""What commands that open a database share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from windlass.cli.config import load_settings
from windlass.db import Database, open_database
from windlass.db.open import Role

Command = TypeVar("Command", bound=Callable[..., Any])


def database_option(command: Command) -> Command:
    """Add `--database URL`; without it the URL is that of the settings."""
    option = click.option(
        "--database",
        "url",
        metavar="URL",
        callback=_from_settings,
        help="postgresql://user@host/name or sqlite:///file.db  [default: database.url of the settings]",
    )
    return option(command)


def _from_settings(_ctx: click.Context, _parameter: click.Parameter, url: str | None) -> str:
    # Named on the command line, settings that this command does not need are not looked at.
    return load_settings({}).settings.database.url if url is None else url


@asynccontextmanager
async def opened(url: str, *, role: Role) -> AsyncIterator[Database]:
    """Open the database for one command."""
    db = await open_database(url, role=role)
    try:
        yield db
    finally:
        await db.close()
