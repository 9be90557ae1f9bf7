"""The address file: where the server of a SQLite file listens, left beside the file for programs on this machine.

`windlass.db` has `windlass.db.address` while a server has it open and listens. A server that was killed leaves the file
behind: it is believed only while its process lives, and, if nobody answers there, while somebody has the lock of the
server's role (db/files.py). Callers send their key there, so it must be written by this user or by the database's
owner, be closed to everybody else's writing, and lead to this machine; only what this user wrote may lead to the name
of a certificate. Who may read the database may read its address.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

LONGEST = 65_536
"""Bytes that are read of an address file."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens, and which process it is."""

    url: str
    pid: int
    version: str


def sqlite_file(database_url: str) -> Path | None:
    """Return the file of a SQLite database, by whatever link it is named; None for another database."""
    parts = urlsplit(database_url)
    name = unquote(parts.path).removeprefix("/")
    return Path(name).resolve() if parts.scheme == "sqlite" and name else None


def address_file(file: Path) -> Path:
    """Return where the address of the server of a SQLite file stands."""
    return file.with_name(file.name + ".address")


def write_address(path: Path, address: Address) -> None:
    """Leave an address; readers see the one before or this one whole."""
    file, written = _database_of(path), path.with_name(f"{path.name}.{address.pid}")
    mode = file.stat().st_mode & 0o644 if file.exists() else 0o600
    with contextlib.suppress(FileNotFoundError):
        written.unlink()
    # Made anew: what somebody else has put there, perhaps a link, is not written to.
    with os.fdopen(os.open(written, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), "wb") as opened:
        opened.write(msgspec.json.encode(address))
    written.replace(path)


def remove_address(path: Path, pid: int) -> None:
    """Take the address away, unless it is another process's."""
    found = _read(path)
    if found is not None and found[0].pid == pid:
        path.unlink(missing_ok=True)


def read_address(path: Path) -> Address | None:
    """Return the address of a process that lives here; None if there is none, or none to be believed."""
    found = _read(path)
    if found is None:
        return None
    address, read = found
    return address if _lives(address.pid) and _is_believed(read, _database_of(path), address.url) else None


def is_served(file: Path) -> bool:
    """Say whether some process has the server's role on a SQLite file."""
    try:
        with file.with_name(file.name + ".lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            return False
    except OSError:
        return False


def _read(path: Path) -> tuple[Address, os.stat_result] | None:
    """Return what the file says, and whose it is: of one opened file, which nobody can exchange in between."""
    try:
        with path.open("rb") as opened:
            return msgspec.json.decode(opened.read(LONGEST), type=Address), os.fstat(opened.fileno())
    except (OSError, msgspec.MsgspecError):
        return None


def _is_believed(read: os.stat_result, database: Path, url: str) -> bool:
    """Say whether a key may be sent to an address."""
    if read.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_here = host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)
        if read.st_uid == os.geteuid():
            return is_here or parts.scheme == "https"
        return is_here and read.st_uid == database.stat().st_uid
    except (OSError, ValueError):
        return False


def _database_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".address"))


def _is_number(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdecimal()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's
        return True
    except (OSError, OverflowError):
        return False
    return True
