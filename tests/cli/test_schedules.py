"""`windlass schedules`: made, looked at, paused, run, changed and removed from the command line."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import Windlass
from tests.cli.running import PATIENCE_S, Hands
from windlass.cli.scheduleshown import local

ABSENT = "01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90"
NIGHTLY = ("--cron", "30 2 * * *", "--zone", "Europe/Berlin")
SPRING = ("--after", "2027-03-26T12:00:00Z", "--count", "4")
AUTUMN = ("--after", "2027-10-30T22:00:00Z", "--count", "4")


def added(windlass: Windlass, name: str, *options: str, task: str = "report") -> Any:
    """Return a schedule that was made."""
    result = windlass("schedules", "add", name, "--task", task, *options, "-o", "json")
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def shown(windlass: Windlass, name: str) -> Any:
    """Return a schedule as it is now."""
    return json.loads(windlass("schedules", "show", name, "-o", "json").stdout)


def test_a_schedule_is_made_and_shown(windlass: Windlass, queue: str) -> None:
    """By its name or its id; the time in words, when it is due, the policies."""
    made = windlass(
        *("schedules", "add", queue, "--task", "report", *NIGHTLY, "--payload", '{"day": "monday"}'),
        *("--overlap", "queue_one", "--catch-up", "all", "--catch-up-max", "5", "--expect-within", "2h", "--tag", "a"),
    )

    by_name = windlass("schedules", "show", queue)
    found = shown(windlass, queue)
    by_id = windlass("schedules", "show", found["id"])

    assert (0, 0, 0) == (made.exit_code, by_name.exit_code, by_id.exit_code), made.output
    # How long it is until then may be another minute at the second look.
    at_name, at_id = (re.sub(r"\(in \w+\) *", "", answer.stdout) for answer in (by_name, by_id))
    assert at_name == at_id
    for part in ("02:30", "Europe/Berlin", '{"day":"monday"}', "queue_one", "the newest 5", "within 2h", "active"):
        assert part in by_name.stdout
    assert ({"day": "monday"}, 7200, ["a"]) == (found["payload"], found["expect_within_seconds"], found["tags"])
    assert [] == found["runs"]


def test_what_happened_to_a_schedule_is_shown(windlass: Windlass, queue: str) -> None:
    """The last of it, with the reason that was given."""
    added(windlass, queue, *NIGHTLY)
    windlass("schedules", "pause", queue, "--reason", "stocktaking")

    table = windlass("schedules", "show", queue)

    assert ["submitted", "paused"] == [event["kind"] for event in shown(windlass, queue)["events"]]
    assert "stocktaking" in table.stdout.split("DETAIL")[-1]


def test_schedules_are_listed_by_name(windlass: Windlass, queue: str) -> None:
    """With filters; programs get ids."""
    first = added(windlass, f"{queue}-1", "--every", "1h", "--queue", queue, task=f"{queue}-t")
    second = added(windlass, f"{queue}-2", *NIGHTLY, "--queue", queue, "--paused")

    table = windlass("schedules", "list", "--prefix", queue)
    by_queue = windlass("schedules", "list", "--queue", queue, "-o", "ids")
    paused = windlass("schedules", "list", "--prefix", queue, "--paused", "-o", "ids")
    others = windlass("schedules", "list", "--prefix", queue, "--not-paused", "-o", "ids")
    by_task = windlass("schedules", "list", "--task", f"{queue}-t", "-o", "ids")

    rows = table.stdout.splitlines()[1:]
    assert [f"{queue}-1", f"{queue}-2"] == [row.split()[0] for row in rows]
    assert "every hour" in rows[0]
    assert "paused" in rows[1]
    assert f"{first['id']}\n{second['id']}\n" == by_queue.stdout
    assert (f"{second['id']}\n", f"{first['id']}\n", f"{first['id']}\n") == (
        paused.stdout,
        others.stdout,
        by_task.stdout,
    )


def test_a_list_that_is_cut_says_so(windlass: Windlass, queue: str) -> None:
    """Whoever looks for a schedule that is not shown must not think that there is none."""
    for number in range(3):
        added(windlass, f"{queue}-{number}", "--every", "1h", "--queue", queue, "--paused")

    cut = windlass("schedules", "list", "--queue", queue, "--limit", "2")
    whole = windlass("schedules", "list", "--queue", queue, "--limit", "3")

    assert (3, 4) == (len(cut.stdout.splitlines()), len(whole.stdout.splitlines()))
    assert "more than 2" in cut.stderr
    assert "" == whole.stderr


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (
            SPRING,
            ["Sat 2027-03-27 02:30:00 +01:00", "Sun 2027-03-28 03:00:00 +02:00", "Mon 2027-03-29 02:30:00 +02:00"],
        ),
        (AUTUMN, ["Sun 2027-10-31 02:30:00 +02:00", "Mon 2027-11-01 02:30:00 +01:00"]),
    ],
)
def test_a_preview_marks_where_clocks_change(windlass: Windlass, queue: str, when: Any, expected: list[str]) -> None:
    """On the wall clock of the zone, with what a change does to a slot; stored or not."""
    added(windlass, queue, *NIGHTLY)

    plain = windlass("schedules", "preview", *NIGHTLY, *when)
    stored = windlass("schedules", "preview", queue, *when)

    assert (0, 0) == (plain.exit_code, stored.exit_code), plain.output
    assert plain.stdout == stored.stdout
    places = [plain.stdout.index(text) for text in expected]
    assert sorted(places) == places
    marks = [line.partition(" in ")[2] for line in plain.stdout.splitlines() if "Sun" in line]
    assert ["gap" if when is SPRING else "repeated hour"] == [
        word for mark in marks for word in ("gap", "repeated hour") if word in mark
    ]


def test_a_preview_needs_something_to_look_at(windlass: Windlass, queue: str) -> None:
    """A schedule or a trigger, not both and not neither; what cannot be is refused with the place."""
    bad = windlass("schedules", "preview", "--cron", "0 25 * * *")

    assert [2, 2, 2] == [
        windlass("schedules", "preview").exit_code,
        windlass("schedules", "preview", queue, *NIGHTLY).exit_code,
        bad.exit_code,
    ]
    assert "hour 25" in bad.stderr
    assert 3 == windlass("schedules", "preview", queue).exit_code


def test_a_change_is_shown_before_it_is_made(windlass: Windlass, queue: str) -> None:
    """`--dry-run` tells what would change and which slots follow, and stores nothing; a taken name needs --replace."""
    new = windlass("schedules", "add", queue, "--task", "report", *NIGHTLY, "--dry-run")
    absent = windlass("schedules", "show", queue)
    added(windlass, queue, *NIGHTLY)
    other = ("schedules", "add", queue, "--task", "report", "--cron", "0 3 * * *", "--zone", "Europe/Berlin")

    dry = windlass(*other, "--dry-run")
    taken = windlass(*other)
    kept = shown(windlass, queue)
    replaced = windlass(*other, "--replace")

    assert (0, 3) == (new.exit_code, absent.exit_code)
    assert "no schedule" in new.stdout
    assert 0 == dry.exit_code
    assert "30 2 * * *" in dry.stdout
    assert "0 3 * * *" in dry.stdout
    assert "03:00:00" in dry.stdout
    assert (4, "30 2 * * *") == (taken.exit_code, kept["cron"])
    assert f'Error: name: there is a schedule "{queue}" already.' in taken.stderr
    assert 0 == replaced.exit_code
    assert ("0 3 * * *", kept["id"]) == (shown(windlass, queue)["cron"], kept["id"])


def test_a_change_of_a_declared_one_shows_what_would_change(windlass: Windlass, url: str, queue: str) -> None:
    """Payloads are shown as JSON; its owner stays, and is no change."""
    declared = {"name": queue, "task": "report", "cron": "@daily", "payload": {"n": 1}}
    body = {"owner": queue, "schedules": [declared]}
    answer = httpx2.post(f"{url}/api/v1/schedules/declared", verify=False, json=body, timeout=PATIENCE_S)
    answer.raise_for_status()

    same = ("schedules", "add", queue, "--task", "report", "--cron", "@daily", "--dry-run", "-o", "json")
    found = json.loads(windlass(*same, "--payload", '{"n": 2}').stdout)

    assert [{"field": "payload", "was": {"n": 1}, "becomes": {"n": 2}}] == found["differences"]


def test_nothing_would_change(windlass: Windlass, queue: str) -> None:
    """A dry run with the same settings says so."""
    added(windlass, queue, *NIGHTLY)

    result = windlass("schedules", "add", queue, "--task", "report", *NIGHTLY, "--dry-run")

    assert f"Nothing would change of '{queue}'." in result.stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--cron", "*/0 * * * *"), "*/0"),
        (("--cron", "0 0 30 2 *"), "never"),
        (("--cron", "@daily", "--zone", "Mars/Base"), "Mars/Base"),
        (("--every", "0.5s"), "every"),
        (("--cron", "@daily", "--every", "1h"), "every"),
        (("--cron", "@daily", "--start", "2027-01-02T00:00:00Z", "--end", "2027-01-01T00:00:00Z"), "end"),
        (("--at", "9999-12-31T00:00:00Z"), "at"),
        (("--cron", "@daily", "--payload", "{"), "JSON"),
        (("--every", "soon"), "soon"),
        (("--overlap", "sometimes"), "sometimes"),
    ],
)
def test_what_cannot_be_is_wrong_usage(windlass: Windlass, queue: str, options: tuple[str, ...], why: str) -> None:
    """Exit code 2, with the place and the reason; nothing is stored."""
    result = windlass("schedules", "add", queue, "--task", "report", *options)

    assert (2, "") == (result.exit_code, result.stdout)
    assert why in result.stderr
    assert 3 == windlass("schedules", "show", queue).exit_code


def test_a_schedule_is_paused_and_resumed(windlass: Windlass, queue: str) -> None:
    """With a reason and an end; several at once, and one that is not there does not keep the others."""
    for number in (1, 2):
        added(windlass, f"{queue}-{number}", "--every", "1h")

    paused = windlass("schedules", "pause", f"{queue}-1", f"{queue}-0", f"{queue}-2", "--for", "1h", "--reason", "snow")
    table = windlass("schedules", "show", f"{queue}-2").stdout
    states = [shown(windlass, f"{queue}-{number}")["status"] for number in (1, 2)]
    resumed = windlass("schedules", "resume", f"{queue}-1", f"{queue}-2")

    assert 3 == paused.exit_code
    assert f"{queue}-2 is paused; it resumes in 60m." in paused.stdout
    assert ["paused", "paused"] == states
    assert "snow" in table
    assert 0 == resumed.exit_code
    assert f"{queue}-1 is active; its next slot is due in" in resumed.stdout
    assert 2 == windlass("schedules", "pause", queue, "--for", "1h", "--until", "2030-01-01T00:00:00Z").exit_code


def test_a_schedule_is_run_by_hand(windlass: Windlass, hands: Hands, queue: str) -> None:
    """The id of the job is printed; the run stands in the list of slots as made by hand."""
    added(windlass, queue, *NIGHTLY, "--queue", queue, "--payload", '{"day": "monday"}', task=queue)

    made = windlass("schedules", "run", queue)
    other = windlass("schedules", "run", queue, "--payload", '{"day": "friday"}')
    first = hands.claim(queue, queue=queue)
    hands.end(first, "done")
    hands.complete(queue, queue=queue)
    runs = windlass("schedules", "runs", queue)

    assert (0, 0) == (made.exit_code, other.exit_code), made.output
    assert {"day": "friday"} == hands.job(other.stdout.strip())["payload"]
    assert made.stdout.strip() == first["id"]
    assert 2 == runs.stdout.count("manual")
    assert made.stdout.strip() in runs.stdout
    assert 2 == runs.stdout.count("succeeded")
    assert "manual" in windlass("schedules", "show", queue).stdout


def test_slots_that_ran_are_listed(windlass: Windlass, hands: Hands, queue: str) -> None:
    """With what was decided and how the job ended; by decision; as JSON lines for programs."""
    added(windlass, queue, "--every", "1s", "--queue", queue, "--overlap", "allow", task=queue)
    job_id = hands.complete(queue, queue=queue)
    windlass("schedules", "pause", queue)

    table = windlass("schedules", "runs", queue)
    fired = windlass("schedules", "runs", queue, "--decision", "fired", "--limit", "1000", "-o", "jsonl")
    missed = windlass("schedules", "runs", queue, "--decision", "missed", "-o", "jsonl")

    assert (0, 0, 0) == (table.exit_code, fired.exit_code, missed.exit_code), table.output
    found = {run["job_id"]: run for run in map(json.loads, fired.stdout.splitlines())}
    assert "succeeded" == found[job_id]["status"]
    assert job_id in table.stdout
    assert "" == missed.stdout


def test_a_past_range_is_made_up_for(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Its progress is told until it is done; slots that had a job are left alone; it stands in a list."""
    added(windlass, queue, "--cron", "0 * * * *", "--queue", queue, task=queue)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    span = ("--since", (hour - timedelta(hours=9)).isoformat(), "--until", (hour - timedelta(hours=6)).isoformat())
    begun = windlass("schedules", "backfill", queue, *span, "--concurrency", "3", "-o", "ids")
    for _ in range(3):
        hands.complete(queue, queue=queue)

    followed = windlass("schedules", "backfill", queue, *span, "--follow", "-o", "json")
    listed = windlass("schedules", "backfills", queue, "-o", "ids")

    assert (0, 0) == (begun.exit_code, followed.exit_code), begun.output + followed.output
    [found] = json.loads(followed.stdout)
    assert ("done", 0, 3) == (found["status"], found["made"], found["known"])
    assert begun.stdout.strip() in listed.stdout.split()
    backfilled = windlass("schedules", "runs", queue, "--decision", "backfilled", "-o", "jsonl").stdout
    assert 3 == len(backfilled.splitlines())


def test_a_backfill_is_stopped(windlass: Windlass, queue: str) -> None:
    """No more jobs are made; one that is not there is exit code 3."""
    added(windlass, queue, "--cron", "* * * * *", "--queue", queue, task=queue)
    now = datetime.now(UTC)
    span = ("--since", (now - timedelta(days=2)).isoformat(), "--until", (now - timedelta(days=1)).isoformat())
    begun = windlass("schedules", "backfill", queue, *span, "-o", "ids").stdout.strip()

    stopped = windlass("schedules", "stop", begun, "-o", "json")

    assert 0 == stopped.exit_code, stopped.output
    assert "stopped" == json.loads(stopped.stdout)[0]["status"]
    assert 3 == windlass("schedules", "stop", ABSENT).exit_code
    assert 2 == windlass("schedules", "backfill", queue, *span[2:], "--since", now.isoformat()).exit_code


def test_a_schedule_is_deleted(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Its jobs that have not begun are cancelled; removing its history is asked for twice."""
    added(windlass, queue, "--every", "1h", "--queue", queue)
    job_id = windlass("schedules", "run", queue).stdout.strip()

    asked = windlass("schedules", "delete", queue, "--purge")
    deleted = windlass("schedules", "delete", queue)
    again = windlass("schedules", "delete", queue)

    assert 2 == asked.exit_code
    assert "Say --yes" in asked.stderr
    assert (0, f"{queue} is deleted.\n") == (deleted.exit_code, deleted.stdout)
    assert 3 == again.exit_code
    assert "cancelled" == hands.job(job_id)["state"]


def test_a_history_is_removed_with_its_schedule(windlass: Windlass, hands: Hands, queue: str) -> None:
    """With --purge and --yes the ended jobs go too."""
    added(windlass, queue, "--every", "1h", "--queue", queue, task=queue)
    windlass("schedules", "run", queue)
    job_id = hands.complete(queue, queue=queue)

    result = windlass("schedules", "delete", queue, "--purge", "--yes")

    assert (0, f"{queue} is deleted, and its history.\n") == (result.exit_code, result.stdout)
    assert 3 == windlass("jobs", "show", job_id).exit_code


@pytest.mark.parametrize("verb", ["show", "runs", "run", "pause", "resume", "delete", "backfills"])
def test_an_unknown_schedule_is_exit_code_3(windlass: Windlass, queue: str, verb: str) -> None:
    """By name or id, whatever is asked of it."""
    results = [windlass("schedules", verb, name) for name in (queue, ABSENT)]

    assert [(3, "")] * 2 == [(result.exit_code, result.stdout) for result in results]


def test_a_name_may_have_what_paths_give_a_meaning(windlass: Windlass, queue: str) -> None:
    """Blanks, question marks and percent signs are part of the name."""
    name = f"{queue} 100%? #1 ü"
    added(windlass, name, "--every", "1h")

    assert name == shown(windlass, name)["name"]


def test_times_are_those_of_the_zone() -> None:
    """With weekday and offset; a zone that is not known here is UTC."""
    instant = "2027-03-28T01:00:00Z"

    assert "Sun 2027-03-28 03:00:00 +02:00" == local(instant, "Europe/Berlin")
    assert "Sun 2027-03-28 01:00:00 +00:00" == local(instant, "Mars/Base")
    assert "" == local(None, "UTC")
