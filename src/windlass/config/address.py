"""The address file: where the server of a SQLite file listens, left beside the file for programs on this machine.

`windlass.db` has `windlass.db.address` while a server has it open and listens. A server that was killed leaves the file
behind: it is believed only while its process lives, and, if nobody answers there, while somebody has the lock of the
server's role (db/sqlite.py). Callers send their key there, so it must be written by this user or by the database's
owner, and lead to this machine; only what this user wrote may lead to the name of a certificate.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec


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
    written = path.with_name(f"{path.name}.{address.pid}")
    written.write_bytes(msgspec.json.encode(address))
    written.replace(path)


def remove_address(path: Path, pid: int) -> None:
    """Take the address away, unless it is another process's."""
    found = _read(path)
    if found is not None and found.pid == pid:
        path.unlink(missing_ok=True)


def read_address(path: Path) -> Address | None:
    """Return the address of a process that lives here; None if there is none, or none to be believed."""
    found = _read(path)
    return found if found is not None and _lives(found.pid) and _is_believed(path, found.url) else None


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


def _read(path: Path) -> Address | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Address)
    except (OSError, msgspec.MsgspecError):
        return None


def _is_believed(path: Path, url: str) -> bool:
    """Say whether a key may be sent to an address."""
    try:
        writer = path.stat().st_uid
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_here = host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)
        if writer == os.geteuid():
            return is_here or parts.scheme == "https"
        return is_here and writer == path.with_name(path.name.removesuffix(".address")).stat().st_uid
    except (OSError, ValueError):
        return False


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
