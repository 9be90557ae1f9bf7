"""The benchmark of schedules runs through, and what it says of slots would be false if one were missed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from windlass.bench import schedulefill
from windlass.bench.http import Goal
from windlass.bench.schedulefill import ALIKE, Batch, Kind, made
from windlass.bench.schedules import Reading
from windlass.bench.scheduleshow import goal, table
from windlass.cli.bench import POSTGRES_VARIABLE, bench
from windlass.clock import system_clock
from windlass.ids import Ids
from windlass.queue.schedule import check_schedule


def test_it_needs_a_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a PostgreSQL there is nothing to measure, and it says what to give."""
    monkeypatch.delenv(POSTGRES_VARIABLE, raising=False)

    run = CliRunner().invoke(bench, ["schedules", "--quick"])

    assert 2 == run.exit_code
    assert "--database" in run.output


@pytest.mark.exhaustive
def test_a_small_run_tells_every_part(postgres_url: str, tmp_path: Path) -> None:
    """Loading, starting and a herd are measured; every schedule of the herd has made one job."""
    file = tmp_path / "figures.json"

    run = CliRunner().invoke(
        bench, ["schedules", "--quick", "--parts", "load,start,herd", "--database", postgres_url, "--json", str(file)]
    )

    assert run.exception is None, run.output
    readings = {row["name"]: row for row in json.loads(file.read_text())}
    assert 200 == readings["200 due at once: jobs made"]["value"]
    assert 0 == readings["200 due at once: doubled"]["value"]
    others = readings["200 due at once: others' submit, 99th percentile"]
    assert 0 < others["value"]
    assert 250 == others["goal"]
    assert {"load", "start", "herd"} == {row["part"] for row in readings.values()}


@pytest.mark.parametrize("kind", ["background", "minute", "herd"])
def test_what_is_loaded_may_be_stored(kind: Kind) -> None:
    """The schedules of every kind keep the rules of a schedule."""
    batch = Batch(kind=kind, count=1, at=datetime(2030, 1, 1, tzinfo=UTC))

    check_schedule(made(batch, 17, Ids(system_clock)))


@pytest.mark.exhaustive
def test_the_background_has_as_many_expressions_as_it_says() -> None:
    """Schedules that share a few expressions would be loaded and kept by what was computed for the first of them."""
    batch = Batch(kind="background", count=1)

    found = [made(batch, number, Ids(system_clock)).trigger for number in range(0, 241_920 * ALIKE, 7 * ALIKE)]

    assert len(found) == len(set(found))
    assert "120,960" in str(schedulefill.__doc__)


def test_a_goal_says_whether_it_is_reached() -> None:
    """A reader sees what was asked for beside what was found."""
    late = Reading(part="herd", name="late", value=3.0, unit="s", goal=Goal(2.0, at_most=True))

    assert "≤ 2 missed" == goal(late)
    assert 1 == table([late]).row_count
