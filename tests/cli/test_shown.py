"""What commands print, as pure functions: tables, spans, texts from outside; where code is; how to be called."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from windlass.cli.banner import needs_url, program_words
from windlass.cli.demojobs import JOBS
from windlass.cli.demoshow import share, wrong_ends
from windlass.cli.shown import printable, rough, spent, table_of, when
from windlass.cli.watch import changed, folder_of, look
from windlass.config import load

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def test_only_the_last_column_is_cut() -> None:
    """On a narrow terminal an id stays whole, so that it can be used."""
    rows = [{"id": "x" * 36, "detail": "y" * 50}]
    columns = (("id", lambda row: row["id"]), ("detail", lambda row: row["detail"]))
    table = table_of(rows, columns, room=20)
    console = Console(width=table.width, color_system=None)

    with console.capture() as captured:
        console.print(table)

    assert captured.get().splitlines()[1] == f"{'x' * 36}  {'y' * 11}…"


def test_what_comes_from_outside_steers_no_terminal() -> None:
    """Escape codes and control characters are shown as what they are: nothing to print."""
    assert "a b �[2J �" == printable("a\nb \x1b[2J \x07")


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (None, ""),
        ("2026-01-31T11:59:30Z", "30s ago"),
        ("2026-01-31T11:00:00+00:00", "60m ago"),
        ("2026-01-31T15:00:00Z", "in 3h"),
        ("2026-01-01T12:00:00Z", "30d ago"),
    ],
)
def test_instants_are_told_from_now(at: str | None, shown: str) -> None:
    """With the largest unit of which there are at least two."""
    assert shown == when(at, NOW)


def test_spans_are_short() -> None:
    """Milliseconds, then seconds, then larger units."""
    assert ["", "7 ms", "1.50 s", "2m"] == [spent(ms) for ms in (None, 7, 1500, 125_000)]
    assert ["90s", "2h", "2d"] == [rough(seconds) for seconds in (90, 7300, 180_000)]


def test_a_change_is_seen(tmp_path: Path) -> None:
    """A file that is written, added or removed; not those of environments, caches and other kinds."""
    for name in ("a.py", "b.py", "deep/c.py", ".venv/d.py", "__pycache__/e.py", "f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    before = look(tmp_path)

    (tmp_path / "a.py").write_text("longer")
    (tmp_path / "deep/c.py").unlink()
    (tmp_path / "new.py").write_text("")
    (tmp_path / ".venv/d.py").write_text("longer")

    seen = [str(Path(path).relative_to(tmp_path)) for path in changed(before, look(tmp_path))]
    assert ["a.py", "deep/c.py", "new.py"] == seen


def test_the_folder_of_an_application_is_found_without_importing_it(tmp_path: Path) -> None:
    """That of its outermost package, of its module or of its file; the folder itself if there is no such module."""
    (tmp_path / "shop" / "deep").mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").write_text("raise RuntimeError")
    (tmp_path / "tasks.py").write_text("raise RuntimeError")

    targets = ("shop.deep.tasks:app", "tasks:app", "shop/deep/tasks.py:app", "no_such_module:app")

    expected = [tmp_path / "shop", tmp_path, tmp_path / "shop" / "deep", tmp_path]
    assert [folder.resolve() for folder in expected] == [folder_of(target, tmp_path).resolve() for target in targets]


def test_commands_to_try_name_this_program(tmp_path: Path) -> None:
    """By its path from the folder, which another terminal can follow; as a module where it was called so."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/windlass").write_text("")

    assert [".venv/bin/windlass"] == program_words(str(tmp_path / ".venv/bin/windlass"), tmp_path)
    assert [sys.executable, "-m", "windlass"] == program_words("/src/windlass/__main__.py", tmp_path)


def test_commands_to_try_have_the_address_where_they_would_not_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file named by a flag is known to nobody else, and WINDLASS_URL leads away; the usual file is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDLASS_URL", raising=False)
    url = "http://127.0.0.1:9000"
    usual = load({}, {}, tmp_path)
    by_port = load({"server.port": 9000}, {}, tmp_path)
    by_flag = load({"database.url": "sqlite:///other.db"}, {}, tmp_path)

    assert [False, False, True] == [needs_url(loaded, url) for loaded in (usual, by_port, by_flag)]
    monkeypatch.setenv("WINDLASS_URL", "http://elsewhere:8000")
    assert needs_url(usual, url)


def test_the_demonstration_sees_a_wrong_end() -> None:
    """One job that ends otherwise than planned is named, with what should have been."""
    jobs = [
        {"task": one.task, "state": one.end.value, "attempts": one.attempts} for one in JOBS for _ in range(one.count)
    ]
    right = wrong_ends(jobs)
    jobs[0] = {**jobs[0], "state": "dead"}

    assert [] == right
    assert [
        "quick: 1 jobs are dead after 1 attempts, 0 should be.",
        "quick: 79 jobs are succeeded after 1 attempts, 80 should be.",
    ] == wrong_ends(jobs)


def test_percentiles_of_few_values() -> None:
    """None of nothing; one of one."""
    assert (None, 7, 2, 4) == (share([], 0.5), share([7], 0.95), share([1, 2, 3], 0.5), share([1, 2, 3, 4], 0.95))
