"""The benchmark of the store runs through on both databases and says what it promises; how fast is not tested."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from click.testing import CliRunner

from tests.databases import connected
from windlass.bench import measure
from windlass.bench.measure import alternate
from windlass.bench.store import BATCHES
from windlass.cli.bench import bench
from windlass.errors import SetupError

FIELDS = ["part", "name", "database", "batch", "value", "unit", "floor", "ratio"]
QUICK = ["--seconds", "0.01"]


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each side have one round: what five come to is shown by the test of `alternate`."""
    monkeypatch.setattr(measure, "ROUNDS", 1)


def measured(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run the command and return what it wrote."""
    file = tmp_path / "figures.json"
    run = CliRunner().invoke(bench, ["store", "--json", str(file), *QUICK, *arguments])
    assert run.exception is None, run.output
    figures: list[dict[str, Any]] = json.loads(file.read_text())
    return figures


@pytest.mark.exhaustive
@pytest.mark.usefixtures("one_round")
def test_each_step_is_measured_at_each_batch(database_url: str, tmp_path: Path) -> None:
    """Submit, claim, complete and the whole cycle stand in the file, each with its floor and ratio."""
    figures = measured(tmp_path, "--database", database_url, "--parts", "steps")

    assert [FIELDS] * len(figures) == [list(figure) for figure in figures]
    assert [(name, batch) for name in ("submit", "claim", "complete", "whole cycle") for batch in BATCHES] == [
        (figure["name"], figure["batch"]) for figure in figures
    ]
    assert all(figure["value"] > 0 and figure["floor"] > 0 and figure["ratio"] > 0 for figure in figures)
    assert {"jobs/s"} == {figure["unit"] for figure in figures}


@pytest.mark.usefixtures("one_round")
def test_claim_and_complete_overlap_in_one_lane_and_in_twenty(database_url: str, tmp_path: Path) -> None:
    """The pipeline is measured at 100 and 500; in one lane also beside a floor that keeps its jobs."""
    figures = measured(tmp_path, "--database", database_url, "--parts", "pipeline")

    kinds = ["1 lane", "20 lanes", "1 lane, floor keeps jobs"]
    if database_url.startswith("postgres"):
        kinds.append("1 lane, tuned floor")
    assert [(f"claim + complete, {kind}", batch) for kind in kinds for batch in (100, 500)] == [
        (figure["name"], figure["batch"]) for figure in figures
    ]


def test_what_a_job_costs_is_counted(database_url: str, tmp_path: Path) -> None:
    """Statements per job on both databases; on PostgreSQL bytes of WAL, and CPU of the database at 100 and 500."""
    figures = measured(tmp_path, "--database", database_url, "--parts", "cost")

    more = [] if database_url.startswith("sqlite") else ["bytes/job", "µs/job", "µs/job"]
    assert ["statements/job", *more] == [figure["unit"] for figure in figures]


@pytest.mark.usefixtures("one_round")
def test_growth_is_measured_beside_other_rows(database_url: str, tmp_path: Path) -> None:
    """An empty and a filled database are compared; on PostgreSQL a held snapshot as well."""
    few = ["--rows", "1000", "--hold", "0.05"]
    figures = measured(tmp_path, "--database", database_url, "--parts", "growth", *few)

    parts = ["growth"] if database_url.startswith("sqlite") else ["growth", "snapshot"]
    assert parts == [figure["part"] for figure in figures]


@pytest.mark.exhaustive
async def test_nothing_is_left_on_the_server(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scratch databases are dropped. They have names of this test: others make and drop theirs at the same time."""
    names = [secrets.token_hex(6) for _ in range(3)]
    given = iter(names)
    monkeypatch.setattr("secrets.token_hex", lambda _: next(given))
    arguments = ["store", "--database", postgres_url, "--parts", "cost", *QUICK]

    run = await asyncio.to_thread(CliRunner().invoke, bench, arguments)

    assert None is run.exception
    assert names[0] != next(given), "no scratch database was made"
    async with connected(postgres_url) as connection:
        left = [row["datname"] for row in await connection.fetch("SELECT datname FROM pg_database")]
    assert [] == [name for name in names if f"windlass_bench_{name}" in left]


async def test_a_user_who_may_not_create_databases_is_told(postgres_url: str) -> None:
    """Without the right to make a scratch database nothing is measured, and the message says what to do."""
    name = f"windlass_bench_{secrets.token_hex(4)}"
    parts = urlsplit(postgres_url)
    guest = urlunsplit(parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port or 5432}"))
    async with connected(postgres_url) as connection:
        await connection.execute(f"CREATE ROLE {name} LOGIN")
        try:
            run = await asyncio.to_thread(CliRunner().invoke, bench, ["store", "--database", guest])
        finally:
            await connection.execute(f"DROP ROLE {name}")

    if "authentication" in str(run.exception):
        pytest.skip("this server asks for passwords")
    assert isinstance(run.exception, SetupError)
    assert "CREATEDB" in str(run.exception)


async def test_a_ratio_is_the_median_of_alternating_rounds() -> None:
    """Each side warms up once, then they take turns; one bad round does not decide."""
    turns: list[str] = []

    async def ours(seconds: float) -> float:
        turns.append("ours")
        return 10.0 if len(turns) != 5 else 1000.0

    async def floor(seconds: float) -> float:
        turns.append("floor")
        return 20.0

    found = await alternate(ours, floor, seconds=1)

    assert ["ours", "floor"] * 6 == turns
    assert (10.0, 20.0, 0.5, (0.5, 50.0)) == (found.value, found.floor, found.ratio, found.spread)
