"""What can go wrong, one class per condition.

    WindlassError
    ├── InvalidInput            422, exit 2   a value of the caller's cannot be accepted
    │   ├── PayloadTooLarge     413, exit 2
    │   ├── KeyReused           422, exit 4   same idempotency key, other content
    │   └── InvalidSchedule     422, exit 2   a trigger, zone or date of a schedule cannot be accepted
    ├── Unauthorized            401, exit 1   no key, or one that is not good
    ├── Forbidden               403, exit 1   the key is good and does not allow this
    ├── NotFound                404, exit 3   unknown, foreign, or past retention
    ├── Conflict                409, exit 4   the job is not in a state that allows it
    │   ├── JobFinished         409, exit 4
    │   ├── UniqueTaken         409, exit 4   another live job holds the unique key
    │   ├── AlreadyExists       409, exit 4   this id is taken
    │   ├── NameTaken           409, exit 4   another schedule has this name
    │   ├── BeingErased         409, exit 4   the tenant is being erased, or was: nothing can be added to it
    │   └── StaleFence          409, exit 4   the lease is over or another's: the worker must stop
    ├── WrongMethod             405, exit 2   the path is known, the method is not
    ├── MalformedRequest        422, exit 2   what came is no HTTP request
    ├── HeadTooLarge            431, exit 2   the head of a request is over the limit in bytes or headers
    ├── SlowHead                408, exit 5   the head of a request did not come in time
    ├── SlowBody                408, exit 5   the body of a request did not come in time
    ├── BodyTooLarge            413, exit 2   the body of a request is over the limit in bytes
    ├── WrongMedia              415, exit 2   the body is not JSON, or is compressed
    ├── TooMany                 429, exit 5   a cap is reached; try later
    ├── Unavailable             503, exit 5   the database did not answer, or the commit's fate is unknown
    │   ├── Contention          503, exit 5   a rival held the rows: safe to run again
    │   ├── CommitUnknown       503, exit 5
    │   ├── Damaged             503, exit 1   a page of the database cannot be read: its file must be repaired
    │   └── CommitAborted       503, exit 5   surely not committed: safe to run again
    ├── NoResult                –,   exit 1   the job has ended, and not with a result
    │   ├── JobFailed           –,   exit 1   its last attempt failed: it is dead
    │   ├── JobCancelled        –,   exit 1
    │   └── JobExpired          –,   exit 1   it was not started by its deadline
    ├── DutyLost                –,   exit 1   this server may no longer act for a duty
    └── SetupError              –,   exit 1   this installation cannot run as it is
        ├── DatabaseLocked      –,   exit 4   another process has the server's role on this SQLite file
        └── SchemaMismatch      –,   exit 1   the schema is newer, older or altered

The message says what happened, with the value, and what to do next;
the same text goes to the terminal, to HTTP and to the log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


class WindlassError(Exception):
    """The root: everything Windlass raises on purpose."""

    status = 500
    exit_code = 1
    code: ClassVar[str | None] = None
    """What programs know it by, where that is not the name of the class in snake_case."""
    stored: Sequence[Any] = ()
    """Handles of the jobs that an `enqueue_many` had stored before it failed."""


class InvalidInput(WindlassError):
    """A value of the caller's cannot be accepted; `field` names it, `index` its job in a batch, of the list `batch`."""

    status = 422
    exit_code = 2

    def __init__(self, field: str, problem: str, *, index: int | None = None, batch: str = "jobs") -> None:
        self.field = field
        self.problem = problem
        self.index = index
        self.batch = batch
        where = f"{batch}[{index}].{field}" if index is not None else field
        super().__init__(f"{where}: {problem}")

    def at(self, index: int) -> InvalidInput:
        """Return the same error, naming the job at `index` of its batch."""
        return type(self)(self.field, self.problem, index=index, batch=self.batch)


class PayloadTooLarge(InvalidInput):
    """A payload or result is over the limit in bytes."""

    status = 413


class KeyReused(InvalidInput):
    """The idempotency key was used before with other content."""

    exit_code = 4


class InvalidSchedule(InvalidInput):
    """A trigger, zone or date of a schedule cannot be accepted; the text names the place of the fault."""


class Unauthorized(WindlassError):
    """No key was sent, or one that is not good; which of these is not told."""

    status = 401
    challenge = "Bearer"
    """What the answer's WWW-Authenticate asks for."""


class Forbidden(WindlassError):
    """The key is good, and what it allows does not include this. `index` names the one of a batch, if it is told."""

    status = 403
    index: int | None = None


class NotFound(WindlassError):
    """There is no such thing here: never was, is another tenant's, or is past retention."""

    status = 404
    exit_code = 3


class Conflict(WindlassError):
    """The job exists and its state does not allow this."""

    status = 409
    exit_code = 4


class JobFinished(Conflict):
    """The job has ended already."""

    code = "job_already_finished"


class UniqueTaken(Conflict):
    """Another live job holds this job's unique key."""


class NameTaken(Conflict):
    """Another schedule of the tenant has this name; nothing was written. `index` names the one of a batch."""

    def __init__(self, message: str, *, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class BeingErased(Conflict):
    """Nothing can be added to a tenant that is being erased, or was and has not been made again."""


class AlreadyExists(Conflict):
    """Something with this id is stored already; nothing was written."""


class StaleFence(Conflict):
    """The lease that a worker speaks of is over, or another's; it must stop that attempt."""


class WrongMethod(WindlassError):
    """The path is known and does not take this method; `allow` has those that it takes."""

    status = 405
    exit_code = 2

    def __init__(self, message: str, allow: Sequence[str]) -> None:
        super().__init__(message)
        self.allow = allow


class MalformedRequest(WindlassError):
    """What came over a connection is no HTTP request; nothing more is read from it."""

    status = 422
    exit_code = 2

    def __init__(
        self,
        message: str = "This is no HTTP request that can be read. Check its first line, its headers and its length.",
    ) -> None:
        super().__init__(message)


class HeadTooLarge(WindlassError):
    """The head of a request is over the limit in bytes or in headers."""

    status = 431
    exit_code = 2


class SlowHead(WindlassError):
    """The head of a request did not come in time."""

    status = 408
    exit_code = 5


class SlowBody(WindlassError):
    """The body of a request did not come in time."""

    status = 408
    exit_code = 5


class BodyTooLarge(WindlassError):
    """The body of a request is over the limit in bytes."""

    status = 413
    exit_code = 2


class WrongMedia(WindlassError):
    """The body of a request is not JSON, or is compressed."""

    status = 415
    exit_code = 2


class TooMany(WindlassError):
    """A cap is reached; the caller may try again after `retry_after_s`."""

    status = 429
    exit_code = 5
    retry_after_s: float = 1.0


class Unavailable(WindlassError):
    """The database did not answer; nothing is known to be lost, try again after `retry_after_s`."""

    status = 503
    exit_code = 5
    retry_after_s: float = 1.0
    idempotency_key: str | None = None
    """Of a submit whose answer was lost: said again under this key, it is one job."""


class Contention(Unavailable):
    """A deadlock, a lock time-out or a busy file: nothing was written, running it again is safe."""


class CommitUnknown(Unavailable):
    """The connection broke at COMMIT and the fate of the transaction cannot be told."""


class Damaged(Unavailable):
    """A page of the database cannot be read, which no waiting mends: its file must be repaired or restored."""

    exit_code = 1
    retry_after_s = 60.0


class CommitAborted(Unavailable):
    """The connection broke and the transaction was surely not committed; running it again is safe."""


class NoResult(WindlassError):
    """The job has ended and has no result; `job_id` names it."""

    def __init__(self, message: str, *, job_id: UUID) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailed(NoResult):
    """The job is dead; what its last attempt said of the error."""

    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    """As the worker wrote it."""


class JobCancelled(NoResult):
    """The job was cancelled."""


class JobExpired(NoResult):
    """The job was not started by its deadline."""


class DutyLost(WindlassError):
    """The lease of a duty is over, or was taken away: whoever did its work stops at once."""


class SetupError(WindlassError):
    """This installation cannot run as it is."""


class DatabaseLocked(SetupError):
    """Another process has the server's role on this SQLite file."""

    exit_code = 4


class SchemaMismatch(SetupError):
    """The schema in the database is not the one this program knows."""


def code_of(kind: type[WindlassError]) -> str:
    """Return what programs know an error by."""
    return kind.code or _HUMP.sub("_", kind.__name__).lower()
