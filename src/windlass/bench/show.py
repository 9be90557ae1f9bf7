"""Show: a progress display while measuring, a table for people and a file for programs afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from windlass.bench.measure import Figure


class Display:
    """What is being measured: a bar on a terminal, else a line for each cell."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("", total=None)
        self._done = 0
        self._total = 0

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def expect(self, cells: int) -> None:
        """Say that so many more cells are to come."""
        self._total += cells
        self._progress.update(self._task, total=self._total)

    def note(self, text: str) -> None:
        """Say what is being done."""
        self._progress.update(self._task, description=text)
        if not self._console.is_terminal:
            self._console.print(f"[{self._done}/{self._total}] {text}", markup=False, highlight=False)

    def advance(self) -> None:
        """Say that a cell is done."""
        self._done += 1
        self._progress.advance(self._task)


def table(figures: Sequence[Figure]) -> Table:
    """Return the figures as a table."""
    shown = Table(title="Ratio: value over floor, median of five alternating rounds (least–greatest)")
    for column in ("database", "name"):
        shown.add_column(column)
    for column in ("batch", "value", "unit", "floor", "ratio", "goal"):
        shown.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    for before, figure in zip([None, *figures], figures, strict=False):
        if before is not None and (before.part, before.name, before.database) != (
            figure.part,
            figure.name,
            figure.database,
        ):
            shown.add_section()
        shown.add_row(
            figure.database,
            figure.name,
            f"{figure.batch:,}",
            number(figure.value),
            figure.unit,
            "" if figure.floor is None else number(figure.floor),
            ratio(figure),
            goal(figure),
        )
    return shown


def number(value: float) -> str:
    """Return a figure with as many digits as it deserves."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(figure: Figure) -> str:
    """Return the ratio with its spread."""
    if figure.ratio is None:
        return ""
    if figure.spread is None or figure.spread[0] == figure.spread[1]:
        return f"{figure.ratio:.2f}"
    return f"{figure.ratio:.2f} ({figure.spread[0]:.2f}–{figure.spread[1]:.2f})"


def goal(figure: Figure) -> str:
    """Return whether the ratio is where it should be."""
    if figure.goal is None or figure.ratio is None:
        return ""
    return f"≥ {figure.goal:g} {'reached' if figure.ratio >= figure.goal else 'missed'}"


def write_json(path: Path, figures: Sequence[Figure]) -> None:
    """Write one object per row."""
    text = msgspec.json.format(msgspec.json.encode([figure.as_json() for figure in figures]), indent=2)
    path.write_bytes(text + b"\n")
