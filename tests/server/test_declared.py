"""Who may declare schedules: for which application, and what declaring does not go around."""

from __future__ import annotations

from tests.server.test_schedules import NIGHTLY, Calls, names, one_database
from tests.server.test_schedules_acts import declare


async def test_rel_t4_declaring_pauses_and_resumes_only_with_the_scope_for_it(calls: Calls) -> None:
    """M3: `enabled` needs `operate` by this route too; a new one may be declared paused, others are made meanwhile."""
    owner, client = calls("admin.a"), calls("submitter.a")
    off = {**NIGHTLY, "name": "off", "enabled": False}
    await declare(owner, NIGHTLY, off)

    pausing = await declare(client, {**NIGHTLY, "enabled": False}, off)
    resuming = await declare(client, NIGHTLY, {**off, "enabled": True})
    asked = [{**NIGHTLY, "enabled": False}, off, {**off, "name": "new"}]
    skipping = (await declare(client, *asked, skip_refused=True)).json()

    assert [403, 403] == [answer.status_code for answer in (pausing, resuming)]
    assert "lacks the scope operate" in pausing.json()["detail"]
    assert (["new"], ["nightly"]) == (skipping["added"], [one["name"] for one in skipping["refused"]])
    stored = (await owner.get("/schedules")).json()["schedules"]
    assert {"nightly": False, "off": True, "new": True} == {one["name"]: one["paused"] for one in stored}
    assert ["nightly"] == (await declare(owner, *asked)).json()["changed"]


async def test_rel_t4_a_workers_key_declares_for_the_application_that_it_is_named_after(calls: Calls) -> None:
    """M3: for any other owner 403, new or known, and nothing is told or changed; another key of its name may go on."""
    client = calls("worker.a")
    await declare(calls("admin.a"), NIGHTLY)
    own = {"owner": "worker.a", "schedules": [{**NIGHTLY, "name": "own"}]}

    refused = [await declare(client, dry_run=dry_run) for dry_run in (False, True)]
    refused.append(await client.post("/schedules/declared", json={**own, "owner": "unknown"}))
    added = await client.post("/schedules/declared", json=own)
    changed = await client.post("/schedules/declared", json={**own, "schedules": [{**NIGHTLY, "name": "other"}]})

    assert [403] * 3 == [answer.status_code for answer in refused]
    assert not any("nightly" in answer.text for answer in refused)
    assert "Use a key named shop" in refused[0].json()["detail"]
    assert [["own"], ["other"]] == [answer.json()["added"] for answer in (added, changed)]
    assert ["nightly", "other"] == await names(calls("admin.a"))


@one_database
async def test_rel_t4_a_dry_run_names_what_it_would_remove_to_readers_only(calls: Calls) -> None:
    """M3: 403 without `read` where it would name a schedule that the request does not have."""
    owner, client = calls("admin.a"), calls("submitter.a")
    await declare(owner, NIGHTLY, {**NIGHTLY, "name": "secret"})

    told = await declare(client, NIGHTLY, {**NIGHTLY, "name": "secret", "priority": 3}, dry_run=True)
    refused = await declare(client, NIGHTLY, dry_run=True)

    assert ["secret"] == told.json()["changed"]
    assert (403, False) == (refused.status_code, "secret" in refused.text)
    assert ["secret"] == (await declare(owner, NIGHTLY, dry_run=True)).json()["removed"]
