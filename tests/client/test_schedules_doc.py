"""The Python of docs/schedules.md, and the chapter on schedules of docs/python.md: it runs, and does what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rules.source import REPOSITORY
from windlass import App, Schedule
from windlass.client.allschedules import Schedules, Wanted, Window
from windlass.client.backfills import Backfill
from windlass.client.scheduleoptions import ScheduleOptions

DOCS = REPOSITORY / "docs"


def chapter() -> str:
    """Return what docs/python.md says of schedules."""
    text = (DOCS / "python.md").read_text(encoding="utf-8")
    return text.partition("\n## Schedules\n")[2].partition("\n## ")[0]


def blocks(text: str) -> list[str]:
    """Return the examples, in order."""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A program that begins in a folder of its own, where no server runs; its name is for its annotations."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDLASS_URL", raising=False)
    space: dict[str, Any] = {"__name__": "example"}
    yield space
    if isinstance(space.get("app"), App):
        space["app"].close()


def run(code: str, space: dict[str, Any]) -> None:
    """Run an example."""
    exec(compile(code, "example", "exec"), space)


def test_the_chapter_runs_as_one_program(program: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Declared, stored, found, paused, run and rescheduled, one block after the other."""
    for block in blocks(chapter()):
        run(block, program)
    app, said = program["app"], capsys.readouterr().out

    assert ["customer 17", "in 2031", "mondays", "report"] == [each.name for each in app.schedules]
    assert ["mondays", "report"] == [each.name for each in app.schedules.find(owner="shop")]
    assert "['mondays', 'report'] [] [] 0\n" in said
    assert "False ['customer 17', 'in 2031', 'mondays', 'report']\n" in said
    assert {"day": "yesterday"} == program["job"].info().payload
    info = program["nightly"].info()
    assert (7200, None, "allow", False) == (
        info.every_seconds,
        info.expect_within_seconds,
        info.overlap,
        info.paused,
    )
    assert 3600 == app.schedules["in 2031"].info().every_seconds


def test_the_guide_declares_what_it_says(program: dict[str, Any]) -> None:
    """docs/schedules.md: each of its blocks is a program; the first has a schedule of the task."""
    for block in blocks((DOCS / "schedules.md").read_text(encoding="utf-8")):
        run(block, program)
        if "nightly" in block:
            assert ["nightly"] == list(program["app"].declared)
            assert ["nightly"] == program["app"].declare().added
            program["app"].close()


def test_the_chapter_names_what_there_is() -> None:
    """Every option stands in the table; every verb that it names is one of a handle."""
    text = chapter()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    options = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    verbs = re.findall(r"\.([a-z_]+)\(", " ".join(row.split("|")[1] for row in rows))
    of_jobs = {"labels", "tags", "headers", "tenant", "delivery", "max_lost", "max_retries"}

    assert set(ScheduleOptions.__annotations__) - of_jobs <= options
    assert set() == {verb for verb in verbs if not any(hasattr(kind, verb) for kind in (Schedule, Schedules, Backfill))}
    assert {"task", "queue", "owner", "paused", "prefix"} == set(Wanted.__annotations__)
    assert {"start", "end", "exclude", "jitter"} == set(Window.__annotations__)
