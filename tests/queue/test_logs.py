"""Logs: whose lines are kept, once and in order, up to a bound, and how they are read back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.queue.steps import Steps
from windlass.errors import InvalidInput
from windlass.queue import logs, retention
from windlass.queue.claim import Claimed
from windlass.queue.logs import Chunk, Line


def chunk(steps: Steps, lease: Claimed, *texts: str, seq: int = 0, **fields: Any) -> Chunk:
    """Return lines of the worker that holds the lease, or as the fields say."""
    lines = [Line(steps.clock.now(), text) for text in texts]
    return Chunk(**{**steps.named(lease), "seq": seq, "lines": lines, **fields})


async def texts(steps: Steps, job_id: UUID, **more: Any) -> list[str]:
    """Return the lines of a job's log."""
    return [written.line.text for written in (await logs.read(steps.db, job_id, **more)).lines]


async def test_lines_are_kept_in_order_with_their_attempt(steps: Steps) -> None:
    """Chunks are read in the order of their attempt and number, whatever the order they came in."""
    lease = await steps.running(await steps.worker())
    line = Line(steps.clock.now(), "shown", "stdout", "INFO")

    grown = await logs.keep(steps.db, [chunk(steps, lease, "c", seq=1), chunk(steps, lease, "a", "b", seq=0)])
    await logs.keep(steps.db, [chunk(steps, lease, seq=2, lines=[line], dropped=3)])
    await steps.release(lease)
    again = await steps.claim_one(await steps.worker("bob"))
    await logs.keep(steps.db, [chunk(steps, again, "again")])
    page = await logs.read(steps.db, lease.id)

    assert {lease.id} == grown
    assert ["a", "b", "c", "shown", "again"] == [written.line.text for written in page.lines]
    assert (line, 3, None) == (page.lines[3].line, page.dropped, page.following)
    assert [(1, 1, 0, 0), (1, 1, 0, 1), (1, 2, 0, 0)] == [
        (written.attempt, written.fence, written.seq, written.index) for written in (*page.lines[:2], page.lines[4])
    ]


async def test_the_same_chunk_twice_is_kept_once(steps: Steps) -> None:
    """A worker that got no answer says it again: in the same batch or a later one, it stands there once."""
    lease = await steps.running(await steps.worker())
    said = chunk(steps, lease, "once")

    await logs.keep(steps.db, [said, said])
    grown = await logs.keep(steps.db, [said, chunk(steps, lease, "twice", seq=1)])

    assert {lease.id} == grown
    assert ["once", "twice"] == await texts(steps, lease.id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"fence": 2},
        {"worker": "bob"},
        {"tenant": "other"},
        {"session": UUID(int=7)},
        {"job_id": UUID(int=7)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_only_the_holder_of_the_lease_writes(steps: Steps, wrong: dict[str, Any]) -> None:
    """Lines with another fence, worker, tenant, session or job are dropped, and take no place of the holder's."""
    lease = await steps.running(await steps.worker())

    await logs.keep(steps.db, [chunk(steps, lease, "no", **wrong), chunk(steps, lease, "yes")])

    assert ["yes"] == await texts(steps, lease.id)
    assert [] == await texts(steps, UUID(int=7))


async def test_late_lines_of_a_lease_that_is_gone_are_dropped(steps: Steps) -> None:
    """After its end an attempt writes nothing more."""
    lease = await steps.running(await steps.worker())
    await steps.complete(lease)

    grown = await logs.keep(steps.db, [chunk(steps, lease, "late")])

    assert (set(), []) == (grown, await texts(steps, lease.id))


async def test_an_attempt_writes_no_more_than_its_bound(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunk that goes beyond is kept as a count of dropped lines, those after it not at all; others still write."""
    monkeypatch.setattr(logs, "MAX_BYTES", 200)
    ann = await steps.worker()
    lease, other = await steps.running(ann), await steps.running(ann)

    await logs.keep(steps.db, [chunk(steps, lease, "x" * 90), chunk(steps, lease, "y" * 90, "z", seq=1)])
    await logs.keep(steps.db, [chunk(steps, lease, "w", seq=2), chunk(steps, other, "v")])
    page = await logs.read(steps.db, lease.id)

    assert (["x" * 90], 2) == ([written.line.text for written in page.lines], page.dropped)
    assert ["v"] == await texts(steps, other.id)


async def test_a_log_is_read_page_by_page(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page goes on where the one before ended, also inside a chunk; an attempt may be asked for by number."""
    monkeypatch.setattr(logs, "CHUNKS", 2)
    lease = await steps.running(await steps.worker())
    for seq in range(4):
        await logs.keep(steps.db, [chunk(steps, lease, f"{seq}a", f"{seq}b", seq=seq)])

    found: list[str] = []
    after: tuple[int, int, int] | None = (0, 0, 0)
    while after is not None:
        page = await logs.read(steps.db, lease.id, after=after, limit=3)
        found += [written.line.text for written in page.lines]
        after = page.following

    assert ["0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"] == found
    assert (1, 4, 0) == page.last
    assert ["1b", "2a"] == await texts(steps, lease.id, after=(1, 1, 1), limit=2)
    assert ([], 8) == (await texts(steps, lease.id, attempt=2), len(await texts(steps, lease.id, attempt=1)))


async def test_large_chunks_are_kept_whole(steps: Steps) -> None:
    """What is compressed and read on a thread is the same as what is not; a page of large lines is cut by its size."""
    lease = await steps.running(await steps.worker())
    long = [f"{number:05}".ljust(logs.MAX_LINE, "é") for number in range(80)]

    await logs.keep(steps.db, [chunk(steps, lease, *long)])
    page = await logs.read(steps.db, lease.id)
    assert page.following is not None
    rest = await logs.read(steps.db, lease.id, after=page.following)

    assert long == [written.line.text for written in (*page.lines, *rest.lines)]


async def test_old_lines_go_with_their_day(steps: Steps) -> None:
    """Retention removes lines as old as the history it removes."""
    lease = await steps.running(await steps.worker(lease_s=86_400))
    await logs.keep(steps.db, [chunk(steps, lease, "old")])

    for _ in range(9):
        steps.clock.advance(86_400)
        await retention.sweep(steps.db, days=7)

    assert [] == await texts(steps, lease.id)


def test_rel_k14_controls_are_kept_out_of_lines() -> None:
    """NUL, escapes and halves of surrogate pairs become characters that everything can show; line breaks stay."""
    assert "a␀b␛[31m\t\n�?" == logs.clean("a\x00b\x1b[31m\t\n\x9b\ud800")
    assert logs.MAX_LINE == len(logs.clean("x" * (logs.MAX_LINE + 1)))


@pytest.mark.parametrize(
    ("text", "place"), [("1.2.3", (1, 2, 3)), ("1.2", (1, 3, 0)), ("99999999999.1", None), ("1", None), ("a.b", None)]
)
def test_a_place_in_a_log_is_written_as_numbers(text: str, place: tuple[int, int, int] | None) -> None:
    """A cursor is fence, chunk and line; without the line it is after the whole chunk; the rest is refused."""
    if place is None:
        with pytest.raises(InvalidInput, match="after"):
            logs.parse_place(text)
    else:
        assert place == logs.parse_place(text)
