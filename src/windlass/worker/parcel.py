"""Parcels: what goes to the server in one request, within its bounds, and what to do with one that is refused. Pure.

Lines of an attempt go before its end or with it, never after: the server takes nothing for a lease that is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
from msgspec import UnsetType

from windlass.errors import InvalidInput
from windlass.wire import work as wire
from windlass.wire.trail import LogChunk, Note
from windlass.worker.endings import MAX_MESSAGE, plain
from windlass.worker.frames import Lease

MOST_ENTRIES = 1000
MOST_BYTES = 7 << 20
"""Of one request: below what servers take, so that names and quotes fit too."""
ENTRY_BYTES = 400
"""What an entry takes beside its texts."""
LINE_BYTES = 120


class Parcel(msgspec.Struct, frozen=True):
    """The content of one request."""

    entries: tuple[wire.Entry, ...]
    chunks: tuple[LogChunk, ...] = ()
    notes: tuple[Note, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries or self.chunks or self.notes)


class Wrapper:
    """What waits to be sent, and the next parcel of it."""

    def __init__(self) -> None:
        self.entries: deque[wire.Entry] = deque()
        self._chunks: deque[LogChunk] = deque()
        self._notes: deque[Note] = deque()

    def add_trail(self, chunks: Iterable[LogChunk], notes: Iterable[Note]) -> None:
        """Add lines and notes, in order."""
        self._chunks.extend(chunks)
        self._notes.extend(notes)

    def put_back(self, parcels: Iterable[Parcel]) -> None:
        """Let these go first again: they were not told."""
        for parcel in reversed(list(parcels)):
            self.entries.extendleft(reversed(parcel.entries))
            self._chunks.extendleft(reversed(parcel.chunks))
            self._notes.extendleft(reversed(parcel.notes))

    def stamp(self, session: UUID) -> None:
        """Note with all ends that wait that they are of this session, but for those of an earlier one."""
        self.entries = deque(stamped(Parcel(tuple(self.entries)), session).entries)

    def clear(self) -> None:
        """Forget everything: it is not told."""
        self.entries.clear()
        self._chunks.clear()
        self._notes.clear()

    def next(self) -> Parcel:
        """Return the next parcel; an empty one when nothing waits."""
        size = 0
        chunks: list[LogChunk] = []
        while self._chunks and len(chunks) < MOST_ENTRIES and size < MOST_BYTES // 2:
            chunks.append(self._chunks.popleft())
            size += _bytes_of_chunk(chunks[-1])
        notes: list[Note] = []
        while self._notes and len(notes) < MOST_ENTRIES and size < MOST_BYTES // 2:
            notes.append(self._notes.popleft())
            size += ENTRY_BYTES + _length(notes[-1].progress) + _length(notes[-1].checkpoint)
        return Parcel(tuple(self._entries(size)), tuple(chunks), tuple(notes))

    def _entries(self, size: int) -> list[wire.Entry]:
        behind: set[Lease] = {(chunk.job_id, chunk.fence) for chunk in self._chunks}
        behind.update((note.job_id, note.fence) for note in self._notes)
        taken: list[wire.Entry] = []
        left: list[wire.Entry] = []
        while self.entries and len(taken) < MOST_ENTRIES:
            entry = self.entries.popleft()
            if behind and lease_of(entry) in behind:
                left.append(entry)
                continue
            size += bytes_of(entry)
            if size > MOST_BYTES and taken:
                left.append(entry)
                break
            taken.append(entry)
        if left:
            self.entries.extendleft(reversed(left))
        return taken


def stamped(parcel: Parcel, session: UUID) -> Parcel:
    """Return the parcel with entries that name their session: this one, if they name none."""
    named = [entry if entry.session else msgspec.structs.replace(entry, session=session) for entry in parcel.entries]
    return msgspec.structs.replace(parcel, entries=tuple(named))


def lease_of(entry: wire.Entry) -> Lease:
    """Return the lease whose end an entry tells; a worker names the fence of all."""
    assert not isinstance(entry.fence, UnsetType)
    return entry.job_id, entry.fence


def bytes_of(entry: wire.Entry) -> int:
    """Return about how much of a request an entry takes."""
    if isinstance(entry, wire.CompleteEntry):
        return ENTRY_BYTES + _length(entry.result)
    if isinstance(entry, wire.FailEntry):
        # A character may take six bytes in JSON.
        return ENTRY_BYTES + 6 * (len(entry.error_message) + len(entry.traceback or ""))
    return ENTRY_BYTES + _length(entry.checkpoint)


def within(entry: wire.Entry, longest: int) -> wire.Entry:
    """Return an entry that a server takes: one whose result is too long fails instead."""
    if isinstance(entry, wire.CompleteEntry) and (size := _length(entry.result)) > longest:
        problem = f"The result has {size} bytes, more than {longest}. Store the data elsewhere and return its address."
        return failed(entry, problem, error_type="result_too_large")
    return entry


def failed(entry: wire.CompleteEntry, problem: str, *, error_type: str) -> wire.FailEntry:
    """Return the failure, not to be retried, of a job whose result cannot be kept."""
    return wire.FailEntry(
        job_id=entry.job_id,
        fence=entry.fence,
        session=entry.session,
        error_message=problem,
        error_type=error_type,
        retryable=False,
        metrics=entry.metrics,
        duration_seconds=entry.duration_seconds,
    )


def parted(parcel: Parcel, error: Exception) -> list[Parcel]:
    """Return what to send in place of a parcel that was refused; nothing if nothing of it can be told.

    The poison is what the error names; else it is found by parts, so that nothing else is lost with it.
    """
    named = isinstance(error, InvalidInput) and error.batch in ("reports", "jobs")  # and not lines or notes
    index = error.index if isinstance(error, InvalidInput) and named else None
    if index is not None and index < len(parcel.entries):
        mended = _mended(parcel.entries[index], error)
        entries = (*parcel.entries[:index], *mended, *parcel.entries[index + 1 :])
        return [msgspec.structs.replace(parcel, entries=entries)]
    if parcel.entries and (parcel.chunks or parcel.notes):
        return [msgspec.structs.replace(parcel, entries=()), Parcel(parcel.entries)]
    if len(parcel.entries) > 1:
        middle = len(parcel.entries) // 2
        return [Parcel(parcel.entries[:middle]), Parcel(parcel.entries[middle:])]
    if parcel.entries:
        mended = _mended(parcel.entries[0], error)
        return [Parcel(mended)] if mended else []
    if len(parcel.chunks) + len(parcel.notes) > 1:
        single = [Parcel((), (chunk,)) for chunk in parcel.chunks]
        return [*single, *(Parcel((), (), (note,)) for note in parcel.notes)]
    return []


def _mended(entry: wire.Entry, error: Exception) -> tuple[wire.Entry, ...]:
    """Return what to tell in place of an entry that was refused: a failure, which says why; nothing if that was it.

    One that is given back goes without its checkpoint first.
    """
    problem = plain(f"The server did not take {_WHAT[type(entry)]}: {error}", MAX_MESSAGE)
    if isinstance(entry, wire.CompleteEntry):
        return (failed(msgspec.structs.replace(entry, metrics=None), problem, error_type="result_refused"),)
    if isinstance(entry, wire.ReleaseEntry | wire.SnoozeEntry) and _length(entry.checkpoint):
        return (msgspec.structs.replace(entry, checkpoint=msgspec.UNSET),)
    if isinstance(entry, wire.FailEntry) and entry.error_type in ("result_refused", "report_refused"):
        return ()
    refused = wire.FailEntry(
        job_id=entry.job_id,
        fence=entry.fence,
        session=entry.session,
        error_message=problem,
        error_type="report_refused",
        retryable=False,
    )
    return (refused,)


_WHAT: dict[type[wire.Entry], str] = {
    wire.CompleteEntry: "the result",
    wire.FailEntry: "how the task failed",
    wire.ReleaseEntry: "that the job was given back",
    wire.SnoozeEntry: "that the job was put off",
}


def _length(raw: msgspec.Raw | UnsetType | None) -> int:
    return 0 if raw is None or isinstance(raw, UnsetType) else len(raw)


def _bytes_of_chunk(chunk: LogChunk) -> int:
    return ENTRY_BYTES + sum(LINE_BYTES + 2 * len(line.text) for line in chunk.lines)


def dropped(parcel: Parcel, parts: Sequence[Parcel]) -> list[wire.Entry]:
    """Return the entries that none of the parts tells."""
    told = {lease_of(entry) for part in parts for entry in part.entries}
    return [entry for entry in parcel.entries if lease_of(entry) not in told]
