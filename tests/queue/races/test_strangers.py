"""What belongs to one tenant is not there for another; what another program wrote is not guessed at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest

from tests.queue.races.stage import Scene, Stage
from tests.queue.races.test_reports import say_it
from windlass.db import Database
from windlass.db.migrate import known_migrations, migrate
from windlass.errors import NotFound, SchemaMismatch
from windlass.queue import control, deadletters, history
from windlass.queue.control import Actor

Act = Callable[[Stage, Scene], Awaitable[object]]
STRANGER = "stranger"


async def cancel(stage: Stage, scene: Scene) -> object:
    """Cancel as a stranger."""
    [answer] = await control.cancel(stage.db, scene.ids, tenant=STRANGER, actor=Actor())
    assert isinstance(answer, NotFound)
    raise answer


async def retry(stage: Stage, scene: Scene) -> object:
    """Retry as a stranger."""
    [answer] = await deadletters.retry(stage.db, scene.ids, tenant=STRANGER, actor=Actor())
    assert isinstance(answer, NotFound)
    raise answer


async def change(stage: Stage, scene: Scene) -> object:
    """Change as a stranger."""
    at = stage.clock.now() + timedelta(hours=1)
    return await control.change(stage.db, stage.lanes, scene.id, tenant=STRANGER, actor=Actor(), run_at=at)


ACTS: dict[str, Act] = {
    "get": lambda stage, scene: history.get(stage.db, scene.id, tenant=STRANGER),
    "attempts": lambda stage, scene: history.attempts(stage.db, scene.id, tenant=STRANGER),
    "timeline": lambda stage, scene: history.timeline(stage.db, scene.id, tenant=STRANGER),
    "pause": lambda stage, scene: control.pause_job(stage.db, scene.id, tenant=STRANGER, actor=Actor()),
    "resume": lambda stage, scene: control.resume_job(stage.db, scene.id, tenant=STRANGER, actor=Actor()),
    "cancel": cancel,
    "retry": retry,
    "change": change,
}


async def ready(stage: Stage) -> Scene:
    """Return a scene with a ready job."""
    return await stage.scene()


async def timed(stage: Stage) -> Scene:
    """Return a scene with a timer."""
    return await stage.scene(delay_ms=5000)


async def leased(stage: Stage) -> Scene:
    """Return a scene with a lease."""
    return await stage.leased()


async def paused(stage: Stage) -> Scene:
    """Return a scene whose job is paused."""
    scene = await stage.scene()
    await control.pause_job(stage.db, scene.id, tenant="default", actor=Actor())
    return scene


async def paused_timer(stage: Stage) -> Scene:
    """Return a scene whose timer is paused."""
    scene = await stage.scene(delay_ms=5000)
    await control.pause_job(stage.db, scene.id, tenant="default", actor=Actor())
    return scene


async def dead(stage: Stage) -> Scene:
    """Return a scene whose job is dead."""
    scene = await stage.leased()
    await say_it(stage.db, scene.fail(retryable=False))
    return scene


async def cancelled(stage: Stage) -> Scene:
    """Return a scene whose job was cancelled."""
    scene = await stage.scene()
    await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())
    return scene


PLACES = {place.__name__: place for place in (ready, timed, leased, paused, paused_timer, dead, cancelled)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("act", ACTS)
async def test_job_of_another_tenant(stage: Stage, act: str, place: str) -> None:
    """To every act of another tenant a job is not there, wherever it lies, and not a byte of it changes."""
    scene = await PLACES[place](stage)
    before = await stage.bytes_of(scene.id), await stage.get(scene.id)

    with pytest.raises(NotFound, match=str(scene.id)):
        await ACTS[act](stage, scene)

    assert before == (await stage.bytes_of(scene.id), await stage.get(scene.id))


@pytest.mark.parametrize("few", [history.FEW_ROWS, 0], ids=["own", "all"])
@pytest.mark.parametrize("place", PLACES)
async def test_lists_of_another_tenant(stage: Stage, place: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a tenant, by its own lanes or among all, show nothing of another, and purge removes nothing of it."""
    monkeypatch.setattr(history, "FEW_ROWS", few)
    scene = await PLACES[place](stage)

    assert [] == (await history.find(stage.db, history.Filter(tenant=STRANGER))).jobs
    assert [] == (await history.find_keys(stage.db, history.Filter(tenant=STRANGER), limit=10)).found
    assert [] == await deadletters.purge(stage.db, scene.ids, tenant=STRANGER)
    assert scene.ids == [job.id for job in (await history.find(stage.db, history.Filter(tenant="default"))).jobs]


async def test_migration_with_other_content(db: Database) -> None:
    """A migration that was applied with other content than this program has is refused."""
    first, *others = known_migrations()

    with pytest.raises(SchemaMismatch, match="other content"):
        await migrate(db, known=[msgspec.structs.replace(first, checksum="0"), *others])


async def test_migration_of_a_newer_program(db: Database) -> None:
    """A schema with a migration that this program does not know is refused."""
    with pytest.raises(SchemaMismatch, match="does not know"):
        await migrate(db, known=known_migrations()[:-1])
