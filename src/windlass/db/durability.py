"""Durability: what was acknowledged must survive a crash of the database's machine.

What the database's operator has set is looked at when a server starts. Beside it each commit of ours waits for the disk
(`synchronous_commit`, postgres.py): the setting of a database or a role may change while a server runs.
"""

from __future__ import annotations

from windlass import log
from windlass.db.base import Statements
from windlass.db.sqlfile import load
from windlass.errors import SetupError

SQL = load(__file__)


async def check_durable(db: Statements, *, is_allowed: bool) -> None:
    """Raise SetupError if a commit would not survive a crash; it names the settings and how to mend them."""
    found = await db.fetch(SQL.undurable)
    if not found:
        return
    values = " and ".join(f"{row['name']}=off" for row in found)
    if is_allowed:
        log.event("config.weak", detail=f"database.allow_undurable: the database has {values}: a crash loses jobs.")
        return
    mend = " ".join(row["mend"] for row in found)
    raise SetupError(
        f"The database has {values}: a crash of its machine would lose jobs that were accepted. Run `{mend} SELECT "
        "pg_reload_conf();` there, or set database.allow_undurable where losing jobs does not matter."
    )
