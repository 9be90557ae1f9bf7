"""Open the database for a server, as long as it takes, with the schema this program needs."""

from __future__ import annotations

import logging

from windlass.config import Settings
from windlass.db import Database, open_database
from windlass.db import migrate as migrations
from windlass.db.durability import check_durable
from windlass.engine.outside import Outside
from windlass.errors import Damaged, Unavailable

CONNECTIONS = 12
"""That write: claims 2, submits 2, reports 2, heartbeats and renewals 1, duties and what people do the rest."""
PAUSES_S = (0.5, 5.0)

logger = logging.getLogger("windlass")


async def storage(settings: Settings, *, migrate: bool = False, outside: Outside | None = None) -> Database:
    """Return the database, open, once it answers; an empty one is set up, an older one only if told to.

    SchemaMismatch if it is older and not to be migrated, or newer than this program; SetupError or Damaged for what
    waiting cannot mend.
    """
    pause = (outside or Outside()).pause
    pause_s = PAUSES_S[0]
    while True:
        try:
            return await _opened(settings, migrate=migrate)
        except Damaged:
            raise
        except Unavailable as error:
            logger.warning("The database does not answer yet: %s", error)
            await pause(pause_s)
            pause_s = min(pause_s * 2, PAUSES_S[1])


async def _opened(settings: Settings, *, migrate: bool) -> Database:
    url, readers = settings.database.url, settings.database.pool_size
    db = await open_database(url, role="server", connections=CONNECTIONS, readers=readers)
    try:
        await check_durable(db, is_allowed=settings.database.allow_undurable)
        if migrate:
            await migrations.migrate(db)
        await migrations.ensure_schema(db)
    except BaseException:
        await db.close()
        raise
    return db
