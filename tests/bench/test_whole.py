"""The benchmark of the whole runs through, with our own sides and with others, and says what it promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from windlass.bench import whole
from windlass.bench.http import Goal
from windlass.bench.whole import Plan, Reading
from windlass.bench.wholepeers import PEERS, Peer
from windlass.bench.wholeplay import STAGE
from windlass.bench.wholeshow import table
from windlass.cli.bench import POSTGRES_VARIABLE, bench

FIELDS = [
    *("part", "name", "jobs", "value", "unit", "spread", "ratio", "cpu_us", "goal", "ratio_goal", "note", "met"),
]
# A peer whose store is a file of a line for each job.
PEER = """
import signal, sys, time
sys.path.insert(0, {stage!r})
import stage
verb, url, *more = sys.argv[1:]
def lines(name):
    try:
        return len(open(url + name).read())
    except FileNotFoundError:
        return 0
def add(name, count=1):
    with open(url + name, "a") as file:
        file.write("." * count)
if verb == "fill":
    add("in", int(more[0]))
elif verb == "work":
    tally = stage.Tally(more[0])
    stage.ready()
    while True:
        if lines("out") < lines("in"):
            tally.mark()
            add("out")
        time.sleep(0.001)
elif verb == "done":
    stage.until_done(int(more[0]), lambda: lines("out"))
elif verb == "pickup":
    stage.pickups(more[0], int(more[1]), lambda: add("in"))
"""


def measured(tmp_path: Path, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """Run the command; return what it wrote, and what it printed."""
    file = tmp_path / "figures.json"
    run = CliRunner().invoke(bench, ["whole", "--quick", "--json", str(file), *arguments])
    assert run.exception is None, run.output
    readings: list[dict[str, Any]] = json.loads(file.read_text())
    return readings, run.output


@pytest.fixture
def no_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name no server."""
    monkeypatch.delenv(POSTGRES_VARIABLE, raising=False)


def one_peer(monkeypatch: pytest.MonkeyPatch, script: Path, *, store: str = "sqlite") -> None:
    """Let there be one peer only, which is there with our own Python."""
    peer = Peer(name="Other", script=str(script), requires=(), store=store, workers=1, note="")

    async def own_python(_: Peer) -> str:
        return sys.executable

    monkeypatch.setattr(whole, "PEERS", (peer,))
    monkeypatch.setattr(whole, "installed", own_python)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("no_postgres")
def test_without_postgres_sqlite_alone_is_measured(tmp_path: Path) -> None:
    """Jobs drain and are picked up in-process on SQLite; what is left out is said."""
    readings, output = measured(tmp_path)

    assert "PostgreSQL is not measured" in output
    assert [FIELDS] * 3 == [list(reading) for reading in readings]
    assert [
        ("drain", "in-process on SQLite", "jobs/s"),
        ("pickup", "in-process on SQLite, median", "ms"),
        ("pickup", "in-process on SQLite, 99th percentile", "ms"),
    ] == [(reading["part"], reading["name"], reading["unit"]) for reading in readings]
    assert all(reading["value"] > 0 for reading in readings)
    assert 13_000 == readings[0]["goal"]


@pytest.mark.exhaustive
def test_on_postgres_a_fleet_drains_over_http_and_engines_in_process(tmp_path: Path, postgres_url: str) -> None:
    """Each of our sides gives a rate; the goals against a peer wait for the peer."""
    readings, output = measured(tmp_path, "--database", postgres_url, "--parts", "drain")

    assert [
        "over HTTP, 2 worker processes",
        "over HTTP, 2 worker processes, threads",
        "in-process, 2 processes",
        "in-process, 1 process",
        "in-process, 1 process, threads",
        "in-process on SQLite",
    ] == [reading["name"] for reading in readings]
    assert all(reading["value"] > 0 for reading in readings)
    assert [1.0, None, 2.0, None, None, None] == [reading["ratio_goal"] for reading in readings]
    assert [None] * 5 == [reading["met"] for reading in readings[:5]]
    assert "with --peers" in output


@pytest.mark.exhaustive
def test_on_postgres_a_job_is_picked_up_by_a_waiting_fleet(tmp_path: Path, postgres_url: str) -> None:
    """One job at a time, from the call of the client to the beginning of the body."""
    readings, _ = measured(tmp_path, "--database", postgres_url, "--parts", "pickup")

    median, high = readings[:2]
    assert ("over HTTP, 2 worker processes, median", 6) == (median["name"], median["goal"])
    assert 0 < median["value"] <= high["value"]


@pytest.mark.exhaustive
def test_sleeping_jobs_are_held_at_once_and_their_cost_is_told(tmp_path: Path, postgres_url: str) -> None:
    """All begin before the first wakes; CPU and memory are those of the server and of the workers."""
    readings, _ = measured(tmp_path, "--database", postgres_url, "--parts", "sleep")

    names = [reading["name"].removeprefix("20 asleep, 2 processes: ") for reading in readings]
    assert ["all begun after", "all finished after the last woke"] == names[:2]
    assert ["CPU of server", "memory of server", "CPU of workers", "memory of workers"] == names[2:]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("no_postgres")
def test_a_peer_is_measured_by_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its script runs with its own Python, and its drain and pickup stand beside ours."""
    script = tmp_path / "run_other.py"
    script.write_text(PEER.format(stage=str(STAGE)))
    one_peer(monkeypatch, script)

    readings, _ = measured(tmp_path, "--peers")

    assert ["Other", "Other, median", "Other, 99th percentile"] == [
        reading["name"] for reading in readings if reading["name"].startswith("Other")
    ]
    assert all(reading["value"] > 0 for reading in readings)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("no_postgres")
def test_a_peer_that_fails_is_not_available_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is the last line it wrote; our own sides are measured."""
    script = tmp_path / "run_other.py"
    script.write_text("import sys; sys.exit('It wants another moon.')")
    one_peer(monkeypatch, script)

    readings, output = measured(tmp_path, "--peers", "--parts", "drain")

    assert "not available" in output
    (other,) = [reading for reading in readings if reading["name"] == "Other"]
    assert None is other["value"]
    assert "It wants another moon." in other["note"]
    assert 2 == len(readings)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("no_postgres")
def test_a_peer_that_needs_postgres_is_not_available_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is installed for it."""
    one_peer(monkeypatch, tmp_path / "run_other.py", store="postgres")

    readings, _ = measured(tmp_path, "--peers", "--parts", "drain")

    assert [(None, "there is no PostgreSQL here")] == [
        (reading["value"], reading["note"]) for reading in readings if reading["name"] == "Other"
    ]


def test_sqlite_is_no_place_for_the_whole(tmp_path: Path) -> None:
    """It is measured anyway; --database names a PostgreSQL."""
    run = CliRunner().invoke(bench, ["whole", "--database", f"sqlite:///{tmp_path}/a.db"])

    assert 2 == run.exit_code
    assert "is no PostgreSQL" in run.output


@pytest.mark.parametrize(
    ("reading", "shown"),
    [
        (Reading(part="d", name="n", jobs=1, value=9, unit="ms", goal=Goal(6, at_most=True)), "≤ 6 missed"),
        (Reading(part="d", name="n", jobs=1, value=9, unit="u", ratio=1.2, ratio_goal=1.0), "≥ 1.0 × PGQueuer reached"),
        (Reading(part="d", name="n", jobs=1, value=9, unit="u", ratio_goal=1.0), "≥ 1.0 × PGQueuer (with --peers)"),
        (Reading(part="d", name="n", jobs=1, value=9, unit="u", spread=(8, 10)), "9 (8–10)"),
        (Reading(part="d", name="n", jobs=1, value=9, unit="u", cpu_us={"a": 30, "b": 12}), "42 (a 30, b 12)"),
        (Reading(part="d", name="n", jobs=1, value=None, unit="u"), "not available"),
    ],
)
def test_the_table_says_goals_and_spreads_in_words(reading: Reading, shown: str) -> None:
    """Reached, missed, or not to be said."""
    console = Console(width=200, record=True)

    console.print(table([reading]))

    assert shown in console.export_text()


def test_every_step_is_counted_before_it_is_done() -> None:
    """The bar ends where the work does."""
    plan = Plan(postgres="postgresql://nowhere", sqlite="sqlite:///x", peers=True, rounds=2, crowds=())

    peers, ours = len(PEERS), len(whole.our_entrants(plan))

    assert peers + 2 * (ours + peers) + (ours - 2) + (peers - 1) == plan.step_count
