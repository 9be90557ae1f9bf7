"""Races of those who look a job up: while it ends, comes back and goes from place to place, it is there, and once."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.queue.races.orders import Race
from tests.queue.races.stage import Scene, Stage, no_jitter
from tests.queue.races.steps import ME, STEPS, Step
from tests.queue.races.test_reports import good
from windlass.db import Database
from windlass.errors import Conflict, NotFound, WindlassError
from windlass.job import FINAL_STATES, State
from windlass.queue import deadletters, history
from windlass.queue.deadletters import Retried
from windlass.queue.report import Answer, Status, report

OFTEN = ("complete", "die", "cancel", "retry", "retry_cancelled", "promote", "rescue", "expire")
"""What takes a job from one place to another; `make test-all` looks it up beside every step."""
EVERY_STEP = [
    pytest.param(step, marks=() if name in OFTEN else pytest.mark.exhaustive, id=name) for name, step in STEPS.items()
]


async def look(db: Database, job_id: UUID) -> tuple[State, bool, State]:
    """Look a job up: by its id, whether it lives, and in the list of its tenant; it must be found each time."""
    job = await history.get(db, job_id, tenant="default")
    is_live = job_id in await history.live(db, [job_id])
    page = await history.find(db, history.Filter(tenant="default", id=job_id))
    [listed] = page.jobs
    assert listed.payload == job.payload
    return job.state, is_live, listed.state


@pytest.mark.parametrize("step", EVERY_STEP)
async def test_a_look_beside_a_step(stage: Stage, step: Step) -> None:
    """Between two places there is no moment in which a job is nowhere, or in both, or has no content."""

    async def prepare() -> tuple[Scene, State]:
        scene = await step.prepare(stage)
        return scene, await before(scene)

    async def before(scene: Scene) -> State:
        try:
            return await stage.state(scene.ids[0])
        except NotFound:  # an outbox has it yet
            return step.after

    async def act(db: Database, prepared: tuple[Scene, State]) -> object:
        return await step.act(stage, db, prepared[0])

    async def see(db: Database, prepared: tuple[Scene, State]) -> tuple[State, bool, State]:
        return await look(db, prepared[0].ids[0])

    async def judge(
        prepared: tuple[Scene, State], answer: object, seen: tuple[State, bool, State] | WindlassError
    ) -> None:
        scene, was = prepared
        assert not isinstance(answer, WindlassError), answer
        if isinstance(seen, NotFound):
            assert was is step.after
        else:
            state, is_live, listed = good(seen)
            assert {state, listed} <= {was, step.after}
            assert is_live is (state not in FINAL_STATES) or was is not step.after
        assert await stage.state(scene.ids[0]) is step.after

    await Race(prepare, act, see, judge).in_every_order(stage)


async def test_an_end_beside_a_retry_and_a_look(stage: Stage) -> None:
    """A job that dies while somebody retries it by hand is dead or runs again; both say so, and it is looked up."""

    async def die(db: Database, scene: Scene) -> Answer:
        [answer] = await report(db, [scene.fail(retryable=False)], chance=no_jitter)
        return answer

    async def retry(db: Database, scene: Scene) -> tuple[Retried | Conflict | WindlassError, tuple[State, bool, State]]:
        [answer] = await deadletters.retry(db, scene.ids, tenant="default", actor=ME)
        return answer, await look(db, scene.id)

    async def judge(
        scene: Scene,
        answer: Answer | WindlassError,
        retried: tuple[Retried | Conflict | WindlassError, tuple[State, bool, State]] | WindlassError,
    ) -> None:
        said, seen = good(retried)
        assert good(answer).status is Status.APPLIED
        runs_again = isinstance(said, Retried)
        assert (await stage.state(scene.id)) is (State.QUEUED if runs_again else State.DEAD)
        assert runs_again or isinstance(said, Conflict)
        assert not runs_again or seen == (State.QUEUED, True, State.QUEUED)
        assert 1 == len((await history.attempts(stage.db, scene.id, tenant="default")).items)

    await Race(stage.leased, die, retry, judge).in_every_order(stage)
