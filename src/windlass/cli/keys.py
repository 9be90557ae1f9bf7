"""`windlass keys`: make, list and revoke keys, on the host that has the database's URL.

Whoever can open the database stands above all keys, so this is how the first one is made.
What is done here is written to the audit log, in the same transaction.
"""

from __future__ import annotations

import asyncio
import getpass
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

import click
import msgspec

from windlass.cli.database import database_option, opened
from windlass.clock import system_clock
from windlass.db.migrate import check_schema
from windlass.ids import Ids
from windlass.queue import audit
from windlass.queue import keys as stored
from windlass.queue.keys import ROLES, SCOPES, Key, NewKey

Output = Literal["text", "json"]
Command = TypeVar("Command", bound=Callable[..., Any])

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
@database_option
def create(
    name: str,
    *,
    scopes: tuple[str, ...],
    roles: tuple[str, ...],
    tenant: str | None,
    queues: tuple[str, ...],
    expires_at: datetime | None,
    output: Output,
    url: str,
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
    key, token = asyncio.run(_create(url, new))
    if output == "json":
        click.echo(msgspec.json.encode(_shown(key) | {"token": token}))
    else:
        click.echo(f"Made key {key.id} ({_described(key)}). Keep its token, it is not shown again:", err=True)
        click.echo(token)


@keys.command(name="list")
@click.option("--tenant", help="Only keys of this tenant.")
@output_option
@database_option
def list_(tenant: str | None, *, output: Output, url: str) -> None:
    """Show all keys by id, also those that are revoked or expired.

    Example: windlass keys list --tenant acme -o json
    """
    for key in asyncio.run(_list(url, tenant)):
        if output == "json":
            click.echo(msgspec.json.encode(_shown(key)))
        else:
            click.echo(f"{key.id}  {_described(key)}")


@keys.command()
@click.argument("key_id", metavar="ID")
@output_option
@database_option
def revoke(key_id: str, *, output: Output, url: str) -> None:
    """End a key for good; every server refuses it within five seconds. Again is the same.

    Example: windlass keys revoke k3v7pq2mzx4a
    """
    key = asyncio.run(_revoke(url, key_id))
    click.echo(msgspec.json.encode(_shown(key)) if output == "json" else f"Revoked key {key.id} ({_described(key)}).")


@keys.command()
def token() -> None:
    """Print a new token that is stored nowhere, for the setting security.bootstrap_key.

    Example: windlass keys token > bootstrap_key
    """
    click.echo(stored.make_token())


async def _create(url: str, new: NewKey) -> tuple[Key, str]:
    async with opened(url, role="client") as db:
        await check_schema(db)
        async with db.transaction() as transaction:
            key, made = await stored.create(transaction, new)
            await audit.record(transaction, Ids(), _entry("key.create", key))
        return key, made


async def _list(url: str, tenant: str | None) -> list[Key]:
    found: list[Key] = []
    async with opened(url, role="client") as db:
        await check_schema(db)
        cursor, more = None, True
        while more:
            page = await stored.list_keys(db, tenant, cursor=cursor)
            found += page.keys
            cursor, more = page.next_cursor, page.next_cursor is not None
    return found


async def _revoke(url: str, key_id: str) -> Key:
    async with opened(url, role="client") as db:
        await check_schema(db)
        async with db.transaction() as transaction:
            key = await stored.revoke(transaction, key_id)
            await audit.record(transaction, Ids(), _entry("key.revoke", key))
        return key


def _entry(action: str, key: Key) -> audit.Entry:
    became = msgspec.json.encode(_shown(key)).decode()
    return audit.Entry(action=action, subject=key.id, tenant=key.tenant or "", actor=_person(), became=became)


def _person() -> str:
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError):  # a container may run as a number without a name
        return "command line"


def _shown(key: Key) -> dict[str, Any]:
    return msgspec.structs.asdict(key) | {
        "scopes": sorted(key.scopes),
        "queues": None if key.queues is None else sorted(key.queues),
    }


def _described(key: Key) -> str:
    parts = [key.name, ", ".join(sorted(key.scopes)), f"tenant {key.tenant}" if key.tenant else "all tenants"]
    if key.queues is not None:
        parts.append("queues " + ", ".join(sorted(key.queues)))
    if key.revoked_at is not None:
        parts.append(f"revoked {key.revoked_at:%Y-%m-%dT%H:%M:%SZ}")
    elif key.expires_at is not None:
        parts.append(f"expires {key.expires_at:%Y-%m-%dT%H:%M:%SZ}")
    return "; ".join(parts)
