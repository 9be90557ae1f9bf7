"""What commands print: tables for people, `-o json|jsonl|ids` for programs.

What comes from outside is stripped of control characters, so that no job can steer somebody's terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windlass.clock import system_clock

Command = TypeVar("Command", bound=Callable[..., Any])
Output = Literal["table", "json", "jsonl", "ids"]
Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], "str | Text"]]
WIDE = 200
"""Characters of a line where no terminal tells a width: in files and pipes."""
MAX_CELL = 60
GAP = 2
"""Spaces between two columns."""
LEAST = 12
"""Characters that the last column of a table keeps."""

STATE_STYLES = {
    "running": "cyan",
    "assigned": "cyan",
    "cancelling": "yellow",
    "sleeping": "yellow",
    "scheduled": "blue",
    "succeeded": "green",
    "dead": "red",
    "failed": "red",
    "lost": "red",
    "timed_out": "red",
    "cancelled": "dim",
    "expired": "dim",
    "active": "green",
    "busy": "green",
    "draining": "yellow",
    "stopped": "dim",
}


def output_option(*forms: Output) -> Callable[[Command], Command]:
    """Add `-o`; the forms are those that the command knows, table first."""
    known = forms or ("table", "json", "jsonl", "ids")
    return click.option(
        "-o", "--output", type=click.Choice(known), default=known[0], show_default=True, help="How to print."
    )


def console(*, err: bool = False, at_least: int = 0) -> Console:
    """Return where to print: in colour on a terminal, plain and wide elsewhere; lines may have so many characters."""
    stream = sys.stderr if err else sys.stdout
    made = Console(width=None if stream.isatty() else WIDE, stderr=err, highlight=False, markup=False, emoji=False)
    if made.width < at_least:
        made.width = at_least
    return made


def show_rows(rows: Iterable[Row], output: Output, columns: Sequence[Column], *, name: str = "id") -> None:
    """Print rows in the form that was asked for; `name` is the field by which programs know one."""
    if output == "table":
        table = table_of(rows, columns, room=console().width)
        console(at_least=table.width or 0).print(table)
        return
    if output == "json":
        echo_json(list(rows))
        return
    for row in rows:
        click.echo(str(row[name]) if output == "ids" else msgspec.json.encode(row).decode())


def show_one(row: Row, output: Output, fields: Mapping[str, str | Text], *, name: str = "id") -> None:
    """Print one thing: its fields below each other, or as programs want it."""
    if output == "table":
        console().print(fields_of(fields))
    else:
        show_rows([row], output, (), name=name) if output != "json" else echo_json(row)


def echo_json(value: Any) -> None:
    """Print as JSON with line breaks."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table_of(rows: Iterable[Row], columns: Sequence[Column], *, room: int = WIDE) -> Table:
    """Return a plain table of the rows; columns whose title ends in `#` are numbers, to the right.

    Where there is less room only the last column is cut: half an id is of no use.
    """
    lines = [[cell(value(row)) for _, value in columns] for row in rows]
    titles = [heading.rstrip("#").upper() for heading, _ in columns]
    widths = [max(len(title), *(line[index].cell_len for line in lines), 0) for index, title in enumerate(titles)]
    others = sum(widths[:-1]) + GAP * (len(widths) - 1)
    widths[-1] = min(widths[-1], max(room - others, LEAST))
    table = Table(box=None, pad_edge=False, width=others + widths[-1])
    for (heading, _), title, width in zip(columns, titles, widths, strict=True):
        justify: Literal["left", "right"] = "right" if heading.endswith("#") else "left"
        table.add_column(title, justify=justify, no_wrap=True, header_style="dim", width=width)
    for line in lines:
        table.add_row(*line)
    return table


def from_task(item: Mapping[str, Any]) -> str:
    """Return which options of a job or a schedule come from its task, in words."""
    return ", ".join(option for option, source in item["defaults"].items() if source == "task")


def fields_of(fields: Mapping[str, str | Text]) -> Table:
    """Return names and values below each other; empty values are left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if str(value):
            table.add_row(name, plain(value))
    return table


def cell(value: str | Text) -> Text:
    """Return a value as it stands in a table: one line, and not too long."""
    text = plain(value)
    text.truncate(MAX_CELL, overflow="ellipsis")
    return text


def plain(value: str | Text) -> Text:
    """Return a text that prints as it is: no markup, no control characters."""
    return value if isinstance(value, Text) else Text(printable(value))


def printable(text: str) -> str:
    """Return the text without what would steer a terminal; line breaks and tabs become spaces."""
    return "".join(letter if letter.isprintable() else " " if letter in "\n\r\t" else "�" for letter in text)


def state(row: Row) -> Text:
    """Return a state in its colour, and whether the job is paused."""
    name = str(row.get("state") or row.get("outcome") or row.get("status"))
    return Text(name + (" (paused)" if row.get("paused") else ""), style=STATE_STYLES.get(name, ""))


def when(text: str | None, now: datetime | None = None) -> str:
    """Return an instant as people say it: how long ago, or in how long; empty for none."""
    if text is None:
        return ""
    passed_s = ((now or system_clock()) - datetime.fromisoformat(text)).total_seconds()
    return f"{rough(passed_s)} ago" if passed_s >= 0 else f"in {rough(-passed_s)}"


def rough(seconds: float) -> str:
    """Return a span with its largest unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def spent(ms: float | None) -> str:
    """Return how long something took; empty for None."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.2f} s" if ms < 60_000 else rough(ms / 1000)


def as_json(value: Any) -> str:
    """Return a value as JSON on one line; empty for None."""
    return "" if value is None else msgspec.json.encode(value).decode()
