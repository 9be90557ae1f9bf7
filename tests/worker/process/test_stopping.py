"""A worker that is told to stop finishes or gives back what it has, uses no attempt for it, and ends with 0."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import httpx2
import pytest

from tests.proofs.load import pause
from tests.proofs.processes import started
from tests.worker.answers import Asked, answers
from tests.worker.process.installation import FOR_EVER_MS, PATIENCE_S, POLL_S, SAMPLE, Installation

GONE = "http://127.0.0.1:1"


async def test_a_job_that_ends_within_the_drain_time_is_reported(installation: Installation) -> None:
    """The worker waits for it and then leaves; its session is closed."""
    fleet = await installation.start_workers("--name", "shop")
    await installation.submit("wait", port=installation.port)
    begun = await installation.begun()

    fleet.send(signal.SIGTERM)
    await fleet.said("worker.stopping")
    begun.go_on()

    assert 0 == await fleet.ended()
    job = await installation.ended(begun.job_id)
    assert ("succeeded", 1) == (job["status"], job["attempt"])
    assert "stopped" == (await installation.until(lambda _: True, "/workers/shop"))["status"]


async def test_what_does_not_end_in_time_is_given_back_without_an_attempt(installation: Installation) -> None:
    """Another worker runs it, as the first attempt."""
    fleet = await installation.start_workers(worker_drain_seconds="0.5")
    await installation.submit("wait", port=installation.port)
    first = await installation.begun()

    fleet.send(signal.SIGTERM)

    assert 0 == await fleet.ended()
    assert "queued" == (await installation.job(first.job_id))["status"]
    await installation.start_workers()
    again = await installation.begun()
    assert (first.job_id, 1) == (again.job_id, again.attempt)
    again.go_on()
    assert "succeeded" == (await installation.ended(first.job_id))["status"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)])
async def test_a_second_signal_gives_everything_back_now(installation: Installation, number: signal.Signals) -> None:
    """Though the drain time is five minutes; exit code 130."""
    fleet = await installation.start_workers()
    await installation.submit("wait", port=installation.port)
    first = await installation.begun()
    fleet.send(number)
    await fleet.said("worker.stopping")

    fleet.send(number)

    assert 130 == await fleet.ended()
    assert "queued" == (await installation.job(first.job_id))["status"]


async def test_rel_a12_a_second_signal_does_not_wait_for_a_task_that_never_stops(installation: Installation) -> None:
    """Its process is ended, and the job given back as the attempt that it was."""
    fleet = await installation.start_workers()
    job_id = await installation.submit("hold", port=installation.port, ms=FOR_EVER_MS)
    held = await installation.begun()
    fleet.send(signal.SIGHUP)

    fleet.send(signal.SIGINT)

    assert 130 == await fleet.ended()
    await held.gone()
    assert "queued" == (await installation.job(job_id))["status"]
    assert ["released"] == [attempt["outcome"] for attempt in await installation.attempts(job_id)]
    assert "Traceback" not in fleet.text


async def test_rel_a12_hup_is_ignored_where_it_was_before(installation: Installation) -> None:
    """Under nohup a closed terminal means nothing: SIGTERM is the first signal that is heard, and the job ends."""
    async with started("worker", SAMPLE, "--url", installation.url, "--log-format", "text", nohup=True) as fleet:
        await installation.submit("wait", port=installation.port)
        first = await installation.begun()

        fleet.send(signal.SIGHUP)
        fleet.send(signal.SIGTERM)
        await fleet.said("worker.stopping")
        first.go_on()

        assert 0 == await fleet.ended()
    assert "succeeded" == (await installation.ended(first.job_id))["status"]


async def test_a_spot_notice_gives_work_back_with_its_reason(installation: Installation) -> None:
    """W11: no attempt is used, what was saved is counted, and the worker ends with 0."""
    notices = [404]

    def cloud(request: Asked) -> tuple[int, str]:
        if request[0] == "PUT":
            return 200, "token"
        return notices[0], json.dumps({"action": "terminate"})

    async with answers(cloud) as url:
        fleet = await installation.start_workers(
            worker_spot_notice="aws", worker_spot_url=url, worker_drain_seconds="0.5"
        )
        await installation.submit("wait", port=installation.port)
        first = await installation.begun()
        notices[0] = 200

        assert 0 == await fleet.ended()

    events = await installation.until(lambda _: True, f"/jobs/{first.job_id}/events")
    assert ["Spot termination"] == [event["detail"] for event in events["events"] if event["kind"] == "released"]
    assert "queued" == (await installation.job(first.job_id))["status"]
    assert "spot.saved jobs=1" in fleet.text


async def test_a_worker_that_reaches_no_server_does_not_start(bare: Installation, tmp_path: Path) -> None:
    """W3: exit code 5, with the address; nothing of the user's is imported."""
    module, imported = tmp_path / "shop.py", tmp_path / "imported"
    module.write_text(f"open({str(imported)!r}, 'w')\nimport windlass\napp = windlass.App()\n")
    bare.url = GONE
    fleet = await bare.launch_workers(app=str(module))

    assert 5 == await fleet.ended()
    assert GONE in fleet.text
    assert not imported.exists()


async def test_a_worker_finds_the_server_of_the_file(installation: Installation) -> None:
    """Where nobody says its address, as on a laptop where `windlass up` or a server runs."""
    address, installation.url = installation.url, ""

    fleet = await installation.start_workers(database_url=installation.database_url)

    assert f"at {address}." in fleet.text


async def test_a_module_that_cannot_be_imported_is_told_once(installation: Installation) -> None:
    """Exit code 1 and the reason; its session is ended and nothing is tried again."""
    fleet = await installation.launch_workers(app="tests.worker.process.no_such_module:app")

    assert 1 == await fleet.ended()
    assert "no_such_module" in fleet.text
    assert "Traceback" not in fleet.text
    [worker] = (await installation.until(lambda _: True, "/workers"))["workers"]
    assert "stopped" == worker["status"]


async def test_the_probe_of_a_worker_answers_while_it_is_well(installation: Installation, unused_port: int) -> None:
    """A runner that stands still makes it fail, also while its heartbeats go on."""
    address = f"127.0.0.1:{unused_port}"
    await installation.start_workers(worker_health_address=address, worker_health_seconds="2")
    async with httpx2.AsyncClient(verify=False, base_url=f"http://{address}", timeout=PATIENCE_S) as client:
        async with asyncio.timeout(PATIENCE_S):
            while (await client.get("/healthz")).status_code != 200:  # it may have stood still until now
                await pause(asyncio.Event(), POLL_S)
        await installation.submit("hold", port=installation.port, ms=FOR_EVER_MS)
        await installation.begun()

        while (answer := await client.get("/healthz")).status_code == 200:
            await pause(asyncio.Event(), POLL_S)

        assert 503 == answer.status_code
        assert "said nothing" in answer.json()["reasons"][0]
