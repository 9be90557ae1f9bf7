"""Finding a server: by its address if one is given, else by the SQLite file, else without one.

    WINDLASS_URL, or `url`             → HTTP
    `windlass.db.address` of a server  → HTTP, to the server that has the file open
    otherwise                          → an engine inside this program, on the file or on PostgreSQL

So the same program works before, while and after `windlass up` runs: the way is looked for again when a server that was
found has gone, and when one has come.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from windlass.client.doors import Door, EmbeddedDoor, HttpDoor
from windlass.config import Settings, load
from windlass.config.address import address_file, is_served, read_address, sqlite_file
from windlass.config.settings import Server
from windlass.errors import InvalidInput


class Finder:
    """Knows what was said about the server, and looks for it."""

    def __init__(self, url: str | None, *, key: str | None, database: str | None, settings: Settings | None) -> None:
        if url is not None and database is not None:
            raise InvalidInput("database", "url is given too. Give one of them.")
        self._said = (url, key, database, settings)
        self.forget()

    def forget(self) -> None:
        """Know only what was said about the server: settings are read again, and it is looked for anew."""
        self._url, self._key, self._database, self._settings = self._said
        self._read = False
        self._file: Path | None = None
        """Of the SQLite database, wherever the program goes afterwards."""
        self._seen: tuple[int, int] | None = None
        """Which address file was there when it was last looked at."""

    @property
    def database(self) -> str | None:
        """The database that was named; None: the settings name it."""
        return self._database

    def use(self, settings: Settings) -> None:
        """Go to the server of these settings from now on, whatever was said before."""
        # Its own key was not meant for another server.
        is_elsewhere = self._url not in (None, settings.server.url)
        key = settings.client.key or (None if is_elsewhere else self._key)
        self._said = (settings.server.url, key, None, settings)
        self.forget()

    def find(self, before: Door | None, *, refused: bool = False) -> Door:
        """Return the door to use now, the one before if it leads the same way; `refused`: nobody was there."""
        settings = self._loaded()
        url = self._url
        if url is not None:
            return _same(before, HttpDoor(url, key=settings.client.key))
        found = self._address(unless=before.where if refused and before else None)
        if found is not None:
            return _same(before, HttpDoor(found, key=settings.client.key, is_found=True))
        return _same(before, EmbeddedDoor(settings))

    def has_come(self, door: Door) -> bool:
        """Say whether another door may be the right one by now: a server has come, or all was forgotten. Cheap."""
        if not self._read:
            return True
        if not isinstance(door, EmbeddedDoor):
            return False
        # What a killed server left behind was seen, and is not looked at again.
        return self._mark() not in (None, self._seen)

    def _mark(self) -> tuple[int, int] | None:
        """Tell one address file from the next: each is a new file."""
        if self._file is None:
            return None
        try:
            found = address_file(self._file).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _address(self, *, unless: str | None) -> str | None:
        self._seen = self._mark()
        address = None if self._file is None else read_address(address_file(self._file))
        if self._file is None or address is None:
            return None
        # Another process may have the number of one that was killed, and nobody listens there.
        return None if address.url == unless and not is_served(self._file) else address.url

    def _loaded(self) -> Settings:
        if not self._read:
            flags = {"server.url": self._url, "client.key": self._key, "database.url": self._database}
            if self._settings is None:
                loaded = load(flags, os.environ, Path.cwd())
                settings = loaded.settings
                named = loaded.sources["server.url"] != "default"
            else:
                settings = _over(self._settings, key=self._key, database=self._database)
                named = settings.server.url != Server().url
            if self._url is None and self._database is None and named:
                self._url = settings.server.url
            self._file = sqlite_file(settings.database.url)
            self._settings, self._read = settings, True
        assert self._settings is not None
        return self._settings


def _same(before: Door | None, door: Door) -> Door:
    """Return the door before if it leads the same way, with what it has open; the other was not opened yet."""
    return before if before is not None and before.way == door.way else door


def _over(settings: Settings, *, key: str | None, database: str | None) -> Settings:
    replace = msgspec.structs.replace
    if key is not None:
        settings = replace(settings, client=replace(settings.client, key=key))
    if database is not None:
        settings = replace(settings, database=replace(settings.database, url=database))
    return settings
