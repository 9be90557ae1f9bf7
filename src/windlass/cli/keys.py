"""`windlass keys`: make, list and revoke keys, on a server or in its database.

A server is named or found as for every command (calls.py), and asks for the key of an admin. Where none runs, and with
`--database`, the database is opened: whoever can do that stands above all keys, so this is how the first key is made.
What is done there is written to the audit log, in the same transaction.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypeVar

import click
import msgspec

from windlass.cli.calls import Server
from windlass.cli.config import config_option, load_settings
from windlass.cli.database import opened
from windlass.cli.values import DATABASE_URL
from windlass.clock import system_clock
from windlass.config.redact import whole_url as without_password
from windlass.db import Database
from windlass.db.migrate import check_schema
from windlass.errors import Forbidden, Unauthorized
from windlass.ids import Ids
from windlass.queue import audit
from windlass.queue import keys as stored
from windlass.queue.keys import ROLES, SCOPES, Key, NewKey
from windlass.wire import people as wire

Output = Literal["text", "json"]
Command = TypeVar("Command", bound=Callable[..., Any])
Found = TypeVar("Found")

UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_SPAN = re.compile(r"(\d{1,5})([mhdw])", re.ASCII)


def _expiry(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Return the instant that is meant: a span from now, or a time with its zone."""
    if value is None:
        return None
    if span := _SPAN.fullmatch(value):
        return system_clock() + int(span[1]) * UNITS[span[2]]
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise click.BadParameter(
            f"{value!r} is neither a span like 30d (m, h, d, w) nor a time like 2027-01-31T12:00:00Z.", ctx, param
        )
    return instant


def output_option(command: Command) -> Command:
    """Add `-o text|json`."""
    option = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
    return option(command)


@click.group()
def keys() -> None:
    """Make, list and revoke the keys that callers need."""


class KeyStore(Protocol):
    """Where keys are."""

    where: str
    """For messages: on which server, or in which database."""

    def create(self, new: NewKey) -> wire.NewKey:
        """Make a key."""

    def find(self, tenant: str | None) -> Iterable[wire.Key]:
        """Return all keys by id, of one tenant or of all."""

    def revoke(self, key_id: str) -> wire.Key:
        """End a key."""


def asks_keys(command: Command) -> Command:
    """Add `--url`, `--database` and `--config`; the command gets the keys they lead to as its first argument."""

    @functools.wraps(command)
    def asking(*arguments: Any, config_path: str | None, url: str | None, database: str | None, **options: Any) -> Any:
        if url is not None and database is not None:
            raise click.UsageError("--url and --database are both given. Give the one where the keys are.")
        if database is not None:
            return command(InDatabase(database), *arguments, **options)
        loaded = load_settings({"config": config_path, "server.url": url})
        with Server(loaded) as server:
            found = OnServer(server) if server.is_running else InDatabase(loaded.settings.database.url)
            return command(found, *arguments, **options)

    for option in (
        click.option("--url", metavar="URL", help="Where a server is.  [default: the one that runs here]"),
        click.option(
            "--database", type=DATABASE_URL, metavar="URL", help="Open this database instead; no key is asked for."
        ),
    ):
        asking = option(asking)
    return config_option(asking)  # type: ignore[return-value]


@keys.command()
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(sorted(SCOPES)), help="May stand several times.")
@click.option("--role", "roles", multiple=True, type=click.Choice(sorted(ROLES)), help="A named set of scopes.")
@click.option("--tenant", help="The only tenant it is for.  [default: all tenants]")
@click.option("--queue", "queues", multiple=True, help="A queue it is for; may stand several times.  [default: all]")
@click.option(
    "--expires", "expires_at", metavar="WHEN", callback=_expiry, help="30d, 12h, or a time.  [default: never]"
)
@output_option
@asks_keys
def create(
    store: KeyStore,
    name: str,
    *,
    scopes: tuple[str, ...],
    roles: tuple[str, ...],
    tenant: str | None,
    queues: tuple[str, ...],
    expires_at: datetime | None,
    output: Output,
) -> None:
    """Make a key and print its token, once: it is stored nowhere.

    Roles: admin = all scopes; producer = submit, read; reader = read; worker = work.

    Example: windlass keys create shop --role producer --tenant acme --expires 90d
    """
    wanted = frozenset(scopes).union(*(ROLES[role] for role in roles))
    if not wanted:
        raise click.UsageError("A key needs a scope: give --scope or --role.")
    new = NewKey(
        name=name, scopes=wanted, tenant=tenant, queues=frozenset(queues) if queues else None, expires_at=expires_at
    )
    key = store.create(new)
    if output == "json":
        _echo_json(key, store)
    else:
        made = f"Made key {key.id} ({_described(key)}) {store.where}."
        click.echo(f"{made} Keep its token, it is not shown again:", err=True)
        click.echo(key.token)


@keys.command(name="list")
@click.option("--tenant", help="Only keys of this tenant.")
@output_option
@asks_keys
def list_(store: KeyStore, tenant: str | None, *, output: Output) -> None:
    """Show all keys by id, also those that are revoked or expired.

    Example: windlass keys list --tenant acme -o json
    """
    found = store.find(tenant)
    if output == "text":
        click.echo(f"Keys {store.where}:", err=True)
    for key in found:
        click.echo(msgspec.json.encode(key) if output == "json" else f"{key.id}  {_described(key)}")


@keys.command()
@click.argument("key_id", metavar="ID")
@output_option
@asks_keys
def revoke(store: KeyStore, key_id: str, *, output: Output) -> None:
    """End a key for good; every server refuses it within five seconds. Again is the same.

    Example: windlass keys revoke k3v7pq2mzx4a
    """
    key = store.revoke(key_id)
    if output == "json":
        _echo_json(key, store)
    else:
        click.echo(f"Revoked key {key.id} ({_described(key)}) {store.where}.")


@keys.command()
def token() -> None:
    """Print a new token that is stored nowhere, for the setting security.bootstrap_key.

    Example: windlass keys token > bootstrap_key
    """
    click.echo(stored.make_token())


class OnServer:
    """The keys of a server, over HTTP: it asks for the key of an admin."""

    def __init__(self, server: Server) -> None:
        self.where = f"on {server.url}"
        self._server = server

    def create(self, new: NewKey) -> wire.NewKey:
        """Make a key; the server writes the audit."""
        with self._hint():
            return msgspec.convert(self._server.post("/keys", msgspec.structs.asdict(new)), wire.NewKey)

    def find(self, tenant: str | None) -> Iterable[wire.Key]:
        """Return all keys by id, of one tenant or of all."""
        with self._hint():
            return msgspec.convert(list(self._server.pages("/keys", "keys", tenant=tenant)), list[wire.Key])

    def revoke(self, key_id: str) -> wire.Key:
        """End a key; the server writes the audit."""
        with self._hint():
            return msgspec.convert(self._server.call("DELETE", f"/keys/{key_id}"), wire.Key)

    @contextmanager
    def _hint(self) -> Iterator[None]:
        """Add to a refusal how the first key is made."""
        try:
            yield
        except (Unauthorized, Forbidden) as error:
            database = without_password(self._server.settings.database.url) if self._server.is_found else "URL"
            raise type(error)(
                f"{error} Set the key of an admin as WINDLASS_KEY. "
                f"On a host that can open the database `--database {database}` needs none."
            ) from None


class InDatabase:
    """The keys in a database that this host can open."""

    def __init__(self, url: str) -> None:
        self.where = f"in {without_password(url)}"
        self._url = url

    def create(self, new: NewKey) -> wire.NewKey:
        """Make a key, and its entry in the audit with it."""

        async def make(db: Database) -> wire.NewKey:
            async with db.transaction() as transaction:
                key, made = await stored.create(transaction, new)
                await audit.record(transaction, Ids(db.now), _entry("key.create", key))
            return wire.NewKey(**msgspec.structs.asdict(_shown(key)), token=made)

        return asyncio.run(self._do(make))

    def find(self, tenant: str | None) -> Iterable[wire.Key]:
        """Return all keys by id, of one tenant or of all."""

        async def look(db: Database) -> list[wire.Key]:
            page = await stored.list_keys(db, tenant)
            found = page.keys
            while page.next_cursor is not None:
                page = await stored.list_keys(db, tenant, cursor=page.next_cursor)
                found += page.keys
            return [_shown(key) for key in found]

        return asyncio.run(self._do(look))

    def revoke(self, key_id: str) -> wire.Key:
        """End a key, with its entry in the audit."""

        async def end(db: Database) -> wire.Key:
            async with db.transaction() as transaction:
                key = await stored.revoke(transaction, key_id)
                await audit.record(transaction, Ids(db.now), _entry("key.revoke", key))
            return _shown(key)

        return asyncio.run(self._do(end))

    async def _do(self, act: Callable[[Database], Awaitable[Found]]) -> Found:
        async with opened(self._url, role="client") as db:
            await check_schema(db)
            return await act(db)


def _entry(action: str, key: Key) -> audit.Entry:
    became = msgspec.json.encode(_shown(key)).decode()
    return audit.Entry(action=action, subject=key.id, tenant=key.tenant or "", actor=_person(), became=became)


def _person() -> str:
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError):  # a container may run as a number without a name
        return "command line"


def _shown(key: Key) -> wire.Key:
    queues = None if key.queues is None else sorted(key.queues)
    return wire.Key(**msgspec.structs.asdict(key) | {"scopes": sorted(key.scopes), "queues": queues})


def _echo_json(key: wire.Key, store: KeyStore) -> None:
    click.echo(msgspec.json.encode({**msgspec.structs.asdict(key), "where": store.where.partition(" ")[2]}))


def _described(key: wire.Key) -> str:
    parts = [key.name, ", ".join(sorted(key.scopes)), f"tenant {key.tenant}" if key.tenant else "all tenants"]
    if key.queues is not None:
        parts.append("queues " + ", ".join(sorted(key.queues)))
    if key.revoked_at is not None:
        parts.append(f"revoked {key.revoked_at:%Y-%m-%dT%H:%M:%SZ}")
    elif key.expires_at is not None:
        parts.append(f"expires {key.expires_at:%Y-%m-%dT%H:%M:%SZ}")
    return "; ".join(parts)
