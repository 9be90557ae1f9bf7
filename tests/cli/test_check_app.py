"""`windlass check-app`: everything that is wrong with an application, at once and without a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.running import PATIENCE_S
from tests.proofs.processes import environment

GOOD = """
from windlass import App, cron, every
app = App("shop")

@app.scheduled(cron("30 2 * * *", zone="Europe/Berlin"), name="nightly")
@app.task(queue="reports", max_attempts=5)
def report() -> None: ...

@app.scheduled(every("90s"))
def tick() -> None: ...
"""
BAD = """
from windlass import App, cron, every
app = App("shop")

@app.scheduled(cron("0 25 * * *"), name="nightly")
@app.task(priority=500, retry="steped", max_attempts=0)
def report() -> None: ...

@app.scheduled(cron("@daily", zone="Europe/Berln"), overlap="never")
@app.task
def daily() -> None: ...

@app.scheduled(every("90s"), name="batch")
@app.scheduled(every("90s"), name="late", jitter="2d")
@app.scheduled(every("90s"), kwargs={"hour": 5})
def tick(day: str = "") -> None: ...
"""


def check(folder: Path, module: str, text: str) -> tuple[int, str, str]:
    """Write a module and check it; return the exit code and what was said."""
    (folder / f"{module}.py").write_text(text)
    command = [sys.executable, "-m", "windlass", "check-app", module]
    done = subprocess.run(
        command, cwd=folder, env=environment({}), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_good_application_is_listed(tmp_path: Path) -> None:
    """Tasks with their options, schedules with their next times; exit code 0, and no database is made."""
    code, out, problems = check(tmp_path, "good", GOOD)

    lines = [line.split() for line in out.splitlines()]
    assert (0, "") == (code, problems)
    assert ["report", "queue=reports,", "max_attempts=5"] in lines
    assert ["tick", "-"] in lines
    nightly = next(line for line in out.splitlines() if line.startswith("nightly"))
    assert 3 == nightly.count("T02:30:00")
    assert out.endswith("good is fine.\n")
    assert ["good.py"] == [path.name for path in tmp_path.glob("*.*")]


def test_everything_that_is_wrong_is_said(tmp_path: Path) -> None:
    """Each with its line of the code, or the name of its schedule; exit code 1."""
    code, _, problems = check(tmp_path, "bad", BAD)

    assert 1 == code
    for part in (
        'bad.py:5: cron: "0 25 * * *"',
        "bad.py:6: priority: Expected int <= 127",
        "bad.py:6: retry: Invalid enum value 'steped'",
        "bad.py:6: max_attempts: Expected int >= 1",
        "bad.py:9: timezone: ",
        "overlap: Invalid enum value 'never'",
        "schedule batch: name: ",
        "schedule late: jitter: ",
        "hour",
    ):
        assert part in problems, problems
    assert "bad has 9 problems." in problems


def test_an_application_that_cannot_be_imported_is_a_problem(tmp_path: Path) -> None:
    """The reason is said, with its line."""
    code, _, problems = check(tmp_path, "broken", "import no_such_library\n")

    assert (1, True) == (code, "No module named 'no_such_library'" in problems)


def test_a_task_that_is_a_work_kind_too_is_a_problem(tmp_path: Path) -> None:
    """The settings of the folder count, as they do for a worker."""
    (tmp_path / "windlass.toml").write_text("[work_kinds.tick]\nduration = 1\n")

    code, _, problems = check(tmp_path, "good", GOOD)

    assert (1, True) == (code, "'tick' is a task of the application and a work kind" in problems)
