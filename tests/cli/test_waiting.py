"""What waits says why, and jobs can be named by the end of their id."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import Windlass
from tests.cli.running import PATIENCE_S, Hands, running
from windlass.cli import waiting
from windlass.cli.jobids import JOB_ID

SERVED = "a-queue"
"""By its name the first, of which `top` and `status` tell though other tests leave jobs waiting too."""


@pytest.fixture(autouse=True)
def worker(url: str) -> None:
    """A live worker that serves one task."""
    said = {"worker_id": "ann", "queues": [SERVED], "tasks": ["add"], "lease_seconds": 600}
    assert httpx2.post(f"{url}/api/v1/workers/register", verify=False, json=said, timeout=PATIENCE_S).is_success


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again at once."""
    monkeypatch.setattr(waiting, "LOOK_S", 0.05)


def test_a_job_that_nobody_serves_says_so(windlass: Windlass, hands: Hands, queue: str) -> None:
    """`jobs show`, `jobs list`, `top` and `status`: the task, and what to do."""
    job_id = hands.submit("typo", queue=SERVED)
    why = f"No live worker of queue {SERVED} has the task typo."

    shown, listed = windlass("jobs", "show", job_id), windlass("jobs", "list", "--task", "typo")

    assert why in shown.stdout
    assert why in listed.stdout
    assert f"typo in {SERVED} waits: {why}" in windlass("top").stdout
    assert f"typo in {SERVED} waits: {why}" in windlass("status").stdout
    assert (
        "no_worker_for_task" == json.loads(windlass("jobs", "show", job_id, "-o", "json").stdout)["waiting"][0]["code"]
    )


@pytest.mark.usefixtures("brisk")
def test_waiting_says_why_nothing_happens(windlass: Windlass, queue: str) -> None:
    """`submit --wait` and `jobs wait` tell it on stderr with the time-out, and at most once before."""
    submitted = windlass("submit", "add", "--queue", queue, "--wait", "--timeout", "0.3s")
    [job_id] = windlass("jobs", "list", "--queue", queue, "-o", "ids").stdout.split()
    waited = windlass("jobs", "wait", job_id, "--timeout", "0.3s")

    for result in (submitted, waited):
        assert (5, "") == (result.exit_code, result.stdout)
        *said, problem = result.stderr.splitlines()
        # On a busy machine the time-out may come before the first look.
        assert said in ([], [f"Job {job_id} is queued. No live worker serves queue {queue}. Start one that does."])
        assert "has not ended in time: it is queued. No live worker" in problem


def test_waiting_tells_when_the_reason_changes(url: str, tmp_path: Path, hands: Hands, queue: str) -> None:
    """Paused, then due for nobody, then running: each is said once; the result stands alone at the end."""
    pause = f"{url}/api/v1/queues/{queue}"
    assert httpx2.post(f"{pause}/pause", verify=False, json={"reason": "no mail today"}, timeout=PATIENCE_S).is_success

    with running(tmp_path, "submit", "add", "--queue", queue, "--wait", "--url", url) as process:
        process.said(rf"is queued\. Queue {queue} is paused by .*: no mail today\.")
        assert httpx2.post(f"{pause}/resume", verify=False, timeout=PATIENCE_S).is_success
        process.said(f"No live worker serves queue {queue}")
        job = hands.claim("add", queue=queue)
        process.said(r"is (running|assigned) on hands\.")
        hands.end(job, result=3)

        assert 0 == process.ended()
        assert "3" == process.text.splitlines()[-1]


@pytest.mark.parametrize("command", ["submit", "wait"])
def test_ctrl_c_leaves_the_job_and_says_so(url: str, tmp_path: Path, hands: Hands, queue: str, command: str) -> None:
    """The id, that it is still queued, and how to go on; exit code 130, and the job waits as before."""
    arguments = ["submit", "add", "--queue", queue, "--wait"]
    if command == "wait":
        arguments = ["jobs", "wait", hands.submit("add", queue=queue)]

    with running(tmp_path, *arguments, "--url", url) as process:
        job_id = process.said(r"Job (\S{36}) is queued\.")[1]
        process.send(signal.SIGINT)

        assert 130 == process.ended()
        assert f"Job {job_id} is still queued, and goes on without this command." in process.text
        assert f"windlass jobs cancel {job_id}" in process.text
        assert "queued" == hands.job(job_id)["state"]


@pytest.mark.parametrize("written", ["{}", "…{}", "0199...{}"])
def test_a_job_is_named_by_the_end_of_its_id(windlass: Windlass, hands: Hands, queue: str, written: str) -> None:
    """Wherever a command takes an id of a job."""
    job_id = hands.submit("add", queue=queue)
    end = written.format(job_id[-8:])

    assert job_id == json.loads(windlass("jobs", "show", end, "-o", "json").stdout)["id"]
    assert 0 == windlass("jobs", "attempts", end).exit_code
    assert 0 == windlass("jobs", "logs", end).exit_code
    assert f"{job_id} is cancelled." in windlass("jobs", "cancel", end).stdout
    assert 1 == windlass("jobs", "wait", end).exit_code
    assert f"{job_id} is queued." in windlass("jobs", "retry", end).stdout
    assert job_id == hands.kill("add", queue=queue)
    assert "Retried 1 dead letters." in windlass("dlq", "retry", end).stdout


def two_of_one_end(hands: Hands, queue: str) -> tuple[str, str]:
    """Submit jobs until the last four digits of two are the same, and return these."""
    ends: dict[str, str] = {}
    while True:
        for job_id in hands.submit_many("add", 500, queue=queue):
            other = ends.setdefault(job_id[-4:], job_id)
            if other != job_id:
                return job_id, other


def test_an_end_that_several_jobs_have_is_not_guessed(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Exit code 2 with the candidates; 3 for none, with where was looked; 2 for what is no end."""
    job_id, other = two_of_one_end(hands, queue)

    several = windlass("jobs", "cancel", job_id[-4:])
    unknown = windlass("jobs", "show", "0123456789ab")

    assert (2, "") == (several.exit_code, several.stdout)
    assert job_id in several.stderr
    assert other in several.stderr
    assert "queued" == hands.job(job_id)["state"]
    assert (3, True) == (unknown.exit_code, "20,000 newest" in unknown.stderr)
    assert 2 == windlass("jobs", "show", "mail").exit_code
    assert re.fullmatch(r"[0-9a-f]{6}", JOB_ID.convert("…C2F9AB", None, None))
