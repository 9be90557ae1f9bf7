"""`windlass bench`: measure on your own machine, the store by itself, a server over HTTP, or all of it with workers."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
from pathlib import Path

import click
import msgspec
import uvloop
from rich.console import Console

from windlass.bench import http as over_http
from windlass.bench import httpshow, scheduleshow, wholeshow
from windlass.bench import schedules as of_schedules
from windlass.bench import whole as the_whole
from windlass.bench.growth import growth_cells
from windlass.bench.measure import Cell, Figure
from windlass.bench.scratch import is_postgres, undurable
from windlass.bench.show import Display, table, write_json
from windlass.bench.store import PARTS, store_cells
from windlass.bench.wholesleep import Crowd

POSTGRES_VARIABLE = "WINDLASS_TEST_POSTGRES_URL"
CROWDS = tuple(Crowd(jobs=jobs, processes=processes) for jobs in (1_000, 10_000) for processes in (1, 4))
QUICK_CROWDS = (Crowd(jobs=20, processes=2),)


database_option = click.option(
    "--database",
    "urls",
    metavar="URL",
    multiple=True,
    help="Where to measure, in a scratch database of its own; may be given again. "
    f"Default: a temporary SQLite file, and the server of {POSTGRES_VARIABLE} if that is set.",
)
json_option = click.option(
    "--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here too."
)


@click.group()
def bench() -> None:
    """Measure how fast Windlass is here, beside the least that the same driver can do."""


@bench.command()
@database_option
@json_option
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(min=0.01), help="Per cell and side.")
@click.option("--parts", default=",".join(PARTS), show_default=True, help="What to measure, of these and growth.")
@click.option("--growth", is_flag=True, help="Also beside millions of other rows, and under a held snapshot: minutes.")
@click.option("--rows", default=1_000_000, show_default=True, type=click.IntRange(min=100), help="For growth: timers.")
@click.option("--hold", "hold_s", default=60.0, show_default=True, type=float, help="For growth: seconds of snapshot.")
def store(
    urls: tuple[str, ...], file: Path | None, seconds: float, parts: str, growth: bool, rows: int, hold_s: float
) -> None:
    """Measure submit, claim, complete and the whole cycle; claim + complete together; WAL and statements per job.

    Works in a scratch database beside the one it is pointed at, and removes it.

    Example: windlass bench store --database postgresql://localhost/jobs --json figures.json
    """
    chosen = _chosen(parts, (*PARTS, "growth"))
    console = _console(140)
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder, Display(console) as display:
        figures = asyncio.run(
            _measure(
                urls or _default_urls(console, folder),
                console,
                display,
                parts=chosen,
                seconds=seconds,
                growth=growth or "growth" in chosen,
                rows=rows,
                hold_s=hold_s,
            )
        )
    console.print(table(figures))
    if file is not None:
        write_json(file, figures)
        console.print(f"Written to {file}.", highlight=False)


@bench.command()
@database_option
@json_option
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(min=0.01), help="Per cell and side.")
@click.option("--parts", default=",".join(over_http.PARTS), show_default=True, help="What to measure.")
@click.option("--idle-seconds", "idle_s", default=25.0, show_default=True, type=click.FloatRange(min=0.01))
@click.option("--idle-workers", default=500, show_default=True, type=click.IntRange(1, 5000))
def http(
    urls: tuple[str, ...], file: Path | None, seconds: float, parts: str, idle_s: float, idle_workers: int
) -> None:
    """Measure one server process over HTTP, beside the raw driver and a bare endpoint.

    Submit, claim and report, alone and together; the wake-up of a waiting claim; what idle workers cost.
    The server is started on a scratch database beside the one it is pointed at, with default settings.

    Example: windlass bench http --database postgresql://localhost/jobs --json figures.json
    """
    chosen = _chosen(parts, over_http.PARTS)
    console = _console(180)
    span = over_http.Span(seconds=seconds, idle_s=idle_s, idle_workers=idle_workers)
    with (
        tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder,
        Display(console) as display,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        measuring = _measure_http(urls or _default_urls(console, folder), console, display, parts=chosen, span=span)
        readings = runner.run(measuring)
    console.print(httpshow.table(readings))
    if file is not None:
        httpshow.write_json(file, readings)
        console.print(f"Written to {file}.", highlight=False)


@bench.command()
@click.option("--database", "url", metavar="URL", help=f"The PostgreSQL to measure on.  [default: {POSTGRES_VARIABLE}]")
@json_option
@click.option("--peers", is_flag=True, help="Also PGQueuer, Procrastinate, Celery and Huey, installed into a cache.")
@click.option("--jobs", default=50_000, show_default=True, type=click.IntRange(min=1), help="To drain, of each side.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="Of drains.")
@click.option("--parts", default=",".join(the_whole.PARTS), show_default=True, help="What to measure.")
@click.option("--quick", is_flag=True, help="One small round of everything, to see that it runs.")
def whole(url: str | None, file: Path | None, peers: bool, jobs: int, rounds: int, parts: str, quick: bool) -> None:
    """Measure from submit to result with real workers, over HTTP, in-process and on SQLite; beside peers if asked.

    How fast jobs drain, how soon one is picked up, what ten thousand sleeping ones cost. Everything is done in scratch
    databases. Peers are installed into environments of their own, kept in the user's cache.

    Example: windlass bench whole --database postgresql://localhost/jobs --peers
    """
    chosen = _chosen(parts, the_whole.PARTS)
    console = _console(200)
    postgres = url or os.environ.get(POSTGRES_VARIABLE)
    if postgres is None:
        console.print(f"PostgreSQL is not measured: give --database, or set {POSTGRES_VARIABLE}.", highlight=False)
    elif not is_postgres(postgres):
        raise click.BadParameter(f"{postgres} is no PostgreSQL; SQLite is measured anyway.", param_hint="--database")
    with (
        tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder,
        Display(console) as display,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        plan = the_whole.Plan(
            postgres=postgres,
            sqlite=f"sqlite:///{folder}/bench.db",
            parts=chosen,
            peers=peers,
            jobs=200 if quick else jobs,
            rounds=1 if quick else rounds,
            pickups=5 if quick else the_whole.PICKUPS,
            crowds=QUICK_CROWDS if quick else CROWDS,
            nap_s=3.0 if quick else the_whole.NAP_S,
        )
        readings = runner.run(_measure_whole(plan, console, display))
    console.print(wholeshow.table(readings))
    if file is not None:
        wholeshow.write_json(file, readings)
        console.print(f"Written to {file}.", highlight=False)


@bench.command()
@click.option("--database", "url", metavar="URL", help=f"The PostgreSQL to measure on.  [default: {POSTGRES_VARIABLE}]")
@json_option
@click.option("--peers", is_flag=True, help="Also APScheduler and Celery beat, installed into a cache.")
@click.option("--schedules", "count", default=10_000_000, show_default=True, type=click.IntRange(min=1))
@click.option("--minutes", default=3, show_default=True, type=click.IntRange(min=1), help="Of 100,000 slots each.")
@click.option("--parts", default=",".join(of_schedules.PARTS), show_default=True, help="What to measure.")
@click.option("--quick", is_flag=True, help="A few hundred of everything, to see that it runs.")
def schedules(
    url: str | None, file: Path | None, peers: bool, count: int, minutes: int, parts: str, quick: bool
) -> None:
    """Measure ten million schedules: their import, a server beside them, and how late slots are when many are due.

    Everything is done in a scratch database, which takes about 6 GB. Peers are installed into environments of their
    own.

    Example: windlass bench schedules --database postgresql://localhost/jobs --peers
    """
    chosen = _chosen(parts, of_schedules.PARTS)
    console = _console(160)
    postgres = url or os.environ.get(POSTGRES_VARIABLE)
    if postgres is None or not is_postgres(postgres):
        raise click.UsageError(f"Schedules are measured on PostgreSQL: give --database, or set {POSTGRES_VARIABLE}.")
    plan = of_schedules.Plan(postgres=postgres, parts=chosen, schedules=count, minutes=minutes, peers=peers)
    if quick:
        plan = msgspec.structs.replace(
            plan, schedules=400, few=100, per_minute=120, minutes=1, herds=(200,), peer_schedules=20, settle_s=3.0
        )
    with Display(console) as display, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        _say_machine(console)
        runner.run(_warn_if_undurable(console, postgres))
        readings = runner.run(of_schedules.measure(plan, display.note))
    console.print(scheduleshow.table(readings))
    if file is not None:
        scheduleshow.write_json(file, readings)
        console.print(f"Written to {file}.", highlight=False)


def _chosen(parts: str, known: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(part for part in parts.split(",") if part)
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: known are {', '.join(known)}.")
    return chosen


def _console(width: int) -> Console:
    # In a file or a pipe nothing tells a width; the table needs this much.
    return Console(width=None if sys.stdout.isatty() else width)


def _default_urls(console: Console, folder: str) -> list[str]:
    urls = [f"sqlite:///{folder}/bench.db"]
    if POSTGRES_VARIABLE in os.environ:
        return [*urls, os.environ[POSTGRES_VARIABLE]]
    console.print(f"PostgreSQL is not measured: give --database, or set {POSTGRES_VARIABLE}.", highlight=False)
    return urls


async def _measure(
    urls: tuple[str, ...] | list[str],
    console: Console,
    display: Display,
    *,
    parts: tuple[str, ...],
    seconds: float,
    growth: bool,
    rows: int,
    hold_s: float,
) -> list[Figure]:
    _say_machine(console)
    figures: list[Figure] = []
    for url in urls:
        await _warn_if_undurable(console, url)
        if set(parts) & set(PARTS):
            async with store_cells(url, parts=parts, seconds=seconds) as cells:
                figures += await _figures(cells, display)
        if growth:
            async with growth_cells(url, rows=rows, hold_s=hold_s, seconds=seconds, note=display.note) as cells:
                figures += await _figures(cells, display)
    return figures


async def _figures(cells: list[Cell], display: Display) -> list[Figure]:
    figures = []
    display.expect(len(cells))
    for cell in cells:
        display.note(f"{cell.database}: {cell.name}, batches of {cell.batch:,}")
        figures.append(await cell.figure())
        display.advance()
    return figures


async def _measure_http(
    urls: tuple[str, ...] | list[str],
    console: Console,
    display: Display,
    *,
    parts: tuple[str, ...],
    span: over_http.Span,
) -> list[over_http.Reading]:
    _say_machine(console)
    readings: list[over_http.Reading] = []
    for url in urls:
        await _warn_if_undurable(console, url)
        async with over_http.http_cells(url, parts=parts, span=span) as cells:
            display.expect(len(cells))
            for cell in cells:
                display.note(cell.name)
                readings += await cell.run()
                display.advance()
    return readings


async def _measure_whole(plan: the_whole.Plan, console: Console, display: Display) -> list[the_whole.Reading]:
    _say_machine(console)
    if plan.postgres is not None:
        await _warn_if_undurable(console, plan.postgres)
    display.expect(plan.step_count)

    def note(text: str) -> None:
        display.note(text)
        display.advance()

    return await the_whole.measure(plan, note)


def _say_machine(console: Console) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    console.print(f"Python {platform.python_version()}, {cores} cores", highlight=False)


async def _warn_if_undurable(console: Console, url: str) -> None:
    if is_postgres(url) and (weak := await undurable(url)):
        console.print(f"Warning: this server runs with {', '.join(weak)}; its figures are not those of production.")
