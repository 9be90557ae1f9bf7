"""Overlap: what the job of a slot does while the run before it is not over, and how waiting jobs are let go."""

from __future__ import annotations

from datetime import timedelta

from tests.clock import TestClock
from tests.queue.fired import again, decisions, every_minute, fire, fire_all, follow, jobs_of, write
from tests.queue.planned import runs_of
from tests.queue.steps import ANN, Steps
from windlass.ids import Ids
from windlass.job import Place, State
from windlass.queue import control, deadletters, firing, following
from windlass.queue.check import check
from windlass.queue.deadlines import expire
from windlass.queue.lanes import Lanes
from windlass.queue.schedule import Policy


async def test_skip_makes_no_job_while_the_run_before_lives(steps: Steps) -> None:
    """Waiting, leased or to be retried, it lives; when it has ended the next slot fires."""
    schedule = await every_minute(steps, retry=None)
    worker = await steps.worker(lease_s=3600)
    await fire(steps, 60)
    await fire(steps, 60)
    lease = await steps.claim_one(worker)
    await fire(steps, 60)
    await steps.complete(lease)

    await fire(steps, 60)

    assert ["fired", "overlapped", "overlapped", "fired"] == [word for _, word in await decisions(steps, schedule)]


async def test_rel_k11_a_run_whose_worker_died_blocks_its_schedule_only_until_it_is_rescued(steps: Steps) -> None:
    """K11: the lease is over after its time, the job dead or run again; no schedule waits for ever."""
    schedule = await every_minute(steps, max_lost=1, max_attempts=1)
    worker = await steps.worker()
    await fire(steps, 60)
    lease = await steps.claim_one(worker)
    await steps.beat(worker, lease, started=True)
    await fire(steps, 60)

    await steps.lose(lease)
    await fire_all(steps, 60)

    words = [word for _, word in await decisions(steps, schedule)]
    assert State.DEAD is await steps.state_of(lease.id)
    assert (["fired", "overlapped"], "fired") == (words[:2], words[-1])


async def test_queue_one_lets_one_job_wait(steps: Steps) -> None:
    """It is blocked, and goes when the run before it is over; a third slot meanwhile is skipped."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_one"))
    worker = await steps.worker(lease_s=3600)
    _, second, _ = [await fire(steps, 60) for _ in range(3)]
    first, waiting = await jobs_of(steps, schedule)
    assert [("default", schedule.id, waiting["id"], 1)] == second.waiting
    skipped = (await runs_of(steps, schedule.id))[-1]["reason"]
    assert f"Overlap policy queue_one: job {first['id']} was not over, and 1 waited for it." == skipped
    assert (Place.BLOCKED, 1) == (waiting["place"], waiting["pending"])
    assert State.BLOCKED is await steps.state_of(waiting["id"])
    early = await follow(steps)

    await steps.complete(await steps.claim_one(worker))
    let_go = await follow(steps)

    assert ([], [waiting["id"]]) == (early, let_go)
    assert waiting["id"] == (await steps.claim_one(worker)).id
    assert ["fired", "waiting", "overlapped"] == [word for _, word in await decisions(steps, schedule)]


async def test_queue_all_lets_jobs_go_one_by_one_in_the_order_of_their_slots(steps: Steps) -> None:
    """At most one of them can be claimed at any time."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all"))
    worker = await steps.worker(lease_s=3600)
    for _ in range(4):
        await fire(steps, 60)
    made = [job["id"] for job in await jobs_of(steps, schedule)]

    ran = []
    for _ in range(4):
        [lease] = await steps.claim(worker, 10)
        ran.append(lease.id)
        await steps.complete(lease)
        await follow(steps)

    assert made == ran
    assert 0 == (await again(steps, schedule)).waiting_count


async def test_rel_e4_waiting_jobs_keep_their_order_when_the_clocks_of_servers_differ(steps: Steps) -> None:
    """E4: ids come from the clock of the server that fires; the order is that of the slots."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all"))
    worker = await steps.worker(lease_s=3600)
    for skew_s in (0, 300, -300, 0):
        steps.clock.advance(60)
        there = TestClock(steps.clock.now() + timedelta(seconds=skew_s))
        await firing.fire(steps.db, Lanes(), Ids(there))
    slots = {job["id"]: job["slot_at"] for job in await jobs_of(steps, schedule)}

    ran = []
    for _ in range(4):
        [lease] = await steps.claim(worker, 10)
        ran.append(slots[lease.id])
        await steps.complete(lease)
        await follow(steps)

    assert sorted(slots.values()) == ran


async def test_a_slot_waits_behind_those_that_wait_also_when_the_run_before_is_just_over(steps: Steps) -> None:
    """Between the end of a run and the next look nobody overtakes."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all"))
    worker = await steps.worker(lease_s=3600)
    await fire(steps, 60)
    await fire(steps, 60)
    await steps.complete(await steps.claim_one(worker))

    await fire(steps, 60)

    assert ["fired", "waiting", "waiting"] == [word for _, word in await decisions(steps, schedule)]
    assert [] == await steps.claim(worker, 10)


async def test_cancel_previous_cancels_the_run_before(steps: Steps) -> None:
    """One that waits is cancelled, one that runs is told to stop; the new job is ready at once."""
    schedule = await every_minute(steps, policy=Policy(overlap="cancel_previous"))
    worker = await steps.worker(lease_s=3600)
    await fire(steps, 60)
    [first] = await jobs_of(steps, schedule)
    fired = await fire(steps, 60)
    second = await steps.claim_one(worker)

    last = await fire(steps, 60)

    assert State.CANCELLED is await steps.state_of(first["id"])
    assert State.CANCELLING is await steps.state_of(second.id)
    assert [(first["id"], State.CANCELLED)] == [(job.id, job.state) for _, job in fired.cancelled]
    assert [(second.id, State.CANCELLING)] == [(job.id, job.state) for _, job in last.cancelled]
    assert ["fired", "replaced", "replaced"] == [word for _, word in await decisions(steps, schedule)]


async def test_of_several_slots_in_one_look_the_last_stands(steps: Steps) -> None:
    """Under cancel_previous each is made, and all but the last are cancelled with it."""
    schedule = await every_minute(steps, policy=Policy(overlap="cancel_previous", misfire_grace_s=600))

    fired = await fire(steps, 180)

    [job] = await jobs_of(steps, schedule)
    assert (3, 2) == (fired.made, len(fired.cancelled))
    assert "12:04" == f"{job['slot_at']:%H:%M}"


async def test_cancel_previous_cancels_what_waits_too(steps: Steps) -> None:
    """Jobs that waited under another policy go with the run before."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all"))
    for _ in range(3):
        await fire(steps, 60)
    await write(steps, "UPDATE schedule SET overlap = 4 WHERE id = :id", id=schedule.id)

    fired = await fire(steps, 60)

    [job] = await jobs_of(steps, schedule)
    assert (Place.READY, 3) == (job["place"], len(fired.cancelled))
    assert 0 == (await again(steps, schedule)).waiting_count


async def test_a_waiting_job_that_is_cancelled_is_forgotten(steps: Steps) -> None:
    """Also while the run before goes on: the next slot may wait in its place."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_one"))
    await fire(steps, 60)
    await fire(steps, 60)
    _, waiting = await jobs_of(steps, schedule)

    await steps.cancel(waiting["id"])
    let_go = await follow(steps)
    await fire(steps, 60)

    assert [] == let_go
    assert ["fired", "waiting", "waiting"] == [word for _, word in await decisions(steps, schedule)]
    assert 1 == (await again(steps, schedule)).waiting_count


async def test_nobody_goes_in_place_of_a_cancelled_job_while_the_run_before_goes_on(steps: Steps) -> None:
    """The one behind it moves up, and waits."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all"))
    for _ in range(3):
        await fire(steps, 60)
    first, second, third = [job["id"] for job in await jobs_of(steps, schedule)]

    await steps.cancel(second)
    let_go = await follow(steps)

    assert [] == let_go
    assert [State.QUEUED, State.BLOCKED] == [await steps.state_of(first), await steps.state_of(third)]
    assert 1 == (await again(steps, schedule)).waiting_count


async def test_a_waiting_job_that_is_paused_goes_no_further_than_held(steps: Steps) -> None:
    """When the run before is over it waits for nobody any more, and for its resumption."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_one"))
    worker = await steps.worker()
    await fire(steps, 60)
    await fire(steps, 60)
    _, waiting = await jobs_of(steps, schedule)
    await control.pause_job(steps.db, waiting["id"], tenant="default", actor=ANN)
    await steps.complete(await steps.claim_one(worker))

    await follow(steps)
    held = await steps.claim(worker)
    await control.resume_job(steps.db, waiting["id"], tenant="default", actor=ANN)

    assert [] == held
    assert waiting["id"] == (await steps.claim_one(worker)).id


async def test_looks_at_waiting_jobs_go_round(steps: Steps) -> None:
    """A look is bounded and says where the next begins; all are reached."""
    worker = await steps.worker(lease_s=3600)
    for number in range(5):
        await every_minute(steps, f"s{number}", policy=Policy(overlap="queue_one"))
    await fire_all(steps, 60)
    await fire_all(steps, 60)
    for lease in await steps.claim(worker, 10):
        await steps.complete(lease)

    after, gone = None, 0
    for _ in range(3):
        followed = await following.follow(steps.db, after=after, limit=2)
        after, gone = followed.after, gone + len(followed.jobs)

    assert (5, None) == (gone, after)


async def test_a_waiting_job_past_its_start_deadline_expires(steps: Steps) -> None:
    """It is forgotten, and those behind it move up."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all", start_within_s=90))
    worker = await steps.worker(lease_s=3600)
    await fire(steps, 60)
    lease = await steps.claim_one(worker)
    for _ in range(3):
        await fire(steps, 60)
        await expire(steps.db)
    await steps.complete(lease)

    await follow(steps)

    ready = await steps.claim_one(worker)
    assert "12:04" == f"{(await jobs_of(steps, schedule))[0]['slot_at']:%H:%M}"
    assert ready.id == (await jobs_of(steps, schedule))[0]["id"]


async def test_jobs_that_wait_are_let_go_also_under_allow(steps: Steps) -> None:
    """After an edit away from queue_all new slots fire; those that wait go in order, each after the last."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all"))
    worker = await steps.worker(lease_s=3600)
    for _ in range(3):
        await fire(steps, 60)
    waiting = [job["id"] for job in await jobs_of(steps, schedule)][1:]
    await write(steps, "UPDATE schedule SET overlap = 1 WHERE id = :id", id=schedule.id)

    gone = []
    for _ in range(3):
        await fire(steps, 60)
        for lease in await steps.claim(worker, 10):
            await steps.complete(lease)
        await fire(steps, 60)
        gone += await follow(steps)

    assert waiting == gone
    assert 0 == (await again(steps, schedule)).waiting_count


async def test_a_waiting_job_that_was_cancelled_and_is_retried_waits_no_more(steps: Steps) -> None:
    """Retried by hand it runs now, beside the run before; those behind it wait for that one, and not for it."""
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all"))
    for _ in range(3):
        await fire(steps, 60)
    first, second, third = [job["id"] for job in await jobs_of(steps, schedule)]
    await steps.cancel(second)

    [retried] = await deadletters.retry(steps.db, [second], tenant="default", actor=ANN)

    assert isinstance(retried, deadletters.Retried)
    assert 1 == (await again(steps, schedule)).waiting_count
    assert [] == await check(steps.db)
    worker = await steps.worker()
    [lease] = [lease for lease in await steps.claim(worker, 10) if lease.id == first]
    await steps.complete(lease)
    assert [third] == await follow(steps)


async def test_only_the_shards_asked_for_are_followed(steps: Steps) -> None:
    """A look is spent on its own part."""
    worker = await steps.worker(lease_s=3600)
    made_by = [await every_minute(steps, f"s{number}", policy=Policy(overlap="queue_one")) for number in range(8)]
    await fire_all(steps, 60)
    await fire_all(steps, 60)
    for lease in await steps.claim(worker, 10):
        await steps.complete(lease)
    odd = [schedule for schedule in made_by if schedule.definition.id.int % 2]

    gone = await follow(steps, shards=range(1, 16, 2), limit=len(odd) or 1)

    assert len(odd) == len(gone)
