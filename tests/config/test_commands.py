"""Commands that open a database find it where the settings say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windlass.cli import cli


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, without variables of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)


def migrate(*arguments: str, **environment: str) -> Result:
    """Run `windlass migrate` and return what it answered."""
    return CliRunner().invoke(cli, ["migrate", *arguments], env=environment)


def test_a_command_opens_the_database_of_the_settings() -> None:
    """The flag, the variable, the file of a secret, windlass.toml and the default are read in this order."""
    Path("url").write_text("sqlite:///d.db\n")
    Path("windlass.toml").write_text("[database]\nurl = 'sqlite:///b.db'\n")

    results = [
        migrate("--database", "sqlite:///a.db", WINDLASS_DATABASE_URL="sqlite:///c.db"),
        migrate(),
        migrate(WINDLASS_DATABASE_URL="sqlite:///c.db"),
        migrate(WINDLASS_DATABASE_URL_FILE="url"),
    ]
    Path("windlass.toml").unlink()
    results.append(migrate())

    assert [0] * 5 == [result.exit_code for result in results]
    assert ["a.db", "b.db", "c.db", "d.db", "windlass.db"] == sorted(str(path) for path in Path().glob("*.db"))


def test_a_wrong_setting_stops_a_command_that_needs_it() -> None:
    """The message is that of the settings, and nothing is opened; with the flag the settings are not needed."""
    wrong = {"WINDLASS_DATABASE_URL": "mysql://h/d"}

    without, with_flag = migrate(**wrong), migrate("--database", "sqlite:///a.db", **wrong)

    assert (2, 0) == (without.exit_code, with_flag.exit_code)
    assert "Error: database.url: 'mysql://h/d' is not accepted (from WINDLASS_DATABASE_URL)" in without.stderr
