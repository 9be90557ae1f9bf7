"""How commands call a server: found as the Python API finds it (client/find.py), its problems as our errors.

A flag or WINDLASS_URL names it; else it is the one that runs on the SQLite file of the settings; else none does, and
the file, or PostgreSQL, is opened by the command itself: what can be asked and said then waits for workers.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import msgspec

from windlass.cli.config import config_option, load_settings
from windlass.client import answers
from windlass.client.doors import Door, HttpDoor
from windlass.client.find import Finder
from windlass.client.requests import Request
from windlass.config import Loaded
from windlass.config.address import sqlite_file
from windlass.errors import Unavailable

PAGE = 500
Command = TypeVar("Command", bound=Callable[..., Any])


class Server:
    """A server, as a command calls it."""

    def __init__(self, loaded: Loaded, *, tenant: str | None = None) -> None:
        self.settings = settings = loaded.settings
        named = settings.server.url if loaded.sources["server.url"] != "default" else None
        self._finder = Finder(named, key=None, database=None, settings=settings)
        self._tenant = tenant
        self._door: Door | None = None
        self._is_refused = False
        self._is_told = False
        """Whether the user was told that no server runs."""

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self._door is not None:
            self._door.close()

    @property
    def url(self) -> str:
        """Where it is: an address, or the database where no server runs."""
        return self._found().where

    @property
    def is_running(self) -> bool:
        """Whether a server was named or found; False: the database is opened instead."""
        return self._found().is_server

    @property
    def is_found(self) -> bool:
        """Whether it was found beside the database of the settings, and not named."""
        return self._found().is_found

    def health(self) -> dict[str, Any]:
        """Return how the server says it is, also when it is not well; where none runs, that."""
        door = self._found()
        if not isinstance(door, HttpDoor):
            self._is_told = True
            if not has_database(self.settings.database.url):
                return {"status": "unavailable", "reasons": [self._nowhere(door)]}
            return {"status": "no server", "reasons": ["No server runs here; the database was opened instead."]}
        answer = door.send(Request(method="GET", path=f"{door.url}/health"))
        try:
            return dict(msgspec.json.decode(answer.body))
        except (msgspec.DecodeError, TypeError, ValueError):
            raise Unavailable(f"{door.where} does not answer as a Windlass server does. Check WINDLASS_URL.") from None

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer's JSON; the server's problem as an error."""
        return self.call("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """Send the body as JSON and return the answer's JSON; the server's problem as an error."""
        return self.call("POST", path, body=body, **query)

    def call(self, method: Any, path: str, *, body: Any = None, **query: Any) -> Any:
        """Return the answer's JSON, None for an empty one; the server's problem as an error."""
        asked = {name: value for name, value in {"tenant": self._tenant, **query}.items() if value is not None}
        request = Request(
            method=method,
            path=path,
            query=asked,
            body=None if body is None else msgspec.json.encode(body),
            answer=Any,
            wait_s=float(asked.get("wait", 0.0)),
        )
        door = self._found()
        if not door.is_server:
            self._tell_database(door, method)
        try:
            return answers.read(request, door.send(request), where=door.where)
        except Unavailable:
            # One that was found beside the database may have gone for good, or be back elsewhere.
            self._is_refused = door.is_found
            raise

    def pages(self, path: str, name: str, *, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """Yield the items called `name` of a list, page by page, `limit` of them at most."""
        cursor: str | None = None
        while limit is None or limit > 0:
            page = self.get(path, limit=min(PAGE, limit or PAGE), cursor=cursor, **query)
            yield from page[name]
            cursor = page["next_cursor"]
            limit = None if limit is None else limit - len(page[name])
            if cursor is None:
                return

    def _tell_database(self, door: Door, method: str) -> None:
        """Say once that the database itself is used; Unavailable for a look at a file that is not there."""
        if method == "GET" and not has_database(self.settings.database.url):
            raise Unavailable(self._nowhere(door))
        if not self._is_told:
            self._is_told = True
            what = "this is about" if method == "GET" else "this is kept in"
            click.echo(f"No server runs here: {what} {door.where}. `windlass up` starts one.", err=True)

    @staticmethod
    def _nowhere(door: Door) -> str:
        where = f"No server runs here, and there is no {door.where}."
        return f"{where} Start one with `windlass up`, or name one with --url or WINDLASS_URL."

    def _found(self) -> Door:
        before = self._door
        self._door = door = self._finder.find(before, refused=self._is_refused)
        if before is not None and before is not door:
            before.close()
        self._is_refused = False
        return door


def has_database(url: str) -> bool:
    """Say whether a database may be there: a SQLite file that is absent is not, of a PostgreSQL nothing is known."""
    file = sqlite_file(url)
    return file is None or file.exists()


def confirm(act: str, *, yes: bool) -> None:
    """Ask the user at a terminal, unless --yes was given. Raises if the user does not agree."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"This would {act}. Say --yes to do it.")
    click.confirm(f"{act[0].upper()}{act[1:]}?", abort=True)


def asks_server(command: Command) -> Command:
    """Add `--url`, `--tenant` and `--config`; the command gets the server they lead to as its first argument."""

    @functools.wraps(command)
    def asking(*arguments: Any, config_path: str | None, url: str | None, tenant: str | None, **options: Any) -> Any:
        loaded = load_settings({"config": config_path, "server.url": url})
        with Server(loaded, tenant=tenant) as server:
            return command(server, *arguments, **options)

    with_tenant = click.option("--tenant", metavar="NAME", help="Whose things; for keys above tenants.")(asking)
    with_url = click.option("--url", metavar="URL", help="Where a server is.  [default: the one that runs here]")
    return config_option(with_url(with_tenant))  # type: ignore[return-value]
