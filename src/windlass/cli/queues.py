"""`windlass queues`: how much waits where; pause, resume, limits."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.calls import Server, asks_server
from windlass.cli.shown import Column, Output, Row, output_option, rough, show_one, show_rows, when
from windlass.cli.values import DURATION, INSTANT


def count(name: str) -> Column:
    """Return the column of a count; `+` where there may be more."""
    key = name.rstrip("#").replace(" ", "_")
    return name, lambda queue: f"{queue[key]:,}" + ("" if queue["counts_are_exact"] else "+")


def oldest(queue: Row) -> str:
    """Return how long the oldest waiting job waits."""
    return "" if queue["oldest_queued_seconds"] is None else rough(queue["oldest_queued_seconds"])


def limits(queue: Row) -> str:
    """Return the limits of a queue in a few words; empty if it has none."""
    found = []
    if queue["max_running"] is not None:
        found.append(f"{queue['max_running']} at once")
    if queue["rate_per_second"] is not None:
        found.append(f"{queue['rate_per_second']:g}/s")
    if queue["order"] != "priority":
        found.append(queue["order"])
    return ", ".join(found)


COLUMNS: tuple[Column, ...] = (
    ("queue", lambda queue: queue["name"]),
    count("pending#"),
    count("in progress#"),
    count("scheduled#"),
    count("dead#"),
    ("oldest#", oldest),
    ("limits", limits),
    ("paused", lambda queue: "paused" if queue["paused"] else ""),
)
name_argument = click.argument("name")


@click.group()
def queues() -> None:
    """See how much waits where; pause and resume queues, set their limits."""


@queues.command(name="list")
@output_option()
@asks_server
def list_(server: Server, output: Output) -> None:
    """List queues by name.

    Example: windlass queues list
    """
    show_rows(server.pages("/queues", "queues"), output, COLUMNS, name="name")


@queues.command()
@name_argument
@output_option("table", "json")
@asks_server
def show(server: Server, name: str, output: Output) -> None:
    """Tell everything about a queue.

    Example: windlass queues show mail
    """
    _show(server.get(f"/queues/{name}"), output)


@queues.command()
@name_argument
@click.option("--reason", help="Shown with the queue.")
@click.option("--until", type=INSTANT, help="Resumes by itself then.")
@click.option("--for", "span_s", type=DURATION, help="Resumes by itself after so long: 30m.")
@output_option("table", "json")
@asks_server
def pause(
    server: Server, name: str, reason: str | None, until: str | None, span_s: float | None, output: Output
) -> None:
    """Hand out nothing from a queue; what runs goes on.

    Example: windlass queues pause mail --for 30m --reason "the mail server is down"
    """
    if until is not None and span_s is not None:
        raise click.UsageError("Give --until or --for, not both.")
    body = {"reason": reason, "until": until, "duration": span_s}
    _show(server.post(f"/queues/{name}/pause", body), output)


@queues.command()
@name_argument
@click.option("--reason", help="Kept in the audit.")
@output_option("table", "json")
@asks_server
def resume(server: Server, name: str, reason: str | None, output: Output) -> None:
    """Hand out from a queue again.

    Example: windlass queues resume mail
    """
    _show(server.post(f"/queues/{name}/resume", {"reason": reason}), output)


class _Limit(click.ParamType[Any]):
    """A number, or `none` for no limit."""

    name = "number|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "none":
            return value
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor none.", param, ctx)
        return int(number) if number.is_integer() else number


@queues.command(name="set")
@name_argument
@click.option("--order", type=click.Choice(["priority", "fifo"]))
@click.option("--max-running", type=_Limit(), help="How many run at once.")
@click.option("--rate", "rate_per_second", type=_Limit(), help="How many start per second.")
@click.option("--burst", type=_Limit(), help="How many may start together after a quiet time.")
@click.option("--priority-credit", "priority_credit_seconds", type=_Limit(), help="Seconds that a level is worth.")
@click.option("--reason", help="Kept in the audit.")
@output_option("table", "json")
@asks_server
def set_(server: Server, name: str, reason: str | None, output: Output, **given: Any) -> None:
    """Change limits and order of a queue; what is not named stays as it is.

    Example: windlass queues set mail --max-running 5 --rate 20
    """
    changed = {key: None if value == "none" else value for key, value in given.items() if value is not None}
    if not changed:
        raise click.UsageError("Say what to set: --order, --max-running, --rate, --burst or --priority-credit.")
    now = {key: server.get(f"/queues/{name}")[key] for key in given}
    _show(server.call("PUT", f"/queues/{name}", body={**now, **changed, "reason": reason}), output)


def _show(queue: Row, output: Output) -> None:
    paused = queue["pause"] or {}
    why = ", ".join(str(part) for part in (paused.get("reason"), paused.get("actor")) if part)
    credit = queue["priority_credit_seconds"]
    fields = {
        "queue": queue["name"],
        "paused": f"{when(paused['paused_at'])}" + (f" ({why})" if why else "") if paused else "no",
        "resumes": when(paused.get("until")),
        "order": queue["order"],
        "limits": limits(queue) or "none",
        "burst": "" if queue["burst"] is None else str(queue["burst"]),
        "priority credit": "" if credit is None else f"{credit:g} s a level",
        "oldest": oldest(queue),
    }
    counts = ("pending", "held", "in_progress", "scheduled", "blocked", "sleeping", "dead")
    fields |= {name.replace("_", " "): count(name)[1](queue) for name in counts}
    show_one(queue, output, fields, name="name")
