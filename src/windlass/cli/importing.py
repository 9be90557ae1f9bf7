"""`windlass schedules import`: make schedules of a crontab, or of a file of many.

A crontab is taken whole or not at all: its lines are read (crontab.py), the server is asked what each would change, and
only when nothing is refused the first is stored. A second import of the same file changes nothing.
Files of any length are taken in pieces, in loading.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import click
import msgspec

from windlass.cli.calls import Server, asks_server
from windlass.cli.crontab import Crontab, Entry, Remark, names, read_crontab
from windlass.cli.loading import BATCH, jsonl
from windlass.cli.shown import Column, Output, output_option, printable, show_rows, when
from windlass.cli.values import read_input
from windlass.errors import Conflict, InvalidInput, WindlassError
from windlass.queue.schedule import CATCH_UPS, OVERLAPS

STALE_LOOKED = 10_000
STALE_SHOWN = 5
"""Names of schedules that are told to be in no line any more."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a crontab and the schedule that it becomes."""

    entry: Entry
    request: dict[str, Any]
    change: Literal["new", "same", "changed"]
    fields: list[str]
    """What changes of one that is there."""
    next_slot: str | None


COLUMNS: tuple[Column, ...] = (
    ("line#", lambda row: str(row["line"])),
    ("name", lambda row: row["name"]),
    ("change", lambda row: row["change"]),
    ("next", lambda row: when(row["next_slot_at"])),
    ("cron", lambda row: row["cron"]),
    ("zone", lambda row: row["timezone"]),
    ("command", lambda row: row["payload"]["command"]),
)


@click.group(name="import")
def import_() -> None:
    """Make schedules of a crontab, or of a file with a schedule a line."""


import_.add_command(jsonl)


@import_.command()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--task", required=True, metavar="NAME", help="What runs the commands: it is called with `command`.")
@click.option("--zone", metavar="ZONE", help="Of its times, until it names one with CRON_TZ.  [default: UTC]")
@click.option("--queue", metavar="NAME", help="[default: default]")
@click.option(
    "--prefix", default="cron-", show_default=True, help="Of the names; one for each file, if there are many."
)
@click.option("--system", "is_system", is_flag=True, help="Lines name a user, as in /etc/crontab and /etc/cron.d.")
@click.option("--catch-up", type=click.Choice(CATCH_UPS), help="Of missed slots.  [default: latest]")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="The run before is not over.  [default: skip]")
@click.option("--replace", is_flag=True, help="Change schedules of the same lines that have other settings.")
@click.option("--skip-bad", is_flag=True, help="Take the good lines and leave the bad ones out.")
@click.option("--dry-run", is_flag=True, help="Store nothing; show what would be made.")
@output_option("table", "json", "jsonl")
@asks_server
def crontab(
    server: Server,
    file: str,
    zone: str | None,
    prefix: str,
    is_system: bool,
    replace: bool,
    skip_bad: bool,
    dry_run: bool,
    output: Output,
    **options: Any,
) -> None:
    """Make a schedule of each line of a crontab; all of them, or none if a line is bad.

    The task is called with `command`, and with `env`, `stdin` and `user` where the line has them.

    Example: crontab -l | windlass schedules import crontab - --task shell --zone Europe/Berlin --dry-run
    """
    shown = "stdin" if file == "-" else file
    found = read_crontab(read_input(file), zone=zone or "UTC", is_system=is_system)
    for remark in found.ignored:
        _echo(shown, remark)
    plan, refused = _plan(server, found, prefix, {name: value for name, value in options.items() if value is not None})
    refused = sorted([*found.refused, *refused], key=lambda remark: remark.line)
    for remark in refused:
        _echo(shown, remark)
    if refused and not skip_bad:
        raise InvalidInput(
            shown, f"nothing was stored; lines that cannot be taken: {len(refused)}. Correct them, or say --skip-bad."
        )
    _check_changes(plan, shown, replace=replace or dry_run)
    if not dry_run:
        _store(server, plan, replace=replace)
    _show(plan, output)
    _tell(plan, dry_run=dry_run, is_guessed=zone is None)
    _tell_stale(server, plan, prefix=prefix, task=options["task"])


def _plan(server: Server, found: Crontab, prefix: str, options: dict[str, Any]) -> tuple[list[Planned], list[Remark]]:
    """Return what each line becomes, and those that the server would not take."""
    plan, refused = [], []
    for entry, name in zip(found.entries, names(found.entries, prefix), strict=True):
        request = {
            "name": name,
            "cron": entry.expression,
            "timezone": entry.zone,
            "payload": entry.payload,
            **options,
        }
        try:
            change = server.post("/schedules", {**request, "replace_existing": True, "dry_run": True})
        except InvalidInput as error:
            refused.append(Remark(entry.line, str(error)))
            continue
        fields = [difference["field"] for difference in change["differences"]]
        plan.append(
            Planned(
                entry=entry,
                request=request,
                change="new" if not change["exists"] else "changed" if fields else "same",
                fields=fields,
                next_slot=change["slots"][0]["slot_at"] if change["slots"] else None,
            )
        )
    return plan, refused


def _check_changes(plan: Sequence[Planned], shown: str, *, replace: bool) -> None:
    changed = [one for one in plan if one.change == "changed"]
    if not changed or replace:
        return
    for one in changed:
        fields = ", ".join(one.fields)
        _echo(shown, Remark(one.entry.line, f"{one.request['name']} is there with another {fields}."))
    raise Conflict(f"Nothing was stored; schedules that would change: {len(changed)}. Say --replace to change them.")


def _store(server: Server, plan: Sequence[Planned], *, replace: bool) -> None:
    waiting = iter([one.request for one in plan if one.change != "same"])
    stored = 0
    while requests := list(itertools.islice(waiting, BATCH)):
        try:
            server.post("/schedules/batch", {"schedules": requests, "replace_existing": replace})
        except WindlassError:
            if stored:
                click.echo(f"{stored} schedules were stored before this; import the file again to go on.", err=True)
            raise
        stored += len(requests)


def _show(plan: Sequence[Planned], output: Output) -> None:
    rows = [
        {"line": one.entry.line, "change": one.change, "next_slot_at": one.next_slot, **one.request} for one in plan
    ]
    if rows or output != "table":
        show_rows(rows, output, COLUMNS, name="name")


def _tell(plan: Sequence[Planned], *, dry_run: bool, is_guessed: bool) -> None:
    """Say on stderr what was done, and what the user may not have thought of."""
    counts = {change: sum(one.change == change for one in plan) for change in ("new", "changed", "same")}
    said = f"{counts['new']} new, {counts['changed']} changed, {counts['same']} as they were"
    click.echo(f"Schedules that would be stored: {said}." if dry_run else f"Schedules stored: {said}.", err=True)
    if is_guessed and any(one.entry.zone == "UTC" for one in plan):
        click.echo("Times without CRON_TZ were read as UTC. Say --zone if the crontab goes by another clock.", err=True)


def _tell_stale(server: Server, plan: Sequence[Planned], *, prefix: str, task: str) -> None:
    """Say on stderr which schedules of the same task and prefix stand in no line, also when no line is left."""
    ours = {one.request["name"] for one in plan}
    found = server.pages("/schedules", "schedules", limit=STALE_LOOKED, prefix=prefix or None, task=task)
    stale = [printable(schedule["name"]) for schedule in found if schedule["name"] not in ours]
    if stale:
        more = f" and {len(stale) - STALE_SHOWN} more" if len(stale) > STALE_SHOWN else ""
        listed = ", ".join(stale[:STALE_SHOWN]) + more
        click.echo(f"In no line of this file, and still scheduled: {listed}.", err=True)


def _echo(shown: str, remark: Remark) -> None:
    click.echo(f"{shown}:{remark.line}: {printable(remark.text)}", err=True)
