"""`windlass schedules`: make schedules and see when they run; pause them, run them now, make up for a past range.

Importing many is in importing.py, how they are shown in scheduleshown.py.
"""

from __future__ import annotations

import itertools
import sys
import time
import uuid
from typing import Any
from urllib.parse import quote

import click

from windlass.cli.calls import Server, asks_server
from windlass.cli.importing import import_
from windlass.cli.jobs import each
from windlass.cli.scheduleoptions import policy_options, said, trigger_options
from windlass.cli.scheduleshown import (
    BACKFILL_COLUMNS,
    COLUMNS,
    LAST_EVENTS,
    LAST_RUNS,
    change_story,
    echo_parts,
    run_columns,
    schedule_story,
    slots_story,
)
from windlass.cli.shown import Output, console, echo_json, output_option, printable, show_rows, when
from windlass.cli.values import DURATION, INSTANT, payload_of
from windlass.cli.waiting import deadline, echo_end, patiently, wait_for

DECISIONS = ("fired", "waiting", "replaced", "backfilled", "manual", "overlapped", "missed", "paused")
FOLLOW_S = 0.5
"""How often to look how far a backfill is."""
name_argument = click.argument("name", metavar="NAME|ID")
names_argument = click.argument("names", metavar="NAME|ID...", nargs=-1, required=True)


@click.group()
def schedules() -> None:
    """Make schedules and see when they run; pause them, run them now, make up for a past range."""


schedules.add_command(import_)


@schedules.command(name="list")
@click.option("--task", metavar="NAME")
@click.option("--queue", metavar="NAME")
@click.option("--owner", metavar="APP", help="Declared by this application.")
@click.option("--paused/--not-paused", default=None, help="Only those that are, or are not.")
@click.option("--prefix", metavar="TEXT", help="Only names that begin so.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000_000), help="How many.")
@output_option()
@asks_server
def list_(server: Server, paused: bool | None, limit: int, output: Output, **filters: str | None) -> None:
    """List schedules by name: what they run, when next, when last.

    Example: windlass schedules list --queue mail --paused
    """
    is_paused = None if paused is None else str(paused).lower()
    found = server.pages("/schedules", "schedules", limit=limit + 1, paused=is_paused, **filters)
    show_rows(itertools.islice(found, limit), output, COLUMNS)
    if next(found, None) is not None:
        click.echo(f"There are more than {limit:,}. Say --limit, or --prefix, --queue, --task, --owner.", err=True)


@schedules.command()
@name_argument
@output_option("table", "json")
@asks_server
def show(server: Server, name: str, output: Output) -> None:
    """Tell everything about a schedule: what it is, its policies, its last slots, and what happened to it.

    Example: windlass schedules show nightly
    """
    schedule = server.get(path(name))
    runs = server.get(path(name, "/runs"), limit=LAST_RUNS)["runs"]
    events = server.get(path(name, "/events"))["events"][-LAST_EVENTS:]
    if output == "json":
        echo_json({**schedule, "runs": runs, "events": events})
    else:
        echo_parts(schedule_story(schedule, runs, events))


@schedules.command()
@click.argument("name", metavar="[NAME|ID]", required=False)
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 100), help="How many slots.")
@click.option("--after", type=INSTANT, help="Slots later than this.  [default: now]")
@trigger_options
@output_option("table", "json")
@asks_server
def preview(server: Server, name: str | None, count: int, after: str | None, output: Output, **trigger: Any) -> None:
    """Show the next slots of a schedule, or of a trigger that is not stored, and where clocks change.

    Example: windlass schedules preview --cron "30 2 * * *" --zone Europe/Berlin --after 2027-03-26T00:00:00Z
    """
    given = said(trigger)
    if (name is None) == (not given):
        raise click.UsageError("Name a schedule, or a trigger with --cron, --every or --at.")
    if name is not None:
        found = server.get(path(name, "/preview"), count=count, after=after)
    else:
        found = server.post("/schedules/preview", {**given, "count": count, "after": after})
    if output == "json":
        echo_json(found)
        return
    click.echo(printable(found["words"]))
    echo_parts(slots_story(found["slots"]))


@schedules.command()
@click.argument("name")
@click.option("--task", required=True, metavar="NAME", help="What it runs.")
@click.option("--payload", "text", metavar="JSON", help="What the task is called with; @path: from a file, - : stdin.")
@trigger_options
@policy_options
@click.option("--paused", is_flag=True, help="Store it paused.")
@click.option("--replace", is_flag=True, help="Give the schedule of this name exactly these settings.")
@click.option("--dry-run", is_flag=True, help="Store nothing; show what would change.")
@output_option("table", "json", "ids")
@asks_server
def add(
    server: Server,
    name: str,
    task: str,
    text: str | None,
    paused: bool,
    replace: bool,
    dry_run: bool,
    output: Output,
    **options: Any,
) -> None:
    """Make a schedule of TASK; without --cron, --every and --at it runs by hand only.

    Example: windlass schedules add nightly --task report --cron "30 2 * * *" --zone Europe/Berlin
    """
    body: dict[str, Any] = {"name": name, "task": task, **said(options)}
    if text is not None:
        body["payload"] = payload_of(text)
    if paused:
        body["enabled"] = False
    # What would change of one that is there can be seen without the wish to change it.
    body |= {"replace_existing": replace or dry_run, "dry_run": dry_run}
    made = server.post("/schedules", body)
    if output == "json":
        echo_json(made)
    elif dry_run:
        echo_parts(change_story(made))
    elif output == "ids":
        click.echo(made["id"])
    else:
        echo_parts(schedule_story(made, []))


@schedules.command()
@name_argument
@click.option("--payload", "text", metavar="JSON", help="Run it with this instead.")
@click.option("--reason", help="Kept in the audit.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result; exit code 1 if there is none.")
@click.option("--timeout", "timeout_s", type=DURATION, help="With --wait: give up after so long, exit code 5.")
@asks_server
def run(server: Server, name: str, text: str | None, reason: str | None, wait: bool, timeout_s: float | None) -> None:
    """Make a job of a schedule now, beside its series, and print the job's id.

    Example: windlass schedules run nightly --wait
    """
    body: dict[str, Any] = {"reason": reason}
    if text is not None:
        body["payload"] = payload_of(text)
    made = server.post(path(name, "/run"), body)
    if not wait:
        click.echo(made["id"])
    elif not echo_end(wait_for(server, made["id"], until=deadline(timeout_s))):
        click.get_current_context().exit(1)


@schedules.command()
@names_argument
@click.option("--reason", help="Shown with the schedule.")
@click.option("--until", type=INSTANT, help="Resumes by itself then.")
@click.option("--for", "span_s", type=DURATION, help="Resumes by itself after so long: 30m.")
@asks_server
def pause(server: Server, names: tuple[str, ...], reason: str | None, until: str | None, span_s: float | None) -> None:
    """Let slots pass without a job; what runs goes on.

    Example: windlass schedules pause nightly --for 2d --reason "stocktaking"
    """
    if until is not None and span_s is not None:
        raise click.UsageError("Give --until or --for, not both.")

    def one(name: str) -> str:
        answer = server.post(path(name, "/pause"), {"reason": reason, "until": until, "duration": span_s})
        ends_at = answer["pause"]["until"]
        return f"{answer['name']} is {answer['status']}" + (f"; it resumes {when(ends_at)}." if ends_at else ".")

    each(names, one)


@schedules.command()
@names_argument
@click.option("--reason", help="Kept in the audit.")
@asks_server
def resume(server: Server, names: tuple[str, ...], reason: str | None) -> None:
    """Let slots make jobs again, from now on; those that passed are not made up for.

    Example: windlass schedules resume nightly
    """

    def one(name: str) -> str:
        answer = server.post(path(name, "/resume"), {"reason": reason})
        coming = f"; its next slot is due {when(answer['next_run_at'])}." if answer["next_run_at"] else "."
        return f"{answer['name']} is {answer['status']}{coming}"

    each(names, one)


@schedules.command()
@names_argument
@click.option("--purge", is_flag=True, help="Remove its history too: the slots, and the ended jobs they made.")
@click.option("--yes", is_flag=True, help="With --purge: do not ask.")
@asks_server
def delete(server: Server, names: tuple[str, ...], purge: bool, yes: bool) -> None:
    """Delete schedules, and cancel their jobs that have not begun; what runs goes on.

    Example: windlass schedules delete nightly
    """
    if purge and not yes:
        what = f"This removes the history of {', '.join(names)} for good."
        if not sys.stdin.isatty():
            raise click.UsageError(f"{what} Say --yes to do it.")
        click.confirm(f"{what} Do it?", abort=True)

    def one(name: str) -> str:
        server.call("DELETE", path(name), purge="true" if purge else None)
        return f"{name} is deleted" + (", and its history." if purge else ".")

    each(names, one)


@schedules.command()
@name_argument
@click.option("--decision", type=click.Choice(DECISIONS), help="Only slots of which this was decided.")
@click.option("--since", type=INSTANT, help="Slots from then on.")
@click.option("--until", type=INSTANT, help="Slots up to then.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1_000_000), help="How many.")
@output_option("table", "json", "jsonl")
@asks_server
def runs(server: Server, name: str, limit: int, output: Output, **filters: str | None) -> None:
    """List the slots of a schedule, newest first: what was decided, and what became of the job.

    Example: windlass schedules runs nightly --decision missed
    """
    zone = server.get(path(name))["timezone"] if output == "table" else "UTC"
    found = server.pages(path(name, "/runs"), "runs", limit=limit, **filters)
    show_rows(found, output, run_columns(zone))


@schedules.command()
@name_argument
@click.option("--since", required=True, type=INSTANT, help="Slots from this on.")
@click.option("--until", required=True, type=INSTANT, help="Slots before this.")
@click.option("--concurrency", default=1, show_default=True, type=click.IntRange(1, 1000), help="Jobs at a time.")
@click.option("--reason", help="Kept in the audit.")
@click.option("-f", "--follow", is_flag=True, help="Show how far it is, until it is done.")
@output_option("table", "json", "ids")
@asks_server
def backfill(server: Server, name: str, follow: bool, output: Output, **asked: Any) -> None:
    """Run the slots of a past range, oldest first; those that had a job are left alone.

    Example: windlass schedules backfill nightly --since 2026-11-01T00:00:00Z --until 2026-11-08T00:00:00Z --follow
    """
    found = server.post(path(name, "/backfill"), asked)
    if follow:
        found = _follow(server, found)
    show_rows([found], output, BACKFILL_COLUMNS)
    if follow and found["status"] != "done":
        click.get_current_context().exit(1)


def _follow(server: Server, begun: Any) -> Any:
    """Tell how far a backfill is, until it has ended; return how it is then."""
    found = begun
    try:
        with console(err=True).status("") as shown:
            while found["status"] == "running":
                shown.update(f"{found['made']:,} jobs made, {found['known']:,} known, reached {found['reached']}")
                time.sleep(FOLLOW_S)
                found = patiently(server, f"/backfills/{begun['id']}")
    except KeyboardInterrupt:
        click.echo(f"It goes on. Stop it with: windlass schedules stop {begun['id']}", err=True)
        raise
    return found


@schedules.command()
@name_argument
@output_option()
@asks_server
def backfills(server: Server, name: str, output: Output) -> None:
    """List the backfills of a schedule, newest first.

    Example: windlass schedules backfills nightly
    """
    show_rows(server.get(path(name, "/backfills"))["backfills"], output, BACKFILL_COLUMNS)


@schedules.command()
@click.argument("backfill_id", metavar="BACKFILL", type=click.UUID)
@click.option("--reason", help="Kept in the audit.")
@output_option("table", "json")
@asks_server
def stop(server: Server, backfill_id: uuid.UUID, reason: str | None, output: Output) -> None:
    """Stop a backfill: it makes no more jobs; those that have not begun are cancelled, those that run go on.

    Example: windlass schedules stop 01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90
    """
    show_rows([server.post(f"/backfills/{backfill_id}/stop", {"reason": reason})], output, BACKFILL_COLUMNS)


def path(name: str, rest: str = "") -> str:
    """Return the path of a schedule by its name or id."""
    if not name:
        raise click.UsageError("The name of the schedule is empty.")
    return f"/schedules/{quote(name, safe='')}{rest}"
