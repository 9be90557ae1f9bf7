"""Times are computed in pieces, tenants take turns, and each request has one budget."""

from __future__ import annotations

import asyncio
import threading

import pytest

from windlass.engine import computing
from windlass.engine.computing import Computing
from windlass.errors import InvalidSchedule


class Work:
    """Work by a clock of its own: each item takes as long as the test says."""

    def __init__(self, each_s: float) -> None:
        self.done: list[str] = []
        self.begun = threading.Event()
        self._each_s = each_s
        self._now_s = 0.0

    def now_s(self) -> float:
        """Return the time that was worked."""
        return self._now_s

    def __call__(self, item: str) -> str:
        """Do the work of an item."""
        assert threading.current_thread() is not threading.main_thread()
        self._now_s += self._each_s
        self.done.append(item)
        self.begun.set()
        return item.upper()


async def test_what_is_computed_comes_in_order() -> None:
    """All items are computed, beside the event loop, and returned in their order."""
    work = Work(computing.PIECE_S / 3)

    values = await Computing(work.now_s).budget("a", None).each(work, list("abcdefgh"))

    assert list("ABCDEFGH") == values
    assert [] == await Computing(work.now_s).budget("a", None).each(work, [])


async def test_rel_t9_a_tenant_with_much_to_compute_delays_another_by_one_piece() -> None:
    """H6: a thousand hard schedules of one tenant do not stand before the one of another."""
    work = Work(computing.PIECE_S)
    times = Computing(work.now_s)
    much = [asyncio.create_task(times.budget("a", f"k{number}").each(work, [f"a{number}"] * 20)) for number in range(4)]
    await asyncio.to_thread(work.begun.wait, 60)

    begun = len(work.done)
    await times.budget("b", None).each(work, ["b"])

    assert work.done.index("b") <= begun + 2
    assert not any(task.done() for task in much)
    await asyncio.gather(*much)


async def test_rel_t9_what_does_not_count_takes_turns_all_the_same() -> None:
    """What the size of a request bounds uses up nothing of its budget, and lets others have their turn."""
    work, held = Work(computing.BUDGET_S), threading.Event()
    times = Computing(work.now_s)
    budget = times.budget("a", None)

    def wait(item: str) -> str:
        done = work(item)
        assert held.wait(60)
        return done

    much = asyncio.create_task(budget.each(wait, ["a"] * 20, counted=False))
    await asyncio.to_thread(work.begun.wait)
    other = asyncio.create_task(times.budget("b", None).each(work, ["b"], counted=False))
    await asyncio.sleep(0)  # it waits for its turn
    held.set()

    assert (["B"], ["A"] * 20) == (await other, await much)
    assert ["a", "b", "a"] == work.done[:3]
    assert ["C"] == await budget.each(work, ["c"], limit_s=2 * computing.BUDGET_S)


async def test_rel_t9_a_request_over_its_budget_is_refused_with_the_item() -> None:
    """H6: 422 for good, not 503: sent again it would take as long; the budget is for all that a request computes."""
    work = Work(computing.BUDGET_S * 0.13)
    budget = Computing(work.now_s).budget("a", None)

    await budget.each(work, ["first"] * 6)
    with pytest.raises(
        InvalidSchedule, match=r"schedules\[1\]\.cron: computing .* took more than 0.4 s.* fewer"
    ) as error:
        await budget.each(work, ["second"] * 100)
    with pytest.raises(InvalidSchedule, match=r"^since: "):
        await budget.each(work, ["third"], field="since")

    assert (422, 9) == (error.value.status, len(work.done))


async def test_rel_t9_no_piece_is_computed_for_a_caller_that_has_left() -> None:
    """H6: the work ends with the piece that is under way."""
    work = Work(computing.PIECE_S)
    times = Computing(work.now_s)
    request = asyncio.create_task(times.budget("a", None).each(work, ["a"] * 100))
    await asyncio.to_thread(work.begun.wait, 60)

    request.cancel()
    await asyncio.wait([request])
    done = len(work.done)
    await times.budget("b", None).each(work, ["b"])

    assert work.done.count("a") <= done + 1 < 100


async def test_a_list_that_may_be_shorter_ends_when_it_took_long_enough() -> None:
    """At least one item is computed, and what is left out costs nothing."""
    work = Work(computing.PIECE_S)
    budget = Computing(work.now_s).budget("a", None)

    assert ["A"] == await budget.each(work, ["a"] * 9, enough_s=0.0)
    assert ["A"] * 3 == await budget.each(work, ["a"] * 9, enough_s=2.5 * computing.PIECE_S)


async def test_an_error_of_one_item_is_the_answer() -> None:
    """What `work` raises is raised, and its time counts."""
    work = Work(computing.BUDGET_S)
    budget = Computing(work.now_s).budget("a", None)

    def fail(item: str) -> None:
        work(item)
        raise KeyError(item)

    with pytest.raises(KeyError):
        await budget.each(fail, ["a"])
    with pytest.raises(InvalidSchedule):
        await budget.each(work, ["b"])
