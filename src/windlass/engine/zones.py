"""Zones: which rules of zones this machine has, and the look at all schedules when they are others than before.

The rules are those that Python's zoneinfo reads: the machine's own, else the package tzdata. A process keeps what it
has read, so a change counts from its next start on. What is done then stands in queue/zonerules.py.
"""

from __future__ import annotations

import hashlib
import zoneinfo
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from uuid import UUID

from windlass.db import Database
from windlass.queue import zonerules

MARKED = (
    *("Europe/Berlin", "America/New_York", "Africa/Casablanca", "Africa/Cairo", "Asia/Gaza", "Asia/Beirut"),
    *("Asia/Almaty", "Asia/Manila", "America/Asuncion", "America/Mexico_City", "America/Santiago", "America/Sao_Paulo"),
    *("America/Nuuk", "Pacific/Fiji", "Antarctica/Vostok", "Europe/Kyiv", "Asia/Tehran", "Australia/Sydney"),
)
"""Zones by which rules without a version are told apart."""


def installed_rules() -> str:
    """Return the version of the zone rules that this process computes with, or a mark of what they are."""
    for folder in map(Path, zoneinfo.TZPATH):
        if any((folder / zone).is_file() for zone in MARKED):
            return _version_in(folder) or f"mark {_mark_of(folder)}"
    try:
        return f"tzdata {metadata.version('tzdata')}"
    except metadata.PackageNotFoundError:
        return "unknown"


def _version_in(folder: Path) -> str | None:
    for name in ("tzdata.zi", "+VERSION"):
        try:
            with (folder / name).open(encoding="utf-8") as lines:
                return lines.readline().strip("# \n")
        except OSError:
            continue
    return None


def _mark_of(folder: Path) -> str:
    """Return a hash over some zones: those whose rules are changed most often."""
    mark = hashlib.sha256()
    for zone in MARKED:
        with suppress(OSError):
            mark.update((folder / zone).read_bytes())
    return mark.hexdigest()[:16]


class Zones:
    """The look at all schedules after a change of the rules, a chunk at a time."""

    def __init__(self, rules: str) -> None:
        self._rules = rules
        self._after: UUID | None = None
        """The schedule after which the next chunk begins; None: there is nothing to do."""

    @property
    def busy(self) -> bool:
        """Whether there are schedules that have not been looked at."""
        return self._after is not None

    async def begin(self, db: Database) -> None:
        """Begin with the first schedule if the rules have changed."""
        self._after = zonerules.FIRST_ID if await zonerules.changed(db, self._rules) else None

    async def go_on(self, db: Database, cpu_s: Callable[[], float]) -> int:
        """Look at the next chunk; return how many schedules were moved."""
        if self._after is None:
            return 0
        renewed = await zonerules.renew(db, after=self._after, cpu_s=cpu_s)
        self._after = renewed.after
        if self._after is None:
            await zonerules.note(db, self._rules)
        return renewed.moved
