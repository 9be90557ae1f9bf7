"""The files of a SQLite database: private, served by one process, never taken as new by mistake.

A new file is 0600, whatever the umask; SQLite gives its log and shared memory the same permissions, and so does the
lock. A file that everybody may read, as older versions made it, becomes 0600 when its owner serves it; another user's
is warned of. Permissions for a group alone are on purpose and stay.
The lock file has the number of the serving process, and remembers that a database was made: a file that is empty
later was cut, and SQLite would begin a new one in it without a word.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import IO

from windlass import log
from windlass.errors import DatabaseLocked, SetupError

CHECK_S = 2.0
"""How long a file is read page by page when a server opens it: some gigabytes, or less from a slow disk."""
PRIVATE = 0o600
REPAIR = (
    "Stop whatever has it open and keep a copy; restore a backup, or save what can be read into a new file with "
    "`sqlite3 FILE .recover | sqlite3 NEW`."
)

ENDS = ("", "-wal", "-shm", ".lock", ".address")
"""Endings of the files that SQLite keeps beside a database."""

own_uid = os.geteuid

_MADE = "made"


def make_private(file: Path) -> None:
    """Make an empty file that only its owner may read, unless there is one; SetupError if it cannot be made."""
    try:
        # Not opened if it is there: closing it would end the locks that this process has on it.
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE))
    except FileExistsError:
        return
    except OSError as error:
        raise SetupError(f"Cannot open {file}: {error.strerror}. Check the path and its permissions.") from error


def check_is_kept(file: Path) -> None:
    """Raise SetupError if the file is empty or missing and a database was there."""
    real = file.resolve()
    size = _size(real)
    if size:
        return
    wal, lock = real.with_name(real.name + "-wal"), real.with_name(real.name + ".lock")
    left = wal if _size(wal) else lock if size is not None and _was_made(lock) else None
    if left is not None:
        raise SetupError(
            f"Cannot open {file}: it is {'missing' if size is None else 'empty'}, and a database was there: {left} is "
            f"left of it. Restore it from a backup; to begin anew, remove {left} too."
        )


def close_to_others(file: Path) -> None:
    """Make the files of a database 0600 that everybody may read; log it, or how to do it where they are another's."""
    real = file.resolve()
    paths = [path for end in ENDS if _is_open(path := real.with_name(real.name + end))]
    for path in paths:
        with contextlib.suppress(OSError):  # gone, or on a disk that takes no writes
            if path.stat().st_uid == own_uid():
                path.chmod(PRIVATE)
    if any(map(_is_open, paths)):
        log.event(
            "config.weak", detail=f"Everybody on this machine may read or write {file} and its jobs: chmod 600 {file}"
        )
    elif paths:
        log.event("config.weak", detail=f"Everybody on this machine could read {file} and its jobs; it is 0600 now.")


def lock_server_role(file: Path) -> IO[str]:
    """Return the open lock file; the operating system lets go of it when the process ends, however it ends."""
    real = file.resolve()  # the lock is of the file, by whatever link it is named
    try:
        mode = stat.S_IMODE(real.stat().st_mode) & 0o666 if real.exists() else PRIVATE
        lock = open(  # noqa: SIM115
            real.with_name(real.name + ".lock"),
            "a+",
            encoding="ascii",
            opener=lambda path, flags: os.open(path, flags, mode),
        )
    except OSError as error:
        raise SetupError(f"Cannot open {file}: {error.strerror}. Check the path and its permissions.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = next(iter(_words(lock)), "unknown")
        lock.close()
        raise DatabaseLocked(
            f"Cannot serve {file}: another server has it open (process {holder}). "
            "Stop that one first, or use PostgreSQL (--database) for several servers."
        ) from error
    _write(lock, str(os.getpid()), *_words(lock)[1:])
    return lock


def remember_made(lock: IO[str]) -> None:
    """Leave in the lock file that a database was made."""
    _write(lock, str(os.getpid()), _MADE)


def _words(lock: IO[str]) -> list[str]:
    lock.seek(0)
    return lock.read(40).split()


def _write(lock: IO[str], *words: str) -> None:
    lock.truncate(0)
    lock.write(" ".join(words))
    lock.flush()


def _was_made(lock: Path) -> bool:
    try:
        return _MADE in lock.read_text(encoding="ascii")[:40].split()
    except (OSError, ValueError):
        return False


def _is_open(path: Path) -> bool:
    """Say whether everybody on this machine may read or write a file; False if it is not there."""
    try:
        return bool(path.stat().st_mode & 0o007)
    except OSError:
        return False


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
