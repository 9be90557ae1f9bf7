"""`windlass bench`: measure on your own machine; later parts join `store` here."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from windlass.bench.growth import growth_cells
from windlass.bench.measure import Cell, Figure
from windlass.bench.scratch import is_postgres, undurable
from windlass.bench.show import Display, table, write_json
from windlass.bench.store import PARTS, store_cells

POSTGRES_VARIABLE = "WINDLASS_TEST_POSTGRES_URL"


@click.group()
def bench() -> None:
    """Measure how fast Windlass is here, beside the least that the same driver can do."""


@bench.command()
@click.option(
    "--database",
    "urls",
    metavar="URL",
    multiple=True,
    help="Where to measure, in a scratch database of its own; may be given again. "
    f"Default: a temporary SQLite file, and the server of {POSTGRES_VARIABLE} if that is set.",
)
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here too.")
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
    chosen = tuple(part for part in parts.split(",") if part)
    unknown = sorted(set(chosen) - {*PARTS, "growth"})
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: known are {', '.join(PARTS)} and growth.")
    # In a file or a pipe nothing tells a width; the table needs this much.
    console = Console(width=None if sys.stdout.isatty() else 140)
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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    console.print(f"Python {platform.python_version()}, {cores} cores", highlight=False)
    figures: list[Figure] = []
    for url in urls:
        if is_postgres(url) and (weak := await undurable(url)):
            console.print(f"Warning: this server runs with {', '.join(weak)}; its figures are not those of production.")
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
