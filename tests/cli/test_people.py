"""`windlass queues`, `workers`, `status`, `top`, `completion`, modes, and the help of all."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Windlass
from tests.cli.running import Hands
from windlass.cli import COMMANDS, cli


def test_queues_are_listed_with_what_waits(windlass: Windlass, hands: Hands, queue: str) -> None:
    """A row for each; the name is what programs know it by."""
    hands.submit("add", queue=queue)

    table, ids = windlass("queues", "list"), windlass("queues", "list", "-o", "ids")

    [row] = [line for line in table.stdout.splitlines() if line.startswith(queue)]
    assert [queue, "1", "0", "0", "0"] == row.split()[:5]
    assert queue in ids.stdout.split()


def test_a_queue_is_paused_and_resumed(windlass: Windlass, hands: Hands, queue: str) -> None:
    """With the reason, for a time; both ways the queue is shown as it is then."""
    hands.submit("add", queue=queue)

    paused = windlass("queues", "pause", queue, "--for", "1h", "--reason", "no mail today")
    resumed = windlass("queues", "resume", queue, "-o", "json")

    assert (0, 0) == (paused.exit_code, resumed.exit_code)
    assert "no mail today" in paused.stdout
    assert "in 60m" in paused.stdout
    assert not json.loads(resumed.stdout)["paused"]


def test_setting_one_limit_keeps_the_others(windlass: Windlass, hands: Hands, queue: str) -> None:
    """What is not named stays; `none` takes a limit away."""
    hands.submit("add", queue=queue)
    windlass("queues", "set", queue, "--max-running", "5")

    rate = json.loads(windlass("queues", "set", queue, "--rate", "2.5", "-o", "json").stdout)
    none = json.loads(windlass("queues", "set", queue, "--max-running", "none", "-o", "json").stdout)

    assert (5, 2.5) == (rate["max_running"], rate["rate_per_second"])
    assert (None, 2.5) == (none["max_running"], none["rate_per_second"])
    assert 2 == windlass("queues", "set", queue).exit_code
    assert 2 == windlass("queues", "set", queue, "--rate", "fast").exit_code


def test_unknown_queues_and_workers_are_exit_code_3(windlass: Windlass, queue: str) -> None:
    """What is not there is told on stderr."""
    results = [
        windlass("queues", "show", queue),
        windlass("workers", "show", queue),
        windlass("workers", "drain", queue),
    ]

    assert [(3, "")] * 3 == [(result.exit_code, result.stdout) for result in results]


def test_one_picture_where_there_is_no_terminal(windlass: Windlass, hands: Hands, queue: str) -> None:
    """`top` prints once and ends; queues, workers and the last jobs are on it."""
    job_id = hands.submit("add", queue=queue)

    result = windlass("top")

    assert 0 == result.exit_code
    for part in ("pending", queue, job_id, "/s succeed"):
        assert part in result.stdout
    assert "\x1b" not in result.stdout


def test_the_shards_of_firing_are_one_row_of_the_status(windlass: Windlass, hands: Hands) -> None:
    """Sixteen duties that fire schedules are read as one, with how many of them its server holds."""
    duties = [line for line in windlass("status").stdout.splitlines() if line.startswith(("fire", "promote"))]

    assert ["fire (16 of 16 shards)", "promote"] == [line.split("  ")[0] for line in duties]


def test_without_a_server_the_database_is_asked_itself(windlass: Windlass) -> None:
    """A job can be submitted and seen before anything runs; `status` says that no server does."""
    made = windlass("submit", "add", WINDLASS_URL="")
    status = windlass("status", WINDLASS_URL="")

    assert (0, 1) == (made.exit_code, status.exit_code)
    assert "no server" in status.stdout
    assert made.stdout == windlass("jobs", "list", "-o", "ids", WINDLASS_URL="").stdout
    assert Path("windlass.db").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(windlass: Windlass, shell: str) -> None:
    """The script names the variable by which the program is asked."""
    result = windlass("completion", shell)

    assert 0 == result.exit_code
    assert "_WINDLASS_COMPLETE" in result.stdout


def test_a_mode_is_a_command(windlass: Windlass) -> None:
    """`--mode=server`, MODE and WINDLASS_MODE run the command of that name; an unknown one is wrong usage."""
    wrong = {"WINDLASS_SERVER_HOST": "0.0.0.0", "WINDLASS_SECURITY_KEYS_REQUIRED": "false"}

    results = [
        windlass("--mode=server", **wrong),
        windlass(MODE="server", **wrong),
        windlass(WINDLASS_MODE="server", **wrong),
    ]

    assert [1] * 3 == [result.exit_code for result in results]
    assert all("anybody who reaches it could run jobs" in result.stderr for result in results)
    assert "worker [OPTIONS] [MODULE:APP]" in windlass("--mode", "worker", "--help").stdout
    assert [2, 2] == [windlass("--mode=both").exit_code, windlass(MODE="both").exit_code]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return every command below a group that is no group itself."""
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


def test_every_command_has_help_with_an_example(windlass: Windlass) -> None:
    """`--help` of each command shows how it is called."""
    found = commands(cli)

    without = [path for path in found if "Example: " not in " ".join(windlass(*path, "--help").stdout.split())]

    assert len(found) > len(COMMANDS)
    assert [] == without


def test_a_tenant_is_erased_only_by_word(windlass: Windlass, queue: str) -> None:
    """T24: one with jobs is not deleted; it is erased when --yes says so, or somebody at a terminal."""
    windlass("submit", "mail", "--tenant", queue)

    kept = windlass("tenants", "delete", queue)
    asked = windlass("tenants", "delete", queue, "--erase")
    there = windlass("tenants", "list")
    gone = windlass("tenants", "delete", queue, "--erase", "--yes")

    assert [4, 2, 0] == [result.exit_code for result in (kept, asked, gone)]
    assert f"This would erase tenant {queue} with everything it has, for good. Say --yes" in asked.stderr
    assert f"Erased tenant {queue}.\n" == gone.stdout
    assert (True, False) == (queue in there.stdout, queue in windlass("tenants", "list").stdout)


def test_a_job_is_erased_only_by_word(windlass: Windlass, hands: Hands, queue: str) -> None:
    """T24: what is gone is gone, so --yes must be said where nobody can be asked."""
    hands.submit("mail", queue=queue)
    job_id = hands.kill("mail", queue=queue)

    asked = windlass("jobs", "erase", job_id)
    erased = windlass("jobs", "erase", job_id, "--yes")

    assert (2, 0) == (asked.exit_code, erased.exit_code)
    assert f"This would erase {job_id} for good. Say --yes" in asked.stderr
    assert erased.stdout.startswith(f"{job_id} was erased at ")
    assert "its content was erased" in windlass("jobs", "retry", job_id).stderr
