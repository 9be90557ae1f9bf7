"""`windlass workers`: who runs jobs, and how they are."""

from __future__ import annotations

import click

from windlass.cli.calls import Server, asks_server
from windlass.cli.shown import Column, Output, output_option, show_one, show_rows, state, when

STATUSES = ("starting", "idle", "active", "busy", "draining", "dead", "stopped")
LIVE = frozenset(STATUSES) - {"dead", "stopped"}
COLUMNS: tuple[Column, ...] = (
    ("worker", lambda worker: worker["id"]),
    ("status", lambda worker: state({"status": worker["status"]})),
    ("busy#", lambda worker: f"{worker['busy_threads']}/{worker['total_threads']}"),
    ("done#", lambda worker: f"{worker['jobs_completed']:,}"),
    ("failed#", lambda worker: f"{worker['jobs_failed']:,}"),
    ("host", lambda worker: worker["host"] or ""),
    ("pid#", lambda worker: str(worker["pid"] or "")),
    ("heard", lambda worker: when(worker["last_heartbeat_at"])),
    ("queues", lambda worker: ", ".join(worker["queues"])),
    ("version", lambda worker: worker["version"] or ""),
)


@click.group()
def workers() -> None:
    """See who runs jobs; let a worker finish and go."""


@workers.command(name="list")
@click.option("--status", type=click.Choice(STATUSES))
@click.option("--all", "everyone", is_flag=True, help="Also those that are gone.")
@output_option()
@asks_server
def list_(server: Server, status: str | None, everyone: bool, output: Output) -> None:
    """List workers by name.

    Example: windlass workers list --status busy
    """
    found = server.pages("/workers", "workers", status=status)
    shown = found if everyone or status else (worker for worker in found if worker["status"] in LIVE)
    show_rows(shown, output, COLUMNS)


@workers.command()
@click.argument("name")
@output_option("table", "json")
@asks_server
def show(server: Server, name: str, output: Output) -> None:
    """Tell everything about a worker.

    Example: windlass workers show web-3
    """
    worker = server.get(f"/workers/{name}")
    fields = {
        "worker": worker["id"],
        "status": state({"status": worker["status"]}),
        "busy": f"{worker['busy_threads']} of {worker['total_threads']} threads",
        "jobs": f"{worker['jobs_completed']:,} completed, {worker['jobs_failed']:,} failed",
        "started": when(worker["started_at"]),
        "heard": when(worker["last_heartbeat_at"]),
        "ended": when(worker["ended_at"]),
        "lease": f"{worker['lease_seconds']:g} s",
        "host": worker["host"] or "",
        "pid": str(worker["pid"] or ""),
        "version": worker["version"] or "",
        "build": worker["build"] or "",
        "region": worker["region"] or "",
        "labels": ", ".join(worker["labels"]),
        "queues": ", ".join(worker["queues"]),
        "tasks": ", ".join(worker["tasks"]),
        "runs now": ", ".join(worker["current_jobs"]),
    }
    show_one(worker, output, fields)


@workers.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--reason", help="Kept in the audit.")
@asks_server
def drain(server: Server, names: tuple[str, ...], reason: str | None) -> None:
    """Tell workers to finish what they run, claim no more, and end.

    Example: windlass workers drain web-3
    """
    for name in names:
        answer = server.post(f"/workers/{name}/drain", {"reason": reason})
        click.echo(f"{answer['worker_id']} is draining ({answer['sessions']} sessions).")
