"""Tenants: whoever names another tenant's lease or session is told what an unknown id is told, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.queue.races.stage import Scene, Stage, no_jitter
from windlass.queue import claim as claims
from windlass.queue import workers
from windlass.queue.report import Answer, Complete, Report, Status, report
from windlass.queue.retry import PRESETS
from windlass.queue.workers import Beat, Held

REPORTS: dict[str, Callable[[Scene], Report]] = {
    "complete": lambda scene: scene.complete(tenant="acme"),
    "fail": lambda scene: scene.fail(tenant="acme"),
    "release": lambda scene: scene.release(tenant="acme"),
    "snooze": lambda scene: scene.snooze(tenant="acme"),
}


@pytest.mark.parametrize("kind", REPORTS)
async def test_rel_i18_a_foreign_report_changes_nothing(stage: Stage, kind: str) -> None:
    """A caller of another tenant that guessed job, fence, worker and session is unknown, and no byte changes."""
    scene = await stage.leased()
    before = await stage.bytes_of(scene.id)

    [answer] = await report(stage.db, [REPORTS[kind](scene)], chance=no_jitter)

    assert Answer(Status.UNKNOWN) == answer
    assert before == await stage.bytes_of(scene.id)


async def test_rel_i18_a_foreign_report_is_told_nothing(stage: Stage) -> None:
    """Waiting, leased, given back or ended: a foreign job answers exactly like one that never was."""
    waiting, leased, back, ended = await stage.scene(), *[await stage.leased() for _ in range(3)]
    await report(stage.db, [back.release(), ended.complete()], chance=no_jitter)
    ids = [waiting.id, leased.id, back.id, ended.id, uuid4()]

    answers = await report(
        stage.db, [Complete(job_id=job_id, fence=1, worker="w", tenant="acme") for job_id in ids], chance=no_jitter
    )

    assert [Answer(Status.UNKNOWN)] * len(ids) == answers


async def test_rel_i18_a_foreign_renew_changes_nothing(stage: Stage) -> None:
    """A heartbeat of another tenant for a session is deaf, renews nothing, starts nothing and gives nothing back."""
    scene = await stage.leased()
    session = await stage.session_row(scene.session)
    before = await stage.bytes_of(scene.id)
    stage.clock.advance(20)
    beats = [
        Beat(scene.session, [Held(scene.id, 1, started=True)], busy=7, tenant="acme"),
        Beat(scene.session, [], tenant="acme"),
        Beat(uuid4(), [], tenant="acme"),
    ]

    foreign, empty, unknown = await workers.heartbeat(stage.db, beats)

    assert [False, False, False] == [answer.alive for answer in (foreign, empty, unknown)]
    assert ([scene.id], unknown) == (foreign.lost, empty)
    assert (session, before) == (await stage.session_row(scene.session), await stage.bytes_of(scene.id))


async def test_rel_i18_own_and_foreign_beats_of_one_batch(stage: Stage) -> None:
    """Beats of many callers share a batch: a foreign one for the same session neither hides nor borrows the own one."""
    scene = await stage.leased()
    held = [Held(scene.id, 1, started=True)]

    foreign, own = await workers.heartbeat(
        stage.db, [Beat(scene.session, held, tenant="acme"), Beat(scene.session, held)]
    )

    assert (False, [scene.id]) == (foreign.alive, foreign.lost)
    assert (True, []) == (own.alive, own.lost)


async def test_rel_i18_a_foreign_close_changes_nothing(stage: Stage) -> None:
    """Another tenant cannot end a session, nor make it give back what it holds."""
    scene = await stage.leased()
    session = await stage.session_row(scene.session)
    before = await stage.bytes_of(scene.id)

    assert [] == await workers.close(stage.db, scene.session, tenant="acme", reason="bye")

    assert (session, before) == (await stage.session_row(scene.session), await stage.bytes_of(scene.id))


@pytest.mark.parametrize("how", ["claim", "claim_back"])
async def test_rel_i18_nobody_claims_for_another_tenant(stage: Stage, how: str) -> None:
    """A session gets jobs of its own tenant only, whatever lanes its server asked for."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    await report(stage.db, [scene.fail()], chance=no_jitter)
    await stage.submit(scene.queue)
    if how == "claim":
        foreign = await stage.worker("foreign", tenant="acme")
        assert [] == await stage.claim(stage.db, scene.queue, foreign)
        assert 1 == len(await stage.claim(stage.db, scene.queue, scene.session))
    else:
        kept = [(scene.id, 1)]
        assert [] == await claims.claim_back(stage.db, kept, session=scene.session, tenant="acme")
        assert 1 == len(await claims.claim_back(stage.db, kept, session=scene.session, tenant="default"))
