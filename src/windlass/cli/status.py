"""`windlass status`: how an installation is: what waits, what runs, who does which duty."""

from __future__ import annotations

import json
from typing import Any, Literal

import click
from rich.table import Table

from windlass.cli.calls import Server, asks_server
from windlass.cli.jobreport import stuck_lines
from windlass.cli.shown import console as make_console
from windlass.cli.waiting import stuck_tasks
from windlass.errors import Forbidden
from windlass.shards import grouped


@click.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@asks_server
def status(server: Server, output: Literal["table", "json"]) -> None:
    """Ask a server how it is, and how the whole is.

    Exit code 0: it can do its work; 1: it lives and cannot; 5: nobody answers.

    Example: windlass status --url http://localhost:8000
    """
    found: dict[str, Any] = {"url": server.url, "health": server.health()}
    healthy = found["health"].get("status") == "ok"
    if healthy or found["health"].get("status") == "no server":
        found |= _whole(server)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _show(found)
    click.get_current_context().exit(0 if healthy else 1)


def _whole(server: Server) -> dict[str, Any]:
    """Return what this key may see of the whole."""
    found: dict[str, Any] = {"queue": server.get("/admin/queue/status")}
    found["queues"] = server.get("/queues")["queues"]
    found["stuck"] = stuck_tasks(server)
    try:
        found |= server.get("/duties")
    except Forbidden:
        found |= {"duties": [], "servers": []}
    return found


def _show(found: dict[str, Any]) -> None:
    console = make_console()
    health = found["health"]
    console.print(f"{found['url']}: {health.get('status', 'unavailable')}")
    for reason in health.get("reasons", []):
        console.print(f"  {reason}")
    if "queue" not in found:
        return
    whole = found["queue"]
    about = "about " if whole["pending_is_estimate"] else ""
    console.print(
        f"{about}{whole['pending']} pending, {whole['in_progress']} in progress, {whole['scheduled']} scheduled, "
        f"{whole['dead_letter_jobs']} dead letters; in 24 h {whole['completed_24h']} completed, "
        f"{whole['failed_24h']} failed; {whole['active_workers']} workers, "
        f"average wait {whole['average_wait_seconds']:.2f} s"
    )
    if found["stuck"]:
        console.print(stuck_lines(found["stuck"]))
    if found["queues"]:
        table = Table("queue", "pending", "in progress", "scheduled", "oldest", "paused", box=None, pad_edge=False)
        for queue in found["queues"]:
            oldest = queue["oldest_queued_seconds"]
            table.add_row(
                queue["name"],
                str(queue["pending"]),
                str(queue["in_progress"]),
                str(queue["scheduled"]),
                "" if oldest is None else f"{oldest:.1f} s",
                "paused" if queue["paused"] else "",
            )
        console.print(table)
    if found["duties"]:
        table = Table("duty", "held by", "term", "last run", "items", "errors", box=None, pad_edge=False)
        for held_by, name, parts in _grouped(found["duties"]):
            table.add_row(
                name,
                held_by or "nobody",
                str(max(duty["term"] for duty in parts)),
                max(duty["last_run_at"] or "" for duty in parts),
                str(sum(duty["items"] for duty in parts)),
                str(sum(duty["errors"] for duty in parts)),
            )
        console.print(table)


def _grouped(duties: list[dict[str, Any]]) -> list[tuple[str | None, str, list[dict[str, Any]]]]:
    """Return the duties as rows: the shards of one that a server holds are one row."""
    named = {duty["name"]: duty for duty in duties}
    rows = []
    for held_by in dict.fromkeys(duty["held_by"] for duty in duties):
        held = [duty["name"] for duty in duties if duty["held_by"] == held_by]
        for name, parts in grouped(held, among=named).items():
            rows.append((held_by, name, [named[part] for part in parts]))
    return sorted(rows, key=lambda row: row[1])
