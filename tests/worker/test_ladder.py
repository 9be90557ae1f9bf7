"""The ladder: from asking to force, each rung at its time; and how bodies in threads and on a loop take it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Raw

from tests.worker.poolsrig import Rig, claimed, completed, failed, rig
from windlass.client.context import Context, Stopped
from windlass.config.settings import Worker
from windlass.wire import work as wire
from windlass.worker import ladder
from windlass.worker.ladder import Graces, Kind, Rung, StopWhy

GRACES = Graces(cancel_s=30.0, timeout_s=4.0, kill_s=5.0)
LONG = Worker(cancel_grace_seconds=600.0, timeout_grace_seconds=600.0, kill_seconds=600.0)


@pytest.mark.parametrize(
    ("kind", "why", "expected"),
    [
        ("thread", "cancel", [("flag", 30.0), ("exception", 32.0), ("abandoned", None)]),
        ("thread", "timeout", [("flag", 4.0), ("exception", 6.0), ("abandoned", None)]),
        ("thread", "release", [("flag", 1.0), ("exception", 3.0), ("abandoned", None)]),
        ("thread", "lost", [("flag", 1.0), ("exception", 3.0), ("abandoned", None)]),
        ("async", "cancel", [("flag", 30.0), ("exception", 32.0), ("abandoned", None)]),
        ("process", "cancel", [("flag", 30.0), ("sigterm", 35.0), ("sigkill", 37.0), ("abandoned", None)]),
        ("process", "lost", [("flag", 1.0), ("sigterm", 6.0), ("sigkill", 8.0), ("abandoned", None)]),
    ],
)
def test_each_kind_has_its_rungs_at_their_times(
    kind: Kind, why: StopWhy, expected: list[tuple[Rung, float | None]]
) -> None:
    """After the flag come exception and giving up, or SIGTERM and SIGKILL; nothing follows the last."""
    at = ladder.begin(kind, why, now=0.0, graces=GRACES)
    seen = [(at.rung, at.next_at)]
    while at.next_at is not None:
        assert None is ladder.step(at, at.next_at - 0.001, graces=GRACES)
        moved = ladder.step(at, at.next_at, graces=GRACES)
        assert moved is not None
        at = moved
        seen.append((at.rung, at.next_at))

    assert expected == seen
    assert None is ladder.step(at, 1e9, graces=GRACES)


def test_a_worker_that_stood_still_takes_one_rung_at_a_time() -> None:
    """Each rung gets its time from when it was reached: after a long stall the body still has a chance on each."""
    at = ladder.begin("thread", "cancel", now=0.0, graces=GRACES)

    moved = ladder.step(at, 500.0, graces=GRACES)

    assert moved is not None
    assert ("exception", 502.0) == (moved.rung, moved.next_at)
    assert None is ladder.step(moved, 500.0, graces=GRACES)


@pytest.mark.parametrize("first", get_args(StopWhy))
@pytest.mark.parametrize("second", get_args(StopWhy))
def test_the_weightier_reason_stands(first: StopWhy, second: StopWhy) -> None:
    """A second wish changes the reason if it weighs more, and never gives a body more time."""
    order = get_args(StopWhy)
    begun = ladder.begin("thread", first, now=0.0, graces=GRACES)

    after = ladder.again(begun, second, now=0.5, graces=GRACES)

    assert max(first, second, key=order.index) == after.why
    assert after.next_at is not None
    assert begun.next_at is not None
    assert begun.next_at >= after.next_at


class Bodies:
    """Bodies that say when they begin, and a gate that lets them go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.late: list[str] = []

    def checks(self, context: Context) -> None:
        """Look at the flag."""
        self.begun.set()
        while True:
            context.check()

    def never_checks(self, context: Context) -> None:
        """Compute for ever, and let every ordinary error be."""
        self.begun.set()
        while not self.gate.is_set():
            try:
                while not self.gate.is_set():
                    sum(range(100))
            except Exception:
                self.late.append("swallowed")

    def swallows(self, context: Context) -> str:
        """Let nothing stop it."""
        self.begun.set()
        while not self.gate.is_set():
            try:
                self.gate.wait(0.001)
            except BaseException:
                self.late.append("swallowed")
        self.late.append("returned")
        return "late"

    async def sleeps(self, context: Context) -> None:
        """Wait as coroutines do."""
        self.begun.set()
        await asyncio.Event().wait()

    async def sleeps_twice(self, context: Context) -> None:
        """Survive the first cancel."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def never_ends(self, context: Context) -> None:
        """Survive every cancel."""
        self.begun.set()
        while not self.gate.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.late.append("swallowed")

    async def blocks(self, context: Context) -> None:
        """Block the loop."""
        self.begun.set()
        self.gate.wait(600)

    def finishes(self, context: Context) -> str:
        """Finish what it has begun, though it was asked to stop."""
        self.begun.set()
        while not context.cancelled:
            self.gate.wait(0.001)
        return "done"

    def cleans_up_badly(self, context: Context) -> None:
        """Fail while it stops."""
        self.begun.set()
        try:
            while True:
                context.check()
        except Stopped as stopped:
            context.checkpoint = {"row": 5}
            raise ValueError(f"while stopping: {stopped}") from None

    def quick(self, context: Context) -> int:
        """Return at once."""
        return 1

    async def quick_async(self, context: Context) -> int:
        """Return at once."""
        return 1

    def all(self) -> list[Any]:
        """Return them all."""
        names = (
            "checks never_checks swallows sleeps sleeps_twice never_ends blocks finishes cleans_up_badly quick"
            " quick_async"
        )
        return [getattr(self, name) for name in names.split()]


async def stopped(pools: Rig, bodies: Bodies, task: str, why: StopWhy) -> tuple[wire.ClaimedJob, Any]:
    """Run a body until it begins, stop it, and return how it ended."""
    job = claimed(task, timeout_s=1 if why == "timeout" else None)
    pools.start(job)
    await pools.until(bodies.begun.is_set)
    if why != "timeout":
        pools.pools.stop((job.id, job.fence), why)
    return job, await pools.end(job)


@pytest.mark.parametrize("why", ["cancel", "timeout"])
@pytest.mark.parametrize(
    ("task", "rung"),
    [
        ("checks", "flag"),
        ("never_checks", "exception"),
        ("swallows", "abandoned"),
        ("sleeps", "flag"),
        ("sleeps_twice", "exception"),
        ("never_ends", "abandoned"),
        ("blocks", "abandoned"),
    ],
)
async def test_a_body_is_stopped_and_the_rung_recorded(task: str, rung: str, why: StopWhy) -> None:
    """Threads that check, that never do, that swallow it, and coroutines: each ends by its rung; the slot is free.

    A cancel and a time-out have a grace each (W9).
    """
    bodies = Bodies()
    settings = LONG
    if rung != "flag":
        settings = msgspec.structs.replace(LONG, **{f"{why}_grace_seconds": 0.02})
    abandon_s = 0.05 if rung == "abandoned" else 600.0
    async with rig(*bodies.all(), settings=settings, threads=1, abandon_s=abandon_s) as pools:
        job, ended = await stopped(pools, bodies, task, why)
        entry = failed(ended)
        outcome, words = ("timed_out", "Timed out after 1 s") if why == "timeout" else ("cancelled", "Cancelled")
        is_zombie = rung == "abandoned"

        assert (outcome, rung) == (entry.outcome, (entry.metrics or {})["stopped_by"])
        assert entry.error_message.startswith(words)
        assert "Force killed" not in entry.error_message
        assert (is_zombie, 1 if is_zombie else None) == (ended.zombie, (entry.metrics or {}).get("zombie"))
        assert (int(is_zombie), 0, 1) == (
            pools.pools.zombie_count,
            pools.pools.busy_count,
            pools.pools.free_count,
        )
        completed(await pools.run(claimed("quick")))
        completed(await pools.run(claimed("quick_async")))
        bodies.gate.set()
        assert 1 == len(pools.ended[job.id])


async def test_the_late_end_of_a_body_that_was_given_up_is_ignored() -> None:
    """It was reported once, its thread ends with it, and what it still writes is nobody's."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=Worker(cancel_grace_seconds=0.02), threads=1, abandon_s=0.02) as pools:
        before = set(threading.enumerate())
        job, _ = await stopped(pools, bodies, "swallows", "cancel")
        given_up = [one for one in threading.enumerate() if one not in before and one.name.startswith("windlass-body")]

        bodies.gate.set()
        await pools.until(lambda: not any(one.is_alive() for one in given_up))

        assert "returned" == bodies.late[-1]
        assert 1 == len(pools.ended[job.id])
        assert 1 == len(given_up)
        completed(await pools.run(claimed("quick")))


async def test_a_body_that_returns_after_its_time_has_timed_out() -> None:
    """What it returns comes too late, however it ended (W8)."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=LONG, threads=1) as pools:
        _, ended = await stopped(pools, bodies, "finishes", "timeout")

        assert ("timed_out", {"stopped_by": "flag"}) == (failed(ended).outcome, failed(ended).metrics)
        assert "returned only after that" in failed(ended).error_message


@pytest.mark.parametrize("why", ["cancel", "release"])
async def test_a_body_that_returns_after_the_flag_has_done_its_work(why: StopWhy) -> None:
    """It finished although asked to stop: that is a result, and the server decides what it is worth."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=LONG, threads=1) as pools:
        _, ended = await stopped(pools, bodies, "finishes", why)

        assert Raw(b'"done"') == completed(ended).result


async def test_a_lost_body_is_stopped_and_nothing_is_reported() -> None:
    """The lease is another's: the body is stopped within a second or two, and there is no entry."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=LONG, threads=1) as pools:
        _, ended = await stopped(pools, bodies, "never_checks", "lost")

        assert None is ended.entry
        assert 1 == pools.pools.free_count


async def test_a_body_of_a_leaving_worker_is_given_back_with_its_checkpoint() -> None:
    """Whatever it raises when it is told: no attempt is used, and what it kept goes with it."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=LONG, threads=1) as pools:
        _, ended = await stopped(pools, bodies, "cleans_up_badly", "release")

        assert isinstance(ended.entry, wire.ReleaseEntry)
        assert (True, Raw(b'{"row":5}')) == (ended.entry.started, ended.entry.checkpoint)


async def test_an_error_while_stopping_is_told_with_the_stop() -> None:
    """The attempt was cancelled; what the body raised on its way out stands beside it."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=LONG, threads=1) as pools:
        _, ended = await stopped(pools, bodies, "cleans_up_badly", "cancel")
        entry = failed(ended)

        assert "cancelled" == entry.outcome
        assert "ValueError: while stopping: The job was cancelled." in entry.error_message
        assert "cleans_up_badly" in (entry.traceback or "")


@pytest.mark.parametrize("task", ["quick", "quick_async"])
@pytest.mark.parametrize("why", ["cancel", "release", "lost"])
async def test_a_job_in_line_is_stopped_at_once(task: str, why: StopWhy) -> None:
    """It has not begun: a cancel is confirmed, a release given back, a loss forgotten; its body never runs."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=LONG, threads=1) as pools:
        first, job = claimed("checks"), claimed(task)
        pools.start(first, job)
        await pools.until(bodies.begun.is_set)

        pools.pools.stop((job.id, job.fence), why)
        pools.look()
        entry = pools.ended[job.id][0].entry

        expected = {"cancel": wire.FailEntry, "release": wire.ReleaseEntry, "lost": type(None)}[why]
        assert expected is type(entry)
        assert (job.id, job.fence) not in pools.started
        pools.pools.stop((first.id, first.fence), "cancel")
        await pools.end(first)
        assert 1 == len(pools.ended[job.id])


async def test_a_coroutine_stopped_before_its_first_step_ends() -> None:
    """Given to a loop that is blocked and stopped before it is heard: it ends as cancelled, and never ran."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=LONG, threads=2) as pools:
        first, job = claimed("blocks"), claimed("never_ends")
        pools.start(first)
        await pools.until(bodies.begun.is_set)
        bodies.begun.clear()

        pools.start(job)
        pools.pools.stop((job.id, job.fence), "cancel")
        bodies.gate.set()

        assert "flag" == (failed(await pools.end(job)).metrics or {})["stopped_by"]
        assert not bodies.begun.is_set()


async def test_an_unknown_job_is_stopped_without_harm() -> None:
    """A stop that comes after the end changes nothing."""
    bodies = Bodies()
    async with rig(*bodies.all(), settings=LONG) as pools:
        job = claimed("quick")
        await pools.run(job)

        pools.pools.stop((job.id, job.fence), "cancel")
        pools.look()

        assert 1 == len(pools.ended[job.id])


async def test_no_exception_reaches_another_body() -> None:
    """However close a body's end and its stop are: only its own attempt is stopped, and every thread goes on."""
    bodies = Bodies()

    def spins(context: Context) -> int:
        return sum(range(500))

    async with rig(
        *bodies.all(), spins, settings=Worker(cancel_grace_seconds=0.0), threads=2, abandon_s=600.0
    ) as pools:
        jobs = [claimed("spins") for _ in range(600)]
        pools.start(*jobs)
        marked = set()
        for job in jobs[::3]:
            pools.pools.stop((job.id, job.fence), "cancel")
            marked.add(job.id)
            pools.look()
        await pools.until(lambda: 600 == len(pools.ended))

        assert all(1 == len(ends) for ends in pools.ended.values())
        assert all(completed(pools.ended[job.id][0]) for job in jobs if job.id not in marked)
        assert (0, 2) == (pools.pools.zombie_count, pools.pools.free_count)
