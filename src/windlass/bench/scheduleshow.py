"""The readings of `windlass bench schedules` as a table for people and a file for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from windlass.bench.schedules import Reading
from windlass.bench.show import number


def table(readings: Sequence[Reading]) -> Table:
    """Return the readings as a table."""
    shown = Table(title="Schedules")
    for column in ("part", "name"):
        shown.add_column(column)
    for column in ("value", "unit", "goal"):
        shown.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    shown.add_column("note")
    for before, reading in zip([None, *readings], readings, strict=False):
        if before is not None and before.part != reading.part:
            shown.add_section()
        value = "not available" if reading.value is None else number(reading.value)
        shown.add_row(reading.part, reading.name, value, reading.unit, goal(reading), reading.note)
    return shown


def goal(reading: Reading) -> str:
    """Return what the figure should be, and whether it is."""
    if reading.goal is None:
        return ""
    sign = "≤" if reading.goal.at_most else "≥"
    return f"{sign} {number(reading.goal.at)} {'reached' if reading.met else 'missed'}"


def write_json(path: Path, readings: Sequence[Reading]) -> None:
    """Write one object per row."""
    text = msgspec.json.format(msgspec.json.encode([reading.as_json() for reading in readings]), indent=2)
    path.write_bytes(text + b"\n")
