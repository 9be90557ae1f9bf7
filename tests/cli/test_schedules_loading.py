"""`windlass schedules import jsonl`: a file in pieces, bad lines by their number, straight into a database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Windlass
from windlass.cli.loading import BATCH, Reading, Tally, pieces
from windlass.clock import system_clock
from windlass.config import Settings
from windlass.errors import InvalidInput
from windlass.ids import Ids
from windlass.queue.cron import Every


def lines(names: list[str], **fields: Any) -> str:
    """Return a file of schedules with these names."""
    return "".join(
        json.dumps({"name": name, "task": "report", "cron": "30 2 * * *", **fields}) + "\n" for name in names
    )


def test_pieces_keep_the_numbers_of_their_lines() -> None:
    """Empty lines count and are left out; a piece has so many lines, or fewer where they are long."""
    found = list(pieces([b"a\n", b"\n", b" b \r\n", b"c", b"d" * 50, b"e"], count=2, size=40))

    assert [[(1, b"a"), (3, b"b")], [(4, b"c")], [(5, b"d" * 50)], [(6, b"e")]] == found


def test_nothing_is_no_piece() -> None:
    """A file without a schedule is stored at once."""
    assert [] == list(pieces([b"\n", b"  \n"], count=2, size=40))


def test_what_was_done_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Every two seconds on stderr; in the end with how long it took."""
    now = [0.0]
    tally = Tally(lambda: now[0])

    for now[0] in (1.0, 2.5, 3.0):
        tally.add(stored=1000, skipped=500)
    now[0] = 4.5

    assert "3,000 schedules stored, 1,500 were there already; 4.5 s, 1,000 lines a second" == str(tally)
    assert 1 == capsys.readouterr().err.count("\n")


def test_a_line_becomes_what_a_server_would_make_of_it() -> None:
    """With the same names for fields, the same defaults, and an id of its own."""
    reading = Reading(Settings(), Ids(system_clock))

    first = reading.read((1, b'{"name": "a", "task": "t", "schedule": "@daily", "maxAttempts": 7}'), "file")
    second = reading.read((2, b'{"name": "b", "task": "t", "every": "90s", "tenant": "ann"}'), "file")

    assert ("a", 7, "default") == (first.name, first.max_attempts, first.tenant)
    assert ("b", Every(90), "ann") == (second.name, second.trigger, second.tenant)
    assert first.id < second.id


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "it is not JSON"),
        (b"[]", "Expected object"),
        (b'{"task": "t"}', "name: it is required"),
        (b'{"name": "a", "task": "t", "cron": "0 25 * * *"}', "hour 25"),
        (b'{"name": "a", "task": "t", "corn": "@daily"}', "corn: it is not known here"),
        (b'{"name": "a", "task": "t", "replace_existing": true}', "replace_existing: it is for a server"),
    ],
)
def test_a_line_that_cannot_be_taken_is_named(line: bytes, why: str) -> None:
    """By file, line and field."""
    with pytest.raises(InvalidInput, match=r"^jobs\.jsonl:7: ") as caught:
        Reading(Settings(), Ids(system_clock)).read((7, line), "jobs.jsonl")

    assert why in str(caught.value)


def test_a_file_is_stored_through_a_server(windlass: Windlass, queue: str, tmp_path: Path) -> None:
    """More than a request takes; a second time all are there already; with --replace all are given anew."""
    names = [f"{queue}-{number:05d}" for number in range(BATCH + 5)]
    (tmp_path / "all.jsonl").write_text(lines(names, queue=queue))

    first = windlass("schedules", "import", "jsonl", "all.jsonl")
    again = windlass("schedules", "import", "jsonl", "all.jsonl")
    replaced = windlass("schedules", "import", "jsonl", "-", "--replace", given=lines(names[:3], queue=queue))

    assert [0, 0, 0] == [first.exit_code, again.exit_code, replaced.exit_code], first.stderr
    assert first.stdout.startswith("1,005 schedules stored, 0 were there already;")
    assert again.stdout.startswith("0 schedules stored, 1,005 were there already;")
    assert replaced.stdout.startswith("0 schedules stored, 3 replaced, 0 were there already;")
    found = windlass("schedules", "list", "--queue", queue, "--limit", "5000", "-o", "ids").stdout.split()
    assert len(names) == len(set(found))


def test_an_import_goes_on_where_it_was(windlass: Windlass, queue: str) -> None:
    """Names that are there are passed over and counted, also in between; the others are stored."""
    windlass("schedules", "import", "jsonl", "-", given=lines([f"{queue}-2", f"{queue}-4"]))

    result = windlass("schedules", "import", "jsonl", "-", given=lines([f"{queue}-{number}" for number in range(6)]))

    assert result.stdout.startswith("4 schedules stored, 2 were there already;")


def test_a_bad_line_keeps_its_piece_from_being_stored(windlass: Windlass, queue: str, tmp_path: Path) -> None:
    """It is named by file and line; what was stored before it is told."""
    good = lines([f"{queue}-{number}" for number in range(BATCH)])
    (tmp_path / "all.jsonl").write_text(good + "\n" + lines([f"{queue}-x"]) + lines([f"{queue}-y"], cron="0 25 * * *"))

    result = windlass("schedules", "import", "jsonl", "all.jsonl")

    assert (2, "") == (result.exit_code, result.stdout)
    assert f"all.jsonl:{BATCH + 3}: cron: " in result.stderr
    assert "hour 25" in result.stderr
    assert "Stopped: 1,000 schedules stored" in result.stderr
    assert 3 == windlass("schedules", "show", f"{queue}-x").exit_code


@pytest.mark.parametrize("text", ["{", "[]", "nothing", "\xff"])
def test_what_is_no_schedule_is_refused_before_it_is_sent(windlass: Windlass, text: str) -> None:
    """With its line."""
    result = windlass("schedules", "import", "jsonl", "-", given=f"\n{text}\n")

    assert 2 == result.exit_code
    assert "stdin:2: it is no schedule as a JSON object" in result.stderr


def test_millions_go_straight_into_a_database(windlass: Windlass, queue: str, tmp_path: Path) -> None:
    """No server is asked; a second time all are there already; a database without our tables is refused."""
    url = f"sqlite:///{tmp_path}/other.db"
    text = lines([f"{queue}-{number}" for number in range(50)], payload={"n": 1})
    assert 1 == windlass("schedules", "import", "jsonl", "-", "--database", url, given=text).exit_code
    windlass("migrate", "--database", url)

    first = windlass(
        "schedules", "import", "jsonl", "-", "--database", url, given=text, WINDLASS_URL="http://127.0.0.1:9"
    )
    again = windlass("schedules", "import", "jsonl", "-", "--database", url, given=text)

    assert (0, 0) == (first.exit_code, again.exit_code), first.stderr
    assert first.stdout.startswith("50 schedules stored, 0 were there already;")
    assert again.stdout.startswith("0 schedules stored, 50 were there already;")
    there = {"WINDLASS_URL": "", "WINDLASS_DATABASE_URL": url}
    assert '"n": 1' in windlass("schedules", "show", f"{queue}-7", "-o", "json", **there).stdout


def test_replacing_goes_through_a_server(windlass: Windlass) -> None:
    """What would be passed over in silence is refused."""
    result = windlass("schedules", "import", "jsonl", "-", "--replace", "--database", "sqlite:///x.db", given="")

    assert 2 == result.exit_code
    assert "--replace goes through a server" in result.stderr
