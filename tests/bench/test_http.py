"""The benchmark over HTTP runs through and says what it promises; how fast is not tested."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from windlass.bench.http import Goal, Reading, percentile
from windlass.bench.httpclient import connections, get, post
from windlass.bench.httpserver import bare_server, windlass_server
from windlass.bench.httpshow import table
from windlass.cli.bench import bench
from windlass.errors import SetupError, WindlassError

FIELDS = [
    *("part", "name", "database", "batch", "value", "unit"),
    *("driver", "driver_ratio", "endpoint", "endpoint_ratio", "cpu_us", "goal", "required", "met"),
]
QUICK = ["--seconds", "0.05", "--idle-seconds", "0.05", "--idle-workers", "10"]


def measured(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run the command on a SQLite file and return what it wrote."""
    file = tmp_path / "figures.json"
    database = f"sqlite:///{tmp_path}/bench.db"
    run = CliRunner().invoke(bench, ["http", "--json", str(file), "--database", database, *QUICK, *arguments])
    assert run.exception is None, run.output
    figures: list[dict[str, Any]] = json.loads(file.read_text())
    return figures


@pytest.mark.exhaustive
def test_every_cell_gives_a_figure_beside_both_floors(tmp_path: Path) -> None:
    """Rates and times stand beside the raw driver and the bare endpoint of the same run; a server is left by itself."""
    figures = measured(tmp_path)

    measured_parts = ["submit", "submit", "work", "pipeline", "wake", "wake", "idle", "idle"]
    assert measured_parts == [figure["part"] for figure in figures if figure["part"] != "memory"]
    assert 4 == len([figure for figure in figures if figure["unit"] == "MB"])
    assert [FIELDS] * len(figures) == [list(figure) for figure in figures]
    assert all(figure["value"] > 0 for figure in figures if figure["unit"] != "% of a core")
    compared = [figure for figure in figures if figure["unit"] in ("jobs/s", "ms")]
    assert 6 == len(compared)
    assert all(figure["driver_ratio"] > 0 and figure["endpoint_ratio"] > 0 for figure in compared)
    # Of SQLite nothing is asked but what is required (Q2): 100,000 executions in a minute.
    assert [("pipeline", 1667, True)] == [
        (figure["part"], figure["goal"], figure["required"]) for figure in figures if figure["goal"] is not None
    ]


def test_an_unknown_part_is_refused() -> None:
    """A misspelt part is told, and nothing is started."""
    run = CliRunner().invoke(bench, ["http", "--parts", "submit,sleep"])

    assert 2 == run.exit_code
    assert "sleep: known are submit, work, pipeline, wake, idle" in run.output


@pytest.mark.parametrize(("value", "met"), [(5.0, True), (5.1, False)])
def test_a_goal_may_be_a_most(value: float, met: bool) -> None:
    """Of times and costs less is better; the table says in words whether the goal is met."""
    reading = Reading(
        part="wake", name="n", database="d", batch=1, value=value, unit="ms", goal=Goal(5.0, at_most=True)
    )
    console = Console(width=180, record=True)

    console.print(table([reading]))

    assert met is reading.as_json()["met"]
    assert f"≤ 5 {'met' if met else 'MISSED'}" in console.export_text()


def test_a_percentile_is_one_of_the_times() -> None:
    """The least time that so many of all times do not exceed."""
    times = [float(n) for n in range(100, 0, -1)]

    assert 50.0 == percentile(times, 0.5)
    assert 99.0 == percentile(times, 0.99)
    assert 7.0 == percentile([7.0], 0.99)


async def test_a_connection_takes_one_answer_after_the_other() -> None:
    """Keep-alive: the second request goes over the same connection."""
    async with bare_server() as served, connections(served.port, 1) as (connection,):
        first = await connection.ask(post("/anything", b"{}"))
        second = await connection.ask(get("/else"))

    assert (200, 200) == (first.status, second.status)
    assert first.body == second.body != b""


async def test_a_refusal_of_the_server_ends_the_benchmark(tmp_path: Path) -> None:
    """What is refused must not be counted as done."""
    async with (
        windlass_server(f"sqlite:///{tmp_path}/bench.db") as served,
        connections(served.port, 1) as (connection,),
    ):
        answer = await connection.ask(post("/api/v1/jobs", b'{"payload":1}'))

    assert 422 == answer.status
    with pytest.raises(WindlassError, match="The server answered 422"):
        answer.good()


async def test_a_connection_that_closes_fails_who_waits() -> None:
    """Nobody waits for an answer that cannot come."""
    async with _closing_server() as port, connections(port, 1) as (connection,):
        with pytest.raises(WindlassError, match="closed the connection"):
            await connection.ask(get("/"))


async def test_a_server_that_cannot_start_tells_why(tmp_path: Path) -> None:
    """The message of the server comes with the error, not a time-out."""
    with pytest.raises(SetupError, match=r"(?s)The server did not start; it said: .*nowhere"):
        async with windlass_server(f"sqlite:///{tmp_path}/nowhere/bench.db"):
            pass


@asynccontextmanager
async def _closing_server() -> AsyncIterator[int]:
    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1") as server:
        yield server.sockets[0].getsockname()[1]
