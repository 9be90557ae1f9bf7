"""What goes to the server in one request, and what becomes of a request that it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import Raw

from windlass.errors import BodyTooLarge, InvalidInput
from windlass.wire import work as wire
from windlass.wire.trail import LogChunk, LogLine, Note
from windlass.worker.parcel import MOST_BYTES, MOST_ENTRIES, Parcel, Wrapper, dropped, parted, within

AT = datetime(2026, 1, 1, tzinfo=UTC)


def done(result: bytes = b"1", job_id: UUID | None = None) -> wire.CompleteEntry:
    """Return a success."""
    return wire.CompleteEntry(job_id=job_id or uuid4(), fence=1, result=Raw(result))


def chunk(job_id: UUID, *, length: int = 10) -> LogChunk:
    """Return lines of an attempt."""
    return LogChunk(job_id=job_id, fence=1, seq=0, lines=(LogLine(at=AT, text="x" * length),))


def parcels(wrapper: Wrapper) -> Iterator[Parcel]:
    """Yield everything that waits."""
    while parcel := wrapper.next():
        yield parcel


def test_a_parcel_has_at_most_a_thousand_ends() -> None:
    """More go with the next, in order."""
    wrapper = Wrapper()
    entries = [done() for _ in range(MOST_ENTRIES + 5)]
    wrapper.entries.extend(entries)

    first, second = parcels(wrapper)

    assert entries == [*first.entries, *second.entries]
    assert MOST_ENTRIES == len(first.entries)


def test_a_parcel_has_at_most_so_many_bytes() -> None:
    """Large results are spread over requests, none lost; one alone goes whatever it weighs."""
    wrapper = Wrapper()
    entries = [done(b"1" * (MOST_BYTES // 3)) for _ in range(5)] + [done(b"1" * (MOST_BYTES + 1))]
    wrapper.entries.extend(entries)

    sent = list(parcels(wrapper))

    assert [2, 2, 1, 1] == [len(parcel.entries) for parcel in sent]
    assert entries == [entry for parcel in sent for entry in parcel.entries]


def test_lines_go_before_the_end_of_their_attempt() -> None:
    """An end waits for lines of its attempt that found no room; those of others do not keep it."""
    wrapper = Wrapper()
    noisy, quiet = uuid4(), uuid4()
    wrapper.add_trail([chunk(noisy, length=1 << 20) for _ in range(5)], [Note(job_id=noisy, fence=1)])
    wrapper.entries.extend([done(job_id=noisy), done(job_id=quiet)])

    first, *others = parcels(wrapper)

    assert [quiet] == [entry.job_id for entry in first.entries]
    assert [noisy] == [entry.job_id for entry in others[-1].entries]
    assert 5 == len(first.chunks) + sum(len(parcel.chunks) for parcel in others)


def test_what_was_not_told_goes_first_again() -> None:
    """A parcel that is put back is the next one, whole."""
    wrapper = Wrapper()
    job = uuid4()
    wrapper.add_trail([chunk(job)], [Note(job_id=job, fence=1)])
    wrapper.entries.append(done(job_id=job))
    parcel = wrapper.next()
    wrapper.entries.append(done())

    wrapper.put_back([parcel])

    again = wrapper.next()
    assert (parcel.chunks, parcel.notes, parcel.entries) == (again.chunks, again.notes, again.entries[:1])


def test_too_long_a_result_fails_before_it_is_sent() -> None:
    """The job fails for good, and is told why; one that fits is left as it is."""
    fits, large = done(b"12"), done(b"123")

    failed = within(large, 2)

    assert fits is within(fits, 2)
    assert isinstance(failed, wire.FailEntry)
    assert (False, "result_too_large", large.job_id) == (failed.retryable, failed.error_type, failed.job_id)
    assert "3 bytes, more than 2" in failed.error_message


def test_the_entry_that_a_refusal_names_fails() -> None:
    """The others are told as they were."""
    parcel = Parcel((done(), done(), done()), (chunk(uuid4()),))

    [mended] = parted(parcel, InvalidInput("result", "no JSON.", index=1))

    first, poison, last = mended.entries
    assert (parcel.entries[0], parcel.entries[2], parcel.chunks) == (first, last, mended.chunks)
    assert isinstance(poison, wire.FailEntry)
    assert not poison.retryable
    assert "no JSON" in poison.error_message


@pytest.mark.parametrize("poison", range(5))
@pytest.mark.parametrize("error", [InvalidInput("body", "odd."), BodyTooLarge("large"), TypeError("odd")])
def test_an_unnamed_poison_is_found_by_parts(poison: int, error: Exception) -> None:
    """Whatever cannot be told, all else is, and the poisoned job fails."""
    entries = tuple(done() for _ in range(5))
    told: list[Any] = []
    waiting = [Parcel(entries, (chunk(uuid4()),))]

    while waiting:
        parcel = waiting.pop(0)
        if entries[poison] in parcel.entries:
            waiting = parted(parcel, error) + waiting
        else:
            told += [*parcel.chunks, *parcel.entries]

    assert 6 == len(told)
    assert 1 == sum(isinstance(item, wire.FailEntry) for item in told)
    assert entries[poison].job_id in {item.job_id for item in told}


def test_a_checkpoint_that_is_refused_does_not_keep_its_job() -> None:
    """A job that is given back goes back without it."""
    release = wire.ReleaseEntry(job_id=uuid4(), fence=1, checkpoint=Raw(b"[1]"))

    [mended] = parted(Parcel((release,)), InvalidInput("checkpoint", "too large.", index=0))

    assert (wire.ReleaseEntry(job_id=release.job_id, fence=1),) == mended.entries
    [[told]] = [part.entries for part in parted(mended, InvalidInput("reason", "bad.", index=0))]
    assert isinstance(told, wire.FailEntry)


def test_lines_that_are_refused_keep_nothing_back() -> None:
    """The poison may be a line: it is left out, and the ends and the other lines are told."""
    bad, good, end = chunk(uuid4()), chunk(uuid4()), done()
    told: list[Any] = []
    waiting = [Parcel((end,), (good, bad))]

    while waiting:
        parcel = waiting.pop(0)
        if bad in parcel.chunks:
            waiting = parted(parcel, InvalidInput("lines", "odd.")) + waiting
        else:
            told += [*parcel.chunks, *parcel.entries]

    assert [good, end] == told


def test_a_refused_line_with_an_index_fails_no_job() -> None:
    """The index is that of a list: what is said of a line is not said of an end."""
    parcel = Parcel((done(), done()), (chunk(uuid4()), chunk(uuid4())))

    parts = parted(parcel, InvalidInput("text", "odd.", index=1, batch="logs"))

    assert list(parcel.entries) == [entry for part in parts for entry in part.entries]


@pytest.mark.parametrize(
    "entry",
    [
        wire.FailEntry(job_id=UUID(int=1), fence=3, error_type="odd"),
        wire.SnoozeEntry(job_id=UUID(int=1), fence=3, delay=1.0),
        wire.ReleaseEntry(job_id=UUID(int=1), fence=3),
    ],
)
def test_an_end_that_is_refused_is_a_failure_for_good(entry: wire.Entry) -> None:
    """Not told at all, the job would run again, and again be refused, without using an attempt."""
    [part] = parted(Parcel((entry,)), InvalidInput("reason", "odd."))

    [told] = part.entries
    assert isinstance(told, wire.FailEntry)
    assert (UUID(int=1), 3, False, "report_refused") == (told.job_id, told.fence, told.retryable, told.error_type)
    assert "reason: odd." in told.error_message


def test_an_end_that_nobody_takes_is_known_as_dropped() -> None:
    """A failure that is refused again cannot be told in other words."""
    parcel = Parcel((wire.FailEntry(job_id=uuid4(), fence=1, error_type="report_refused"),))

    parts = parted(parcel, InvalidInput("error_message", "odd."))

    assert [] == parts
    assert list(parcel.entries) == dropped(parcel, parts)
