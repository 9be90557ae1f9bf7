"""`windlass config show` as people call it: every value, its source, and no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.rules.source import REPOSITORY
from windlass.cli import cli
from windlass.config.load import flat
from windlass.config.settings import Settings

CANARY = "canary7hunter2"
PROGRAM = [sys.executable, "-c", "from windlass.cli import main; main()", "config", "show"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run this source in an empty folder, without variables of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "src"))
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)


def show(*arguments: str, **environment: str) -> Result:
    """Run `windlass config show` and return what it answered."""
    return CliRunner().invoke(cli, ["config", "show", *arguments], env=environment)


def test_every_setting_is_shown_with_its_source() -> None:
    """One line per key: its value and where it came from."""
    Path("windlass.toml").write_text("[server]\nport = 9\n")

    result = show(WINDLASS_WORKER_QUEUES="a,b")

    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert 0 == result.exit_code
    assert ["KEY", *flat(Settings())] == list(lines)
    assert ["9", "windlass.toml"] == lines["server.port"]
    assert ["a,b", "WINDLASS_WORKER_QUEUES"] == lines["worker.queues"]
    assert ["-", "default"] == lines["metrics.statsd_address"]
    assert ["false", "default"] == lines["server.insecure"]


def test_programs_read_json() -> None:
    """`-o json` has the values with their types, the sources and the warnings."""
    result = show("-o", "json", WINDLASS_SERVER_PORT="9", WINDLASS_API_ALLOW_UNFENCED="1")

    answer = json.loads(result.stdout)
    assert {"key": "server.port", "value": 9, "source": "WINDLASS_SERVER_PORT"} in answer["settings"]
    assert {"key": "worker.queues", "value": ["default"], "source": "default"} in answer["settings"]
    assert 1 == len(answer["warnings"])
    assert "" == result.stderr


@pytest.mark.parametrize("output", ["table", "json"])
def test_rel_t21_secrets_are_not_shown(output: str) -> None:
    """Keys are hidden whole, URLs without their passwords; who and where can still be read."""
    Path("key").write_text(CANARY)

    result = show(
        "-o",
        output,
        WINDLASS_DATABASE_URL=f"postgresql://jobs:{CANARY} /x@{CANARY}@db.example/jobs?sslpassword=x {CANARY}",
        WINDLASS_SERVER_URL=f"http://u:{CANARY}@h",
        WINDLASS_SECURITY_BOOTSTRAP_KEY=CANARY,
        WINDLASS_KEY_FILE="key",
    )

    assert 0 == result.exit_code
    assert CANARY not in result.stdout + result.stderr
    assert "postgresql://jobs:***@db.example/jobs" in result.stdout


def test_weak_settings_are_warned_of_on_stderr() -> None:
    """Warnings do not stand between the lines that a program reads."""
    result = show(WINDLASS_API_ALLOW_UNFENCED="1")

    assert result.stderr.startswith("Warning: api.allow_unfenced")
    assert "Warning" not in result.stdout


def test_a_wrong_setting_is_one_line_and_exit_code_2() -> None:
    """What cannot be accepted is told on stderr, without a traceback."""
    result = show(WINDLASS_SERVER_PORT="70000")

    assert (2, "") == (result.exit_code, result.stdout)
    assert [
        "Error: server.port: '70000' is not accepted (from WINDLASS_SERVER_PORT). Expected: a whole number from 0"
    ] == [line.partition(" to 65535")[0] for line in result.stderr.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [([b"--config", b"\xff\xfe"], 1), ([b"--config", b"."], 1), ([b"-o", b"\xff"], 2), ([b"\xff"], 2)],
)
def test_arguments_that_are_no_text_are_refused(arguments: list[bytes], exit_code: int) -> None:
    """Bytes that are not UTF-8 on the command line bring an error of one line or a usage text, no traceback."""

    ran = subprocess.run([*map(os.fsencode, PROGRAM), *arguments], capture_output=True, check=False)

    assert (exit_code, b"") == (ran.returncode, ran.stdout)
    assert b"Error: " in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_a_reader_that_goes_away_is_no_crash() -> None:
    """`windlass config show | head -1`: a closed pipe ends the command without a traceback."""
    reading, writing = os.pipe()
    os.close(reading)

    ran = subprocess.run(PROGRAM, stdout=writing, stderr=subprocess.PIPE, check=False)

    os.close(writing)
    assert b"" == ran.stderr
