"""`windlass keys` as people call it: the token once, alone, and everything else beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from tests.clock import no_pause
from tests.databases import opened
from windlass.cli import cli
from windlass.db import Database, open_database
from windlass.queue import audit, tenants
from windlass.queue.keys import ROLES, NewKey, StoredKey, create, find, key_id_of

T = TypeVar("T")


def windlass(url: str, *arguments: str) -> Result:
    """Run a command of `windlass keys` on a database and return what it answered."""
    return CliRunner().invoke(cli, ["keys", *arguments, "--database", url])


def asked(url: str, ask: Callable[[Database], Awaitable[T]]) -> T:
    """Ask the database something, as a server would."""

    async def run() -> T:
        async with opened(url) as db:
            return await ask(db)

    return asyncio.run(run())


def found(url: str, token: str) -> StoredKey | None:
    """Return the key of a token, if it may be used."""
    return next(iter(asked(url, lambda db: find(db, [key_id_of(token) or ""])).values()), None)


def shown(answer: Result) -> list[dict[str, Any]]:
    """Return the JSON of each line of an answer."""
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_the_token_stands_alone_on_stdout(database_url: str) -> None:
    """N8: a script takes the token from stdout; what a person should know stands on stderr, without the token."""
    answer = windlass(database_url, "create", "shop", "--role", "producer", "--tenant", "default", "--queue", "mail")

    [token] = answer.stdout.splitlines()
    stored = found(database_url, token)
    assert 0 == answer.exit_code
    assert stored is not None
    assert ("shop", "default", ROLES["producer"]) == (stored.key.name, stored.key.tenant, stored.key.scopes)
    assert frozenset({"mail"}) == stored.key.queues
    made = f"Made key {stored.key.id} (shop; read, submit; tenant default; queues mail) in {database_url}."
    assert made in answer.stderr
    assert token not in answer.stderr


def test_a_key_as_json_has_its_token_in_it(database_url: str) -> None:
    """With -o json there is one object and nothing else, also on stderr."""
    answer = windlass(database_url, "create", "shop", "--scope", "read", "--scope", "work", "-o", "json")

    [key] = shown(answer)
    assert (0, "") == (answer.exit_code, answer.stderr)
    assert {"name": "shop", "scopes": ["read", "work"], "tenant": None, "queues": None}.items() <= key.items()
    assert found(database_url, key["token"]) is not None


def test_scopes_and_roles_add_up(database_url: str) -> None:
    """N2: a role is a set of scopes, and more may stand beside it."""
    answer = windlass(database_url, "create", "k", "--role", "worker", "--role", "reader", "--scope", "submit")

    stored = found(database_url, answer.stdout.strip())
    assert stored is not None
    assert {"work", "read", "submit"} == stored.key.scopes


@pytest.mark.parametrize(
    ("when", "span"),
    [
        ("30d", timedelta(days=30)),
        ("2w", timedelta(weeks=2)),
        ("12h", timedelta(hours=12)),
        ("5m", timedelta(minutes=5)),
    ],
)
def test_a_key_may_end_after_a_span(sqlite_url: str, when: str, span: timedelta) -> None:
    """N2: --expires takes minutes, hours, days and weeks from now."""
    before = datetime.now(UTC)

    [key] = shown(windlass(sqlite_url, "create", "k", "--role", "reader", "--expires", when, "-o", "json"))

    ends_at = datetime.fromisoformat(key["expires_at"])
    assert before + span <= ends_at <= datetime.now(UTC) + span


def test_a_key_may_end_at_a_time(sqlite_url: str) -> None:
    """N2: or an instant with its zone."""
    answer = windlass(sqlite_url, "create", "k", "--role", "reader", "--expires", "2999-01-31T12:00:00+02:00")

    stored = found(sqlite_url, answer.stdout.strip())
    assert stored is not None
    assert datetime(2999, 1, 31, 10, tzinfo=UTC) == stored.key.expires_at


@pytest.mark.parametrize(
    ("complaint", "arguments"),
    [
        ("give --scope or --role", ["k"]),
        ("'soon' is neither a span like 30d", ["k", "--role", "reader", "--expires", "soon"]),
        ("is neither a span", ["k", "--role", "reader", "--expires", "2999-01-31T12:00:00"]),
        ("'root' is not one of", ["k", "--scope", "root"]),
        ("name: 'a/b' holds", ["a/b", "--role", "reader"]),
        ("cannot be limited to queues", ["k", "--role", "admin", "--queue", "mail"]),
    ],
)
def test_wrong_usage_makes_no_key(sqlite_url: str, complaint: str, arguments: list[str]) -> None:
    """Exit code 2, with what is wrong; nothing is stored and no token shown."""
    answer = windlass(sqlite_url, "create", *arguments)

    assert (2, "") == (answer.exit_code, answer.stdout)
    assert complaint in answer.stderr
    assert [] == shown(windlass(sqlite_url, "list", "-o", "json"))


def test_a_key_of_an_unknown_tenant_is_not_made(database_url: str) -> None:
    """Exit code 3, as for everything that is not there."""
    answer = windlass(database_url, "create", "k", "--role", "reader", "--tenant", "nobody")

    assert (3, "") == (answer.exit_code, answer.stdout)
    assert "There is no tenant nobody" in answer.stderr


def test_keys_are_listed_without_their_secrets(database_url: str) -> None:
    """N6: neither token nor hash; those of one tenant, or all."""
    asked(database_url, lambda db: tenants.create(db, "acme", pause=no_pause))
    token = windlass(database_url, "create", "a", "--role", "reader", "--tenant", "acme").stdout.strip()
    windlass(database_url, "create", "b", "--role", "admin")

    both, text = windlass(database_url, "list", "-o", "json"), windlass(database_url, "list")
    own = windlass(database_url, "list", "--tenant", "acme", "-o", "json")

    assert ["a"] == [key["name"] for key in shown(own)]
    assert {"a", "b"} == {key["name"] for key in shown(both)}
    assert {"id", "name", "tenant", "scopes", "queues", "created_at", "expires_at", "revoked_at"} == shown(own)[
        0
    ].keys()
    assert f"{key_id_of(token)}  a; read; tenant acme" in text.stdout.splitlines()
    assert token.split("_")[2] not in both.stdout + text.stdout


def test_more_keys_than_a_page_are_all_listed(sqlite_url: str) -> None:
    """Pages are the database's business."""

    async def make(db: Database) -> None:
        for _ in range(101):
            await create(db, NewKey(name="k", scopes=frozenset({"read"})))

    asked(sqlite_url, make)

    assert 101 == len(windlass(sqlite_url, "list").stdout.splitlines())


def test_a_revoked_key_is_over(database_url: str) -> None:
    """Exit code 0, again too; 3 for one that never was."""
    token = windlass(database_url, "create", "shop", "--role", "reader").stdout.strip()
    key_id = key_id_of(token) or ""

    first, second = windlass(database_url, "revoke", key_id), windlass(database_url, "revoke", key_id, "-o", "json")
    unknown = windlass(database_url, "revoke", "aaaaaaaaaaaa")

    assert None is found(database_url, token)
    assert [0, 0, 3] == [first.exit_code, second.exit_code, unknown.exit_code]
    assert first.stdout.startswith(f"Revoked key {key_id} (shop; read; all tenants; revoked 2")
    assert shown(second)[0]["revoked_at"] is not None
    assert "There is no key aaaaaaaaaaaa" in unknown.stderr


def test_rel_t16_what_is_done_here_is_written_down(database_url: str) -> None:
    """X10: making and revoking leave an entry each, without the token; what failed leaves none."""
    token = windlass(database_url, "create", "shop", "--role", "reader", "--tenant", "default").stdout.strip()
    windlass(database_url, "revoke", key_id_of(token) or "")
    windlass(database_url, "revoke", "aaaaaaaaaaaa")

    entries = asked(database_url, lambda db: audit.list_entries(db, "default")).entries

    assert [("key.revoke", key_id_of(token)), ("key.create", key_id_of(token))] == [
        (entry.action, entry.subject) for entry in entries
    ]
    assert all((entry.actor or "").endswith("command line)") for entry in entries)
    assert token.split("_")[2] not in repr(entries)


def test_keys_are_made_beside_a_running_server(database_url: str) -> None:
    """N8: on the server's host, while it runs; it needs the client's role only."""

    async def serve() -> Result:
        server = await open_database(database_url)
        try:
            return await asyncio.to_thread(windlass, database_url, "create", "k", "--role", "reader")
        finally:
            await server.close()

    answer = asyncio.run(serve())

    assert 0 == answer.exit_code
    assert found(database_url, answer.stdout.strip()) is not None


def test_a_token_for_the_first_key_needs_no_database() -> None:
    """N8, T21: there is no default secret; this makes one for security.bootstrap_key, another each time."""
    one, other = (CliRunner().invoke(cli, ["keys", "token"]).stdout.strip() for _ in range(2))

    assert key_id_of(one) is not None
    assert one != other
