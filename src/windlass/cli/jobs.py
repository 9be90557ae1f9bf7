"""`windlass jobs`: look at jobs, wait for them, cancel them, run them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from windlass.cli.calls import Server, asks_server, confirm
from windlass.cli.jobids import JOB_ID, whole_id, whole_ids
from windlass.cli.jobreport import ATTEMPT_COLUMNS, error_of, job_fields, story
from windlass.cli.shown import (
    Column,
    Output,
    Row,
    as_json,
    console,
    echo_json,
    output_option,
    printable,
    show_rows,
    spent,
    state,
    when,
)
from windlass.cli.values import DURATION, INSTANT, payload_of
from windlass.cli.waiting import deadline, echo_end, patiently, stuck_tasks, wait_for, with_reasons
from windlass.errors import WindlassError
from windlass.job import FINAL_STATES, State

COLUMNS: tuple[Column, ...] = (
    ("id", lambda job: job["id"]),
    ("task", lambda job: job["task"]),
    ("queue", lambda job: job["queue"]),
    ("state", state),
    ("attempt#", lambda job: f"{job['attempt']}/{job['max_attempts']}"),
    ("created", lambda job: when(job["created_at"])),
    ("took#", lambda job: spent(job["execution_time_ms"])),
    ("detail", lambda job: _detail(job)),
)
Named = TypeVar("Named")
FOLLOW_S = 0.5
"""How often to look for new lines."""
ids_argument = click.argument("ids", metavar="ID...", nargs=-1, required=True, type=JOB_ID)
id_argument = click.argument("job_id", metavar="ID", type=JOB_ID)


def _detail(job: Row) -> str:
    if job["state"] == State.SUCCEEDED:
        return as_json(job["result"])
    if job["worker_id"] and job["state"] in (State.ASSIGNED, State.RUNNING, State.CANCELLING):
        return f"on {job['worker_id']}"
    if job["state"] in (State.SCHEDULED, State.SLEEPING) and job["next_run_at"]:
        return f"due {when(job['next_run_at'])}"
    return str(job.get("stuck") or error_of(job))


@click.group()
def jobs() -> None:
    """Look at jobs, wait for them, cancel them, run them again."""


@jobs.command(name="list")
@click.option("--state", "status", metavar="STATES", help="Of these, separated by commas: queued,running,dead.")
@click.option("--queue", metavar="NAME")
@click.option("--task", metavar="NAME")
@click.option("--worker", "worker_id", metavar="NAME", help="Held by this worker.")
@click.option("--key", metavar="TEXT", help="With this idempotency or unique key.")
@click.option("--tag", metavar="TEXT")
@click.option("--after", "created_after", type=INSTANT, help="Made after this time.")
@click.option("--before", "created_before", type=INSTANT, help="Made before this time.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1_000_000), help="How many.")
@output_option()
@asks_server
def list_(server: Server, limit: int, output: Output, **filters: str | None) -> None:
    """List jobs, newest first.

    Example: windlass jobs list --state dead --queue mail
    """
    found = server.pages("/jobs", "jobs", limit=limit, **filters)
    if output == "table":
        listed = list(found)
        is_any_queued = any(job["state"] == State.QUEUED for job in listed)
        found = with_reasons(listed, stuck_tasks(server) if is_any_queued else [])
    show_rows(found, output, COLUMNS)


@jobs.command()
@id_argument
@output_option("table", "json")
@asks_server
def show(server: Server, job_id: str, output: Output) -> None:
    """Tell everything about a job: what it is, its attempts, and what happened to it.

    ID may be shortened to its end, here and wherever a job is named: windlass jobs show 7e8f90

    Example: windlass jobs show 01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90
    """
    job_id = whole_id(server, job_id)
    job = server.get(f"/jobs/{job_id}")
    report = server.get(f"/jobs/{job_id}/report")
    if output == "json":
        echo_json({**job, "report": report})
        return
    out = console()
    out.print(job_fields(job))
    for part in story(report):
        out.print()
        out.print(part)


@jobs.command()
@id_argument
@output_option("table", "json", "jsonl")
@asks_server
def attempts(server: Server, job_id: str, output: Output) -> None:
    """List the ended attempts of a job, oldest first.

    Example: windlass jobs attempts 01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90
    """
    path = f"/jobs/{whole_id(server, job_id)}/attempts"
    page = server.get(path)
    found = page["attempts"]
    while page.get("next_cursor") is not None:
        page = server.get(path, cursor=page["next_cursor"])
        found += page["attempts"]
    show_rows(found, output, ATTEMPT_COLUMNS)


@jobs.command()
@ids_argument
@click.option("--timeout", "timeout_s", type=DURATION, help="Give up after so long, exit code 5.  [default: never]")
@asks_server
def wait(server: Server, ids: tuple[str, ...], timeout_s: float | None) -> None:
    """Wait until all these jobs have ended; print their results, a line each.

    Exit code 0: all succeeded; 1: at least one did not.

    Example: windlass jobs wait $(windlass jobs list --queue mail -o ids)
    """
    until = deadline(timeout_s)
    succeeded = [echo_end(wait_for(server, job_id, until=until)) for job_id in whole_ids(server, ids)]
    if not all(succeeded):
        click.get_current_context().exit(1)


@jobs.command()
@ids_argument
@click.option("--reason", help="Kept with the job.")
@click.option("--force", is_flag=True, help="Do not wait for the worker to stop by itself.")
@click.option("--wait", "wait_s", type=DURATION, help="Wait so long until a running one has stopped, up to 30s.")
@asks_server
def cancel(server: Server, ids: tuple[str, ...], reason: str | None, force: bool, wait_s: float | None) -> None:
    """Cancel jobs: a waiting one at once, a running one is told to stop.

    Example: windlass jobs cancel 01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90 --reason "not needed"
    """

    def one(job_id: str) -> str:
        answer = server.post(f"/jobs/{job_id}/cancel", {"reason": reason, "force": force}, wait=wait_s)
        return f"{job_id} is {answer['state']}."

    each(whole_ids(server, ids), one)


@jobs.command()
@ids_argument
@click.option("--payload", "text", metavar="JSON", help="Run it with this instead.")
@click.option("--reason", help="Kept in the audit.")
@asks_server
def retry(server: Server, ids: tuple[str, ...], text: str | None, reason: str | None) -> None:
    """Run dead, cancelled or expired jobs again, under the same id.

    Example: windlass jobs retry 01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90
    """
    body: dict[str, Any] = {"reason": reason}
    if text is not None:
        body["payload"] = payload_of(text)

    def one(job_id: str) -> str:
        answer = server.post(f"/jobs/{job_id}/retry", body)
        return f"{job_id} is {answer['state']}."

    each(whole_ids(server, ids), one)


@jobs.command()
@ids_argument
@click.option("--reason", help="Kept in the audit.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks_server
def erase(server: Server, ids: tuple[str, ...], reason: str | None, yes: bool) -> None:
    """Remove the content of jobs that have ended, for good: arguments, results, errors, logs.

    Example: windlass jobs erase 01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90
    """
    found = list(whole_ids(server, ids))
    confirm(f"erase {', '.join(found)} for good", yes=yes)

    def one(job_id: str) -> str:
        answer = server.post(f"/jobs/{job_id}/erase", {"reason": reason})
        rest = " Its bytes leave the SQLite file when readers from before have ended." if answer["waits"] else ""
        return f"{job_id} was erased at {answer['erased_at']}.{rest}"

    each(found, one)


@jobs.command()
@id_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only of this attempt.")
@output_option("table", "jsonl")
@asks_server
def logs(server: Server, job_id: str, follow: bool, attempt: int | None, output: Output) -> None:
    """Print what the attempts of a job wrote: its log, and what it printed.

    Example: windlass jobs logs -f 01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90
    """
    path, dropped = f"/jobs/{whole_id(server, job_id)}", 0
    for page in log_pages(server, path, attempt=attempt, follow=follow):
        dropped += page["dropped"]
        _echo_lines(page["lines"], output)
    if dropped and follow:  # what was left out after the last line of a page is told by the next one too
        dropped = sum(page["dropped"] for page in log_pages(server, path, attempt=attempt, follow=False))
    if dropped:
        click.echo(f"… {dropped} line{'s were' if dropped > 1 else ' was'} dropped: too many.", err=output == "jsonl")


def _echo_lines(lines: Iterable[Any], output: Output) -> None:
    for line in lines:
        if output == "jsonl":
            click.echo(as_json(line))
        else:
            level = f" {line['level']}" if line.get("level") else ""
            click.echo(f"{line['at'][11:23]} #{line['attempt']}{level} {printable(line['text'])}")


def log_pages(server: Server, path: str, *, attempt: int | None, follow: bool) -> Iterable[Any]:
    """Yield the lines that are there, page by page; with `follow` also those that come, until the job has ended."""
    after: str | None = None
    while True:
        # Asked before the lines are: what was written until its end is then among them.
        has_ended = not follow or State(patiently(server, path)["state"]) in FINAL_STATES
        more = True
        while more:
            page = patiently(server, f"{path}/logs", attempt=attempt, after=after)
            yield page
            if page["lines"]:
                last = page["lines"][-1]
                after = page["next_cursor"] or f"{last['fence']}.{last['seq']}"
            more = page["next_cursor"] is not None
        if has_ended:
            return
        patiently(server, path, wait=FOLLOW_S)


def each(names: Iterable[Named], act: Callable[[Named], str]) -> None:
    """Do it for each and tell; one that cannot be done does not keep the others, and the first decides the code."""
    code = 0
    for name in names:
        try:
            click.echo(act(name))
        except WindlassError as error:
            click.echo(f"Error: {error}", err=True)
            code = code or error.exit_code
    click.get_current_context().exit(code)
