"""`windlass submit`: one job, or a file of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import msgspec
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from windlass.cli.calls import Server, asks_server
from windlass.cli.shown import Output, console, output_option, show_rows, state
from windlass.cli.values import DURATION, INSTANT, opened_file, payload_of
from windlass.cli.waiting import deadline, echo_end, wait_for
from windlass.errors import InvalidInput, WindlassError

BATCH = 1000
BATCH_BYTES = 4 * 1024 * 1024
"""Half of what a server takes at once: fields of the command line come on top."""
COLUMNS = (("id", lambda job: job["id"]), ("state", state))
Command = TypeVar("Command", bound=Callable[..., Any])


def job_options(command: Command) -> Command:
    """Add what can be said of a job besides task and payload."""
    for option in (
        click.option("--queue", metavar="NAME", help="[default: the task's, else default]"),
        click.option(
            "--priority", type=click.IntRange(-127, 127), help="Higher goes first.  [default: the task's, else 0]"
        ),
        click.option("--delay", type=DURATION, help="Not before so long from now: 90s, 1h30m."),
        click.option("--run-at", "run_at", type=INSTANT, help="Not before then: 2027-01-31T12:00:00Z."),
        click.option("--key", "idempotency_key", metavar="TEXT", help="The same key again makes no second job."),
        click.option("--unique", "unique_key", metavar="TEXT", help="No second job with this key while one lives."),
        click.option("--max-attempts", "max_attempts", type=click.IntRange(1, 1000)),
        click.option("--time-limit", "timeout_seconds", type=DURATION, help="How long one attempt may run."),
        click.option("--label", "labels", multiple=True, help="Only for workers that have it; may stand again."),
        click.option("--tag", "tags", multiple=True, help="To find it by; may stand again."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("task", required=False)
@click.argument("payload", required=False)
@click.option("--file", "path", type=click.Path(allow_dash=True), help="Jobs as JSON, one a line; - is stdin.")
@job_options
@click.option("--wait", is_flag=True, help="Wait for the end and print the result; exit code 1 if there is none.")
@click.option("--timeout", "timeout_s", type=DURATION, help="With --wait: give up after so long, exit code 5.")
@output_option("ids", "table", "json", "jsonl")
@asks_server
def submit(
    server: Server,
    task: str | None,
    payload: str | None,
    path: str | None,
    wait: bool,
    timeout_s: float | None,
    output: Output,
    **options: Any,
) -> None:
    """Submit a job of TASK and print its id.

    PAYLOAD is JSON, an object of arguments by name: as text, from a file with @path, from stdin with -.

    Example: windlass submit add '{"x": 1, "y": 2}' --wait

    Many at once: windlass submit --file jobs.jsonl, with lines such as {"task": "add", "payload": {"x": 1, "y": 2}}
    """
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    if (task is None) == (path is None):
        raise click.UsageError("Name a task, or a file of jobs with --file.")
    if path is not None:
        if wait:
            raise click.UsageError("--wait goes with one job. Wait for many with `windlass jobs wait ID…`.")
        _submit_file(server, path, given, output=output)
        return
    if payload is not None:
        given["payload"] = payload_of(payload)
    made = server.post("/jobs", {"task": task, **given})
    if not wait:
        show_rows([made], output, COLUMNS)
    elif not echo_end(wait_for(server, made["id"], until=deadline(timeout_s))):
        click.get_current_context().exit(1)


def _submit_file(server: Server, path: str, given: dict[str, Any], *, output: Output) -> None:
    made: list[Any] = []
    columns = (TextColumn("{task.description}"), MofNCompleteColumn())
    with (
        opened_file(path) as file,
        Progress(*columns, console=console(err=True), transient=True, disable=not console(err=True).is_terminal) as bar,
    ):
        doing = bar.add_task("submitting", total=None)
        for first, jobs in _batches(file, given):
            try:
                made += server.post("/jobs/batch", {"jobs": jobs})["jobs"]
            except WindlassError as error:
                before = f"{len(made)} jobs before it were"
                click.echo(f"Nothing from line {first} on, which is jobs[0] below, was submitted; {before}.", err=True)
                raise error from None
            bar.update(doing, completed=len(made))
    if output == "table":
        again = sum(bool(job.get("duplicate")) for job in made)
        click.echo(f"Submitted {len(made) - again} jobs" + (f"; {again} were there already." if again else "."))
    else:
        show_rows(made, output, COLUMNS)


def _batches(lines: Any, given: dict[str, Any]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the number of the first line and the jobs of each batch; what a line does not say is as `given`."""
    first, size, jobs = 1, 0, list[dict[str, Any]]()
    for number, line in zip(itertools.count(1), lines, strict=False):
        if not line.strip():
            continue
        if jobs and (len(jobs) == BATCH or size + len(line) > BATCH_BYTES):
            yield first, jobs
            size, jobs = 0, []
        first = number if not jobs else first
        jobs.append({**given, **_job(line, number)})
        size += len(line)
    if jobs:
        yield first, jobs


def _job(line: bytes, number: int) -> dict[str, Any]:
    try:
        return dict(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
    except msgspec.DecodeError as error:
        raise InvalidInput(f"line {number}", f"it is no job as a JSON object: {error}. Correct it.") from None
