"""Where no key is asked for, web pages of others are kept out: forged origins, and names made to point here."""

from __future__ import annotations

import pytest

from windlass.config import Settings
from windlass.errors import Forbidden
from windlass.server.auth import ANONYMOUS, Gate
from windlass.server.run import own_hosts

HERE = "127.0.0.1"


@pytest.fixture
def gate() -> Gate:
    """A gate that wants no keys, and asks no database."""
    return Gate(None, keys_required=False, hosts=own_hosts(Settings()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8000"},
        {"host": "localhost.evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
        {"host": "[::1"},
        {"host": "localhost:8000", "origin": "http://evil.example"},
        {"host": "localhost:8000", "origin": "http://localhost:3000"},
        {"host": "localhost:8000", "origin": "null"},
        {"host": "localhost:8000", "origin": ""},
        {"host": "localhost:8000", "sec-fetch-site": "cross-site"},
        {"host": "localhost:8000", "sec-fetch-site": "same-site"},
    ],
)
async def test_rel_t13_a_page_of_others_is_refused(gate: Gate, headers: dict[str, str]) -> None:
    """T13: by its origin, by what the browser says of it, or by a name that is none of ours."""
    with pytest.raises(Forbidden):
        await gate.admit(headers, (), HERE)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost"},
        {"host": "LOCALHOST:8000"},
        {"host": "127.0.0.1:8000"},
        {"host": "[::1]:8000"},
        {"host": "192.0.2.7:8000"},
        {"host": "localhost:8000", "origin": "http://localhost:8000", "sec-fetch-site": "same-origin"},
        {"host": "localhost:8000", "sec-fetch-site": "none"},
    ],
)
async def test_programs_and_its_own_pages_come_in(gate: Gate, headers: dict[str, str]) -> None:
    """Who calls by an address, by localhost or by the server's own name, and from no page but its own."""
    assert ANONYMOUS == await gate.admit(headers, (), HERE)


def test_a_server_knows_its_names() -> None:
    """Its host, that of its URL, and the machine's."""
    assert {"127.0.0.1", "localhost"} <= own_hosts(Settings())
