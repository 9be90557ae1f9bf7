"""Types: mypy accepts right calls and refuses wrong ones, each with the error that is meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

from tests.rules.source import REPOSITORY

RIGHT = Path(__file__).parent / "right.py"
WRONG = """
from __future__ import annotations

import sqlite3

from tests.typing.right import add, app, crunch, nothing, once, report, send, sweep, tell
from windlass import App, Context, at, cron, enqueue_in, every

add.enqueue("1")  # arg-type
add.enqueue()  # call-arg
add.enqueue(1, 2, 3)  # call-arg
add.enqueue(1, z=3)  # call-arg
add.delay("1")  # arg-type
add.send("1")  # arg-type
add.s(y=1)  # call-arg
add("1")  # arg-type
nothing.enqueue(1)  # call-arg
tell.enqueue(5)  # arg-type
tell.enqueue("a", True)  # call-arg
send.enqueue(5)  # arg-type
crunch.enqueue(["a"])  # list-item
add.options(queue=5)  # arg-type
add.options(prioritty=5)  # call-arg
app.task(isolation="fibre")  # call-overload
app.task(timeout=[])  # call-overload
text: str = add.enqueue(1).result()  # assignment
number: int = send("x")  # assignment
report.enqueue(5)  # arg-type
sweep.enqueue(True, True)  # call-arg
once.enqueue("1")  # arg-type
cron(5)  # arg-type
every([])  # arg-type
at("tomorrow")  # arg-type
app.schedule(report, "@daily")  # call-overload
app.schedule(report, every(60), overlap="never")  # call-overload
app.schedule(report, every(60), delay="1m")  # call-overload
app.schedule(lambda: 1, every(60))  # call-overload
app.scheduled("@daily")  # arg-type
app.scheduled(every(60), overlapp="skip")  # call-arg
app.scheduled(every(60), catch_up="some")  # arg-type
seconds: str = app.schedule(report, every(60)).run_now().result()  # assignment
app.schedules[5]  # index
id_text: str = enqueue_in(sqlite3.connect(":memory:"), add)  # assignment
enqueue_in(sqlite3.connect(":memory:"), 5)  # call-overload
App(key=5)  # arg-type
app.schedules["x"].reschedule(delivery="at_most_once")  # call-overload
app.schedules["x"].runs(decision="lost")  # arg-type


async def wrong() -> None:
    await add.aenqueue("1")  # arg-type
    word: str = await send("x")  # assignment
    text: str = await (await add.aenqueue(1)).aresult()  # assignment
"""
FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$", re.MULTILINE)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What mypy says of the right file and of the wrong one: by file, the code of each line."""
    folder = tmp_path_factory.mktemp("typing")
    wrong = folder / "wrong.py"
    wrong.write_text(WRONG)
    options = ["--config-file", str(REPOSITORY / "pyproject.toml")]

    out, problems, _ = api.run([*options, "--no-error-summary", str(RIGHT), str(wrong)])

    assert not problems
    found: dict[str, dict[int, str]] = {"right.py": {}, "wrong.py": {}}
    for match in FOUND.finditer(out):
        found.setdefault(Path(match["file"]).name, {})[int(match["line"])] = match["code"]
    return found


def test_right_calls_are_accepted(said: dict[str, dict[int, str]]) -> None:
    """Arguments by position and by name, options, contexts, both shells; results have the task's own type."""
    assert {} == said["right.py"]


def test_each_wrong_call_is_refused(said: dict[str, dict[int, str]]) -> None:
    """A wrong argument, a missing one, one too many, a wrong option, a result taken for something else."""
    meant = {number: line.partition("  # ")[2] for number, line in enumerate(WRONG.splitlines(), 1) if "  # " in line}

    assert meant == said["wrong.py"]
