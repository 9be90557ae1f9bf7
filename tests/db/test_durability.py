"""What was acknowledged survives a crash: PostgreSQL set up otherwise is refused (L8)."""

from __future__ import annotations

import asyncpg
import pytest

from windlass.config import Settings
from windlass.config.settings import Database as DatabaseSettings
from windlass.db import open_database
from windlass.engine.storage import storage
from windlass.errors import SetupError

IS_ON = """
DO $$ BEGIN
    IF current_setting('synchronous_commit') <> 'on' THEN RAISE 'it is off'; END IF;
END $$
"""


@pytest.fixture
async def undurable_url(postgres_url: str) -> str:
    """A PostgreSQL that does not force to disk what it commits, as that of the tests."""
    connection = await asyncpg.connect(postgres_url)
    value = await connection.fetchval("SHOW fsync")
    await connection.close()
    if value != "off":
        pytest.skip("the PostgreSQL of this run was named, and is durable")
    return postgres_url


async def test_a_server_refuses_a_database_that_forgets(undurable_url: str) -> None:
    """L8: SetupError names each setting, the command that mends it, and the setting that takes the risk."""
    with pytest.raises(SetupError) as error:
        await (await storage(Settings(database=DatabaseSettings(url=undurable_url)))).close()

    for part in ("fsync=off", "full_page_writes=off", "ALTER SYSTEM SET fsync = on", "database.allow_undurable"):
        assert part in str(error.value)


@pytest.mark.parametrize("option", ["", "?pooler=transaction"], ids=["direct", "pooled"])
@pytest.mark.parametrize("of", ["database", "role"])
async def test_a_server_refuses_a_database_whose_commits_do_not_wait(
    fresh_postgres_url: str, of: str, option: str
) -> None:
    """L8: our own setting does not hide that of the database or the role; SetupError says where it is mended."""
    connection = await asyncpg.connect(fresh_postgres_url)
    [(database, role)] = await connection.fetch("SELECT quote_ident(current_database()), quote_ident(current_user)")
    named = f"ALTER DATABASE {database}" if of == "database" else f"ALTER ROLE {role} IN DATABASE {database}"
    await connection.execute(f"{named} SET synchronous_commit = off")
    await connection.close()

    with pytest.raises(SetupError) as error:
        await (await storage(Settings(database=DatabaseSettings(url=fresh_postgres_url + option)))).close()

    assert "synchronous_commit=off" in str(error.value)
    assert f"{named} SET synchronous_commit = on;" in str(error.value)


async def test_whoever_takes_the_risk_is_warned(undurable_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """L8: with `database.allow_undurable` it is opened, and the log says what may be lost."""
    db = await storage(Settings(database=DatabaseSettings(url=undurable_url, allow_undurable=True)))

    await db.close()
    told = [str(record.msg) for record in caplog.records if "config.weak" in str(record.msg)]
    assert 1 == len(told)
    assert "fsync=off" in told[0]


@pytest.mark.parametrize("option", ["", "?pooler=transaction"], ids=["direct", "pooled"])
async def test_every_write_waits_for_its_commit(fresh_postgres_url: str, option: str) -> None:
    """L8: synchronous_commit=off of the database, the role or the server has no effect on what we write."""
    connection = await asyncpg.connect(fresh_postgres_url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    await connection.close()

    db = await open_database(fresh_postgres_url + option)

    await db.run(IS_ON)
    await db.close()
