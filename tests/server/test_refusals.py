"""Refused requests leave a trace in the log: who, from where, why; and never more lines than somebody can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import httpx2
import pytest

from tests.clock import TestClock
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.log import Line
from windlass.queue import keys
from windlass.queue.keys import NewKey, make_token
from windlass.server.app import create_app
from windlass.server.auth import Gate
from windlass.server.problems import Refusals

pytestmark = pytest.mark.one_kind


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the lines of refused requests."""
    lines = [record.msg for record in caplog.records if isinstance(record.msg, Line)]
    return [dict(line.fields) for line in lines if line.name == "request.refused"]


async def test_rel_t2_a_refused_key_is_told(
    engine: Engine, db: Database, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    """L11: 401, 403 and 429 leave a line with key id and address, and nothing of the token."""
    key, token = await keys.create(db, NewKey(name="shop", scopes=frozenset({"read"})))
    door = create_app(engine, Settings(), Gate(db, keys_required=True, clock=clock))
    transport = httpx2.ASGITransport(app=cast(Any, door), client=("192.0.2.1", 1))
    wrong = make_token()

    async with httpx2.AsyncClient(transport=transport, base_url="http://windlass.test/api/v1") as client:
        answers = [
            await client.get("/jobs"),
            await client.get("/jobs", headers={"authorization": f"Bearer {wrong}"}),
            await client.post("/jobs", json={"task": "t"}, headers={"authorization": f"Bearer {token}"}),
        ]

    assert [401, 401, 403] == [answer.status_code for answer in answers]
    lines = told(caplog)
    assert [(401, None), (401, wrong.split("_")[1]), (403, key.id)] == [(line["status"], line["key"]) for line in lines]
    assert {"192.0.2.1"} == {line["address"] for line in lines}
    assert [answer.headers["x-request-id"] for answer in answers] == [line["request"] for line in lines]
    assert not [secret for secret in (wrong, token) if secret in caplog.text or secret[-20:] in caplog.text]


@pytest.fixture
def tell() -> tuple[Callable[..., None], list[float]]:
    """Tell of refusals from an address, at a time that the test moves."""
    now_s = [0.0]
    refusals = Refusals(lambda: now_s[0])
    return lambda address: refusals.tell(address=address, status=401, key=None, request="r", route="/jobs"), now_s


def test_of_many_refusals_a_few_are_told_and_the_rest_counted(
    tell: tuple[Callable[..., None], list[float]], caplog: pytest.LogCaptureFixture
) -> None:
    """L11: three lines a second of one address; the next line, of whomever, says how many were left out."""
    say, now_s = tell
    for _ in range(1000):
        say("192.0.2.1")
    say("192.0.2.2")

    now_s[0] = 1.0
    say("192.0.2.1")

    lines = [(line["address"], line["left_out"]) for line in told(caplog)]
    assert [("192.0.2.1", None)] * 3 + [("192.0.2.2", 997), ("192.0.2.1", None)] == lines


def test_many_addresses_do_not_fill_the_log(
    tell: tuple[Callable[..., None], list[float]], caplog: pytest.LogCaptureFixture
) -> None:
    """L11: twenty lines a second whoever calls."""
    say, now_s = tell
    for number in range(20_000):
        say(f"192.0.2.{number}")

    now_s[0] = 1.0
    say("192.0.2.1")

    lines = told(caplog)
    assert 21 == len(lines)
    assert 19_980 == lines[-1]["left_out"]
