"""`windlass schedules import crontab`: whole or not at all, and a second time nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Windlass

CRONTAB = """\
MAILTO=ops
CRON_TZ=Europe/Berlin
PATH=/usr/bin:/bin
# every night
30 2 * * * /opt/backup.sh --all > /dev/null
@hourly date +\\%F
"""


def imported(windlass: Windlass, prefix: str, text: str, *options: str) -> Any:
    """Return the answer to an import of a crontab from stdin."""
    return windlass("schedules", "import", "crontab", "-", "--task", "shell", "--prefix", prefix, *options, given=text)


def there(windlass: Windlass, prefix: str) -> list[Any]:
    """Return the schedules whose names begin so."""
    found: list[Any] = json.loads(windlass("schedules", "list", "--prefix", prefix, "-o", "json").stdout)
    return found


def test_each_line_becomes_a_schedule(windlass: Windlass, queue: str, tmp_path: Path) -> None:
    """With its zone, its command and its variables; what is ignored is told with file and line."""
    (tmp_path / "mine.crontab").write_text(CRONTAB)

    result = windlass(
        *("schedules", "import", "crontab", "mine.crontab", "--task", "shell", "--prefix", f"{queue}-"),
        *("--queue", queue, "--overlap", "allow"),
    )

    assert 0 == result.exit_code, result.stderr
    assert "mine.crontab:1: MAILTO is ignored" in result.stderr
    assert "Schedules stored: 2 new" in result.stderr
    by_cron = {schedule["cron"]: schedule for schedule in there(windlass, f"{queue}-")}
    nightly, hourly = by_cron["30 2 * * *"], by_cron["@hourly"]
    assert {"Europe/Berlin"} == {nightly["timezone"], hourly["timezone"]}
    assert {"command": "/opt/backup.sh --all > /dev/null", "env": {"PATH": "/usr/bin:/bin"}} == nightly["payload"]
    assert "date +%F" == hourly["payload"]["command"]
    assert ("shell", queue, "allow") == (nightly["task"], nightly["queue"], nightly["overlap"])
    assert nightly["name"].startswith(f"{queue}-backup.sh-")


def test_a_second_import_changes_nothing(windlass: Windlass, queue: str) -> None:
    """Lines that are known are left alone, also where others have come; ids and versions stay."""
    imported(windlass, queue, CRONTAB)
    before = there(windlass, queue)

    again = imported(windlass, queue, CRONTAB)
    more = imported(windlass, queue, f"{CRONTAB}@weekly new\n")

    assert "Schedules stored: 0 new, 0 changed, 2 as they were." in again.stderr
    assert "Schedules stored: 1 new, 0 changed, 2 as they were." in more.stderr
    after = {schedule["id"]: schedule["version"] for schedule in there(windlass, queue)}
    assert 3 == len(after)
    assert [after[schedule["id"]] for schedule in before] == [schedule["version"] for schedule in before] == [1, 1]


def test_a_dry_run_stores_nothing(windlass: Windlass, queue: str) -> None:
    """It shows what would be made of each line."""
    result = imported(windlass, queue, CRONTAB, "--dry-run", "-o", "jsonl")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(5, "new"), (6, "new")] == [(row["line"], row["change"]) for row in rows]
    assert [] == there(windlass, queue)


def test_one_bad_line_keeps_all_from_being_stored(windlass: Windlass, queue: str) -> None:
    """Every one is named with file, line and reason; `--skip-bad` takes the others."""
    text = f"{CRONTAB}@reboot start\n0 25 * * * never\nCRON_TZ=Mars/Base\n@daily there\n"

    refused = imported(windlass, queue, text)
    nothing = there(windlass, queue)
    skipped = imported(windlass, queue, text, "--skip-bad")

    assert (2, "") == (refused.exit_code, refused.stdout)
    for part in (
        "stdin:7: @reboot",
        "stdin:8: ",
        "hour 25",
        "stdin:9: ",
        "stdin:10: ",
        "nothing was stored; lines that cannot be taken: 4",
    ):
        assert part in refused.stderr
    assert [] == nothing
    assert 0 == skipped.exit_code
    assert 2 == len(there(windlass, queue))


def test_what_the_server_refuses_is_told_with_its_line(windlass: Windlass, queue: str) -> None:
    """As if it had been found here; nothing is stored."""
    result = imported(windlass, "not/allowed-", CRONTAB)

    assert 2 == result.exit_code
    assert "stdin:5: name" in result.stderr
    assert [] == there(windlass, queue)


def test_other_settings_need_a_word(windlass: Windlass, queue: str) -> None:
    """A line that is there with another zone is a conflict until --replace is said; its id stays."""
    imported(windlass, queue, "@daily run")
    [before] = there(windlass, queue)

    refused = imported(windlass, queue, "@daily run", "--zone", "Asia/Tokyo")
    [kept] = there(windlass, queue)
    replaced = imported(windlass, queue, "@daily run", "--zone", "Asia/Tokyo", "--replace")
    [after] = there(windlass, queue)

    assert 4 == refused.exit_code
    assert "timezone" in refused.stderr
    assert "UTC" == kept["timezone"]
    assert 0 == replaced.exit_code
    assert (before["id"], "Asia/Tokyo") == (after["id"], after["timezone"])


def test_schedules_of_lines_that_are_gone_are_told(windlass: Windlass, queue: str) -> None:
    """An edited line is another schedule: without a word both would run."""
    imported(windlass, queue, "0 2 * * * run")
    [old] = there(windlass, queue)

    result = imported(windlass, queue, "0 3 * * * run")
    emptied = imported(windlass, queue, "# 0 3 * * * run")

    assert f"still scheduled: {old['name']}" in result.stderr
    assert old["name"] in emptied.stderr


def test_all_schedules_of_lines_that_are_gone_are_counted(windlass: Windlass, queue: str) -> None:
    """Also those beyond the first page of the server's list."""
    imported(windlass, queue, "".join(f"@daily run {number}\n" for number in range(120)))

    result = imported(windlass, queue, "@daily run 0")

    assert "and 114 more" in result.stderr


def test_a_guessed_zone_is_told(windlass: Windlass, queue: str) -> None:
    """Cron goes by the clock of its machine; we do not know it."""
    guessed = imported(windlass, queue, "@daily run", "--dry-run")
    named = imported(windlass, queue, "@daily run", "--dry-run", "--zone", "UTC")

    assert "read as UTC" in guessed.stderr
    assert "read as UTC" not in named.stderr


def test_a_system_crontab_has_users(windlass: Windlass, queue: str) -> None:
    """With --system."""
    imported(windlass, queue, "17 * * * * root run-parts /etc/cron.hourly", "--system")

    [found] = there(windlass, queue)
    assert {"command": "run-parts /etc/cron.hourly", "user": "root"} == found["payload"]


@pytest.mark.parametrize("text", ["", "# nothing\n\n"])
def test_an_empty_crontab_is_no_mistake(windlass: Windlass, queue: str, text: str) -> None:
    """There is nothing to store."""
    result = imported(windlass, queue, text)

    assert (0, "") == (result.exit_code, result.stdout)
    assert "Schedules stored: 0 new" in result.stderr


def test_a_file_that_is_not_there_is_wrong_usage(windlass: Windlass) -> None:
    """As for every command that reads one."""
    results = [
        windlass("schedules", "import", "crontab", "absent", "--task", "shell"),
        windlass("schedules", "import", "jsonl", "absent"),
        windlass("schedules", "import", "crontab", "-", given=""),
    ]

    assert [2, 2, 2] == [result.exit_code for result in results]
    assert "Cannot read absent" in results[0].stderr
