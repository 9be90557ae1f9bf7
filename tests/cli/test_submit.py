"""`windlass submit`: one job, a file of them, and waiting for the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import Windlass
from tests.cli.running import PATIENCE_S, Hands
from tests.proofs.processes import environment


def test_submitting_prints_the_id(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Without more options there is the id and nothing else, for a program to use."""
    result = windlass("submit", "add", '{"x": 1, "y": 2}', "--queue", queue)

    job = hands.job(result.stdout.strip())
    assert 0 == result.exit_code
    assert ("add", {"x": 1, "y": 2}, queue) == (job["task"], job["payload"], job["queue"])


def test_a_payload_comes_from_the_command_line_a_file_or_stdin(windlass: Windlass, hands: Hands, queue: str) -> None:
    """`@path` is what a file has, `-` what stdin has; nothing is no payload."""
    Path("payload.json").write_text("[1, 2]")

    ids = [
        windlass("submit", "add", "@payload.json", "--queue", queue).stdout.strip(),
        windlass("submit", "add", "-", "--queue", queue, given='{"z": 3}').stdout.strip(),
        windlass("submit", "add", "--queue", queue).stdout.strip(),
    ]

    assert [[1, 2], {"z": 3}, None] == [hands.job(job_id)["payload"] for job_id in ids]


def test_options_of_a_job_reach_it(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Priority, delay, attempts, time limit, tags and labels are those of the job."""
    more = (
        "--priority",
        "5",
        "--delay",
        "1h",
        "--max-attempts",
        "7",
        "--time-limit",
        "90s",
        "--tag",
        "a",
        "--tag",
        "b",
    )

    result = windlass("submit", "add", "--queue", queue, *more, "--label", "gpu", "-o", "json")

    [made] = json.loads(result.stdout)
    job = hands.job(made["id"])
    assert "scheduled" == made["state"]
    assert (5, 7, 90, ["a", "b"], ["gpu"]) == tuple(
        job[name] for name in ("priority", "max_attempts", "timeout_seconds", "tags", "labels")
    )


def test_the_same_key_makes_no_second_job(windlass: Windlass, queue: str) -> None:
    """`--key` again is answered with the job made first."""
    first, second = (windlass("submit", "add", "--key", queue, "--queue", queue).stdout for _ in range(2))

    assert first == second


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "add", "{x}"),
        ("submit", "add", "@absent.json"),
        ("submit",),
        ("submit", "add", "--file", "jobs.jsonl"),
        ("submit", "add", "--delay", "soon"),
        ("submit", "add", "--run-at", "2027-01-31T12:00:00"),
        ("submit", "add", "--priority", "1000"),
    ],
)
def test_wrong_usage_is_exit_code_2(windlass: Windlass, arguments: tuple[str, ...]) -> None:
    """What cannot be understood is told on stderr, and nothing is submitted."""
    result = windlass(*arguments)

    assert (2, "") == (result.exit_code, result.stdout)
    assert "Error: " in result.stderr


def test_what_a_server_refuses_is_told_in_its_words(windlass: Windlass) -> None:
    """The error has the text of the server and the exit code of its class; there is no traceback."""
    result = windlass("submit", "a/b")

    assert (2, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith("Error: task: ")
    assert "Traceback" not in result.stderr


def test_nobody_at_the_address_is_exit_code_5(windlass: Windlass) -> None:
    """A server that is named and does not answer is unavailable."""
    result = windlass("submit", "add", "--url", "http://127.0.0.1:1")

    assert (5, "") == (result.exit_code, result.stdout)
    assert "No server answers at http://127.0.0.1:1" in result.stderr


def test_a_file_of_jobs_is_submitted_in_batches(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Each line is a job; what it does not say is as the command line says; ids come in the order of the lines."""
    lines = [json.dumps({"task": "add", "payload": number}) for number in range(1205)]
    Path("jobs.jsonl").write_text("\n".join([*lines, "", ""]))

    result = windlass("submit", "--file", "jobs.jsonl", "--queue", queue)

    ids = result.stdout.split()
    assert (0, 1205) == (result.exit_code, len(set(ids)))
    assert (queue, 1204) == (hands.job(ids[-1])["queue"], hands.job(ids[-1])["payload"])


def test_a_file_that_is_not_there_is_wrong_usage(windlass: Windlass) -> None:
    """It is a sentence and exit code 2, and no traceback."""
    result = windlass("submit", "--file", "missing.jsonl")

    assert 2 == result.exit_code
    assert "Cannot read missing.jsonl: No such file or directory." in result.stderr


def test_a_bad_line_is_named(windlass: Windlass, queue: str) -> None:
    """A line that is no job stops the command; so does a job that the server refuses, with its line."""
    Path("broken.jsonl").write_text('{"task": "add"}\n{task}\n')
    Path("refused.jsonl").write_text('{"task": "add"}\n\n{"task": "add", "priority": 1000}\n')

    broken = windlass("submit", "--file", "broken.jsonl", "--queue", queue)
    refused = windlass("submit", "--file", "refused.jsonl", "--queue", queue)

    assert (2, 2) == (broken.exit_code, refused.exit_code)
    assert "line 2: it is no job" in broken.stderr
    assert "Nothing from line 1 on" in refused.stderr
    assert "jobs[1].priority" in refused.stderr


@pytest.mark.parametrize("succeeds", [True, False])
def test_waiting_ends_with_the_job(url: str, tmp_path: Path, hands: Hands, *, queue: str, succeeds: bool) -> None:
    """`--wait` prints the result; a job that died is exit code 1, with its error on stderr."""
    command = [sys.executable, "-m", "windlass", "submit", "add", "--queue", queue, "--wait", "--url", url]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        if succeeds:
            hands.complete("add", queue=queue, result={"sum": 3})
        else:
            hands.kill("add", queue=queue)
        out, err = process.communicate(timeout=PATIENCE_S)

    assert (0 if succeeds else 1) == process.returncode
    assert ('{"sum":3}\n' if succeeds else "") == out
    assert succeeds or "ValueError: no such address" in err


def test_waiting_in_vain_is_exit_code_5(windlass: Windlass, queue: str) -> None:
    """A job that has not ended by `--timeout` goes on; the command says so."""
    result = windlass("submit", "add", "--queue", queue, "--wait", "--timeout", "0.1s")

    assert (5, "") == (result.exit_code, result.stdout)
    assert "has not ended in time: it is queued" in result.stderr


def test_a_job_has_the_options_of_its_task(windlass: Windlass, url: str, queue: str) -> None:
    """What the command leaves open is as the task's worker published it, and is shown to be so."""
    signature = {"defaults": {"queue": queue, "max_attempts": 7, "priority": 5}}
    body = {"worker_id": "w", "tasks": [queue], "signatures": {queue: signature}}
    answer = httpx2.post(f"{url}/api/v1/workers/register", verify=False, json=body, timeout=PATIENCE_S)
    answer.raise_for_status()

    job_id = windlass("submit", queue, "--priority", "2").stdout.strip()

    text = windlass("jobs", "show", job_id).stdout
    shown = {name: " ".join(words) for name, *words in (line.split() for line in text.splitlines() if line)}
    assert (queue, "0 of 7", "2", "its task queue, max_attempts") == tuple(
        shown[name] for name in ("queue", "attempt", "priority", "from")
    )
