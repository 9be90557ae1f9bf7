"""Durability: what was acknowledged must survive a crash of the database's machine.

Each commit of ours waits for the disk (`synchronous_commit`, postgres.py), whatever the database or the role says.
What only the database's operator can set is looked at when a server starts.
"""

from __future__ import annotations

from windlass import log
from windlass.db.base import Statements
from windlass.db.sqlfile import load
from windlass.errors import SetupError

SQL = load(__file__)


async def check_durable(db: Statements, *, is_allowed: bool) -> None:
    """Raise SetupError if a commit would not survive a crash; it names the settings and how to mend them."""
    found = [row["name"] for row in await db.fetch(SQL.undurable)]
    if not found:
        return
    values = " and ".join(f"{name}=off" for name in found)
    if is_allowed:
        log.event("config.weak", detail=f"database.allow_undurable: the database has {values}: a crash loses jobs.")
        return
    mend = " ".join(f"ALTER SYSTEM SET {name} = on;" for name in found)
    raise SetupError(
        f"The database has {values}: a crash of its machine would lose jobs that were accepted. Run `{mend} SELECT "
        "pg_reload_conf();` there, or set database.allow_undurable where losing jobs does not matter."
    )
