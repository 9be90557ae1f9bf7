"""What asyncpg's errors mean to us: what is safe to run again, what is nobody's fault, what broke.

One table, so that callers of the seam see only our own errors (errors.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from windlass.db.partitions import PARTITIONED
from windlass.errors import AlreadyExists, Contention, Damaged, InvalidInput, SetupError, Unavailable

T = TypeVar("T")

_CONTENTION = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.DuplicateSchemaError,
    asyncpg.DuplicateTableError,
)
UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # A connection that was told of its end while it lay idle, and is asked before it has read that to the end.
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
# After these the server may have done what it was asked, and nobody is left to say so.
BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,
    OSError,
)
# Data errors that no value of a caller's can be blamed for.
_OUR_FAULT = (asyncpg.DivisionByZeroError, asyncpg.SequenceGeneratorLimitExceededError)
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
)


def is_over(error: BaseException) -> bool:
    """Say whether a connection is of no more use: it broke, fell silent, or its statement was cut off."""
    return isinstance(error, asyncio.CancelledError) or (
        isinstance(error, Unavailable)
        and not isinstance(error, Contention)
        and isinstance(error.__cause__, asyncpg.InternalClientError | TimeoutError | OSError)
    )


async def set_up(call: Awaitable[T]) -> T:
    """Await the first connection; what waiting cannot mend is SetupError."""
    try:
        return await call
    except _REFUSED as error:
        raise SetupError(f"Cannot open the database: {error}. Check its URL (--database).") from error


async def translated(call: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
    """Call and await `call`; turn the driver's errors into ours, so that callers can tell what is safe to run again.

    Called here and not before: on a connection that broke meanwhile the call itself raises.
    """
    try:
        return await call(*arguments, **options)
    except _CONTENTION as error:
        raise Contention(f"The database refused for a rival's sake: {error}. Running it again is safe.") from error
    except asyncpg.UniqueViolationError as error:
        if error.schema_name != "pg_catalog":
            raise AlreadyExists(f"It is stored already: {error.detail}") from error
        # Two create the same table or schema at once.
        raise Contention(f"The database refused for a rival's sake: {error}. Running it again is safe.") from error
    except asyncpg.CheckViolationError as error:
        # By its fields: the text is in the language of the server.
        if error.constraint_name is not None or error.table_name not in ("job", *PARTITIONED):
            raise
        raise Unavailable(_missing(error.table_name, " ".join(str(error).split()))) from error
    except asyncpg.DataError as error:
        if isinstance(error, _OUR_FAULT):
            raise
        raise InvalidInput("value", f"the database cannot take it: {' '.join(str(error).split())}.") from error
    except (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError) as error:
        raise Damaged(f"The database is damaged: {error}. Its operator must repair it or restore a backup.") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise SetupError(f"The database user may not do this: {error}. Grant it, or use the schema's owner.") from error
    except asyncpg.InsufficientResourcesError as error:
        raise Unavailable(f"The database has no room or no connection left: {error}. Try again later.") from error
    except UNAVAILABLE as error:
        raise Unavailable(f"The database does not answer: {str(error) or type(error).__name__}.") from error


def _missing(table: str, said: str) -> str:
    if table == "job":
        return (
            f"There is no partition of job for the time that the id of a job tells, so it cannot be stored: {said} "
            "Run `windlass migrate` or start a server: either makes the partitions of the days ahead. "
            "An id of a later time was made by a clock that is wrong."
        )
    return (
        f"A day of history is missing, so nothing can end then: {said} "
        "Run `windlass migrate` or start a server: either makes the days ahead."
    )
