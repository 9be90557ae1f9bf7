"""The trail of an attempt: what it wrote, how far it is, from where a later one may go on.

Lines are cut, cleaned of controls, redacted and counted here, so that no body can fill the memory of its worker:
what is over the cap is counted and dropped. Who finds the attempt for a line: capture.py. Where trails go: pools.py.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from windlass.clock import Clock, system_clock
from windlass.config.redact import Redactor
from windlass.wire.base import Started
from windlass.wire.trail import MAX_LINE, MAX_LINES, LogChunk, LogLine, Note, Stream

# Controls but the tab, what parts lines or turns their direction, and half surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_CUT = "…"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the lines of an attempt, and how."""

    cap_bytes: int
    redactor: Redactor
    clock: Clock = system_clock

    def clean(self, text: str) -> str:
        """Return a line as it may be stored and shown."""
        cut = len(text) > MAX_LINE
        text = text[:MAX_LINE]
        if _UNSAFE.search(text) is not None:
            text = _UNSAFE.sub(_escaped, text)
        text = self.redactor.text(text)
        return text[: MAX_LINE - 1] + _CUT if cut or len(text) > MAX_LINE else text


class Trail:
    """What one attempt leaves behind; written by any thread."""

    __slots__ = (
        "_chunk_count",
        "_closed",
        "_dirty",
        "_dropped_count",
        "_fresh",
        "_kept_bytes",
        "_lines",
        "_lock",
        "_note",
        "_partial",
        "_rules",
        "began_at",
        "checkpoint",
        "fence",
        "job_id",
        "stops_thread",
    )

    def __init__(self, job_id: UUID, fence: int, *, rules: Rules, fresh: deque[Trail]) -> None:
        self.job_id = job_id
        self.fence = fence
        self.checkpoint: Raw | UnsetType = UNSET
        self.stops_thread: list[int] = []
        """The thread whose next line of `logging` is to be its body's last (threads.py); who takes it out stops it."""
        self._rules = rules
        self._fresh = fresh
        self._lock = threading.Lock()
        self._lines: list[LogLine] = []
        self._partial: dict[Stream, str] | None = None
        self._kept_bytes = 0
        self._dropped_count = 0
        self._chunk_count = 0
        self._note: dict[str, Raw] | None = None
        self._dirty = False
        self._closed = False
        self.began_at: float | None = None
        """When its body began; None once its first lines or notes have said so."""

    def write(self, stream: Stream, text: str) -> None:
        """Keep what was printed, line by line; the last without its end waits for it."""
        with self._lock:
            if self._closed:
                return
            partial = self._partial or {}
            held = partial.pop(stream, "")
            start = 0
            while (end := text.find("\n", start)) >= 0:
                self._keep(stream, held + text[start : min(end, start + MAX_LINE + 1)].removesuffix("\r"), None)
                held = ""
                start = end + 1
                if self._kept_bytes >= self._rules.cap_bytes:
                    self._dropped_count += text.count("\n", start)
                    start = text.rfind("\n") + 1
                    break
            # One character more than a line may have: then it is known to be cut.
            held = (held + text[start : start + MAX_LINE + 1])[: MAX_LINE + 1]
            if held:
                partial[stream] = held
            self._partial = partial
            self._mark()

    def log(self, level: str, text: str) -> None:
        """Keep a line of `logging`; each line of a text of several is one."""
        with self._lock:
            if self._closed:
                return
            start, level = 0, _UNSAFE.sub(_escaped, level)[:20]
            while start <= len(text):
                end = text.find("\n", start)
                end = len(text) if end < 0 else end
                self._keep("log", text[start : min(end, start + MAX_LINE + 1)], level)
                start = end + 1
                if self._kept_bytes >= self._rules.cap_bytes:
                    self._dropped_count += text.count("\n", start) + (start <= len(text))
                    break
            self._mark()

    def add(self, lines: list[LogLine], dropped_count: int) -> None:
        """Keep lines that an isolated process has parted already."""
        with self._lock:
            if not self._closed:
                for line in lines:
                    self._keep(line.stream, line.text, line.level, at=line.at)
                self._dropped_count += dropped_count
                self._mark()

    def _keep(self, stream: Stream, text: str, level: str | None, *, at: datetime | None = None) -> None:
        rules = self._rules
        if self._kept_bytes >= rules.cap_bytes:
            self._dropped_count += 1
            return
        line = rules.clean(text)
        # An empty line has a place in a list too.
        self._kept_bytes += len(line.encode()) + 16
        self._lines.append(LogLine(at=at or rules.clock(), text=line, stream=stream, level=level))

    def progress(self, value: bytes) -> None:
        """Keep how far it is; only the last is told."""
        self._noted("progress", value)

    def keep_checkpoint(self, value: bytes) -> None:
        """Keep from where a later attempt may go on."""
        self.checkpoint = Raw(value)
        self._noted("checkpoint", value)

    def _noted(self, name: str, value: bytes) -> None:
        with self._lock:
            if not self._closed:
                self._note = {**(self._note or {}), name: Raw(value)}
                self._mark()

    def _mark(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._fresh.append(self)

    def close(self) -> None:
        """Take no more: the attempt has ended. Lines without an end are whole now."""
        with self._lock:
            for stream, text in (self._partial or {}).items():
                self._keep(stream, text, None)
                self._mark()
            self._partial = None
            self._closed = True

    def take(self, now: float | None = None) -> tuple[list[LogChunk], Note | None]:
        """Return what came since the last time; its first words, unless they are its last, say when it began."""
        started: Started = False
        with self._lock:
            self._dirty = False
            is_said = bool(self._lines or self._dropped_count or self._note)
            if now is not None and self.began_at is not None and is_said and not self._closed:
                started, self.began_at = max(0.0, now - self.began_at), None
            lines, self._lines = self._lines, []
            dropped_count, self._dropped_count = self._dropped_count, 0
            noted, self._note = self._note, None
            parts = [tuple(lines[start : start + MAX_LINES]) for start in range(0, len(lines), MAX_LINES)]
            if dropped_count and not parts:
                parts = [()]
            first = self._chunk_count
            self._chunk_count += len(parts)
        chunks = [
            LogChunk(
                job_id=self.job_id,
                fence=self.fence,
                seq=first + number,
                lines=part,
                dropped=dropped_count if number == len(parts) - 1 else 0,
                started=started if number == 0 else False,
            )
            for number, part in enumerate(parts)
        ]
        note = None if noted is None else Note(job_id=self.job_id, fence=self.fence, started=started, **noted)
        return chunks, note
