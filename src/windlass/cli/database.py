"""What commands that open a database share.

`--database` names it, else the settings do; where they name a server and no database, none is guessed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from windlass.cli.calls import has_database
from windlass.cli.config import load_settings
from windlass.cli.values import DATABASE_URL
from windlass.config.redact import whole_url as without_password
from windlass.db import Database, open_database
from windlass.db.open import Role
from windlass.errors import SetupError

Command = TypeVar("Command", bound=Callable[..., Any])


def database_option(command: Command) -> Command:
    """Add `--database URL`; without it the URL is that of the settings."""
    option = click.option(
        "--database",
        "url",
        type=DATABASE_URL,
        metavar="URL",
        callback=_from_settings,
        help="postgresql://user@host/name or sqlite:///file.db  [default: database.url of the settings]",
    )
    return option(command)


def _from_settings(_ctx: click.Context, _parameter: click.Parameter, url: str | None) -> str:
    if url is not None:  # settings that this command does not need are not looked at
        return url
    loaded = load_settings({})
    if loaded.sources["server.url"] != "default" and loaded.sources["database.url"] == "default":
        server = without_password(loaded.settings.server.url)
        raise click.UsageError(
            f"This opens a database, and the settings name only a server, {server}. "
            "Name its database with --database, where that can be reached."
        )
    return loaded.settings.database.url


@asynccontextmanager
async def opened(url: str, *, role: Role) -> AsyncIterator[Database]:
    """Open the database for one command; SetupError if it is to be read and is not there."""
    if role == "client" and not has_database(url):
        raise SetupError(
            f"There is no database at {without_password(url)}; nothing was written. `windlass migrate` makes it. "
            "If a server is meant, name it with WINDLASS_URL."
        )
    db = await open_database(url, role=role)
    try:
        yield db
    finally:
        await db.close()
