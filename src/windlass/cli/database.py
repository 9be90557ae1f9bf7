"""What commands that open a database share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from windlass.db import Database, open_database
from windlass.db.open import Role

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_URL = "sqlite:///windlass.db"


def database_option(command: Command) -> Command:
    """Add `--database URL`, also read from WINDLASS_DATABASE_URL."""
    option = click.option(
        "--database",
        "url",
        metavar="URL",
        envvar="WINDLASS_DATABASE_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="postgresql://user@host/name or sqlite:///file.db",
    )
    return option(command)


@asynccontextmanager
async def opened(url: str, *, role: Role) -> AsyncIterator[Database]:
    """Open the database for one command."""
    db = await open_database(url, role=role)
    try:
        yield db
    finally:
        await db.close()
