"""Times that take long to find: nobody else waits for them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx2
import pytest

from tests.server.test_schedules import NIGHTLY, make, one_database
from windlass.engine import planned
from windlass.server import thinking

HARD = {"cron": "59 59 23 29 2 *", "timezone": "Europe/Berlin", "exclude": ["MON", "TUE", "WED", "THU", "FRI", "SAT"]}
ROUTES = [
    ("slots_after", "POST", "/schedules/preview", {**HARD, "count": 100}),
    ("slots_after", "GET", "/schedules/nightly/preview", None),
    ("slots_after", "PATCH", "/schedules/nightly", {"cron": "0 3 * * *", "dry_run": True}),
    ("check_fires", "POST", "/schedules", {**NIGHTLY, **HARD, "name": "x"}),
    ("check_fires", "POST", "/schedules/batch", {"schedules": [{**NIGHTLY, **HARD, "name": "x"}]}),
]


@one_database
@pytest.mark.parametrize(("step", "method", "url", "body"), ROUTES, ids=lambda value: str(value)[:30])
async def test_others_are_answered_while_times_are_looked_for(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, *, step: str, method: str, url: str, body: Any
) -> None:
    """F12: a hard question is thought about beside the loop that serves everybody else."""
    await make(client)
    answered, slow = threading.Event(), getattr(planned, step)

    def wait(*arguments: Any, **named: Any) -> Any:
        assert answered.wait(60)
        return slow(*arguments, **named)

    monkeypatch.setattr(planned, step, wait)
    hard = asyncio.create_task(client.request(method, url, json=body))
    other = await client.get("/schedules/nightly")
    assert not hard.done()
    answered.set()

    assert 200 == other.status_code
    assert (await hard).status_code in (200, 201)


@one_database
async def test_a_list_that_takes_too_long_is_shorter(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer has the slots that were found in time, one at least."""
    monkeypatch.setattr(thinking, "BUDGET_S", -1.0)

    answer = await client.post("/schedules/preview", json={**HARD, "count": 100})

    assert (200, 1) == (answer.status_code, len(answer.json()["slots"]))
