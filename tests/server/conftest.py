"""What tests of the API may ask for: a running engine, the application on it, and a client for each key.

engine    a running engine; the test runs once on each kind of database
door      the application, with the keys of tests/server/frame.py
key_ring  its gate, whose keys a test may revoke
client    a client whose key is `admin.a`
calls     a function from the name of a key to a client with that key
stored_keys  keys that may make others
papers    an authority, and the server's certificate as files
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import trustme

from tests.server.frame import KeyRing, bearer
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.queue import keys
from windlass.server.app import Door, create_app


@pytest.fixture
def settings() -> Settings:
    """The settings of the server; a test overrides this to change one."""
    return Settings()


@pytest.fixture
async def engine(db: Database, settings: Settings) -> AsyncIterator[Engine]:
    """A running engine; the test runs once on each kind of database."""
    made = Engine(db, settings, name="scheduler_test_1", outside=Outside())
    async with made.running():
        yield made


@pytest.fixture
def key_ring() -> KeyRing:
    """The gate, whose keys a test may revoke."""
    return KeyRing()


@pytest.fixture
async def stored_keys(engine: Engine) -> None:
    """The keys that make other keys are in the database, as those of a real gate are."""
    for name in ("root", "admin.a", "admin.b"):
        fields = {"name": name, "hash": name, "tenant": None, "scopes": "admin", "queues": None, "expires_at": None}
        await engine.db.fetch(keys.SQL.make_key, id=name, **fields)


@pytest.fixture
def door(engine: Engine, settings: Settings, key_ring: KeyRing) -> Door:
    """The application on the running engine; keys of callers that wait are looked at all the time."""
    return create_app(engine, settings, cast(Any, key_ring), look_s=0.01)


@pytest.fixture
async def calls(door: Door) -> AsyncIterator[Callable[[str], httpx2.AsyncClient]]:
    """Return a client for the name of a key; none for the empty name."""
    clients: list[httpx2.AsyncClient] = []

    def make(key: str) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=cast(Any, door))
        headers = bearer(key) if key else {}
        client = httpx2.AsyncClient(transport=transport, base_url="http://windlass.test/api/v1", headers=headers)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
def client(calls: Callable[[str], httpx2.AsyncClient]) -> httpx2.AsyncClient:
    """A client whose key may do everything in tenant `a`."""
    return calls("admin.a")


class Papers:
    """An authority, and the server's certificate as files."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key = folder / "server.pem", folder / "server.key"
        self.issue()

    def issue(self) -> None:
        """Write a certificate of a new authority."""
        self.authority = trustme.CA()
        certificate = self.authority.issue_cert("127.0.0.1")
        certificate.private_key_pem.write_to_path(self.key)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))

    def client(self) -> ssl.SSLContext:
        """Return what a client needs: trust in the server."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


@pytest.fixture
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates for one test."""
    return Papers(tmp_path_factory.mktemp("papers"))
