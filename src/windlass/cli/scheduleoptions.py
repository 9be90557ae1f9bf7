"""What can be said of a schedule on the command line: when, what becomes of its slots, what its jobs are like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from windlass.cli.values import DURATION, INSTANT
from windlass.queue.schedule import CATCH_UPS, OVERLAPS

Command = TypeVar("Command", bound=Callable[..., Any])


def trigger_options(command: Command) -> Command:
    """Add when something is to happen."""
    for option in (
        click.option("--cron", metavar="EXPRESSION", help="Five fields, six with seconds first, or @daily and such."),
        click.option("--every", metavar="DURATION", type=DURATION, help="By elapsed time, from 1s: 30s, 1h30m."),
        click.option("--at", type=INSTANT, help="Once: 2027-01-31T12:00:00Z."),
        click.option("--zone", "timezone", metavar="ZONE", help="Of the clock that cron goes by.  [default: UTC]"),
        click.option("--start", type=INSTANT, help="No slot before then."),
        click.option("--end", type=INSTANT, help="No slot after then."),
        click.option("--exclude", multiple=True, metavar="DAYS", help="2026-12-25, --12-25, SAT; may stand again."),
        click.option("--jitter", type=DURATION, help="Each slot is due later by a stable part of this."),
    ):
        command = option(command)
    return command


def policy_options(command: Command) -> Command:
    """Add what is to happen with late slots, overlaps and silence, and what its jobs are like."""
    for option in (
        click.option("--catch-up", type=click.Choice(CATCH_UPS), help="Of missed slots.  [default: latest]"),
        click.option("--catch-up-max", type=click.IntRange(1, 1000), help="With `all`: how many, the newest."),
        click.option("--catch-up-window", type=DURATION, help="Slots missed longer ago do not run."),
        click.option("--grace", "misfire_grace", type=DURATION, help="Later than this is missed.  [default: 60s]"),
        click.option("--overlap", type=click.Choice(OVERLAPS), help="The run before is not over.  [default: skip]"),
        click.option("--expect-within", type=DURATION, help="Tell if no run has succeeded so long after its slot."),
        click.option("--start-within", type=DURATION, help="A job not started so long after its slot expires."),
        click.option("--queue", metavar="NAME", help="[default: the task's, else default]"),
        click.option(
            "--priority", type=click.IntRange(-127, 127), help="Higher goes first.  [default: the task's, else 0]"
        ),
        click.option("--max-attempts", type=click.IntRange(1, 1000)),
        click.option("--time-limit", "timeout_seconds", type=DURATION, help="How long one attempt may run."),
        click.option("--label", "labels", multiple=True, help="Only for workers that have it; may stand again."),
        click.option("--tag", "tags", multiple=True, help="To find its jobs by; may stand again."),
    ):
        command = option(command)
    return command


def said(options: dict[str, Any]) -> dict[str, Any]:
    """Return what was given on the command line."""
    return {name: value for name, value in options.items() if value is not None and value != ()}
