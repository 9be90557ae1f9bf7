"""Every step through the same trouble: a pooler that switches connections, a connection killed, a task cancelled."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import pytest

import windlass.queue
from tests.pooler import TransactionPooler
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import PATIENCE_S, Scene, Stage
from tests.queue.races.steps import STEPS, Step
from windlass.db import Queries, open_database
from windlass.errors import Unavailable

ALL_STEPS = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)

# Only SQLite runs these: PostgreSQL drops partitions instead.
SQLITE_ONLY = {"forget_done", "forget_attempts", "forget_events", "forget_logs", "forget_runs"}
RARE = {"own_done", "own_dead", "done_by_id", "dead_by_id", "held_alone", "use_lanes_again", "beyond", "forget_jobs"}
"""Read only where thousands of others' ended jobs are newer, a bare caller holds a job, a delete is refused late, an
outbox row has an id ahead of time, or a span was dropped: test_lists, test_fleet, test_administration, test_outbox,
test_spans."""
OTHER_PATHS = {"check"}


@pytest.fixture
async def pooled(postgres_stage: Stage, postgres_url: str) -> AsyncIterator[tuple[TransactionPooler, Pausing]]:
    """The same database behind a transaction-mode pooler."""
    parts = urlsplit(postgres_url)
    async with TransactionPooler(parts.hostname or "", parts.port or 5432) as pooler:
        url = f"{pooler.dsn(parts.path[1:])}?pooler=transaction"
        db = await open_database(url, clock=postgres_stage.clock)
        yield pooler, Pausing(db)
        await db.close()


async def done(stage: Stage, step: Step, scene: Scene) -> None:
    """Fail unless the step has done its work and every invariant holds."""
    assert await stage.state(scene.ids[0]) is step.after
    await stage.sound()


@pytest.mark.exhaustive
@ALL_STEPS
async def test_rel_k19_step_through_a_pooler(
    postgres_stage: Stage, pooled: tuple[TransactionPooler, Pausing], step: Step
) -> None:
    """A step does the same work when each of its transactions is on another connection."""
    pooler, db = pooled
    for _ in range(2):
        scene = await step.prepare(postgres_stage)
        await step.act(postgres_stage, db, scene)
        await done(postgres_stage, step, scene)
    assert pooler.transactions > 0


async def test_rel_k19_every_query_through_a_pooler(
    postgres_stage: Stage, pooled: tuple[TransactionPooler, Pausing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No query of `queue/` needs a session of its own: all of them run behind a pooler, one after the other."""
    monkeypatch.setattr(windlass.queue.history, "FEW_ROWS", 0)  # so that lists look at all places too
    pooler, db = pooled
    for step in STEPS.values():
        scene = await step.prepare(postgres_stage)
        await step.act(postgres_stage, db, scene)
    names = set()
    for module in pkgutil.iter_modules(windlass.queue.__path__):
        queries = getattr(importlib.import_module(f"windlass.queue.{module.name}"), "SQL", None)
        if isinstance(queries, Queries) and queries.path.stem == module.name and module.name not in OTHER_PATHS:
            names |= {query.name for query in queries}

    assert names - set(db.trail) - RARE == SQLITE_ONLY
    assert pooler.switches > 10
    await postgres_stage.sound()


async def interrupted(stage: Stage, step: Step, *, number: int, kill: bool) -> bool:
    """Stop a step at its mark `number`, by killing its connection or cancelling its task; then run it again."""
    scene = await step.prepare(stage)
    db = Pausing(stage.servers[-1])
    point = db.hold_at(number)
    task = asyncio.ensure_future(step.act(stage, db, scene))
    reached = asyncio.create_task(point.reached.wait())
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
        held = point.reached.is_set()
        if held and kill:
            stage.kill_open()
        elif held:
            task.cancel()
        reached.cancel()
        point.release()
        [answer] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(answer, BaseException):
            assert isinstance(answer, Unavailable | asyncio.CancelledError), answer
        await stage.until_none_open()  # else the step passes by what is still locked
        await stage.sound()
        await stage.servers[-1].version()  # by now the pool has noticed which of its connections are gone
        await step.act(stage, stage.servers[-1], scene)
    assert await stage.state(scene.ids[0]) is step.after
    return held


Mark = tuple[str | None, str, bool]
"""A mark as it counts: of a commit what was written before it, its name, and whether a transaction was open."""


async def marks_of(stage: Stage, step: Step, *, kill: bool) -> list[tuple[int, Mark]]:
    """Run a step whole; return its marks with their numbers, without those that are like the one before them.

    Of reads that follow one another outside of transactions only the first counts: nothing is changed or open. Nor is
    there a connection to be killed.
    """
    whole = Pausing(stage.servers[-1])
    await step.act(stage, whole, await step.prepare(stage))
    marks = list(zip(whole.trail, whole.insides, strict=True))
    # What maintains a table stands outside of transactions too, and changes it.
    reads = [not inside and name not in ("maintain", "run") for name, inside in marks]
    return [
        (at, (whole.trail[at - 1] if name == COMMIT else None, name, inside))
        for at, (name, inside) in enumerate(marks)
        if inside or not (kill or (at and reads[at - 1]))
    ]


async def everywhere(stage: Stage, step: Step, *, kill: bool) -> None:
    """Interrupt a step at each of its marks."""
    marks = await marks_of(stage, step, kill=kill)
    held = [await interrupted(stage, step, number=number, kill=kill) for number, _ in marks]
    assert any(held) or not marks  # a step that only reads has no transaction
    await stage.sound()


async def once_each(stage: Stage, names: Callable[[str], bool], *, kill: bool) -> int:
    """Interrupt steps so that each mark of such a name is interrupted once in some step; return how many there are."""
    done_with: set[Mark] = set()
    for step in STEPS.values():
        for number, mark in await marks_of(stage, step, kill=kill):
            if not names(mark[1]) or mark in done_with:
                continue
            # How often a step asks may depend on the scenes before it: then it has fewer marks this time.
            if await interrupted(stage, step, number=number, kill=kill):
                done_with.add(mark)
    await stage.sound()
    return len(done_with)


async def test_rel_k20_connection_killed_at_each_commit(postgres_stage: Stage) -> None:
    """A connection killed when all is written and nothing committed leaves nothing, and its step can be run again.

    A statement outside of the transaction would show here as well as at any place before.
    """
    assert await once_each(postgres_stage, lambda name: name == COMMIT, kill=True) > 60


async def test_rel_k20_task_cancelled_at_each_statement(sqlite_stage: Stage) -> None:
    """A task cancelled before any statement, or the commit after it, leaves nothing half done, and blocks nobody.

    On PostgreSQL its connection is ended then, as where it is killed: there `make test-all` cancels it.
    """
    assert await once_each(sqlite_stage, lambda _: True, kill=False) > 200


@pytest.mark.exhaustive
@ALL_STEPS
async def test_rel_k20_connection_killed_anywhere(postgres_stage: Stage, step: Step) -> None:
    """The same at each place of each step."""
    await everywhere(postgres_stage, step, kill=True)


@pytest.mark.exhaustive
@ALL_STEPS
async def test_rel_k20_task_cancelled_anywhere(stage: Stage, step: Step) -> None:
    """The same at each place of each step."""
    await everywhere(stage, step, kill=False)
