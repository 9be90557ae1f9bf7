"""`windlass check-app`: import an application and say everything that is wrong with it, before it is deployed.

No server is asked: tasks, options and schedules are checked by the functions that servers use, with these settings.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec
from rich.table import Table

from windlass.cli.config import config_option, load_settings
from windlass.cli.shown import console
from windlass.client.problems import Problem, collecting
from windlass.config import Settings
from windlass.engine import planned
from windlass.errors import InvalidInput, WindlassError
from windlass.wire.schedules import ScheduleRequest
from windlass.worker.claims import check_tasks
from windlass.worker.kinds import with_kinds
from windlass.worker.load import load_app
from windlass.worker.process import serving

if TYPE_CHECKING:
    from windlass.client.app import App
    from windlass.client.declared import Declaration
    from windlass.client.task import Task

SHOWN_SLOTS = 3
NO_ID = UUID(int=0)
"""Of a schedule that is not stored; where H stands in its expression, its times are not known before."""


@click.command(name="check-app")
@click.argument("app", metavar="MODULE[:APP]")
@config_option
@click.pass_context
def check_app(ctx: click.Context, app: str, config_path: str | None) -> None:
    """Import an application and say everything that is wrong with it: exit code 0 if nothing is, else 1.

    Tasks are listed with their options, schedules with their next times. No server is needed: run it in CI.

    Example: windlass check-app shop.tasks:app
    """
    settings = load_settings({"config": config_path}).settings
    found: App | None = None
    with collecting() as problems:
        try:
            found = load_app(app)
        except WindlassError as error:
            problems.append(Problem(app, str(error)))
    if found is not None:
        problems += _serving_problems(found, app, settings)
        _show_tasks(found)
        said = {problem.text for problem in problems}
        problems += [problem for problem in _show_schedules(found, settings) if problem.text not in said]
    for problem in problems:
        click.echo(f"{problem.place}: {problem.text}", err=True)
    if problems:
        click.echo(f"{app} has {len(problems)} problem{'s' if len(problems) > 1 else ''}.", err=True)
        ctx.exit(1)
    click.echo(f"{app} is fine.")


def _serving_problems(app: App, target: str, settings: Settings) -> list[Problem]:
    """Return why a worker could not serve the application."""
    found = []
    try:
        check_tasks(with_kinds({**app.tasks}, settings.work_kinds))
        serving(settings, [task.job_options.queue for task in app.tasks.values()])
    except WindlassError as error:
        found.append(Problem(target, str(error)))
    for name, task in app.tasks.items():
        try:
            task.signature()
        except Exception as error:  # whatever evaluating the annotations of a user raises
            found.append(Problem(f"task {name}", f"{type(error).__name__}: {error}"))
    return found


def _show_tasks(app: App) -> None:
    table = Table("TASK", "OPTIONS", box=None, pad_edge=False, header_style="bold")
    for name, task in sorted(app.tasks.items()):
        table.add_row(name, _options(task))
    console().print(table)


def _options(task: Task[..., Any]) -> str:
    options = msgspec.to_builtins(task.job_options)
    options.pop("cleared", None)
    if task.job_options.timeout_seconds is None:
        options["timeout_seconds"] = "none"
    if task.isolation is not None:
        options["isolation"] = task.isolation
    return ", ".join(f"{name}={_written(value)}" for name, value in options.items()) or "-"


def _written(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _show_schedules(app: App, settings: Settings) -> list[Problem]:
    """Print the schedules with their next times; return what a server would refuse of them."""
    problems = []
    table = Table("SCHEDULE", "TASK", "WHEN", "NEXT", box=None, pad_edge=False, header_style="bold")
    for name, declaration in app.declared.items():
        try:
            words, times = _times(declaration, settings, owner=app.name)
        except (InvalidInput, TypeError) as error:
            problems.append(Problem(f"schedule {name}", str(error)))
        else:
            table.add_row(name, declaration.task.name, words, times)
    if table.row_count:
        console().print()
        console().print(table)
    return problems


def _times(declaration: Declaration, settings: Settings, *, owner: str | None) -> tuple[str, str]:
    """Return a schedule in words, and its next times; InvalidInput or TypeError if a server would refuse it."""
    asked = msgspec.json.decode(msgspec.json.encode(declaration.fields()), type=ScheduleRequest)
    schedule = planned.new_schedule(asked, settings, schedule_id=NO_ID, tenant="default", owner=owner)
    now = datetime.now(UTC)
    planned.check_fires(schedule, now=now)
    slots = planned.slots_after(schedule, now, base_at=now, count=SHOWN_SLOTS)
    return planned.described(schedule.trigger), ", ".join(slot.local for slot in slots)
