"""One job as people read it: what it is, where its time went, its attempts, what happened to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.shown import (
    Column,
    Row,
    as_json,
    fields_of,
    from_task,
    plain,
    printable,
    spent,
    state,
    table_of,
    when,
)

ATTEMPT_COLUMNS: tuple[Column, ...] = (
    ("attempt#", lambda attempt: str(attempt["attempt"])),
    ("outcome", lambda attempt: state({"outcome": attempt["outcome"]})),
    ("worker", lambda attempt: attempt["worker_id"] or ""),
    ("ended", lambda attempt: when(attempt["finished_at"])),
    ("took#", lambda attempt: spent(attempt["execution_time_ms"])),
    ("detail", lambda attempt: error_of(attempt)),
)

STUCK_SHOWN = 5


def error_of(row: Row) -> str:
    """Return what went wrong, in one line; the reason if it was no error, empty if nothing did."""
    error = ": ".join(str(row[name]) for name in ("error_type", "error_message") if row[name])
    return error or str(row["reason"] or "")


def stuck_lines(stuck: Sequence[Row]) -> Text:
    """Return which tasks have jobs that nobody is handed, and why; a few of them, the rest is counted."""
    lines = [f"{task['task']} in {task['queue']} waits: {task['detail']}" for task in stuck[:STUCK_SHOWN]]
    if len(stuck) > STUCK_SHOWN:
        lines.append(f"and {len(stuck) - STUCK_SHOWN} more tasks wait")
    return Text("\n".join(map(printable, lines)), style="yellow")


def job_fields(job: Row) -> RenderableType:
    """Return what a job is, field by field."""
    return fields_of(
        {
            "id": job["id"],
            "task": job["task"],
            "queue": job["queue"],
            "state": state(job),
            "waiting": " ".join(reason["detail"] for reason in job.get("waiting") or ()),
            "attempt": f"{job['attempt']} of {job['max_attempts']}",
            "priority": str(job["priority"]) if job["priority"] else "",
            "worker": job["worker_id"] or "",
            "created": _moment(job["created_at"]),
            "next run": _moment(job["next_run_at"]),
            "started": _moment(job["started_at"]),
            "ended": _moment(job["finished_at"]),
            "took": spent(job["execution_time_ms"]),
            "labels": ", ".join(job["labels"]),
            "tags": ", ".join(job["tags"]),
            "from its task": from_task(job),
            "progress": as_json(job.get("progress")),
            "payload": as_json(job["payload"]),
            "result": as_json(job["result"]),
            "error": error_of(job),
        }
    )


def story(report: Row) -> Iterator[RenderableType]:
    """Yield where the time went, the attempts, the last traceback, and what happened, each if there is any."""
    waits = {name.removesuffix("_ms"): ms for name, ms in report["waits"].items() if ms and name != "ended_ms"}
    if waits:
        yield Text("Time: " + ", ".join(f"{spent(ms)} {name}" for name, ms in waits.items()))
    if report["attempts"]:
        yield table_of(report["attempts"], ATTEMPT_COLUMNS)
        if trace := report["attempts"][-1]["traceback"]:
            yield Text("\n").join(plain(line) for line in str(trace).rstrip().splitlines())
    if report["timeline"]:
        yield table_of(report["timeline"], timeline_columns(report["timeline"][0]["happened_at"]))


def timeline_columns(begin: str) -> tuple[Column, ...]:
    """Return the columns of what happened: when, counted from the first event, and by whom."""
    first = datetime.fromisoformat(begin)

    def since(event: Row) -> str:
        return f"+{(datetime.fromisoformat(event['happened_at']) - first).total_seconds():.3f} s"

    return (
        ("at#", since),
        ("event", lambda event: event["kind"]),
        ("worker", lambda event: event["worker_id"] or ""),
        ("detail", lambda event: event["detail"] or ""),
    )


def _moment(text: str | None) -> str:
    return "" if text is None else f"{text[:23].replace('T', ' ')} UTC ({when(text)})"
