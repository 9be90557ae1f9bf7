"""The readings of `windlass bench http` as a table for people and a file for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from windlass.bench.http import Reading
from windlass.bench.show import number


def table(readings: Sequence[Reading]) -> Table:
    """Return the readings as a table, with both floors beside each."""
    shown = Table(title="One server over HTTP; × is our figure over the floor's, median of alternating rounds")
    for column in ("database", "name"):
        shown.add_column(column)
    for column in ("batch", "value", "unit", "CPU µs/job", "raw driver", "×", "bare endpoint", "×", "goal"):
        shown.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    for before, reading in zip([None, *readings], readings, strict=False):
        if before is not None and (before.part, before.database) != (reading.part, reading.database):
            shown.add_section()
        shown.add_row(
            reading.database,
            reading.name,
            f"{reading.batch:,}",
            number(reading.value),
            reading.unit,
            _number(reading.cpu_us),
            _number(reading.driver),
            _ratio(reading.driver_ratio),
            _number(reading.endpoint),
            _ratio(reading.endpoint_ratio),
            goal(reading),
        )
    return shown


def goal(reading: Reading) -> str:
    """Return what the figure should be, and whether it is."""
    if reading.goal is None:
        return ""
    sign = "≤" if reading.goal.at_most else "≥"
    word = "required, " if reading.goal.required else ""
    return f"{sign} {number(reading.goal.at)} {word}{'met' if reading.goal.met(reading.value) else 'MISSED'}"


def write_json(path: Path, readings: Sequence[Reading]) -> None:
    """Write one object per row."""
    text = msgspec.json.format(msgspec.json.encode([reading.as_json() for reading in readings]), indent=2)
    path.write_bytes(text + b"\n")


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
