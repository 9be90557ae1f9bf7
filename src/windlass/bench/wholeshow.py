"""The readings of `windlass bench whole` as a table for people and a file for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from windlass.bench.show import number
from windlass.bench.whole import MEASURE, Reading


def table(readings: Sequence[Reading]) -> Table:
    """Return the readings as a table, peers among them."""
    shown = Table(title="From submit to result; medians of rounds in which all sides took turns (least–greatest)")
    for column in ("part", "name"):
        shown.add_column(column)
    for column in ("jobs", "value", "unit", f"× {MEASURE}", "CPU µs/job", "goal"):
        shown.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    shown.add_column("note")
    for before, reading in zip([None, *readings], readings, strict=False):
        if before is not None and before.part != reading.part:
            shown.add_section()
        shown.add_row(
            reading.part,
            reading.name,
            f"{reading.jobs:,}",
            value(reading),
            reading.unit,
            "" if reading.ratio is None else f"{reading.ratio:.2f}",
            cpu(reading),
            goal(reading),
            reading.note,
        )
    return shown


def value(reading: Reading) -> str:
    """Return the figure with its spread, or that there is none."""
    if reading.value is None:
        return "not available"
    if reading.spread is None or reading.spread[0] == reading.spread[1]:
        return number(reading.value)
    return f"{number(reading.value)} ({number(reading.spread[0])}–{number(reading.spread[1])})"


def cpu(reading: Reading) -> str:
    """Return what one job took of the CPU, altogether and by whom."""
    if not reading.cpu_us:
        return ""
    parts = ", ".join(f"{user} {number(used)}" for user, used in reading.cpu_us.items())
    return f"{number(sum(reading.cpu_us.values()))} ({parts})"


def goal(reading: Reading) -> str:
    """Return what the figure should be, and whether it is."""
    if reading.goal is not None:
        sign = "≤" if reading.goal.at_most else "≥"
        asked = f"{sign} {number(reading.goal.at)}"
    elif reading.ratio_goal is not None:
        asked = f"≥ {reading.ratio_goal:.1f} × {MEASURE}"
    else:
        return ""
    if reading.met is None:
        return f"{asked} (with --peers)"
    return f"{asked} {'reached' if reading.met else 'missed'}"


def write_json(path: Path, readings: Sequence[Reading]) -> None:
    """Write one object per row."""
    text = msgspec.json.format(msgspec.json.encode([reading.as_json() for reading in readings]), indent=2)
    path.write_bytes(text + b"\n")
