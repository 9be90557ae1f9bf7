"""`windlass up`: server and workers as real processes; what stops, what starts again, and that nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import PATIENCE_S, READY, UP, Hands, Running, running, waited
from tests.proofs.processes import environment

APP = """
import threading, time
from windlass import App, Context
app = App()

@app.task
def hold(context: Context) -> str:
    while True:
        context.check()
        time.sleep(0.01)

@app.task
def answer() -> int:
    return 42

@app.task(queue="mail")
def post() -> str:
    return "sent"
"""
QUICK = {"WINDLASS_WORKER_HEARTBEAT_SECONDS": "0.5"}


@contextmanager
def up(folder: Path, *arguments: str, settings: dict[str, str] | None = None) -> Iterator[tuple[Running, Hands]]:
    """Run `windlass up` with one worker until that is ready; yield it, and hands at its server."""
    few = ("--workers", "1", "--max-workers", "1")
    with running(folder, "up", "--port", "0", *few, *arguments, settings=settings) as process:
        found = process.said(UP)
        process.said(READY)
        hands = Hands(found[1])
        try:
            yield process, hands
        finally:
            hands.close()


def ended(hands: Hands, job_id: str, process: Running) -> Any:
    """Return the job when it has ended."""

    def look() -> Any:
        job = hands.job(job_id)
        return job if job["finished_at"] is not None else None

    return waited(look, f"the end of {job_id}", process)


def begun(hands: Hands, job_id: str, process: Running) -> Any:
    """Return the job when a worker runs it."""

    def look() -> Any:
        job = hands.job(job_id)
        return job if job["state"] == "running" else None

    return waited(look, f"the start of {job_id}", process)


def test_what_it_says_to_try_works(tmp_path: Path) -> None:
    """Pasted into another terminal in the same folder, each of the four commands does what it shows.

    Where there is no terminal, what is said is without escape codes.
    """
    with running(tmp_path, "up", "--port", "0") as process:
        process.said(READY)
        text = process.text
        lines = text.split("Try in another terminal, in this folder:\n")[1].splitlines()[:4]
        results = [
            subprocess.run(
                shlex.split(line), cwd=tmp_path, env=environment({}), capture_output=True, text=True, timeout=PATIENCE_S
            )
            for line in lines
        ]
        process.send(signal.SIGINT)

        assert [0, 0, 0, 0] == [result.returncode for result in results], results
        assert "3\n" == results[0].stdout
        assert "succeeded" in results[1].stdout
        assert "every 30 seconds" in results[2].stdout
        assert "up-" in results[3].stdout
        assert 0 == process.ended()
        assert '"event": "attempt.ended"' in process.text
    for part in ("http://127.0.0.1:", "sqlite:///windlass-sample.db", "windlass.sample:app", "2 to 8 processes"):
        assert part in text
    assert "\x1b" not in process.text


def test_the_sample_has_a_database_of_its_own(tmp_path: Path) -> None:
    """What was tried with it is never found among the jobs of the user's application, whose file is another."""
    (tmp_path / "tasks.py").write_text(APP)
    with up(tmp_path) as (process, hands):
        ended(hands, hands.submit("greet"), process)
        text = process.text
    touched = (tmp_path / "windlass.db").exists()
    with up(tmp_path, "tasks:app") as (process, _):
        own = process.text

    assert "sqlite:///windlass-sample.db (the sample's own)" in text
    assert "Tasks served: add, count_words, fetch, greet, heartbeat, summarise, thumbnail, unsteady." in text
    assert not touched
    assert re.search(r"database +sqlite:///windlass\.db\s", own)
    assert [(0,)] == stored(tmp_path, "SELECT count(*) FROM jobs")


@pytest.mark.parametrize(
    "by", ["flag", *(pytest.param(by, marks=pytest.mark.exhaustive) for by in ("environment", "file"))]
)
def test_the_sample_goes_to_the_database_that_the_user_names(tmp_path: Path, by: str) -> None:
    """By whichever way it is named."""
    if by == "file":
        (tmp_path / "windlass.toml").write_text("[database]\nurl = 'sqlite:///mine.db'\n")
    arguments = ["--database", "sqlite:///mine.db"] if by == "flag" else []
    settings = {"WINDLASS_DATABASE_URL": "sqlite:///mine.db"} if by == "environment" else {}
    with running(tmp_path, "up", "--port", "0", *arguments, settings=settings) as process:
        process.said(r"database +sqlite:///mine\.db\s")

    assert (True, False) == ((tmp_path / "mine.db").exists(), (tmp_path / "windlass-sample.db").exists())


def test_the_queues_that_tasks_name_are_served(tmp_path: Path) -> None:
    """Nobody has to say them again; the workers show them. Where somebody says queues, only these are served."""
    (tmp_path / "tasks.py").write_text(APP)
    with up(tmp_path, "tasks:app") as (process, hands):
        job = ended(hands, hands.submit("post", queue="mail"), process)
        queues = {tuple(worker["queues"]) for worker in hands.workers()}
    only = {"WINDLASS_WORKER_QUEUES": "default", "WINDLASS_DATABASE_URL": "sqlite:///other.db"}
    with up(tmp_path, "tasks:app", settings=only) as (process, hands):
        told = {tuple(worker["queues"]) for worker in hands.workers()}

    assert ("sent", {("default", "mail")}, {("default",)}) == (job["result"], queues, told)


@pytest.mark.exhaustive
def test_schedules_that_were_declared_are_told_in_one_line(tmp_path: Path) -> None:
    """Whoever starts it sees what it has made of the code: what was added, changed and removed; later nothing.

    As a line of the log, or as a sentence where only warnings are logged.
    """
    declared = """
from windlass import App, cron
app = App(name="shop")

@app.scheduled(cron("0 0 1 1 *"), name="yearly")
@app.task
def report() -> None: ...
"""
    (tmp_path / "shop.py").write_text(declared)
    with up(tmp_path, "shop:app") as (process, _):
        process.said('"schedules.declared", "app": "shop", "added": \\["yearly"\\]')
        assert 1 == process.text.count("yearly")
    (tmp_path / "shop.py").write_text(declared.replace("yearly", "each-year"))

    with up(tmp_path, "shop:app", "--log-level", "warning") as (process, _):
        said = process.said("Schedules of shop: .*")

    assert "Schedules of shop: added each-year; removed yearly." == said[0]


def test_an_interrupt_in_mid_job_loses_nothing(tmp_path: Path) -> None:
    """What runs is given back without an attempt used; the next `up` runs it, and all ends in order."""
    (tmp_path / "tasks.py").write_text(APP)
    with up(tmp_path, "tasks:app", settings=QUICK | {"WINDLASS_WORKER_DRAIN_SECONDS": "3"}) as (process, hands):
        held = hands.submit("hold")
        begun(hands, held, process)
        process.send(signal.SIGINT)

        assert 0 == process.ended()

    [(attempts, releases)] = stored(tmp_path, "SELECT attempt, releases FROM jobs")
    (tmp_path / "tasks.py").write_text(APP.replace("while True:", "if False:"))
    with up(tmp_path, "tasks:app") as (process, hands):
        job = ended(hands, held, process)
        process.send(signal.SIGINT)

        assert 0 == process.ended()
    assert (0, 1) == (attempts, releases)
    assert ("succeeded", 1, 1) == (job["state"], job["attempt"], job["releases"])


def stored(folder: Path, statement: str) -> list[Any]:
    """Return what the database in a folder has."""
    with sqlite3.connect(folder / "windlass.db") as connection:
        return list(connection.execute(statement))


@pytest.mark.exhaustive
def test_a_second_interrupt_gives_back_at_once(tmp_path: Path) -> None:
    """Nobody waits for the drain; nothing is lost, and no attempt is used."""
    (tmp_path / "tasks.py").write_text(APP)
    with up(tmp_path, "tasks:app", settings=QUICK | {"WINDLASS_WORKER_DRAIN_SECONDS": "3600"}) as (process, hands):
        begun(hands, hands.submit("hold"), process)
        process.send(signal.SIGINT)
        process.said("Ctrl-C again: now")
        process.send(signal.SIGINT)

        assert 130 == process.ended()
    assert [(0, 1)] == stored(tmp_path, "SELECT attempt, releases FROM jobs")


def test_workers_that_die_are_started_again(tmp_path: Path) -> None:
    """The server goes on, the process of the workers is replaced after a pause, and jobs run again."""
    with up(tmp_path) as (process, hands):
        os.kill(worker_pid(process), signal.SIGKILL)
        process.said("The workers ended by themselves")
        process.said(READY, count=2)

        assert "succeeded" == ended(hands, hands.submit("greet"), process)["state"]


def worker_pid(process: Running) -> int:
    """Return the process of the workers."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [found] = [int(pid) for pid in children if b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    return found


def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    """`kill -9` of it ends its workers too, and the next one serves the same file."""
    with up(tmp_path) as (process, _):
        workers = worker_pid(process)
        process.send(signal.SIGKILL)
        process.ended()
        waited(lambda: not Path(f"/proc/{workers}/cmdline").exists() or not cmdline(workers), "the end of the workers")

    with up(tmp_path) as (process, hands):
        assert "succeeded" == ended(hands, hands.submit("greet"), process)["state"]


def cmdline(pid: int) -> bytes:
    """Return what a process was called with; empty if it is gone, or nearly."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    """No other port is taken instead; the message says what to do, and no worker is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(tmp_path, "up", "--port", str(port)) as process:
            code = process.ended()

    assert 1 == code
    assert f"Error: Cannot listen on 127.0.0.1:{port}: Address already in use. Use another --port" in process.text
    assert READY not in process.text


@pytest.mark.parametrize(
    ("target", "text"),
    [
        pytest.param("absent:app", "absent", marks=pytest.mark.exhaustive),
        pytest.param("tasks:nothing", "nothing", marks=pytest.mark.exhaustive),
        ("broken:app", "SyntaxError"),
    ],
)
def test_an_application_that_cannot_be_imported_is_told(tmp_path: Path, target: str, text: str) -> None:
    """All stops with exit code 1 and the reason; there is no loop of attempts."""
    (tmp_path / "tasks.py").write_text(APP)
    (tmp_path / "broken.py").write_text("def (")

    with running(tmp_path, "up", target, "--port", "0") as process:
        code = process.ended()

    assert 1 == code
    assert text in process.text
    assert "Windlass is up" not in process.text
    assert READY not in process.text


def test_the_database_that_the_application_names_is_taken(tmp_path: Path) -> None:
    """Unless somebody names another; the commands to try say the address, since nobody else knows the file."""
    named = 'class Named(App):\n    database = "sqlite:///shop.db"\napp = Named()'
    (tmp_path / "tasks.py").write_text(APP.replace("app = App()", named))

    with running(tmp_path, "up", "tasks:app", "--port", "0") as process:
        url = process.said(UP)[1]
        process.said("Ctrl-C stops everything")
        text = process.text
    with running(tmp_path, "up", "tasks:app", "--port", "0", "--database", "sqlite:///other.db") as process:
        process.said("Ctrl-C stops everything")

    assert "sqlite:///shop.db" in text
    assert f"jobs list --url {url}" in text
    assert "sqlite:///other.db" in process.text


def test_workers_without_the_key_that_they_need_are_not_started(tmp_path: Path) -> None:
    """Where callers need a key, nothing is started before the workers have one; nobody is told that none is needed."""
    with running(tmp_path, "up", "--port", "0", settings={"WINDLASS_SECURITY_KEYS_REQUIRED": "true"}) as process:
        code = process.ended()

    assert 1 == code
    assert "its workers have none" in process.text
    assert "Windlass is up" not in process.text


@pytest.mark.exhaustive
def test_more_workers_than_usual_need_no_second_flag(tmp_path: Path) -> None:
    """`--workers 9` is no error although eight is the usual most."""
    with running(tmp_path, "up", "--port", "0", "--workers", "9") as process:
        text = process.said(r"workers +(.*)")[1]

    assert "9 to 9 processes, 1 thread each" == text.strip()


def test_code_that_changes_is_run_anew(tmp_path: Path) -> None:
    """`dev` starts the workers anew when a file is saved; one that cannot be imported waits for the next save."""
    tasks = tmp_path / "tasks.py"
    tasks.write_text(APP)
    with running(tmp_path, "dev", "tasks:app", "--port", "0") as process:
        hands = Hands(process.said(UP)[1])
        process.said(READY)
        before = ended(hands, hands.submit("answer"), process)["result"]

        tasks.write_text(APP.replace("return 42", "return ("))
        process.said(r"Changed: tasks\.py")
        process.said("SyntaxError")
        process.said("Save a correction")
        tasks.write_text(APP.replace("return 42", "return 1000"))
        process.said(READY, count=2)
        after = ended(hands, hands.submit("answer"), process)["result"]
        process.send(signal.SIGINT)
        code = process.ended()
        hands.close()

    assert (42, 1000, 0) == (before, after, code)


@pytest.mark.exhaustive
def test_the_demonstration_ends_well(tmp_path: Path) -> None:
    """It runs its jobs, shows them, checks them, and leaves nothing behind."""
    settings = {"TMPDIR": str(tmp_path), "WINDLASS_URL": "http://127.0.0.1:1"}
    with running(tmp_path, "demo", settings=settings) as process:
        code = process.ended()
        text = process.text

    assert (0, True) == (code, "jobs ended as they should" in text), text
    assert ["flaky", "20", "20", "60"] == next(line for line in text.splitlines() if line[:5] == "flaky").split()[:4]
    assert [] == list(tmp_path.glob("windlass-demo-*"))


def test_the_sample_application_is_small_python(tmp_path: Path) -> None:
    """Its tasks can be called as what they are: functions."""
    code = "import json; from windlass.sample.tasks import add, greet; print(json.dumps([add(1, 2), greet('Ann')]))"

    result = subprocess.run(
        [sys.executable, "-c", code], env=environment({}), cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert [3, "Hello, Ann!"] == json.loads(result.stdout.splitlines()[-1])
