"""`windlass dlq`: the dead letters: look at them, run them again, remove them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import click

from windlass.cli.calls import Server, asks_server, confirm
from windlass.cli.jobids import JOB_ID, whole_ids
from windlass.cli.jobreport import error_of
from windlass.cli.shown import Column, Output, output_option, show_rows, when
from windlass.cli.values import payload_of

AT_ONCE = 1000
"""How many a server takes with one request."""
COLUMNS: tuple[Column, ...] = (
    ("id", lambda job: job["id"]),
    ("task", lambda job: job["task"]),
    ("queue", lambda job: job["queue"]),
    ("attempts#", lambda job: str(job["attempts"])),
    ("died", lambda job: when(job["finished_at"])),
    ("error", error_of),
)
Command = TypeVar("Command", bound=Callable[..., Any])


def chosen(command: Command) -> Command:
    """Add which dead letters are meant."""
    for option in (
        click.argument("ids", metavar="[ID]...", nargs=-1, type=JOB_ID),
        click.option("--queue", metavar="NAME", help="All of this queue."),
        click.option("--task", metavar="NAME", help="All of this task."),
        click.option("--all", "everything", is_flag=True, help="All there are."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--reason", help="Kept in the audit."),
    ):
        command = option(command)
    return command


@click.group()
def dlq() -> None:
    """Look at the dead letters, run them again, remove them."""


@dlq.command(name="list")
@click.option("--queue", metavar="NAME")
@click.option("--task", metavar="NAME")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1_000_000), help="How many.")
@output_option()
@asks_server
def list_(server: Server, queue: str | None, task: str | None, limit: int, output: Output) -> None:
    """List dead letters, newest first.

    Example: windlass dlq list --queue mail
    """
    show_rows(server.pages("/dead-letter", "jobs", limit=limit, queue=queue, task=task), output, COLUMNS)


@dlq.command()
@chosen
@click.option("--payload", "text", metavar="JSON", help="Run them with this instead.")
@asks_server
def retry(server: Server, text: str | None, **which: Any) -> None:
    """Run dead letters again, by id or all of a queue or task.

    Example: windlass dlq retry --task send_mail --yes
    """
    _act(server, "retry", {} if text is None else {"payload": payload_of(text)}, **which)


@dlq.command()
@chosen
@asks_server
def purge(server: Server, **which: Any) -> None:
    """Remove dead letters for good, by id or all of a queue or task.

    Example: windlass dlq purge --queue mail
    """
    _act(server, "purge", {}, **which)


def _act(
    server: Server,
    verb: Literal["retry", "purge"],
    more: dict[str, Any],
    *,
    ids: tuple[str, ...],
    queue: str | None,
    task: str | None,
    everything: bool,
    yes: bool,
    reason: str | None,
) -> None:
    if sum([bool(ids), queue is not None or task is not None, everything]) != 1:
        raise click.UsageError("Say which: ids, or --queue and --task, or --all.")
    body = {**more, "reason": reason}
    done = {"retry": "Retried", "purge": "Removed"}[verb]
    if ids:
        _by_id(server, verb, body, whole_ids(server, ids), done)
        return
    where = {"queue": queue, "task": task}
    found = server.get("/dead-letter", limit=1, **where)
    total = found["total"]
    if total == 0:
        click.echo("There are no such dead letters.")
        return
    about = "at least " if found["total_is_estimate"] else ""
    confirm(f"{verb} {about}{total} dead letters", yes=yes)
    count = 0
    # One that dies again meanwhile is not run a third time: no more than were counted at first.
    while count < total or found["total_is_estimate"]:
        answer = server.post(f"/dead-letter/{verb}", {**body, **where})
        count += answer["count"]
        if len(answer["jobs"]) < AT_ONCE or not answer["count"]:
            break
    click.echo(f"{done} {count} dead letters.")


def _by_id(server: Server, verb: str, body: dict[str, Any], ids: list[str], done: str) -> None:
    failed = []
    for first in range(0, len(ids), AT_ONCE):
        answer = server.post(f"/dead-letter/{verb}", {**body, "ids": ids[first : first + AT_ONCE]})
        failed += [job for job in answer["jobs"] if job["status"] in ("conflict", "not_found")]
    click.echo(f"{done} {len(ids) - len(failed)} dead letters.")
    for job in failed:
        click.echo(f"{job['id']}: {job['detail'] or 'there is no such dead letter.'}", err=True)
    if failed:
        code = 3 if any(job["status"] == "not_found" for job in failed) else 4
        click.get_current_context().exit(code)
