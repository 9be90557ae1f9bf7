"""Checkpoints: what the holder of a lease notes, who else is not heard, and what the next attempt is given."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.queue.steps import ANN, Steps
from windlass.errors import InvalidInput
from windlass.job import Flag
from windlass.queue import checkpoints, deadletters, retention
from windlass.queue.checkpoints import Note
from windlass.queue.claim import Claimed


def note(steps: Steps, lease: Claimed, **fields: Any) -> Note:
    """Return a note of the worker that holds the lease, or as the fields say."""
    return Note(**{**steps.named(lease), **fields})


async def kept(steps: Steps, job_id: UUID) -> tuple[str | None, str | None] | None:
    """Return the progress and the checkpoint of a job; None if nothing is kept."""
    found = (await checkpoints.find(steps.db, [job_id])).get(job_id)
    return None if found is None else (found.progress, found.checkpoint)


async def test_the_last_word_of_each_kind_is_kept(steps: Steps) -> None:
    """Progress and checkpoint are noted apart; what a note does not say stays as it was, also within one batch."""
    lease = await steps.running(await steps.worker())

    await checkpoints.keep(steps.db, [note(steps, lease, progress="1"), note(steps, lease, checkpoint='{"row": 7}')])
    await checkpoints.keep(steps.db, [note(steps, lease, progress="2")])

    assert ("2", '{"row": 7}') == await kept(steps, lease.id)


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
async def test_only_the_holder_of_the_lease_is_heard(steps: Steps, wrong: dict[str, Any]) -> None:
    """A note with another fence, worker, tenant, session or job changes nothing, and marks nothing."""
    lease = await steps.running(await steps.worker())

    heard = await checkpoints.keep(steps.db, [note(steps, lease, checkpoint="1", **wrong)])
    await steps.release(lease)
    again = await steps.claim_one(await steps.worker("bob"))

    assert (set(), None, 0) == (heard, await kept(steps, lease.id), again.flags & Flag.CHECKPOINT)


async def test_a_stranger_in_the_same_batch_does_not_keep_the_holder_from_being_heard(steps: Steps) -> None:
    """Notes of many workers go in one statement: each is judged by itself."""
    lease = await steps.running(await steps.worker())

    await checkpoints.keep(
        steps.db, [note(steps, lease, progress="9", worker="bob"), note(steps, lease, progress="1", session=None)]
    )

    assert ("1", None) == await kept(steps, lease.id)


async def test_progress_alone_is_no_checkpoint(steps: Steps) -> None:
    """The mark that makes a claim look for a checkpoint is only on jobs that have one."""
    lease = await steps.running(await steps.worker())

    await checkpoints.keep(steps.db, [note(steps, lease, progress="1")])
    await steps.release(lease)
    again = await steps.claim_one(await steps.worker("bob"))

    assert 0 == again.flags & Flag.CHECKPOINT


@pytest.mark.parametrize("way", ["release", "snooze", "fail", "lost"])
async def test_the_mark_survives_every_way_back(steps: Steps, way: str) -> None:
    """A job that was released, put off, failed or lost comes to its next worker with the mark of its checkpoint."""
    ann = await steps.worker()
    lease = await steps.running(ann)
    await checkpoints.keep(steps.db, [note(steps, lease, checkpoint="41")])

    if way == "release":
        await steps.release(lease, started=True)
    elif way == "snooze":
        await steps.snooze(lease, 5)
    elif way == "fail":
        await steps.fail(lease)
    else:
        await steps.lose(lease)
    await steps.advance(3600)
    bob = await steps.worker("bob")
    again = await steps.claim_one(bob)

    assert Flag.CHECKPOINT == again.flags & Flag.CHECKPOINT
    assert (None, "41") == await kept(steps, lease.id)


@pytest.mark.parametrize("way", ["release", "snooze"])
async def test_a_checkpoint_goes_with_the_report(steps: Steps, way: str) -> None:
    """Release and snooze may bring a checkpoint: it is kept with the move, and a stale report keeps none."""
    lease = await steps.running(await steps.worker())

    if way == "release":
        await steps.release(lease, checkpoint='"here"')
        await steps.release(lease, checkpoint='"late"')
    else:
        await steps.snooze(lease, 5, checkpoint='"here"')
        await steps.snooze(lease, 5, checkpoint='"late"')
    await steps.advance(10)
    again = await steps.claim_one(await steps.worker("bob"))

    assert (None, '"here"') == await kept(steps, lease.id)
    assert Flag.CHECKPOINT == again.flags & Flag.CHECKPOINT


async def test_a_word_of_an_earlier_attempt_does_not_undo_a_later_one(steps: Steps) -> None:
    """The worker that lost its lease notes after the next one has: nothing changes."""
    lease = await steps.running(await steps.worker())
    await checkpoints.keep(steps.db, [note(steps, lease, checkpoint="1")])
    await steps.release(lease)
    again = await steps.claim_one(await steps.worker("bob"))
    await checkpoints.keep(steps.db, [note(steps, again, checkpoint="2")])

    await checkpoints.keep(steps.db, [note(steps, lease, checkpoint="1.5")])

    assert (None, "2") == await kept(steps, lease.id)


async def test_a_dead_job_goes_on_from_its_checkpoint_when_it_is_retried(steps: Steps) -> None:
    """Sweeping leaves the checkpoint of a dead job, and its manual retry carries the mark again."""
    lease = await steps.running(await steps.worker())
    await checkpoints.keep(steps.db, [note(steps, lease, checkpoint="41")])
    await steps.fail(lease, retryable=False)
    steps.clock.advance(retention.DAY_MS / 1000 + 1)

    await retention.sweep(steps.db)
    await deadletters.retry(steps.db, [lease.id], tenant="default", actor=ANN)
    again = await steps.claim_one(await steps.worker("bob"))

    assert Flag.CHECKPOINT == again.flags & Flag.CHECKPOINT
    assert (None, "41") == await kept(steps, lease.id)


async def test_what_ended_jobs_noted_is_swept(steps: Steps) -> None:
    """The notes of a job that succeeded are shown for a day and then swept, those of a live one stay."""
    ann = await steps.worker()
    ended, alive = await steps.running(ann), await steps.running(ann)
    for lease in (ended, alive):
        await checkpoints.keep(steps.db, [note(steps, lease, checkpoint="41")])
    await steps.complete(ended)

    early = await retention.sweep(steps.db)
    steps.clock.advance(retention.DAY_MS / 1000 + 1)
    late = await retention.sweep(steps.db)

    assert (0, 1) == (early.rows["forget_checkpoints"], late.rows["forget_checkpoints"])
    assert (None, (None, "41")) == (await kept(steps, ended.id), await kept(steps, alive.id))


async def test_a_checkpoint_must_be_json(steps: Steps) -> None:
    """What is no JSON is refused before anything is kept."""
    lease = await steps.running(await steps.worker())

    with pytest.raises(InvalidInput, match="checkpoint"):
        await checkpoints.keep(steps.db, [note(steps, lease, checkpoint="{")])


async def test_the_size_of_what_is_kept_is_counted_in_bytes(steps: Steps) -> None:
    """An answer is bounded in bytes, and both texts are read for it; jobs of which nothing is kept have no size."""
    both, one, none = [await steps.running(await steps.worker(name)) for name in ("ann", "bob", "cyd")]
    notes = [note(steps, both, checkpoint='"é"', progress="0.5"), note(steps, one, progress="1")]
    await checkpoints.keep(steps.db, notes)

    assert {both.id: 7, one.id: 1} == await checkpoints.sizes(steps.db, [both.id, one.id, none.id])
