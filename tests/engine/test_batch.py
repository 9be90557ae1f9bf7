"""Natural batching: who shares a flush, who is found to be at fault, and what is run again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from windlass.engine import batch
from windlass.engine.batch import MOST_ROWS, MUCH, TRIES, Batcher
from windlass.engine.fair import MOST_REST_S, LargeWrites, Recent
from windlass.engine.outside import Outside
from windlass.engine.weights import Weight
from windlass.errors import CommitUnknown, Contention, InvalidInput, TooMany, Unavailable, WindlassError


async def _no_pause(_: float) -> None:
    await asyncio.sleep(0)


OUTSIDE = Outside(pause=_no_pause, chance=lambda: 0.5)


class Flushes:
    """A flush that writes down its batches and waits for the test where it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.poison: set[str] = set()
        self.errors: list[Exception] = []

    async def __call__(self, requests: Sequence[str]) -> list[str | WindlassError]:
        self.batches.append(list(requests))
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        if bad := self.poison & set(requests):
            raise InvalidInput("payload", f"{sorted(bad)[0]} cannot be stored.")
        return [request.upper() for request in requests]


def weigh(word: str) -> Weight:
    """Return as many rows as a word has letters; the tenant is its first letter if that is a capital, else nobody."""
    return Weight(len(word), len(word), word[0] if word[0].isupper() else "")


def batcher(flush: Flushes, *, lines: int = 1, room: int = 200) -> Batcher[str, str]:
    """Return a batcher of words."""
    return Batcher("test", flush, weigh=weigh, outside=OUTSIDE, lines=lines, room=room)


async def begun(line: Batcher[str, str], *words: str) -> list[asyncio.Task[str]]:
    """Ask for words in order, each when the one before has been taken up, if it was."""
    asked = []
    for word in words:
        asked.append(asyncio.create_task(line.ask(word)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return asked


async def test_requests_that_come_during_a_flush_share_the_next() -> None:
    """The first goes alone at once; all that came meanwhile go together."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush)

    asked = [asyncio.create_task(line.ask(word)) for word in ("a", "b", "c")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = [asyncio.create_task(line.ask(word)) for word in ("d", "e")]
    await asyncio.sleep(0)
    flush.gate.set()
    answers = await asyncio.gather(*asked, *late)

    assert ["A", "B", "C", "D", "E"] == answers
    assert [["a", "b", "c"], ["d", "e"]] == flush.batches


async def test_a_batch_has_a_bound_of_rows() -> None:
    """More rows than one statement takes are flushed in turns; a request is never divided."""
    flush = Flushes()
    line = batcher(flush, room=10 * MOST_ROWS)
    words = [letter * 400 for letter in "abcd"]

    await asyncio.gather(*(line.ask(word) for word in words))

    assert [2, 2] == [len(batch) for batch in flush.batches]


async def test_rel_x28_a_poison_request_fails_alone() -> None:
    """One that the database cannot take is found by halves; its 99 neighbours are stored."""
    flush = Flushes()
    flush.poison = {"bad"}
    line = batcher(flush, room=1000)
    words = [f"w{n}" for n in range(99)]
    words.insert(57, "bad")

    answers = await asyncio.gather(*(line.ask(word) for word in words), return_exceptions=True)

    assert [57] == [n for n, answer in enumerate(answers) if isinstance(answer, InvalidInput)]
    assert 99 == sum(isinstance(answer, str) for answer in answers)


async def test_what_a_rival_prevented_is_run_again() -> None:
    """A deadlock or lock time-out wrote nothing: the same batch goes once more."""
    flush = Flushes()
    flush.errors = [Contention("busy"), Contention("busy")]

    answer = await batcher(flush).ask("a")

    assert "A" == answer
    assert 3 == len(flush.batches)


async def test_a_rival_that_never_gives_way_is_reported() -> None:
    """After a few tries the callers are told to come back."""
    flush = Flushes()
    flush.errors = [Contention("busy") for _ in range(TRIES)]

    with pytest.raises(Contention):
        await batcher(flush).ask("a")


async def test_rel_x4_an_unknown_commit_is_not_run_again() -> None:
    """A submit whose fate is unknown may have been stored: its callers get 503 and decide by their keys."""
    flush = Flushes()
    flush.errors = [CommitUnknown("cut")]

    with pytest.raises(CommitUnknown):
        await batcher(flush).ask("a")

    assert 1 == len(flush.batches)


async def test_an_outage_is_not_bisected() -> None:
    """When the database is away everybody is told at once; halving would only ask it more often."""
    flush = Flushes()
    flush.errors = [Unavailable("away")]
    line = batcher(flush)

    answers = await asyncio.gather(*(line.ask(word) for word in "abcd"), return_exceptions=True)

    assert [Unavailable] * 4 == [type(answer) for answer in answers]
    assert 1 == len(flush.batches)


async def test_a_tenant_takes_half_of_a_line_at_most() -> None:
    """Beyond its share a tenant gets 429 with a time to come back; what waits is not disturbed, nor are others."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush, room=6)
    asked = await begun(line, "Aa", "A1", "A", "B1", "B")

    for word in ("A2", "B2"):
        with pytest.raises(TooMany, match=f"3 rows of tenant {word[0]} wait"):
            await line.ask(word)

    asked += await begun(line, "C1")
    flush.gate.set()
    assert ["AA", "A1", "A", "B1", "B", "C1"] == await asyncio.gather(*asked)


async def test_a_full_line_takes_one_request_of_a_tenant_that_has_none() -> None:
    """Others can fill a line, but never lock a tenant out of it."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush, room=4)
    asked = await begun(line, "Z", "A1", "B1", "C", "D1")

    with pytest.raises(TooMany, match="7 rows wait already"):
        await line.ask("C")

    flush.gate.set()
    assert ["Z", "A1", "B1", "C", "D1"] == await asyncio.gather(*asked)


async def test_a_tenants_fullness_is_its_own() -> None:
    """A tenant that fills its share of a line is handed less work; others are not."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush, room=8)
    asked = await begun(line, "Z", "A1", "A")

    assert (0.75, 0.0) == (line.fullness("A"), line.fullness("B"))

    flush.gate.set()
    await asyncio.gather(*asked)
    assert 0.0 == line.fullness("A")


async def test_tenants_take_turns_in_a_line() -> None:
    """A small request goes before the large ones of a tenant that came first, and never in one flush with them."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush, room=20 * MOST_ROWS)
    large = [f"A{n}".ljust(MOST_ROWS, "-") for n in range(3)]
    asked = await begun(line, *large, "B", "C")

    beside = list(flush.batches)
    flush.gate.set()
    await asyncio.gather(*asked)

    assert [[large[0]], ["B"]] == beside
    assert [["C"], [large[1]], [large[2]]] == sorted(flush.batches[2:], key=lambda batch: batch != ["C"])


async def test_rel_t15_a_small_request_does_not_wait_for_the_turn_of_a_large_one() -> None:
    """While large writes of others are under way a large request waits for its turn, and small ones go on."""
    flush = Flushes()
    turns = LargeWrites(Recent(OUTSIDE.monotonic), OUTSIDE, one_writer=True)
    line: Batcher[str, str] = Batcher(
        "test", flush, weigh=weigh, outside=OUTSIDE, room=20 * MOST_ROWS, large_writes=turns
    )
    large = "A".ljust(MOST_ROWS, "-")
    async with turns.turn("A"):
        [asked] = await begun(line, large)

        assert "B" == await line.ask("b")
        assert [["b"]] == flush.batches

    assert large == await asked


async def test_a_large_request_that_was_refused_while_it_waited_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that was told to try again, or has left, does so for its own: what it sent before stays unwritten."""
    flush = Flushes()
    turns = LargeWrites(Recent(OUTSIDE.monotonic), OUTSIDE, one_writer=True)
    line: Batcher[str, str] = Batcher(
        "test", flush, weigh=weigh, outside=OUTSIDE, room=20 * MOST_ROWS, large_writes=turns
    )
    async with turns.turn("A"):
        monkeypatch.setattr(batch, "PATIENCE_S", 0.0)
        with pytest.raises(Unavailable):
            await line.ask("A".ljust(MUCH + 1, "-"))
    await line.idle()

    assert [] == flush.batches


async def test_only_the_flush_of_a_large_request_is_measured() -> None:
    """Neither the wait for its turn nor the rest after it is time of the flush."""
    now_s = 0.0

    async def pause(seconds: float) -> None:
        nonlocal now_s
        now_s += 1000 * seconds

    async def flush(requests: Sequence[str]) -> list[str]:
        nonlocal now_s
        now_s += 2.0
        return list(requests)

    outside = Outside(monotonic=lambda: now_s, pause=pause)
    recent = Recent(outside.monotonic)
    turns, seen = LargeWrites(recent, outside, one_writer=True), list[tuple[str, int, float]]()
    line: Batcher[str, str] = Batcher(
        *("test", flush),
        weigh=weigh,
        outside=outside,
        room=20 * MOST_ROWS,
        large_writes=turns,
        observe=lambda *given: seen.append(given),
    )
    large = "A".ljust(MOST_ROWS, "-")
    async with turns.turn("A"):
        [asked] = await begun(line, large)
        now_s += 100.0
        recent.note("B")
    await asked
    await line.idle()

    assert [("test", MOST_ROWS, 2.0)] == seen
    assert now_s > 1000 * MOST_REST_S


async def test_large_requests_of_tenants_take_turns() -> None:
    """A tenant with one large request waits for one of another tenant that has many, not for all."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush, room=20 * MOST_ROWS)
    large = [f"A{n}".ljust(MOST_ROWS, "-") for n in range(4)]
    other = "B".ljust(MUCH + 1, "-")
    asked = await begun(line, *large, other)

    flush.gate.set()
    await asyncio.gather(*asked)

    assert 2 >= flush.batches.index([other])


async def test_small_requests_do_not_starve_large_ones() -> None:
    """Where both wait they take turns."""
    flush = Flushes()
    line = batcher(flush, room=20 * MOST_ROWS)
    large = "A".ljust(MOST_ROWS, "-")

    async def keep_asking() -> None:
        for number in range(10):
            await line.ask(f"B{number}")

    asked = [asyncio.create_task(keep_asking()) for _ in range(3)]
    await line.ask(large)

    assert 3 >= flush.batches.index([large])
    await asyncio.gather(*asked)


@pytest.mark.parametrize(("left", "stays"), [("A".ljust(MUCH + 1, "-"), "B"), ("A", "B".ljust(MUCH + 1, "-"))])
async def test_callers_that_left_strand_nobody(left: str, stays: str) -> None:
    """Where all that waited in one queue have left, the other queue is served at once."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush, room=20 * MOST_ROWS)
    first, gone, other = await begun(line, "a", left, stays)
    line._large_next = len(left) > MUCH
    gone.cancel()
    await asyncio.wait([gone])

    flush.gate.set()

    assert ["A", stays.upper()] == [await first, await other]


async def test_a_second_flush_is_kept_for_small_requests() -> None:
    """While a large request is flushed a small one goes beside it at once, and a second large one waits."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush, lines=2, room=20 * MOST_ROWS)
    large = [f"A{n}".ljust(MOST_ROWS, "-") for n in range(2)]

    asked = await begun(line, *large, "B")

    assert [[large[0]], ["B"]] == flush.batches
    flush.gate.set()
    await asyncio.gather(*asked)
    assert 3 == len(flush.batches)


async def test_a_caller_that_left_is_not_flushed() -> None:
    """Who hangs up before its turn has asked for nothing."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush)
    first = asyncio.create_task(line.ask("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gone = asyncio.create_task(line.ask("b"))
    await asyncio.sleep(0)

    gone.cancel()
    await asyncio.sleep(0)
    flush.gate.set()

    assert "A" == await first
    await line.idle()
    assert [["a"]] == flush.batches


async def test_a_line_that_ran_empty_takes_up_work_again() -> None:
    """A request that comes just as the last flush returns is served."""
    flush = Flushes()
    line = batcher(flush)

    for word in "abcdef":
        assert word.upper() == await line.ask(word)
        # The worker of the line has seen that nothing waits and is about to end.
        await asyncio.sleep(0)

    assert 6 == len(flush.batches)


async def test_a_second_flush_begins_when_much_waits() -> None:
    """Few requests wait for the first flush and share the next; many do not wait for it."""
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush, lines=2, room=10 * MUCH)
    many = "m" * MUCH

    asked = []
    for word in ("a", "b", many):
        asked.append(asyncio.create_task(line.ask(word)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert [["a"], ["b", many]] == flush.batches
    flush.gate.set()
    assert ["A", "B", many.upper()] == await asyncio.gather(*asked)


async def test_a_caller_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that has fallen silent costs a caller a few seconds, then 503."""
    monkeypatch.setattr(batch, "PATIENCE_S", 0.0)
    flush = Flushes()
    flush.gate.clear()
    line = batcher(flush)

    with pytest.raises(Unavailable):
        await line.ask("a")

    flush.gate.set()
    await line.idle()


async def test_a_fault_of_ours_fails_one_request() -> None:
    """An error nobody foresaw is contained like a poison request."""
    flush = Flushes()

    async def broken(requests: Sequence[str]) -> list[str | WindlassError]:
        if "bad" in requests:
            raise KeyError("bad")
        return await flush(requests)

    line: Batcher[str, str] = Batcher("test", broken, weigh=lambda word: Weight(1, 1, ""), outside=OUTSIDE)

    answers = await asyncio.gather(*(line.ask(word) for word in ("a", "bad", "c")), return_exceptions=True)

    assert ["A", "C"] == [answers[0], answers[2]]
    assert isinstance(answers[1], KeyError)
