"""Schedules over HTTP: made, shown, listed, edited and deleted; and what is refused, with nothing stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.server.api import Json
from windlass.engine.engine import Engine

Calls = Callable[[str], httpx2.AsyncClient]
NIGHTLY: Json = {"name": "nightly", "task": "report", "cron": "30 2 * * *", "timezone": "Europe/Berlin"}
one_database = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For rules of the door alone."""


async def make(client: httpx2.AsyncClient, **fields: Any) -> Json:
    """Make a schedule and return it."""
    answer = await client.post("/schedules", json={**NIGHTLY, **fields})
    assert answer.status_code == 201, answer.text
    made: Json = answer.json()
    return made


async def names(client: httpx2.AsyncClient, query: str = "") -> list[str]:
    """Return the names of the schedules in a list."""
    return [schedule["name"] for schedule in (await client.get(f"/schedules{query}")).json()["schedules"]]


async def test_a_schedule_is_made_and_found_by_id_and_by_name(client: httpx2.AsyncClient) -> None:
    """P26: 201 with all its settings; in a path its id and its name are the same."""
    made = await make(client, payload={"day": 1}, overlap="queue_one", expect_within="1h")

    by_id = await client.get(f"/schedules/{made['id']}")
    by_name = await client.get("/schedules/nightly")

    assert made == by_id.json() == by_name.json()
    assert ("active", "queue_one", 3600, 1) == tuple(
        made[k] for k in ("status", "overlap", "expect_within_seconds", "version")
    )
    assert "02:30" in made["words"]
    assert made["next_run_at"] > made["created_at"]
    assert 404 == (await client.get("/schedules/unknown")).status_code
    assert 404 == (await client.get(f"/schedules/{uuid4()}")).status_code


async def test_a_name_is_taken_once_unless_it_is_to_be_replaced(client: httpx2.AsyncClient) -> None:
    """409 for the second; with replace_existing 200, under the first one's id, with exactly the new settings."""
    made = await make(client, tags=["x"])

    taken = await client.post("/schedules", json={**NIGHTLY, "cron": "0 3 * * *"})
    replaced = await client.post("/schedules", json={**NIGHTLY, "cron": "0 4 * * *", "replace_existing": True})

    assert (409, "name_taken", "name") == (
        taken.status_code,
        taken.json()["code"],
        taken.json()["errors"][0]["field"],
    )
    assert (200, made["id"], "0 4 * * *", [], 2) == (
        replaced.status_code,
        *(replaced.json()[k] for k in ("id", "cron", "tags", "version")),
    )


async def test_a_dry_run_tells_what_would_change_and_stores_nothing(client: httpx2.AsyncClient) -> None:
    """T12: the fields that differ, and the next five slots, for a new one, a replacement, PUT and PATCH alike."""
    fresh = await client.post("/schedules", json={**NIGHTLY, "dry_run": True})
    nothing = await names(client)
    made = await make(client)
    replacing = {**NIGHTLY, "cron": "0 3 * * *", "dry_run": True}
    refused = await client.post("/schedules", json=replacing)

    changes = [
        await client.post("/schedules", json={**replacing, "replace_existing": True}),
        await client.put("/schedules/nightly", json=replacing),
        await client.patch("/schedules/nightly", json={"cron": "0 3 * * *", "dry_run": True}),
    ]

    assert (200, False, [], 5) == (
        fresh.status_code,
        *(fresh.json()[k] for k in ("exists", "differences")),
        len(fresh.json()["slots"]),
    )
    assert ([], 409) == (nothing, refused.status_code)
    for change in changes:
        assert (200, True) == (change.status_code, change.json()["exists"]), change.text
        assert [("cron", "30 2 * * *", "0 3 * * *")] == [
            tuple(d[k] for k in ("field", "was", "becomes")) for d in change.json()["differences"]
        ]
        assert all("T03:00:00" in slot["local"] for slot in change.json()["slots"])
    assert made == (await client.get("/schedules/nightly")).json()


async def test_put_gives_exactly_these_settings(client: httpx2.AsyncClient) -> None:
    """What is left out is the default; the name may change, and not to one that is taken."""
    made = await make(client, tags=["x"], priority=5)
    await make(client, name="other")

    put = await client.put("/schedules/nightly", json={**NIGHTLY, "name": "weekly", "cron": "0 0 * * MON"})
    taken = await client.put("/schedules/weekly", json={**NIGHTLY, "name": "other"})

    assert (200, made["id"], "weekly", [], 0, 2) == (
        put.status_code,
        *(put.json()[k] for k in ("id", "name", "tags", "priority", "version")),
    )
    assert (409, "name_taken") == (taken.status_code, taken.json()["code"])
    assert ["other", "weekly"] == await names(client)


async def test_patch_changes_some_settings_of_the_version_it_knows(client: httpx2.AsyncClient) -> None:
    """Null takes away; a version that has passed is 409 and changes nothing."""
    await make(client, tags=["x"], priority=5)

    changed = await client.patch("/schedules/nightly", json={"priority": None, "every": "1h", "version": 1})
    stale = await client.patch("/schedules/nightly", json={"priority": 9, "version": 1})

    assert (200, None, 3600, 0, ["x"], 2) == (
        changed.status_code,
        *(changed.json()[k] for k in ("cron", "every_seconds", "priority", "tags", "version")),
    )
    assert 409 == stale.status_code
    assert changed.json() == (await client.get("/schedules/nightly")).json()


async def test_a_schedule_is_deleted(client: httpx2.AsyncClient) -> None:
    """204, and 404 from then on; its name is free."""
    made = await make(client)

    deleted = await client.delete("/schedules/nightly?reason=moved&purge=true")
    again = await client.delete(f"/schedules/{made['id']}")

    assert (204, b"", 404) == (deleted.status_code, deleted.content, again.status_code)
    assert made["id"] != (await make(client))["id"]


async def test_lists_are_by_name_in_pages_and_by_filters(client: httpx2.AsyncClient) -> None:
    """Keyset by name; task, queue, owner, prefix and paused."""
    for number in range(3):
        await make(client, name=f"a{number}", queue=f"q{number}")
    await make(client, name="b", task="other", enabled=False)

    first = (await client.get("/schedules?limit=2")).json()
    second = await names(client, f"?limit=2&cursor={first['next_cursor']}")

    assert ["a0", "a1"] == [schedule["name"] for schedule in first["schedules"]]
    assert ["a2", "b"] == second
    filters = ("?prefix=a", "?queue=q1", "?task=other", "?paused=true", "?paused=false&prefix=b", "?owner=x")
    assert [["a0", "a1", "a2"], ["a1"], ["b"], ["b"], [], []] == [await names(client, text) for text in filters]


async def test_a_batch_is_all_or_nothing(client: httpx2.AsyncClient) -> None:
    """Up to 1,000, answered in order; a bad one is named by its index and none is stored."""
    good = [{**NIGHTLY, "name": f"s{number}"} for number in range(3)]

    bad = await client.post("/schedules/batch", json={"schedules": [*good, {**NIGHTLY, "cron": "0 25 * * *"}]})
    twice = await client.post("/schedules/batch", json={"schedules": [*good, good[0]]})
    unfired = await client.post(
        "/schedules/batch", json={"schedules": [good[0], {**good[1], "end": "2020-01-01T00:00:00Z"}]}
    )
    stored_before = await names(client)
    made = await client.post("/schedules/batch", json={"schedules": good})
    taken = await client.post("/schedules/batch", json={"schedules": [{**NIGHTLY, "name": "new"}, good[1]]})
    replaced = await client.post("/schedules/batch", json={"schedules": good, "replace_existing": True})

    assert [422, 422, 422] == [answer.status_code for answer in (bad, twice, unfired)]
    fields = [answer.json()["errors"][0]["field"] for answer in (bad, twice, unfired)]
    assert ["schedules[3].cron", "schedules[3].name", "schedules[1].end"] == fields
    assert [] == stored_before
    assert (201, ["s0", "s1", "s2"]) == (made.status_code, [one["name"] for one in made.json()["schedules"]])
    assert (409, "name_taken") == (taken.status_code, taken.json()["code"])
    assert "schedules[1].name" == taken.json()["errors"][0]["field"]
    assert [True] * 3 == [one["replaced"] for one in replaced.json()["schedules"]]
    assert ["s0", "s1", "s2"] == await names(client)


async def test_a_batch_may_leave_out_names_that_are_taken(client: httpx2.AsyncClient) -> None:
    """The answer has those that were stored; leaving out and replacing at once is refused."""
    good = [{**NIGHTLY, "name": f"s{number}"} for number in range(3)]
    await client.post("/schedules", json=good[1])

    made = await client.post("/schedules/batch", json={"schedules": good, "skip_existing": True})
    both = await client.post(
        "/schedules/batch", json={"schedules": good, "skip_existing": True, "replace_existing": True}
    )

    assert (201, ["s0", "s2"]) == (made.status_code, [one["name"] for one in made.json()["schedules"]])
    assert (422, "skip_existing") == (both.status_code, both.json()["errors"][0]["field"])


BAD: list[tuple[Json, str, str]] = [
    ({"cron": "*/0 * * * *"}, "invalid_schedule", "cron"),
    ({"cron": "0 0 30 2 *"}, "invalid_schedule", "cron"),
    ({"cron": "0 25 * * *"}, "invalid_schedule", "cron"),
    ({"cron": "H(0-99) * * * *"}, "invalid_schedule", "cron"),
    ({"cron": "@reboot"}, "invalid_schedule", "cron"),
    ({"cron": "\u0661 * * * *"}, "invalid_schedule", "cron"),
    ({"cron": ",".join(map(str, range(1000))) + " * * * *"}, "invalid_input", "cron"),
    ({"cron": ",".join(["0"] * 90) + " * * * *"}, "invalid_schedule", "cron"),
    ({"timezone": "Mars/Olympus"}, "invalid_schedule", "timezone"),
    ({"timezone": "../../etc/passwd"}, "invalid_schedule", "timezone"),
    ({"cron": None, "timezone": None, "every": 0}, "invalid_schedule", "every"),
    ({"cron": None, "timezone": None, "every": "0s"}, "invalid_schedule", "every"),
    ({"cron": None, "timezone": None, "every": -1}, "invalid_input", "every"),
    ({"cron": None, "timezone": None, "every": 0.5}, "invalid_schedule", "every"),
    ({"cron": None, "timezone": None, "every": "367d"}, "invalid_schedule", "every"),
    ({"cron": None, "timezone": None, "at": "9999-06-01T00:00:00Z"}, "invalid_input", "at"),
    ({"cron": None, "timezone": None, "at": "2027-01-01T00:00:00"}, "invalid_input", "at"),
    ({"every": 60}, "invalid_schedule", "every"),
    ({"start": "2027-01-02T00:00:00Z", "end": "2027-01-01T00:00:00Z"}, "invalid_schedule", "end"),
    ({"end": "2020-01-01T00:00:00Z"}, "invalid_schedule", "end"),
    ({"end": "9999-12-31T23:59:59Z"}, "invalid_input", "end"),
    ({"exclude": ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]}, "invalid_schedule", "cron"),
    ({"exclude": ["2026-13-01"]}, "invalid_schedule", "exclude"),
    ({"jitter": "2d"}, "invalid_schedule", "jitter"),
    ({"overlap": "sometimes"}, "invalid_input", "overlap"),
    ({"catch_up_max": 0}, "invalid_input", "catch_up_max"),
    ({"name": "a/b"}, "invalid_input", "name"),
    ({"name": "preview"}, "invalid_input", "name"),
    ({"name": "0197a000-0000-7000-8000-00000000000c"}, "invalid_input", "name"),
    ({"max_attempts": 2, "max_retries": 5}, "invalid_input", "max_retries"),
    ({"interval": 60, "every": 60}, "invalid_input", "every"),
]


@one_database
@pytest.mark.parametrize(("fields", "code", "field"), BAD, ids=lambda value: str(value)[:40])
async def test_bad_input_names_the_place_and_stores_nothing(
    client: httpx2.AsyncClient, fields: Json, code: str, field: str
) -> None:
    """422 with the field and what is wrong with it, made or replaced; what was there stays as it was."""
    made = await make(client)
    asked = {**NIGHTLY, "name": "new", **fields}

    answers = [
        await client.post("/schedules", json=asked),
        await client.put("/schedules/nightly", json=asked),
        await client.post("/schedules", json={**asked, "dry_run": True}),
    ]

    for answer in answers:
        assert (422, code) == (answer.status_code, answer.json()["code"]), answer.text
        [problem] = answer.json()["errors"]
        assert problem["field"].split("[")[0] in (field, "interval")
        assert problem["problem"]
    assert [made] == (await client.get("/schedules")).json()["schedules"]


@one_database
async def test_the_fault_in_an_expression_is_told_with_its_value(client: httpx2.AsyncClient) -> None:
    """T2: which field of the expression, what stands there, and what could."""
    answer = await client.post("/schedules", json={**NIGHTLY, "cron": "0 25 * * *"})

    assert "25" in answer.json()["detail"]
    assert "0 to 23" in answer.json()["detail"]


@one_database
async def test_slots_to_come_are_shown_with_what_dst_does_to_them(client: httpx2.AsyncClient) -> None:
    """T12: of a schedule and of a trigger that is not stored, from any instant on."""
    await make(client)
    after = "2027-03-27T12:00:00Z"

    stored = (await client.get(f"/schedules/nightly/preview?count=2&after={after}")).json()
    asked = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "count": 2, "after": after}
    loose = (await client.post("/schedules/preview", json=asked)).json()
    soon = (await client.post("/schedules/preview", json={"every": "1h", "count": 1})).json()
    by_hand = (await client.post("/schedules/preview", json={})).json()

    assert stored == loose
    assert ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"] == [slot["local"] for slot in stored["slots"]]
    assert ["moved out of a gap", None] == [slot["mark"] for slot in stored["slots"]]
    assert (1, "by hand only", []) == (len(soon["slots"]), by_hand["words"], by_hand["slots"])
    refused = await client.post("/schedules/preview", json={"cron": "0 0 30 2 *"})
    assert (422, "invalid_schedule") == (refused.status_code, refused.json()["code"])
    for bad in ("count=101", "after=9999-06-01T00:00:00Z"):
        assert 422 == (await client.get(f"/schedules/nightly/preview?{bad}")).status_code


@one_database
async def test_what_is_said_of_a_refusal_is_short_and_true(client: httpx2.AsyncClient) -> None:
    """E1: no pattern of ours in it, and the years that are taken; the first instant of all is one, and due at once."""
    asked = {"name": "x", "task": "t"}

    spans = [await client.post("/schedules", json={**asked, "every": text}) for text in ("-1s", "1 fortnight")]
    late = await client.post("/schedules", json={**asked, "cron": "0 0 * * *", "start": "9999-06-01T00:00:00Z"})
    first = await client.post("/schedules", json={**asked, "at": "1970-01-01T00:00:00Z"})

    assert [422, 422, 422] == [answer.status_code for answer in (*spans, late)]
    assert all("90s" in answer.text and "[0-9]" not in answer.text for answer in spans)
    assert "1970 to 9998" in late.json()["detail"]
    assert (201, "1970-01-01T00:00:00Z") == (first.status_code, first.json()["next_run_at"])


async def test_delivery_is_shown_and_can_be_changed(client: httpx2.AsyncClient) -> None:
    """At most once is one attempt and none after a loss; back again they are the default ones, or those given."""
    made = await make(client, delivery="at_most_once")

    again = (await client.patch("/schedules/nightly", json={"delivery": "at_least_once"})).json()
    once = (await client.patch("/schedules/nightly", json={"delivery": "at_most_once"})).json()
    given = (await client.patch("/schedules/nightly", json={"delivery": "at_least_once", "max_attempts": 7})).json()
    same = (await client.patch("/schedules/nightly", json={"delivery": "at_least_once"})).json()

    found = [[one[k] for k in ("delivery", "max_attempts", "max_lost")] for one in (made, again, once, given, same)]
    assert [
        ["at_most_once", 1, 1],
        ["at_least_once", 3, 5],
        ["at_most_once", 1, 1],
        ["at_least_once", 7, 5],
        ["at_least_once", 7, 5],
    ] == found


async def test_a_payload_that_no_worker_takes_is_refused(client: httpx2.AsyncClient) -> None:
    """S12: found when the schedule is made or changed, not at two in the night."""
    signature = {"parameters": {"day": {"types": ["integer"], "required": True}}}
    await client.post("/workers/register", json={"worker_id": "w", "signatures": {"report": signature}})

    refused = await client.post("/schedules", json={**NIGHTLY, "payload": {"day": "mon"}})
    await make(client, payload={"day": 1})
    patched = await client.patch("/schedules/nightly", json={"payload": {}})
    run = await client.post("/schedules/nightly/run", json={"payload": {"day": "mon"}})

    assert [422, 422, 422] == [answer.status_code for answer in (refused, patched, run)]
    assert "day" in refused.json()["detail"]


async def test_secrets_in_payloads_are_not_shown(client: httpx2.AsyncClient) -> None:
    """N6: as with jobs; in lists and differences too."""
    await make(client, payload={"password": "hunter2"}, headers={"authorization": "hunter2"})

    shown = [
        await client.get("/schedules/nightly"),
        await client.get("/schedules"),
        await client.patch("/schedules/nightly", json={"payload": {"password": "hunter3"}, "dry_run": True}),
        await client.get("/audit"),
    ]

    assert [200] * 4 == [answer.status_code for answer in shown]
    assert not any("hunter" in answer.text for answer in shown)


async def test_times_are_told_by_the_databases_clock(client: httpx2.AsyncClient, engine: Engine) -> None:
    """G7: the first slot of an interval is one interval from now, in whole seconds."""
    made = await make(client, cron=None, timezone=None, every="1h")

    late = datetime.fromisoformat(made["next_run_at"]) - datetime.fromisoformat(made["created_at"])

    assert timedelta(minutes=59) < late <= timedelta(hours=1)
