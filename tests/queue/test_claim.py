"""Claim: ready jobs go to workers under a lease, in order, each to one of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.queue.steps import ANN, Steps
from windlass.db import Query, Row, Statements, open_database
from windlass.errors import SetupError, Unavailable
from windlass.job import Outcome, State
from windlass.queue import claim as claiming
from windlass.queue import history
from windlass.queue.claim import Claimed, Group, Want, claim, claim_back, undo
from windlass.queue.control import pause_job, pause_queue
from windlass.queue.lanes import LaneName, configure
from windlass.queue.limits import claim_limited
from windlass.queue.newjob import NewJob
from windlass.queue.retry import PRESETS
from windlass.queue.workers import BareSession, claim_for_bare, close


async def test_a_claim_sets_owner_attempt_and_fence(steps: Steps) -> None:
    """L3: the job is assigned to the session, with its next attempt and fence; the lease is the session's."""
    worker = await steps.worker()
    job_id = await steps.submit_one(payload="[1]", headers="{}", tags=("t",), priority=2, timeout_s=7)
    steps.clock.advance(3)

    lease = await steps.claim_one(worker)

    assert (job_id, 1, 1, worker.session) == (lease.id, lease.attempt, lease.fence, lease.session)
    assert ("mail", "[1]", "{}", '["t"]', 2, 7, 3, 1) == (
        lease.task,
        lease.payload,
        lease.headers,
        lease.tags,
        lease.priority,
        lease.timeout_s,
        lease.max_attempts,
        lease.run,
    )
    job = await steps.get(job_id)
    assert (State.ASSIGNED, "ann", worker.session) == (job.state, job.worker, job.session)
    assert (steps.clock.now(), None, None) == (job.claimed_at, job.started_at, job.deadline_at)
    registered_at = steps.clock.now() - timedelta(seconds=3)
    assert (registered_at, registered_at + timedelta(seconds=30)) == (job.heartbeat_at, job.lease_expires_at)


async def test_a_leased_job_is_nobody_elses(steps: Steps) -> None:
    """L4: until its lease ends no second claim gets the job."""
    await steps.lease(await steps.worker("ann"))

    assert [] == await steps.claim(await steps.worker("bob"))


async def test_the_fence_rises_at_each_claim_and_the_attempt_only_when_used(steps: Steps) -> None:
    """L3: a released attempt is given back, its fence never is."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    for _ in range(2):
        await steps.release(lease)
        lease = await steps.claim_one(worker)

    assert (1, 3) == (lease.attempt, lease.fence)


async def test_order_is_priority_then_due_time_then_id_over_all_lanes(steps: Steps) -> None:
    """S4: higher number first; equals by due time, then id; tasks and labels make no difference."""
    jobs = [
        steps.job(task, priority=priority, labels=labels)
        for priority in (0, 5, -3)
        for task, labels in [("a", ()), ("b", ()), ("a", ("big",)), ("a", ("gpu",)), ("b", ())]
    ]
    await steps.submit(*reversed(jobs))
    steps.clock.advance(1)
    later = [steps.job(task, priority=priority) for priority in (5, 0, -3) for task in ("c", "a")]
    await steps.submit(*later)

    claimed = await steps.claim(await steps.worker(), 100, labels="gpu big")

    def order(job: NewJob) -> tuple[int, bool, UUID]:
        return (-job.priority, job in later, job.id)

    assert [job.id for job in sorted(jobs + later, key=order)] == [lease.id for lease in claimed]


async def test_untouched_priorities_are_first_in_first_out(steps: Steps) -> None:
    """S4: with equal priorities the order is that of creation, also claimed one by one."""
    worker = await steps.worker()
    ids = []
    for number in range(6):
        ids.append(await steps.submit_one(f"task{number % 3}"))
        steps.clock.advance(0.001)

    assert ids == [(await steps.claim_one(worker)).id for _ in ids]


async def test_a_time_in_the_past_does_not_jump_the_queue(steps: Steps) -> None:
    """S3, S4: due is the later of the asked time and now."""
    first = await steps.submit_one()
    steps.clock.advance(1)
    second = await steps.submit_one(run_at=steps.clock.now() - timedelta(days=1))

    assert [first, second] == [lease.id for lease in await steps.claim(await steps.worker(), 2)]


async def test_a_fifo_queue_ignores_priority(steps: Steps) -> None:
    """S4: order fifo hands out by creation, whatever the priority."""
    await steps.own_row()
    await configure(steps.db, LaneName("default", "default"), fifo=True)
    ids = [await steps.submit_one(task, priority=priority) for task, priority in [("a", -9), ("b", 50), ("a", 7)]]

    assert ids == [lease.id for lease in await steps.claim(await steps.worker(), 9)]


async def test_ageing_lets_a_low_priority_overtake_after_its_wait(steps: Steps) -> None:
    """S4: with a credit of a minute, one level of priority is worth one minute of waiting, so nothing starves."""
    await steps.own_row()
    await configure(steps.db, LaneName("default", "default"), credit_ms=60_000)
    low = await steps.submit_one("a", priority=0)
    steps.clock.advance(119)
    high = await steps.submit_one("b", priority=2)
    steps.clock.advance(2)
    higher = await steps.submit_one("c", priority=2)

    assert [high, low, higher] == [lease.id for lease in await steps.claim(await steps.worker(), 9)]


async def test_a_released_job_keeps_its_rank(steps: Steps) -> None:
    """S4: what was given back goes ahead of what came later."""
    worker = await steps.worker()
    first = await steps.lease(worker)
    steps.clock.advance(5)
    second = await steps.submit_one()

    await steps.release(first)

    assert [first.id, second] == [lease.id for lease in await steps.claim(worker, 2)]


async def test_a_batch_takes_as_many_as_asked(steps: Steps) -> None:
    """L5: up to 1,000 in one claim; a short answer means that nothing more is ready."""
    worker = await steps.worker()
    await steps.submit(*(steps.job(f"task{n % 7}") for n in range(1000)))

    sizes = [len(await steps.claim(worker, count)) for count in (1, 10, 700, 1000)]

    assert [1, 10, 700, 289] == sizes


async def test_slots_are_filled_in_order_across_workers(steps: Steps) -> None:
    """L1: one statement serves many workers; the best job goes to the first slot."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    ids = [await steps.submit_one(priority=-n) for n in range(4)]
    [lane] = await steps.serving()

    slots = [bob.session, ann.session, bob.session]
    claimed = await claim(steps.db, [Group([Want(lane.id)], slots)])

    assert list(zip(ids, slots, strict=False)) == [(lease.id, lease.session) for lease in claimed]


async def test_groups_take_from_their_own_lanes(steps: Steps) -> None:
    """L1: lanes asked for together are merged; another group's workers never get them."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    ids = {task: [await steps.submit_one(task) for _ in range(3)] for task in ("a", "b", "c")}
    lanes = {lane.name.task: lane.id for lane in await steps.serving()}

    claimed = await claim(
        steps.db,
        [
            Group([Want(lanes["a"]), Want(lanes["b"])], [ann.session] * 4),
            Group([Want(lanes["c"])], [bob.session] * 2),
            Group([], [bob.session]),
        ],
    )

    taken = {session: [j.id for j in claimed if j.session == session] for session in (ann.session, bob.session)}
    assert {ann.session: [*ids["a"], ids["b"][0]], bob.session: ids["c"][:2]} == taken


@pytest.mark.parametrize("oldest", [0, 7, 30, 60])
async def test_of_several_lanes_the_best_are_taken_however_they_are_spread(steps: Steps, oldest: int) -> None:
    """S4: a lane is not read whole, and yet nothing is taken before a better job of it; slots are filled in order."""
    ann, bob = await steps.worker(name="ann"), await steps.worker(name="bob")
    first = await steps.submit(*(steps.job("first") for _ in range(oldest))) if oldest else []
    steps.clock.advance(1)
    mixed = [await steps.submit_one(f"task-{number % 11}") for number in range(60)]
    lanes = [Want(lane.id) for lane in await steps.serving()]
    slots = [ann.session, ann.session, bob.session] * 20

    claimed = await claim(steps.db, [Group(lanes, slots)])

    assert [*(job.id for job in first), *mixed][:60] == [lease.id for lease in claimed]
    assert slots == [lease.session for lease in claimed]


async def test_a_hint_skips_what_lies_below_it(steps: Steps) -> None:
    """P4: a low-water mark only saves reading; an open one finds everything."""
    worker = await steps.worker()
    [low] = await steps.submit(steps.job())
    steps.clock.advance(1)
    [high] = await steps.submit(steps.job())
    assert high.lane is not None
    assert high.rank is not None

    above = await claim(steps.db, [Group([Want(high.lane, hint=high.rank)], [worker.session] * 2)])
    opened = await claim(steps.db, [Group([Want(high.lane)], [worker.session] * 2)])

    assert ([high.id], [low.id]) == ([j.id for j in above], [j.id for j in opened])


async def test_nothing_asked_is_nothing_claimed(steps: Steps) -> None:
    """An empty request changes nothing."""
    await steps.submit_one()

    assert [] == await claim(steps.db, [])
    assert [] == await claim(steps.db, [Group([Want(1)], [])])


@pytest.mark.parametrize("end", ["closed", "dead", "unknown"])
async def test_a_session_that_does_not_live_gets_nothing(steps: Steps, end: str) -> None:
    """L2: a claim for a session that has ended, or never was, takes nothing and changes nothing."""
    worker = await steps.worker()
    session = worker.session
    if end == "closed":
        await close(steps.db, session, tenant="default", reason="bye")
    elif end == "dead":
        assert [session] == (await steps.rescue(61)).sessions
    else:
        session = uuid4()
    await steps.submit_one()
    [lane] = await steps.serving()
    before = await steps.dump(["queue", "job", "session"])

    assert [] == await claim(steps.db, [Group([Want(lane.id)], [session])])
    assert before == await steps.dump(["queue", "job", "session"])


async def test_a_dead_session_does_not_spoil_its_neighbours_slots(steps: Steps) -> None:
    """L2: the slot of a dead session stays empty, the others are filled."""
    gone, ann = await steps.worker("gone"), await steps.worker("ann")
    await close(steps.db, gone.session, tenant="default", reason="bye")
    for _ in range(3):
        await steps.submit_one()
    [lane] = await steps.serving()

    claimed = await claim(steps.db, [Group([Want(lane.id)], [ann.session, gone.session, ann.session])])

    assert [ann.session, ann.session] == [lease.session for lease in claimed]


async def test_a_job_past_its_start_deadline_is_not_handed_out(steps: Steps) -> None:
    """L2, I11: the deadline is tested in the claim itself; the instant itself is too late."""
    worker = await steps.worker()
    await steps.submit_one(start_by=steps.clock.now() + timedelta(seconds=5), priority=9)
    behind = await steps.submit_one()
    in_time = await steps.submit_one(start_by=steps.clock.now() + timedelta(seconds=6))
    steps.clock.advance(5)

    assert [behind, in_time] == [lease.id for lease in await steps.claim(worker, 5)]


async def test_routes_decide_who_gets_what(steps: Steps) -> None:
    """L17: a worker gets jobs of tasks it knows and labels it has; the others stay queued for who can."""
    worker = await steps.worker()
    plain = await steps.submit_one("a")
    gpu = await steps.submit_one("a", labels=("gpu",))
    gpu_eu = await steps.submit_one("a", labels=("eu", "gpu"))
    unknown = await steps.submit_one("b")

    without = await steps.claim(worker, 9, tasks=["a"])
    labelled = await steps.claim(worker, 9, tasks=["a"], labels="gpu ssd")
    both = await steps.claim(worker, 9, tasks=["a", "z"], labels="gpu eu")

    assert [[plain], [gpu], [gpu_eu]] == [[job.id for job in got] for got in (without, labelled, both)]
    assert State.QUEUED is await steps.state_of(unknown)


async def test_a_claim_stays_in_its_queue_and_tenant(steps: Steps) -> None:
    """N1, L2: lanes of another queue or tenant are not asked for."""
    worker = await steps.worker()
    await steps.submit_one(queue="other")
    await steps.submit_one(tenant="acme")
    mine = await steps.submit_one()

    assert [mine] == [lease.id for lease in await steps.claim(worker, 9)]


async def test_claims_at_the_same_time_share_no_job(steps: Steps) -> None:
    """L4: many claimers at once never get the same job and never wait for one another."""
    workers = [await steps.worker(f"w{n}") for n in range(6)]
    ids = [job.id for job in await steps.submit(*(steps.job() for _ in range(30)))]

    claims = await asyncio.gather(*(steps.claim(worker, 10) for worker in workers))

    taken = [lease.id for leases in claims for lease in leases]
    assert len(taken) == len(set(taken))
    while rest := await steps.claim(workers[0], 30):
        taken += [lease.id for lease in rest]
    assert sorted(ids) == sorted(taken)


async def test_a_preferred_retry_is_kept_for_its_worker(steps: Steps) -> None:
    """R6: in the window of 10 seconds the session that failed a job may claim it back, nobody else."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    lease = await steps.lease(ann, retry=PRESETS["stepped"])
    answer = await steps.fail(lease)
    await steps.advance(9.9)

    others = await steps.claim(bob, 5)
    stolen = await claim_back(steps.db, [(lease.id, lease.fence)], session=bob.session, tenant="default")
    [again] = await claim_back(steps.db, [(lease.id, lease.fence)], session=ann.session, tenant="default")

    assert (State.SCHEDULED, True) == (answer.state, answer.prefer_same_worker)
    assert ([], []) == (others, stolen)
    assert (lease.id, 2, 2, ann.session) == (again.id, again.attempt, again.fence, again.session)
    assert State.ASSIGNED is await steps.state_of(lease.id)
    assert State.SUCCEEDED is (await steps.complete(again)).state


async def test_after_the_window_anybody_gets_a_preferred_retry(steps: Steps) -> None:
    """R6: once the 10 seconds have passed the job is queued for all."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    lease = await steps.lease(ann, retry=PRESETS["stepped"])
    await steps.fail(lease)
    await steps.advance(10)

    assert lease.id == (await steps.claim_one(bob)).id
    assert [] == await claim_back(steps.db, [(lease.id, lease.fence)], session=ann.session, tenant="default")


async def test_only_the_last_fence_is_claimed_back(steps: Steps) -> None:
    """L12: claiming back is guarded by the fence, and done once."""
    ann = await steps.worker("ann")
    lease = await steps.lease(ann, retry=PRESETS["stepped"])
    await steps.fail(lease)

    wrong = await claim_back(
        steps.db, [(lease.id, lease.fence + 1), (uuid4(), 1)], session=ann.session, tenant="default"
    )
    right = await claim_back(steps.db, [(lease.id, lease.fence)], session=ann.session, tenant="default")
    twice = await claim_back(steps.db, [(lease.id, lease.fence)], session=ann.session, tenant="default")

    assert ([], 1, []) == (wrong, len(right), twice)


@pytest.mark.parametrize("why", ["job paused", "queue paused", "closed", "not preferred"])
async def test_some_retries_cannot_be_claimed_back(steps: Steps, why: str) -> None:
    """L2: pause and a session that has ended hold for claiming back as for any claim."""
    ann = await steps.worker("ann")
    lease = await steps.lease(ann, retry=None if why == "not preferred" else PRESETS["stepped"])
    await steps.fail(lease)
    if why == "job paused":
        await pause_job(steps.db, lease.id, tenant="default", actor=ANN)
    elif why == "queue paused":
        await pause_queue(steps.db, steps.lanes, LaneName("default", "default"), actor=ANN)
    elif why == "closed":
        await close(steps.db, ann.session, tenant="default", reason="bye")

    assert [] == await claim_back(steps.db, [(lease.id, lease.fence)], session=ann.session, tenant="default")
    assert State.SCHEDULED is await steps.state_of(lease.id)


async def test_a_job_claimed_back_keeps_its_place_in_a_fifo_queue(steps: Steps) -> None:
    """S4: order fifo is creation, also of a job that was claimed back and released."""
    await steps.own_row()
    await configure(steps.db, LaneName("default", "default"), fifo=True)
    ann = await steps.worker("ann")
    lease = await steps.lease(ann, retry=PRESETS["stepped"])
    steps.clock.advance(1)
    later = await steps.submit_one()
    steps.clock.advance(1)
    await steps.fail(lease)
    [again] = await claim_back(steps.db, [(lease.id, lease.fence)], session=ann.session, tenant="default")

    await steps.release(again)

    assert [lease.id, later] == [job.id for job in await steps.claim(ann, 2)]
    assert [Outcome.FAILED, Outcome.RELEASED] == [a.outcome for a in await steps.attempts(lease.id)]


async def test_claiming_back_keeps_the_limit_of_its_queue(steps: Steps) -> None:
    """L15: a limit is never exceeded; a retry that finds its queue full waits like any other job."""
    own = await steps.own_row()
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    lease = await steps.lease(ann, retry=PRESETS["stepped"])
    await configure(steps.db, LaneName("default", "default"), max_running=1)
    await steps.submit_one()
    await steps.fail(lease)
    [lane] = await steps.serving()
    [other] = (await claim_limited(steps.db, own, [lane.id], [bob.session])).jobs

    back = await claim_back(steps.db, [(lease.id, lease.fence)], session=ann.session, tenant="default")

    assert [] == back
    assert (State.SCHEDULED, State.ASSIGNED) == (await steps.state_of(lease.id), await steps.state_of(other.id))


async def test_only_the_server_of_a_sqlite_file_claims(steps: Steps, database_url: str) -> None:
    """I8: a program beside the server may submit and read, never claim."""
    if steps.db.dialect != "sqlite":
        return
    beside = await open_database(database_url, clock=steps.clock, role="client")
    try:
        with pytest.raises(SetupError):
            await claim(beside, [Group([Want(1)], [uuid4()])])
        with pytest.raises(SetupError):
            await claim_back(beside, [(uuid4(), 1)], session=uuid4(), tenant="default")
    finally:
        await beside.close()


async def test_what_nobody_heard_of_is_undone(steps: Steps) -> None:
    """A lease that no worker was told of goes as it came: no attempt, no release, no record; only its fence stays."""
    worker = await steps.worker()
    job_id = await steps.submit_one()
    [first] = await steps.claim(worker)

    undone = await undo(steps.db, [first])
    [second] = await steps.claim(worker)
    stale = await undo(steps.db, [first])

    assert [job_id] == [job.id for job in undone]
    assert (1, 2) == (second.attempt, second.fence)
    assert [] == stale
    job = await history.get(steps.db, job_id, tenant="default")
    assert (State.ASSIGNED, 0) == (job.state, job.releases)
    assert [] == (await history.attempts(steps.db, job_id, tenant="default")).items


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let texts of more than 100 bytes come by themselves, and a claim take 1,000 bytes."""
    monkeypatch.setattr(claiming, "INLINE_BYTES", 100)
    monkeypatch.setattr(claiming, "MOST_BYTES", 1000)


@pytest.mark.usefixtures("bounds")
async def test_rel_h4_a_claim_takes_no_more_bytes_than_an_answer_holds(steps: Steps) -> None:
    """H4: jobs beyond that are as if they had not been claimed, and come next; long texts come with the others."""
    worker = await steps.worker()
    texts = [f'"{"x" * size}"' for size in (298, 10, 298, 298, 298, 10)]
    ids = [await steps.submit_one(payload=text, headers="{}", priority=-n) for n, text in enumerate(texts)]

    first = await steps.claim(worker, 10)
    waiting = [await steps.get(job_id) for job_id in ids[4:]]
    second = await steps.claim(worker, 10)

    assert [*zip(ids[:4], texts, strict=False)] == [(lease.id, lease.payload) for lease in first]
    assert [*zip(ids[4:], texts[4:], strict=True)] == [(lease.id, lease.payload) for lease in second]
    assert {"{}"} == {lease.headers for lease in (*first, *second)}
    assert [(State.QUEUED, 0, None)] * 2 == [(job.state, job.attempt, job.session) for job in waiting]
    assert [1, 1] == [lease.attempt for lease in second]


@pytest.mark.usefixtures("bounds")
async def test_rel_h4_a_job_of_any_size_is_claimed(steps: Steps) -> None:
    """One job is claimed however long its texts are, and a short one behind it waits for the next claim."""
    worker = await steps.worker()
    long = await steps.submit_one(payload=f'"{"x" * 2000}"', priority=1)
    short = await steps.submit_one()

    assert [long] == [lease.id for lease in await steps.claim(worker, 10)]
    assert [short] == [lease.id for lease in await steps.claim(worker, 10)]


@pytest.mark.usefixtures("bounds")
async def test_rel_t15_tenants_share_the_bytes_of_a_claim(steps: Steps) -> None:
    """A tenant whose long jobs wait longest does not take all: another one's job is claimed beside them."""
    workers = {tenant: await steps.worker(tenant, tenant=tenant) for tenant in "ab"}
    await steps.submit(*(steps.job(payload=f'"{"x" * 200}"', tenant="a", priority=5) for _ in range(10)))
    await steps.submit(*(steps.job(payload=f'"{"x" * 200}"', tenant="b") for _ in range(10)))
    groups = []
    for tenant, worker in workers.items():
        lanes = await steps.lanes.serving(steps.db, tenant, ["default"], tasks=None, labels=())
        groups.append(Group([Want(lane.id) for lane in lanes], [worker.session] * 10, tenant))

    claimed = await claim(steps.db, groups)

    assert Counter({workers["a"].session: 2, workers["b"].session: 2}) == Counter(lease.session for lease in claimed)


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("error", [Unavailable("away"), asyncio.CancelledError()], ids=["away", "cancelled"])
async def test_jobs_whose_texts_cannot_be_read_are_ready_again(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """L4: the claim is committed when its texts are read; a lease that nobody is told of must not stay."""
    worker = await steps.worker()
    ids = [await steps.submit_one(payload=f'"{"x" * 200}"'), await steps.submit_one()]
    fetch = steps.db.fetch

    async def broken(query: Query, /, **parameters: Any) -> list[Row]:
        if query.name == "texts":
            raise error
        return await fetch(query, **parameters)

    with monkeypatch.context() as patch:
        patch.setattr(steps.db, "fetch", broken)
        with pytest.raises(type(error)):
            await steps.claim(worker, 10)

    assert [State.QUEUED] * 2 == [(await steps.get(job_id)).state for job_id in ids]
    assert ids == [lease.id for lease in await steps.claim(worker, 10)]


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("error", [Unavailable("away"), asyncio.CancelledError()], ids=["away", "cancelled"])
async def test_a_claim_inside_a_transaction_is_undone_with_it(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Of a bare caller: PostgreSQL refuses each statement after one that failed, which would hide the error."""
    job_id = await steps.submit_one(payload=f'"{"x" * 200}"')
    [lane] = await steps.lanes.serving(steps.db, "default", ["default"], tasks=None, labels=())
    asked: list[str] = []

    async def claims(transaction: Statements, sessions: Sequence[UUID]) -> list[Claimed]:
        fetch = transaction.fetch

        async def broken(query: Query, /, **parameters: Any) -> list[Row]:
            asked.append(query.name)
            if query.name == "texts":
                raise error
            return await fetch(query, **parameters)

        monkeypatch.setattr(transaction, "fetch", broken)
        return await claim(transaction, [Group([Want(lane.id)], sessions)])

    with pytest.raises(type(error)):
        await claim_for_bare(steps.db, [BareSession(uuid4(), "bob", "default", 30_000)], claims)

    job = await steps.get(job_id)
    assert "texts" == asked[-1]
    assert (State.QUEUED, 0) == (job.state, job.attempt)


@pytest.mark.usefixtures("bounds")
async def test_a_claim_whose_jobs_cannot_be_given_back_ends(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that falls silent holds the claims of all tenants no longer than it must."""
    monkeypatch.setattr(claiming, "UNDO_S", 0.01)
    worker = await steps.worker()
    await steps.submit_one(payload=f'"{"x" * 200}"')
    fetch = steps.db.fetch

    async def silent(query: Query, /, **parameters: Any) -> list[Row]:
        if query.name in ("texts", "undo"):
            await asyncio.Event().wait()
        return await fetch(query, **parameters)

    with monkeypatch.context() as patch:
        patch.setattr(steps.db, "fetch", silent)
        task = asyncio.create_task(asyncio.wait_for(steps.claim(worker), 0.01))
        done, _ = await asyncio.wait([task], timeout=5)

    task.cancel()
    assert done
    assert isinstance(task.exception(), TimeoutError)
