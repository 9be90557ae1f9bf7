"""`windlass jobs`: lists, single jobs, waiting, cancelling, running again."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.cli.conftest import Windlass
from tests.cli.running import Hands
from windlass.cli import waiting
from windlass.cli.calls import Server
from windlass.errors import Unavailable

ABSENT = "01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90"


def test_a_list_has_four_forms(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Tables are for people; ids, JSON and JSON lines for programs, newest first in each."""
    first, second = hands.submit("add", queue=queue), hands.submit("mail", queue=queue, payload={"to": "ann"})

    forms = {form: windlass("jobs", "list", "--queue", queue, "-o", form) for form in ("table", "json", "jsonl", "ids")}

    assert [0] * 4 == [result.exit_code for result in forms.values()]
    assert [second, first] == forms["ids"].stdout.split()
    assert [second, first] == [job["id"] for job in json.loads(forms["json"].stdout)]
    assert [second, first] == [json.loads(line)["id"] for line in forms["jsonl"].stdout.splitlines()]
    head, *rows = forms["table"].stdout.splitlines()
    assert ["ID", "TASK", "QUEUE", "STATE"] == head.split()[:4]
    assert [[second, "mail", queue, "queued"], [first, "add", queue, "queued"]] == [row.split()[:4] for row in rows]


def test_output_has_no_escape_codes_where_there_is_no_terminal(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Neither colours of ours, nor what a job brings along to steer a terminal."""
    hands.submit("add", queue=queue, tags=["x"])
    hands.submit("mail", queue=queue, payload="\x1b[2J\x1b]0;owned\x07")

    shown = [windlass("jobs", "list", "--queue", queue).stdout]
    for job_id in windlass("jobs", "list", "--queue", queue, "-o", "ids").stdout.split():
        shown.append(windlass("jobs", "show", job_id).stdout)

    assert [] == [text for text in shown if "\x1b" in text or "\x07" in text]


def test_filters_narrow_a_list(windlass: Windlass, hands: Hands, queue: str) -> None:
    """State, task and limit are those of the jobs that are shown."""
    waiting = hands.submit("add", queue=queue)
    hands.submit("mail", queue=queue)
    dead = hands.kill("mail", queue=queue)

    def ids(*filters: str) -> list[str]:
        return windlass("jobs", "list", "--queue", queue, "-o", "ids", *filters).stdout.split()

    assert [dead] == ids("--state", "dead")
    assert [waiting] == ids("--task", "add")
    assert [dead] == ids("--limit", "1")
    assert [] == ids("--tag", "none")


def test_a_job_is_shown_with_its_story(windlass: Windlass, hands: Hands, queue: str) -> None:
    """What it is, its attempts with their errors, and what happened when."""
    hands.submit("mail", queue=queue, payload={"to": "ann"})
    job_id = hands.kill("mail", queue=queue)

    text, as_json = windlass("jobs", "show", job_id), windlass("jobs", "show", job_id, "-o", "json")

    for part in (job_id, "dead", '{"to":"ann"}', "ValueError: no such address", "submitted", "hands"):
        assert part in text.stdout
    assert ("dead", "failed") == (
        json.loads(as_json.stdout)["state"],
        json.loads(as_json.stdout)["report"]["attempts"][0]["outcome"],
    )
    attempts = json.loads(windlass("jobs", "attempts", job_id, "-o", "json").stdout)
    assert ["failed"] == [attempt["outcome"] for attempt in attempts]


@pytest.mark.parametrize("command", ["show", "wait", "cancel", "retry", "logs", "attempts"])
def test_an_unknown_job_is_exit_code_3(windlass: Windlass, command: str) -> None:
    """What is not there is told on stderr; what is no id is wrong usage."""
    absent, wrong = windlass("jobs", command, ABSENT), windlass("jobs", command, "abc")

    assert (3, "") == (absent.exit_code, absent.stdout)
    assert ABSENT in absent.stderr
    assert 2 == wrong.exit_code


def test_waiting_for_several_tells_each(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Results come in the order of the ids; one that died makes it exit code 1."""
    hands.submit("add", queue=queue)
    good = hands.complete("add", queue=queue, result=3)
    hands.submit("add", queue=queue)
    bad = hands.kill("add", queue=queue)

    one, both = windlass("jobs", "wait", good), windlass("jobs", "wait", good, bad)

    assert (0, "3\n") == (one.exit_code, one.stdout)
    assert (1, "3\n") == (both.exit_code, both.stdout)
    assert f"Job {bad} is dead" in both.stderr


def test_cancelling_and_running_again(windlass: Windlass, hands: Hands, queue: str) -> None:
    """A waiting job is cancelled at once, and can be run again with another payload; a succeeded one cannot."""
    job_id = hands.submit("add", queue=queue, payload=1)

    cancelled = windlass("jobs", "cancel", job_id, "--reason", "not needed")
    again = windlass("jobs", "retry", job_id, "--payload", "2")
    hands.complete("add", queue=queue)
    too_late = windlass("jobs", "retry", job_id)

    assert (0, f"{job_id} is cancelled.\n") == (cancelled.exit_code, cancelled.stdout)
    assert (0, f"{job_id} is queued.\n") == (again.exit_code, again.stdout)
    assert (4, 2) == (too_late.exit_code, hands.job(job_id)["payload"])


def test_one_bad_id_does_not_keep_the_others(windlass: Windlass, hands: Hands, queue: str) -> None:
    """All that can be cancelled are; the exit code is that of the first that could not."""
    job_id = hands.submit("add", queue=queue)

    result = windlass("jobs", "cancel", ABSENT, job_id)

    assert (3, "cancelled") == (result.exit_code, hands.job(job_id)["state"])


def test_lines_that_were_dropped_are_told(windlass: Windlass, hands: Hands, queue: str) -> None:
    """The last line says how many are missing, and they are counted once, also by who follows."""
    job_id = hands.submit("add", queue=queue)
    job = hands.claim("add", queue=queue)
    line = {"at": "2026-01-31T12:00:00Z", "text": "hello"}
    hands.write(job, [[line], []], dropped=7)
    hands.end(job)

    once = windlass("jobs", "logs", job_id)
    followed = windlass("jobs", "logs", "-f", job_id)

    assert ["12:00:00Z #1 hello", "… 14 lines were dropped: too many."] == once.stdout.splitlines()
    assert once.stdout == followed.stdout


def test_following_survives_a_server_that_restarts(
    windlass: Windlass, hands: Hands, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer for a moment is asked again, as by those who wait for a result."""
    job_id = hands.submit("add", queue=queue)
    hands.complete("add", queue=queue)
    asked, get = [], Server.get

    def flaky(server: Server, path: str, **query: Any) -> Any:
        asked.append(path)
        if len(asked) % 2:
            raise Unavailable("No server answers.")
        return get(server, path, **query)

    monkeypatch.setattr(Server, "get", flaky)
    monkeypatch.setattr(waiting, "PAUSE_S", 0.0)

    assert 0 == windlass("jobs", "logs", "-f", job_id).exit_code


def test_an_interrupt_is_exit_code_130(windlass: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command without a traceback."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("windlass.cli.calls.Server.get", interrupted)

    result = windlass("jobs", "show", str(uuid.uuid4()))

    assert (130, "") == (result.exit_code, result.stdout)
