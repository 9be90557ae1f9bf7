"""Schedules as people read them: one line each, everything about one, its slots to come and its slots decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from windlass.cli.shown import Column, Row, as_json, console, fields_of, from_task, rough, spent, state, table_of, when

LAST_RUNS = 10
LAST_EVENTS = 5
STATUS_STYLES = {"active": "green", "paused": "yellow", "ended": "dim", "manual": ""}
DECISION_STYLES = {"overlapped": "yellow", "missed": "red", "paused": "dim", "replaced": "yellow"}


def status(schedule: Row) -> Text:
    """Return how a schedule is, in its colour; `missing` where a run that was expected has not succeeded."""
    name = str(schedule["status"])
    if schedule["missing"]:
        return Text(f"{name}, missing", style="red")
    return Text(name, style=STATUS_STYLES.get(name, ""))


COLUMNS: tuple[Column, ...] = (
    ("name", lambda schedule: schedule["name"]),
    ("task", lambda schedule: schedule["task"]),
    ("next", lambda schedule: when(schedule["next_run_at"])),
    ("last", lambda schedule: when(schedule["last_run_at"])),
    ("status", status),
    ("trigger", lambda schedule: schedule["words"]),
)
BACKFILL_COLUMNS: tuple[Column, ...] = (
    ("id", lambda backfill: backfill["id"]),
    ("since", lambda backfill: local(backfill["since"], "UTC")),
    ("until", lambda backfill: local(backfill["until"], "UTC")),
    ("status", lambda backfill: state({"state": backfill["status"]})),
    ("made#", lambda backfill: f"{backfill['made']:,}"),
    ("known#", lambda backfill: f"{backfill['known']:,}"),
    ("reached", lambda backfill: local(backfill["reached"], "UTC")),
)
DIFFERENCE_COLUMNS: tuple[Column, ...] = (
    ("setting", lambda difference: difference["field"]),
    ("was", lambda difference: as_json(difference["was"]) or "–"),
    ("becomes", lambda difference: as_json(difference["becomes"]) or "–"),
)


def local(text: str | None, zone: str) -> str:
    """Return an instant on the wall clock of a zone, with its offset; empty for none."""
    if text is None:
        return ""
    try:
        found = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):  # a newer server may know more of them
        found = ZoneInfo("UTC")
    return wall(datetime.fromisoformat(text).astimezone(found))


def wall(instant: datetime) -> str:
    """Return a time with its weekday and offset: `Sun 2027-03-28 03:00:00 +02:00`."""
    written = instant.isoformat(" ", timespec="seconds")
    return f"{instant:%a} {written[:19]} {written[19:]}".rstrip()


def slot_columns(slots: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns of slots to come; when they are due only where that is later."""
    due: tuple[Column, ...] = (("due", lambda slot: local(slot["due_at"], "UTC")),)
    is_late = any(slot["due_at"] != slot["slot_at"] for slot in slots)
    return (
        ("slot", lambda slot: wall(datetime.fromisoformat(slot["local"]))),
        ("utc", lambda slot: f"{datetime.fromisoformat(slot['slot_at']):%Y-%m-%d %H:%M:%S}"),
        *(due if is_late else ()),
        ("when", lambda slot: when(slot["slot_at"])),
        ("clock", lambda slot: slot["mark"] or ""),
    )


def run_columns(zone: str) -> tuple[Column, ...]:
    """Return the columns of slots that were decided, on the wall clock of a zone."""
    return (
        ("slot", lambda run: local(run["slot_at"], zone)),
        ("decision", _decision),
        ("job", lambda run: run["job_id"] or ""),
        ("status", lambda run: state({"state": run["status"]}) if run["status"] else ""),
        ("late#", lambda run: spent(run["lateness_ms"])),
        ("took#", lambda run: spent(run["execution_time_ms"])),
        ("detail", lambda run: _detail(run, zone)),
    )


def _decision(run: Row) -> Text:
    name = str(run["decision"])
    return Text(name, style=DECISION_STYLES.get(name, ""))


def _detail(run: Row, zone: str) -> str:
    many = f"{run['slots']:,} slots from {local(run['first_slot_at'], zone)}" if run["slots"] > 1 else ""
    return "; ".join(part for part in (many, run["error_message"] or run["reason"]) if part)


def schedule_fields(schedule: Row) -> RenderableType:
    """Return what a schedule is, field by field."""
    zone = schedule["timezone"]
    paused = schedule["pause"] or {}
    why = ", ".join(str(part) for part in (paused.get("reason"), paused.get("actor")) if part)
    span = _span(schedule)
    return fields_of(
        {
            "name": schedule["name"],
            "id": schedule["id"],
            "task": schedule["task"],
            "payload": as_json(schedule["payload"]),
            "queue": schedule["queue"],
            "trigger": schedule["words"],
            "cron": schedule["cron"] or "",
            "zone": zone if schedule["cron"] else "",
            "start": local(schedule["start"], zone),
            "end": local(schedule["end"], zone),
            "without": ", ".join(schedule["exclude"]),
            "jitter": span("jitter_seconds"),
            "status": status(schedule),
            "paused": when(paused.get("paused_at")) + (f" ({why})" if why else ""),
            "resumes": local(paused.get("until"), zone),
            "next": _moment(schedule["next_run_at"], zone),
            "last": _moment(schedule["last_run_at"], zone),
            "waiting": f"{schedule['waiting_jobs']} jobs, for the run before them" if schedule["waiting_jobs"] else "",
            "missed slots": _catch_up(schedule),
            "overlap": schedule["overlap"],
            "expected": f"to succeed within {rough(schedule['expect_within_seconds'])} of its slot"
            if schedule["expect_within_seconds"]
            else "",
            "start within": span("start_within_seconds"),
            "attempts": str(schedule["max_attempts"]),
            "time limit": span("timeout_seconds"),
            "priority": str(schedule["priority"] or ""),
            "labels": ", ".join(schedule["labels"]),
            "tags": ", ".join(schedule["tags"]),
            "from its task": from_task(schedule),
            "declared by": schedule["owner"] or "",
            "version": str(schedule["version"]),
        }
    )


def _span(schedule: Row) -> Callable[[str], str]:
    return lambda name: rough(schedule[name]) if schedule[name] else ""


def _catch_up(schedule: Row) -> str:
    limits = []
    if schedule["catch_up"] == "all":
        limits.append(f"the newest {schedule['catch_up_max']}")
    if schedule["catch_up_window_seconds"]:
        limits.append(f"not older than {rough(schedule['catch_up_window_seconds'])}")
    limits.append(f"missed when more than {rough(schedule['misfire_grace_seconds'])} late")
    return f"{schedule['catch_up']} ({', '.join(limits)})"


def _moment(text: str | None, zone: str) -> str:
    return "" if text is None else f"{local(text, zone)} ({when(text)})"


def schedule_story(schedule: Row, runs: Sequence[Row], events: Sequence[Row] = ()) -> Iterator[RenderableType]:
    """Yield what a schedule is, and its last slots and what happened to it, if there was anything."""
    zone = schedule["timezone"]
    yield schedule_fields(schedule)
    if runs:
        yield _table(runs, run_columns(zone))
    if events:
        yield _table(events, event_columns(zone))


def event_columns(zone: str) -> tuple[Column, ...]:
    """Return what is shown of what happened to a schedule."""
    return (
        ("when", lambda event: local(event["happened_at"], zone)),
        ("what", lambda event: event["kind"]),
        ("detail", lambda event: event["detail"] or ""),
    )


def change_story(change: Row) -> Iterator[RenderableType]:
    """Yield what a change would do, and the slots that follow from it."""
    if not change["exists"]:
        yield Text(f"There is no schedule {change['name']!r} yet; it would be made with:")
    elif not change["differences"]:
        yield Text(f"Nothing would change of {change['name']!r}.")
    else:
        yield Text(f"Of {change['name']!r} would change:")
    if change["differences"]:
        yield _table(change["differences"], DIFFERENCE_COLUMNS)
    yield from slots_story(change["slots"])


def slots_story(slots: Iterable[Row]) -> Iterator[RenderableType]:
    """Yield a table of slots to come, or that there are none."""
    found = list(slots)
    yield _table(found, slot_columns(found)) if found else Text("No slot comes any more.")


def echo_parts(parts: Iterable[RenderableType]) -> None:
    """Print parts below each other, parted by an empty line; a table keeps its width."""
    for number, part in enumerate(parts):
        if number:
            click.echo()
        console(at_least=(part.width or 0) if isinstance(part, Table) else 0).print(part)


def _table(rows: Iterable[Row], columns: Sequence[Column]) -> Table:
    return table_of(rows, columns, room=console().width)
