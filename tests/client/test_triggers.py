"""Triggers as programs write them, and what a schedule to store says of them and of its options."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from msgspec import UNSET

from windlass import App, Call, InvalidInput, InvalidSchedule, at, cron, every
from windlass.client import schedulerequests as requests
from windlass.client.scheduleoptions import changed_fields, new_fields, window_fields
from windlass.client.triggers import At, Cron, Every, Trigger
from windlass.queue import cron as queue_cron
from windlass.queue.cron import check_trigger
from windlass.wire import schedules as wire

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2027, 1, 1, 12, tzinfo=BERLIN)
app = App(queue="reports")


@app.task(timeout="5m", max_retries=1, retry={"kind": "fixed", "base": timedelta(seconds=5)}, tags=["x"])
def report(day: str = "sun") -> str:
    """Be scheduled."""
    return day


def stored(call: Call[Any], trigger: Trigger | None, **said: Any) -> wire.ScheduleRequest:
    """Return the schedule as a server reads it."""
    request = requests.create(new_fields(call, trigger, name="weekly", said=said), replace_existing=False)
    return msgspec.json.decode(request.body or b"", type=wire.ScheduleRequest)


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (cron("30 2 * * *"), Cron("30 2 * * *", "UTC")),
        (cron("@daily", zone="Europe/Berlin"), Cron("@daily", "Europe/Berlin")),
        (cron("@daily", zone=BERLIN), Cron("@daily", "Europe/Berlin")),
        (every("1h30m"), Every(5400)),
        (every(timedelta(minutes=1)), Every(60)),
        (every(1), Every(1)),
        (at(NOON), At(datetime(2027, 1, 1, 11, tzinfo=UTC))),
    ],
)
def test_a_trigger_is_a_plain_value(trigger: Trigger, expected: Trigger) -> None:
    """Expressions, spans as people write them, and instants; the same trigger is equal to itself."""
    assert expected == trigger
    assert hash(expected) == hash(trigger)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: every(0), "every"),
        (lambda: every("500ms"), "every"),
        (lambda: every("1500ms"), "every"),
        (lambda: every("soon"), "every"),
        (lambda: at(datetime(2027, 1, 1)), "at"),  # noqa: DTZ001 — the zone is what it lacks
        (lambda: at("2027-01-01"), "at"),  # type: ignore[arg-type]
        (lambda: cron(5), "cron"),  # type: ignore[arg-type]
        (lambda: cron("@daily", zone=UTC), "timezone"),  # type: ignore[arg-type]
        (lambda: cron("0 25 * * *"), "cron"),
        (lambda: cron("0 0 31 2 *"), "cron"),
        (lambda: cron("@daily", zone="Europe/Berln"), "timezone"),
        (lambda: every("400d"), "every"),
        (lambda: App("shop").scheduled(every(60), priority=500)(report), "priority"),
        (lambda: App("shop").scheduled(every(60), overlap="never")(report), "overlap"),  # type: ignore[arg-type]
        (lambda: App("shop").scheduled(every(60), exclude=["31-12"])(report), "exclude"),
        (lambda: App("shop").scheduled(every(60), retry={"factor": 0.5})(report), "retry"),
        (lambda: App("shop").task(max_attempts=0)(lambda: None), "max_attempts"),
        (lambda: report.options(priority=500), "priority"),
    ],
)
def test_what_can_be_seen_here_is_refused_here(make: Any, field: str) -> None:
    """Half seconds, instants without a zone, and what is no trigger at all; the error names the field."""
    with pytest.raises(InvalidInput) as raised:
        make()

    assert field == raised.value.field


def test_a_schedule_takes_what_the_call_has() -> None:
    """Payload, queue, timeout, retries and tags of the task become the schedule's; what is said here lies over them."""
    found = stored(report.s(day="mon"), cron("0 8 * * MON", zone=BERLIN), queue="slow", overlap="queue_one", priority=3)

    assert ("weekly", "report", b'{"day":"mon"}') == (found.name, found.task, bytes(found.payload))  # type: ignore[arg-type]
    assert ("0 8 * * MON", "Europe/Berlin", None, None) == (found.cron, found.timezone, found.every, found.at)
    assert ("slow", 300.0, 2, ("x",), 3) == (
        found.queue,
        found.timeout_seconds,
        found.max_attempts,
        found.tags,
        found.priority,
    )
    assert "queue_one" == found.overlap
    assert isinstance(found.retry_policy, msgspec.Struct)


def test_every_option_is_read_as_people_write_it() -> None:
    """Spans, days and instants; None is the default, but for a timeout, where it means none."""
    found = stored(
        report.s(),
        every("10m"),
        start=NOON,
        end=None,
        exclude=[date(2026, 12, 25), "--01-01", "SAT"],
        jitter="30s",
        catch_up="all",
        catch_up_max=5,
        catch_up_window=timedelta(days=1),
        misfire_grace="2m",
        expect_within="1h",
        start_within=90,
        timeout=None,
        enabled=False,
        tenant="acme",
        delivery="at_most_once",
    )

    assert (600, None, NOON, None) == (found.every, found.timezone, found.start, found.end)
    assert ("2026-12-25", "--01-01", "SAT") == found.exclude
    assert (30, "all", 5, 86_400, 120) == (
        found.jitter,
        found.catch_up,
        found.catch_up_max,
        found.catch_up_window,
        found.misfire_grace,
    )
    assert (3600, 90, None, False) == (
        found.expect_within,
        found.start_within,
        found.timeout_seconds,
        found.enabled,
    )
    assert ("acme", "at_most_once") == (found.tenant, found.delivery)


def test_a_schedule_without_a_trigger_runs_by_hand() -> None:
    """No trigger is sent; what nobody says is left to the server."""
    found = stored(report.s(), None)

    assert (None, None, None, None) == (found.cron, found.every, found.at, found.timezone)
    assert (None, None, UNSET) == (found.overlap, found.jitter, found.enabled)


def test_a_start_deadline_of_the_task_goes_by_the_slot() -> None:
    """A span is the same thing for a slot; an instant cannot be."""
    assert 60 == stored(report.options(start_deadline="1m").s(), every(60)).start_within
    with pytest.raises(InvalidInput, match="start_within"):
        stored(report.options(start_deadline=NOON).s(), every(60))


@pytest.mark.parametrize(
    "options",
    [
        {"delay": "1m"},
        {"run_at": NOON},
        {"idempotency_key": "k"},
        {"unique": True},
        {"unique_key": "u"},
        {"unique_for": 5},
    ],
)
def test_what_fits_only_one_job_is_refused(options: Any) -> None:
    """Nothing that was said is dropped in silence; the error says what to use instead."""
    with pytest.raises(InvalidInput, match="a schedule cannot have it") as raised:
        stored(report.options(**options).s(), every(60))

    assert {raised.value.field} == options.keys()


@pytest.mark.parametrize("name", ["overlapp", "delay", "run_at", "unique"])
def test_an_unknown_option_is_named(name: str) -> None:
    """A typing error is seen at the call, as with jobs."""
    with pytest.raises(TypeError, match=name):
        stored(report.s(), every(60), **{name: "1m"})
    with pytest.raises(TypeError, match=name):
        changed_fields(None, {name: "1m"})
    with pytest.raises(TypeError, match=name):
        window_fields({name: "1m"})


@pytest.mark.parametrize(
    ("option", "value"),
    [("start", datetime(2027, 1, 1)), ("end", "tomorrow"), ("exclude", "SAT"), ("jitter", "-1s")],  # noqa: DTZ001
)
def test_an_option_that_cannot_be_read_is_named(option: str, value: Any) -> None:
    """Times without a zone, one text for a list, negative spans."""
    with pytest.raises(InvalidInput) as raised:
        stored(report.s(), every(60), **{option: value})

    assert option == raised.value.field


def test_a_change_names_only_what_changes() -> None:
    """A trigger is changed as a whole, with its zone; None takes a setting away."""
    fields = changed_fields(cron("@daily"), {"overlap": "allow", "end": None, "timeout": "1m", "max_retries": 4})
    found = msgspec.json.decode(requests.change("x", fields, reason=None).body or b"", type=wire.SchedulePatch)

    assert {"cron", "timezone", "overlap", "end", "timeout_seconds", "max_attempts"} == fields.keys()
    assert ("@daily", "UTC", "allow", None, 60.0, 5) == (
        found.cron,
        found.timezone,
        found.overlap,
        found.end,
        found.timeout_seconds,
        found.max_attempts,
    )
    assert msgspec.UNSET is found.every


def test_requests_are_what_servers_read() -> None:
    """Each body fits the struct of the wire; names are written so that a path can hold them."""
    decode = msgspec.json.decode
    pause = requests.pause("a b/ü", reason="why", until=NOON)
    run = requests.run("x", b'{"a":1}', reason=None)
    backfill = requests.backfill("x", {"since": NOON, "until": NOON, "concurrency": 2}, reason="r")
    preview = requests.preview_of({**every(5).fields(), **window_fields({"jitter": "1s"}), "count": 3})
    declared = requests.declare("shop", [new_fields(report.s(), every(60), name="n", said={})], dry_run=True)

    assert "/schedules/a%20b%2F%C3%BC/pause" == pause.path
    assert b'{"a":1}' == bytes(decode(run.body or b"", type=wire.RunRequest).payload)  # type: ignore[arg-type]
    assert 2 == decode(backfill.body or b"", type=wire.BackfillRequest).concurrency
    assert 3 == decode(preview.body or b"", type=wire.PreviewRequest).count
    assert ["n"] == [one.name for one in decode(declared.body or b"", type=wire.DeclareRequest).schedules]
    assert {"paused": "true", "owner": "shop", "limit": 500} == requests.find(
        {"paused": True, "owner": "shop", "task": None}, cursor=None
    ).query


def test_only_what_may_be_said_twice_is() -> None:
    """A schedule that was stored would meet itself, a run would be two jobs; a replacement is the same twice."""
    assert not requests.create({}, replace_existing=False).repeatable
    assert requests.create({}, replace_existing=True).repeatable
    assert requests.try_create({}, replace_existing=False).repeatable
    assert requests.declare("a", [], dry_run=False).repeatable
    assert not requests.run("x", None, reason=None).repeatable


def test_the_error_of_a_trigger_is_one_of_schedules() -> None:
    """Who catches InvalidInput has both."""
    with pytest.raises(InvalidSchedule, match="whole seconds"):
        every("1500ms")


def test_a_trigger_is_refused_in_the_words_of_the_server() -> None:
    """The same functions read it here and there, and name the place of the fault."""
    with pytest.raises(InvalidSchedule) as raised:
        cron("0 25 * * *")
    with pytest.raises(InvalidSchedule) as at_the_server:
        check_trigger(queue_cron.Cron("0 25 * * *"))

    assert str(at_the_server.value) == str(raised.value)


def test_a_program_without_cron_does_not_load_what_reads_it() -> None:
    """Importing, defining tasks and intervals cost nothing of it; connections are opened when they are used."""
    code = (
        "import sys; from windlass import App, cron, every; App('a').scheduled(every(60))(lambda: None); "
        "assert not {'cronsim', 'httpx2'} & set(sys.modules)"
    )

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
