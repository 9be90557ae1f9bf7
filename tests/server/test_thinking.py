"""Times that take long to find: nobody else waits for them."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx2
import pytest

from tests.server.test_frame import JSON, exchange
from tests.server.test_schedules import NIGHTLY, make, one_database
from windlass.engine import computing, planned
from windlass.engine.engine import Engine
from windlass.queue import schedule as schedule_rules
from windlass.queue.newjob import MAX_DEPTH, check_json
from windlass.server import thinking
from windlass.server.app import Door

HARD = {"cron": "59 59 23 29 2 *", "timezone": "Europe/Berlin", "exclude": ["MON", "TUE", "WED", "THU", "FRI", "SAT"]}
ROUTES = [
    ("slots_after", "POST", "/schedules/preview", {**HARD, "count": 100}),
    ("slots_after", "GET", "/schedules/nightly/preview", None),
    ("slots_after", "PATCH", "/schedules/nightly", {"cron": "0 3 * * *", "dry_run": True}),
    ("new_schedule", "POST", "/schedules", {**NIGHTLY, **HARD, "name": "x"}),
    ("new_schedule", "POST", "/schedules/batch", {"schedules": [{**NIGHTLY, **HARD, "name": "x"}]}),
    ("new_schedule", "POST", "/schedules/declared", {"owner": "x", "schedules": [{**NIGHTLY, **HARD, "name": "x"}]}),
    ("new_schedule", "POST", "/jobs", {"task": "report", "schedule": "0 3 * * *"}),
    ("new_schedule", "PUT", "/schedules/nightly", NIGHTLY),
    ("patched", "PATCH", "/schedules/nightly", {"cron": "0 3 * * *"}),
    ("previewed", "POST", "/schedules/preview", {"cron": "0 3 * * *"}),
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
    monkeypatch.setattr(thinking, "ENOUGH_S", 0.0)
    monkeypatch.setattr(computing, "PIECE_S", 1e-9)

    answer = await client.post("/schedules/preview", json={**HARD, "count": 100})

    assert (200, 1) == (answer.status_code, len(answer.json()["slots"]))


@one_database
@pytest.mark.parametrize("url", ["/schedules/batch", "/schedules/declared"])
async def test_rel_t9_a_request_over_its_budget_stores_nothing(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """H6: 422 names the schedule at which the budget was used up, also where refused ones are skipped."""
    monkeypatch.setattr(computing, "PIECE_S", 1e-9)
    monkeypatch.setattr(computing, "BUDGET_S", 1e-9)
    schedules = [{**NIGHTLY, "name": str(number)} for number in range(3)]
    more = {"owner": "x", "skip_refused": True} if url.endswith("declared") else {}

    answer = await client.post(url, json={"schedules": schedules, **more})

    problem = answer.json()
    assert (422, "schedules[0].cron") == (answer.status_code, problem["errors"][0]["field"])
    assert "fewer schedules" in problem["errors"][0]["problem"]
    assert [] == (await client.get("/schedules")).json()["schedules"]


@one_database
@pytest.mark.parametrize("url", ["/schedules/batch", "/schedules/declared"])
async def test_payloads_use_up_no_time_of_triggers(
    engine: Engine, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Large payloads of plain schedules are looked through in turns too, but their size bounds them, not the budget."""
    spent_s = [0.0]

    def slowly(field: str, text: str) -> None:
        if "large" in text:
            spent_s[0] += computing.BUDGET_S
            assert threading.current_thread() is not threading.main_thread()
        check_json(field, text)

    monkeypatch.setattr(schedule_rules, "check_json", slowly)
    monkeypatch.setattr(engine.schedules.computing, "cpu_s", lambda: spent_s[0])
    schedules = [{**NIGHTLY, "name": str(number), "payload": {"large": 1}} for number in range(3)]
    more = {"owner": "x"} if url.endswith("declared") else {}

    answer = await client.post(url, json={"schedules": schedules, **more})

    assert answer.is_success, answer.text
    assert spent_s[0] > 0


@one_database
@pytest.mark.parametrize(
    ("method", "url", "field"),
    [
        ("POST", "/schedules", "payload"),
        ("PUT", "/schedules/nightly", "payload"),
        ("PATCH", "/schedules/nightly", "payload"),
        ("POST", "/schedules/batch", "schedules[1].payload"),
        ("POST", "/schedules/declared", "schedules[1].payload"),
        ("POST", "/schedules/declared?skipped", None),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_payload_that_is_nested_too_deep_is_refused(
    client: httpx2.AsyncClient, *, method: str, url: str, field: str | None, dry_run: bool
) -> None:
    """Wherever a schedule comes from, and whether it is stored or not; where refused ones are skipped, that one is."""
    await make(client)
    deep: Any = 1
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    bad = {**NIGHTLY, "payload": {"a": deep}, "name": "nightly" if method == "PUT" else "bad"}
    dry = {"dry_run": True} if dry_run else {}
    listed = {"schedules": [{**NIGHTLY, "name": "good"}, bad]}
    bodies = {
        "/schedules/batch": listed,
        "/schedules/declared": {**listed, **dry, "owner": "x"},
        "/schedules/declared?skipped": {**listed, **dry, "owner": "x", "skip_refused": True},
    }
    if method == "PATCH":
        bodies[url] = {"payload": {"a": deep}, **dry}

    answer = await client.request(method, url.partition("?")[0], json=bodies.get(url, {**bad, **dry}))

    if field is None:
        assert ["bad"] == [refused["name"] for refused in answer.json()["refused"]]
    else:
        assert (422, field) == (answer.status_code, answer.json()["errors"][0]["field"])


@one_database
async def test_rel_t9_work_ends_when_its_caller_leaves(
    door: Door, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: of a request whose caller has hung up no further piece is computed, and nothing is stored."""
    monkeypatch.setattr(computing, "PIECE_S", 1e-9)
    computed: list[str] = []
    new_schedule = planned.new_schedule

    def noted(asked: Any, *arguments: Any, **named: Any) -> Any:
        computed.append(asked.name)
        return new_schedule(asked, *arguments, **named)

    monkeypatch.setattr(planned, "new_schedule", noted)
    body = json.dumps({"schedules": [{**NIGHTLY, "name": str(number)} for number in range(50)]}).encode()
    path = "/api/v1/schedules/batch"
    head = [(b"authorization", b"Bearer admin.a"), JSON, (b"content-length", str(len(body)).encode())]
    scope = {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": head}

    sent = await exchange(door, scope, [{"type": "http.request", "body": body}, {"type": "http.disconnect"}])

    assert [] == sent
    assert len(computed) < 5
    assert [] == (await client.get("/schedules")).json()["schedules"]


@one_database
async def test_rel_t9_refused_declarations_are_planned_once(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: with skip_refused the others are not planned anew for each that is refused, for whatever reason."""
    planned_names: list[str] = []
    new_schedule = planned.new_schedule

    def noted(asked: Any, *arguments: Any, **named: Any) -> Any:
        planned_names.append(asked.name)
        return new_schedule(asked, *arguments, **named)

    monkeypatch.setattr(planned, "new_schedule", noted)
    for number in range(3):
        await make(client, name=f"taken{number}")
    asked = [{**NIGHTLY, "name": "good"}]
    for number in range(3):
        asked += [
            {**NIGHTLY, "name": f"taken{number}"},
            {**NIGHTLY, "name": f"bad{number}", "cron": "0 25 * * *"},
            {**NIGHTLY, "name": f"never{number}", "end": "2020-01-01T00:00:00Z"},
        ]
    planned_names.clear()

    answer = (
        await client.post("/schedules/declared", json={"owner": "shop", "schedules": asked, "skip_refused": True})
    ).json()

    assert (["good"], 9) == (answer["added"], len(answer["refused"]))
    assert len(asked) == len(planned_names)
