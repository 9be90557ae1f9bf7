"""docs/options.md and docs/projects.md: their examples run, and do what they say.

The web frameworks are not installed here: stand-ins with the few names that the examples use take their place, so that
what the examples do with Windlass runs all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.rules.source import REPOSITORY
from windlass.cli import cli
from windlass.client.options import JobOptions
from windlass.config.settings import Settings
from windlass.engine.asked import policy_of
from windlass.queue.retry import PRESETS, RetryPolicy, after_failure, wait_s
from windlass.wire.jobs import Policy
from windlass.worker.load import load_app

OPTIONS, PROJECTS = (REPOSITORY / "docs" / f"{name}.md" for name in ("options", "projects"))
STAND_INS = {
    "fastapi.py": """
class FastAPI:
    def __init__(self, lifespan): self.lifespan = lifespan
    def post(self, path): return lambda function: function
    get = post
""",
    "flask.py": """
class Flask:
    def __init__(self, name): pass
    def post(self, path): return lambda function: function
    get = post
""",
    "django/__init__.py": "def setup(): pass",
    "django/http.py": "JsonResponse = dict",
    "django/db/__init__.py": "",
    "django/db/transaction.py": """
import contextlib
waiting = []
on_commit = waiting.append
@contextlib.contextmanager
def atomic():
    yield
    while waiting: waiting.pop()()
""",
}


def blocks(document: Path) -> list[str]:
    """Return the examples in Python, in order."""
    return re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder without settings; modules of it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("shop", "fastapi", "flask", "django"):
            del sys.modules[name]


@pytest.fixture
def project(folder: Path) -> Path:
    """The project of the document, written file by file, beside stand-ins for the frameworks."""
    for name, text in STAND_INS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for block in blocks(PROJECTS):
        if named := re.match(r"# (\S+\.py)\n", block):
            file = folder / named[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(block)
    return folder


def test_the_examples_of_options_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as one program; the first prints what its comment says."""
    space: dict[str, Any] = {"__name__": "example"}
    exec(compile("\n".join(blocks(OPTIONS)), str(OPTIONS), "exec"), space)

    assert "scheduled mail\n" == capsys.readouterr().out
    policy = msgspec.convert(
        json.loads(json.dumps(msgspec.to_builtins(space["charge"].job_options.retry_policy))), Policy
    )
    assert {"ConnectionError", "quota", "ValueError"} == policy.by_error.keys()
    assert "hold" == space["transfer"].job_options.retry_policy.then
    space["app"].close()


def test_every_option_is_described() -> None:
    """The table names each option that there is, and no other, with the defaults of the settings."""
    table = OPTIONS.read_text().split("| option |")[1].split("Two more")[0]
    described = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    jobs = Settings().jobs

    # A concurrency key limits nothing and is refused.
    assert JobOptions.__annotations__.keys() - {"concurrency_key", "max_retries"} == described
    assert (3, 3600, 5, 24) == (jobs.max_attempts, jobs.timeout_seconds, jobs.max_lost, jobs.idempotency_hours)


def test_the_waits_are_those_of_the_table() -> None:
    """Each policy of the table waits as it says."""
    rows = re.findall(r"^\| `(\{.*?\})` \| ([\d, ]+) \|$", OPTIONS.read_text(), re.MULTILINE)
    assert 5 == len(rows)
    for text, waits in rows:
        policy = policy_of(msgspec.json.decode(text, type=Policy), Settings().retry)
        assert policy is not None
        assert [float(wait) for wait in waits.split(", ")] == [
            wait_s(policy, attempt=attempt, chance=0.0) for attempt in range(1, 5)
        ]


def test_what_is_said_of_policies_holds() -> None:
    """Presets, the fields of a policy, and a policy by error that takes nothing from the outer one."""
    text = OPTIONS.read_text()
    fields = text.split("| field |")[1].split("The waits")[0]
    inner = RetryPolicy(by_error={"quota": RetryPolicy()}, base_s=100.0, max_attempts=9, jitter=0.0)

    assert set(Policy.__struct_fields__) == set(re.findall(r"^\| `(\w+)` \|", fields, re.MULTILINE))
    assert PRESETS.keys() == set(re.findall(r'^\| `"(\w+)"` \|', text, re.MULTILINE))
    again = after_failure(inner, attempt=1, max_attempts=3, retryable=True, error_type="quota", chance=0.0)
    assert 2.0 == getattr(again, "delay_s", None)


def test_the_project_is_one_application(project: Path) -> None:
    """Several modules: the worker's module has all tasks, and a program submits by task and by name."""
    app = load_app("shop.worker:app")
    submit = next(block for block in blocks(PROJECTS) if block.startswith("from shop.app"))

    exec(compile(submit, str(PROJECTS), "exec"), {"__name__": "example"})

    assert {"mail.send", "report"} <= app.tasks.keys()
    assert (project / "windlass.db").exists()
    app.close()


def test_the_frameworks_submit_and_look(project: Path) -> None:
    """The views of the examples, called as the frameworks call them."""
    from shop import django_worker, views, web_fastapi, web_flask  # type: ignore[import-not-found]
    from shop.app import app  # type: ignore[import-not-found]

    async def over_fastapi() -> str:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(web_fastapi.lifespan(web_fastapi.web))
            made = await web_fastapi.letter("ann")
            status: str = (await web_fastapi.look(made["job"]))["status"]
            return status

    class Request:
        POST = {"customer": "cay"}  # noqa: RUF012

    assert "queued" == asyncio.run(over_fastapi())
    assert {"status": "queued"} == web_flask.look(web_flask.letter("bob")["job"])
    assert {"ordered": "cay"} == views.order(Request)
    assert app is django_worker.app
    app.close()


def test_a_decorator_of_ones_own_keeps_the_arguments(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hook of the document runs around the task, and arguments are checked as before."""
    from shop.measured import count  # type: ignore[import-not-found]

    assert 2 == count(["a", "b"])
    assert "count took" in capsys.readouterr().out
    with pytest.raises(TypeError):
        count.s()


@pytest.mark.exhaustive
def test_the_tests_of_the_document_pass(project: Path) -> None:
    """They are run as a user runs them, by pytest in the project, with real workers."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    ran = subprocess.run(
        command, cwd=project, env=variables | {"PYTHONPATH": str(project)}, capture_output=True, text=True, check=False
    )

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout


@pytest.mark.parametrize("document", [OPTIONS, PROJECTS], ids=["options", "projects"])
def test_the_commands_are_there(document: Path, as_command: Callable[[str], None]) -> None:
    """Every command of the document is one that the command line takes."""
    lines = re.findall(r"^    (?:\.venv/bin/)?windlass (.*)$", document.read_text(), re.MULTILINE)

    assert lines
    for line in lines:
        as_command(line.split("   #")[0].strip())


@pytest.fixture
def as_command() -> Callable[[str], None]:
    """Return a function that reads a command line, without doing it."""

    def read(line: str) -> None:
        import shlex

        import click

        words = shlex.split(line)
        found: click.Command = cli
        while isinstance(found, click.Group) and words and not words[0].startswith("-"):
            inner = found.get_command(click.Context(found), words.pop(0))
            assert inner is not None, line
            found = inner
        if found is not cli:
            found.make_context("windlass", words)

    return read
