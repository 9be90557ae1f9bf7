"""What a worker and an isolated process say to each other, over a pair of sockets, as one JSON line each.

The process is given jobs one at a time and gives back how they ended; it has no key and no session, and asks nothing.
The worker's side is isolated.py, the other cell.py.
"""

from __future__ import annotations

from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from windlass.client.context import AboutJob
from windlass.wire.trail import LogLine
from windlass.worker.endings import Ending

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line ends the process that wrote it."""


class _Line(msgspec.Struct, frozen=True, tag_field="line"):
    """The form of all lines."""


class Setup(_Line, frozen=True, tag="setup"):
    """Worker, first: import this."""

    app_target: str
    log_bytes: int
    server_url: str | None = None
    """Where jobs go that its bodies submit; the worker's key does not come with it."""


class Run(_Line, frozen=True, tag="run"):
    """Worker: run this job."""

    about: AboutJob
    payload: Raw
    remaining_s: float | None


class Stop(_Line, frozen=True, tag="stop"):
    """Worker: the body is to stop."""

    job_id: UUID
    reason: str


class Press(_Line, frozen=True, tag="press"):
    """Worker: the body did not stop; SIGTERM comes now. One that comes from elsewhere means nothing."""

    job_id: UUID


class Up(_Line, frozen=True, tag="up"):
    """Process: everything is imported."""


class Broken(_Line, frozen=True, tag="broken"):
    """Process: it cannot be of use."""

    reason: str


class Wrote(_Line, frozen=True, tag="wrote"):
    """Process: the body wrote these."""

    lines: list[LogLine]
    dropped_count: int


class Noted(_Line, frozen=True, tag="noted"):
    """Process: the body says how far it is."""

    progress: Raw | UnsetType = UNSET
    checkpoint: Raw | UnsetType = UNSET


class Done(_Line, frozen=True, tag="done"):
    """Process: the body has ended. `worn`: it left something behind, let no other body run here."""

    ending: Ending
    cpu_s: float
    peak_mb: float
    worn: bool


FromWorker = Setup | Run | Stop | Press
FromCell = Up | Broken | Wrote | Noted | Done

_encode = msgspec.json.Encoder().encode
_from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_from_cell: msgspec.json.Decoder[FromCell] = msgspec.json.Decoder(FromCell)


def line(said: _Line) -> bytes:
    """Return what is said as it is written."""
    return _encode(said) + b"\n"


def from_worker(text: bytes) -> FromWorker:
    """Return what a worker said."""
    return _from_worker.decode(text)


def from_cell(text: bytes) -> FromCell:
    """Return what an isolated process said."""
    return _from_cell.decode(text)


class Lines:
    """Parts what comes over a socket into lines."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are whole now; ValueError if one is too long."""
        self._held += data
        lines = []
        start = 0
        while (end := self._held.find(b"\n", max(start, self._searched))) >= 0:
            lines.append(bytes(self._held[start:end]))
            start = end + 1
            self._searched = start
        del self._held[:start]
        self._searched = len(self._held)
        if len(self._held) > MAX_LINE_BYTES:
            raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        return lines
