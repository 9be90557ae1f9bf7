"""Long poll: who gets what, when, and what becomes of jobs whose claimer has gone. On both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from windlass.engine import dispatch
from windlass.engine.engine import Engine
from windlass.engine.line import Ask, Handout
from windlass.errors import Conflict, Contention, InvalidInput, NotFound
from windlass.job import State
from windlass.queue import history, workers
from windlass.queue.claim import Claimed, claim
from windlass.queue.control import Actor
from windlass.queue.lanes import LaneName
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Fail, Status
from windlass.queue.retry import PRESETS
from windlass.queue.workers import NewSession

PATIENCE_S = 20
POLL_S = 3600
"""Longer than anybody is patient: an answer that comes only when the poll ends is too late."""


async def submit(
    engine: Engine, count: int = 1, *, task: str = "t", queue: str = "default", priority: int = 0
) -> list[UUID]:
    """Submit jobs and return their ids."""
    jobs = [NewJob(id=engine.ids.new(), task=task, queue=queue, priority=priority) for _ in range(count)]
    return [stored.id for stored in await engine.submit(jobs)]


async def opened(engine: Engine, worker: str) -> UUID:
    """Register a worker and return its session."""
    session = engine.ids.new()
    await engine.register(NewSession(id=session, worker=worker, capacity=10))
    return session


def ids_of(handout: Handout) -> list[UUID]:
    """Return the jobs of a handout."""
    return [handed.job.id for handed in handout.jobs]


def asking(
    worker: str = "w",
    session: UUID | None = None,
    *,
    count: int = 10,
    wait_s: float = POLL_S,
    queues: tuple[str, ...] = ("default",),
    tasks: frozenset[str] | None = None,
    labels: frozenset[str] = frozenset(),
) -> Ask:
    """Return an ask of tenant default."""
    return Ask(
        tenant="default",
        worker=worker,
        session=session,
        count=count,
        wait_s=wait_s,
        queues=queues,
        tasks=tasks,
        labels=labels,
    )


async def waiting(engine: Engine, *asks: Ask) -> list[asyncio.Task[Handout]]:
    """Let claims wait, and return when all of them stand in line."""
    before = engine.waiting_count
    tasks = [asyncio.create_task(engine.claim(ask)) for ask in asks]
    await until(lambda: engine.waiting_count == before + len(asks))
    return tasks


async def until(so: Callable[[], bool]) -> None:
    """Let the others run until it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not so():  # noqa: ASYNC110 — what is waited for sets no event
            await asyncio.sleep(0)


async def state_of(engine: Engine, job_id: UUID) -> State:
    """Return the state of a job."""
    return (await history.get(engine.db, job_id, tenant="default")).state


def reserved(engine: Engine) -> bool:
    """Say whether a claim statement is under way for somebody."""
    return any(waiter.reserved for waiter in engine._dispatch._line.all())


def task_is_answered(engine: Engine) -> bool:
    """Say whether somebody has an answer that his task has not picked up yet."""
    return any(waiter.answer.done() for waiter in engine._dispatch._line.all())


async def test_a_claim_is_answered_when_work_appears(engine: Engine) -> None:
    """A waiting worker gets the job of a submit on the same server at once, without a look of its own."""
    session = await opened(engine, "w")
    [task] = await waiting(engine, asking(session=session))

    [job_id] = await submit(engine)
    handout = await asyncio.wait_for(task, PATIENCE_S)

    assert [job_id] == ids_of(handout)
    assert State.ASSIGNED is await state_of(engine, job_id)


async def test_a_claim_that_does_not_wait_is_answered_at_once(engine: Engine) -> None:
    """With nothing ready the answer is empty; with jobs ready it holds them, up to the count, best first."""
    empty = await engine.claim(asking(wait_s=0))
    low = await submit(engine, 2)
    high = await submit(engine, 1, priority=5)

    full = await engine.claim(asking(wait_s=0, count=2))

    assert [] == empty.jobs
    assert [high[0], low[0]] == ids_of(full)


async def test_a_lone_caller_gets_all_it_asked_for(engine: Engine) -> None:
    """However small the first rounds are: what is ready and asked for is handed out in one answer."""
    ids = await submit(engine, 150)

    bare = await engine.claim(asking(wait_s=0, count=100))
    rest = await engine.claim(asking("v", await opened(engine, "v"), wait_s=0, count=100))

    assert ids[:100] == ids_of(bare)
    assert ids[100:] == ids_of(rest)


async def test_a_look_that_comes_between_takes_nothing_from_a_caller(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that is due after the first, small round, waits until the caller has all it asked for."""

    async def claim_and_look(*arguments: Any) -> list[Claimed]:
        jobs = await claim(*arguments)
        for look in engine.wake.on_all:
            look()
        return jobs

    monkeypatch.setattr(dispatch, "claim", claim_and_look)
    ids = await submit(engine, 150)

    got = await engine.claim(asking(wait_s=0, count=100))

    assert ids[:100] == ids_of(got)


async def test_each_job_of_a_bare_caller_has_a_session_of_its_own(engine: Engine) -> None:
    """A beat for one of them cannot keep another alive."""
    await submit(engine, 3)

    handout = await engine.claim(asking(wait_s=0))

    assert 3 == len({handed.job.session for handed in handout.jobs})


async def test_waiting_workers_share_what_comes(engine: Engine) -> None:
    """Slots go round: of four jobs each of two waiting workers gets two."""
    sessions = [await opened(engine, name) for name in ("a", "b")]
    tasks = await waiting(engine, *(asking(name, session) for name, session in zip("ab", sessions, strict=True)))

    await submit(engine, 4)
    handouts = await asyncio.gather(*tasks)

    assert [2, 2] == [len(handout.jobs) for handout in handouts]


async def test_a_worker_gets_only_what_it_can_run(engine: Engine) -> None:
    """Queue, task and labels decide; what nobody can run stays queued and disturbs no one."""
    await submit(engine, task="other")
    await submit(engine, queue="elsewhere")
    [labelled] = [stored.id for stored in await engine.submit([NewJob(id=engine.ids.new(), task="t", labels=("gpu",))])]
    [plain] = await submit(engine)

    without = await engine.claim(asking(wait_s=0, tasks=frozenset({"t"})))
    with_gpu = await engine.claim(asking(wait_s=0, tasks=frozenset({"t"}), labels=frozenset({"gpu", "eu"})))

    assert [plain] == ids_of(without)
    assert [labelled] == ids_of(with_gpu)


async def test_lines_of_different_workers_are_served_in_turn(engine: Engine) -> None:
    """Two capabilities that can run the same lane both get jobs from it."""
    both = await opened(engine, "both")
    one = await opened(engine, "one")
    tasks = await waiting(engine, asking("both", both, count=1), asking("one", one, count=1, tasks=frozenset({"t"})))

    await submit(engine, 2)
    handouts = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    assert [1, 1] == [len(handout.jobs) for handout in handouts]


async def test_rel_x31_a_client_that_left_loses_nothing(engine: Engine) -> None:
    """Jobs assigned to a claim whose caller hung up at that moment are ready again at once, without an attempt."""
    session = await opened(engine, "w")
    [task] = await waiting(engine, asking(session=session))
    [job_id] = await submit(engine)
    await until(lambda: task_is_answered(engine))

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = await engine.claim(asking("v", wait_s=PATIENCE_S))

    assert [job_id] == ids_of(again)
    assert 1 == again.jobs[0].job.attempt
    assert 2 == again.jobs[0].job.fence


async def test_rel_x31_a_client_that_left_during_the_statement_loses_nothing(engine: Engine) -> None:
    """The same when the caller is gone while the claim is on its way to the database."""
    session = await opened(engine, "w")
    [job_id] = await submit(engine)
    task = asyncio.create_task(engine.claim(asking(session=session)))
    await until(lambda: reserved(engine))

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = await engine.claim(asking("v", wait_s=PATIENCE_S))

    assert [job_id] == ids_of(again)
    assert 1 == again.jobs[0].job.attempt


async def test_a_limited_queue_hands_out_no_more_than_its_limit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of two a waiting worker gets two; a completion makes room for the next at once."""
    await engine.acts.configure_queue(LaneName("default", "mail"), max_running=2)
    ids = await submit(engine, 3, queue="mail")
    session = await opened(engine, "w")

    # No look comes to help: what was freed is what wakes.
    for name in ("LOOK_S", "LOOK_WITHOUT_NOTIFY_S"):
        monkeypatch.setattr(dispatch, name, 1000.0)
    first = await engine.claim(asking(session=session, queues=("mail",), wait_s=0))
    [task] = await waiting(engine, asking(session=session, queues=("mail",)))
    job = first.jobs[0].job
    [answer] = await engine.report([Complete(job_id=job.id, fence=job.fence, worker="w", session=session)])
    second = await asyncio.wait_for(task, PATIENCE_S)

    assert ids[:2] == ids_of(first)
    assert Status.APPLIED is answer.status
    assert [ids[2]] == ids_of(second)


async def test_room_made_while_a_rival_claims_is_used_at_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job ends while a claim from its limited queue is refused for a rival's sake: the queue is asked again."""
    await engine.acts.configure_queue(LaneName("default", "mail"), max_running=1)
    ids = await submit(engine, 2, queue="mail")
    session = await opened(engine, "w")
    for name in ("LOOK_S", "LOOK_WITHOUT_NOTIFY_S"):
        monkeypatch.setattr(dispatch, name, 1000.0)
    [handed] = (await engine.claim(asking(session=session, queues=("mail",), wait_s=0))).jobs
    end = Complete(job_id=handed.job.id, fence=handed.job.fence, worker="w", session=session)
    claimed = engine._dispatch._hands.claimed
    refusals = iter([Contention("A rival has the lock.")])

    async def refused_once(*arguments: Any) -> list[Claimed]:
        for refusal in refusals:
            await engine.report([end])
            raise refusal
        return await claimed(*arguments)

    monkeypatch.setattr(engine._dispatch._hands, "claimed", refused_once)
    engine._dispatch._limited._full.clear()
    second = await asyncio.wait_for(engine.claim(asking(session=session, queues=("mail",))), PATIENCE_S)

    assert ids == [handed.job.id, *ids_of(second)]


async def test_a_worker_of_limited_and_free_queues_gets_both(engine: Engine) -> None:
    """A caller that does not wait is answered when both kinds of lanes were asked for it."""
    await engine.acts.configure_queue(LaneName("default", "mail"), max_running=1)
    [limited, _] = await submit(engine, 2, queue="mail")
    [free] = await submit(engine)

    handouts = [await engine.claim(asking(wait_s=0, queues=("default", "mail"))) for _ in range(2)]

    assert {limited, free} == {job_id for handout in handouts for job_id in ids_of(handout)}


async def test_a_session_that_ended_does_not_stand_in_the_way(engine: Engine) -> None:
    """A worker whose session ended while it waited is told so; the job goes to the next in line."""
    ended = await opened(engine, "ended")
    alive = await opened(engine, "alive")
    tasks = await waiting(engine, asking("ended", ended, count=1), asking("alive", alive, count=1))
    await engine.acts.close(ended, tenant="default", reason="test")

    [job_id] = await submit(engine)

    assert [job_id] == ids_of(await asyncio.wait_for(tasks[1], PATIENCE_S))
    with pytest.raises(Conflict):
        await asyncio.wait_for(tasks[0], PATIENCE_S)


async def test_whose_session_it_is_is_checked_before_anything_is_assigned(engine: Engine) -> None:
    """Another worker's session and an unknown one are not found; an ended one, and another tenant's, is a conflict."""
    session = await opened(engine, "w")
    ended = await opened(engine, "w")
    await engine.acts.close(ended, tenant="default", reason="test")
    await submit(engine)

    for ask in (asking("other", session), asking("w", engine.ids.new())):
        with pytest.raises(NotFound):
            await engine.claim(ask)
    for ask in (asking("w", ended), Ask(tenant="foreign", worker="w", session=session)):
        with pytest.raises(Conflict):
            await engine.claim(ask)


async def test_a_cancel_answers_the_long_poll_of_its_worker(engine: Engine) -> None:
    """A worker that waits for more hears at once which of its jobs to stop."""
    session = await opened(engine, "w")
    [job_id] = await submit(engine)
    await engine.claim(asking(session=session))
    [task] = await waiting(engine, asking(session=session))

    await engine.acts.cancel([job_id], tenant="default", actor=Actor(name="ann"))
    handout = await asyncio.wait_for(task, PATIENCE_S)

    assert ([], [job_id]) == (handout.jobs, handout.cancel)


async def test_a_cancel_is_told_by_the_next_claim_once(engine: Engine) -> None:
    """A worker that did not wait just then hears it when it claims again; the claim after that is an ordinary one."""
    session = await opened(engine, "w")
    [job_id, other] = await submit(engine, 2)
    await engine.claim(asking(session=session, count=1))
    await engine.acts.cancel([job_id], tenant="default", actor=Actor())

    told = await engine.claim(asking(session=session))
    after = await engine.claim(asking(session=session))

    assert ([], [job_id]) == (told.jobs, told.cancel)
    assert ([other], []) == (ids_of(after), after.cancel)


async def test_resuming_a_queue_wakes_those_who_wait(engine: Engine) -> None:
    """A paused queue hands out nothing; when it is resumed the waiting worker is served."""
    await engine.acts.pause_queue(LaneName("default", "default"), actor=Actor())
    session = await opened(engine, "w")
    [job_id] = await submit(engine)
    [task] = await waiting(engine, asking(session=session))

    await engine.acts.resume_queue(LaneName("default", "default"))

    assert [job_id] == ids_of(await asyncio.wait_for(task, PATIENCE_S))


async def test_rel_x21_work_is_found_without_any_wake_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose wake-up was lost is found by the slow look."""
    monkeypatch.setattr(dispatch, "LOOK_S", 0.02)
    monkeypatch.setattr(engine.wake, "on_ready", [])
    session = await opened(engine, "w")
    [task] = await waiting(engine, asking(session=session))

    [job_id] = await submit(engine)

    assert [job_id] == ids_of(await asyncio.wait_for(task, PATIENCE_S))


async def test_stopping_answers_everybody(engine: Engine) -> None:
    """A server that drains lets its long polls go, empty, and takes no new ones."""
    session = await opened(engine, "w")
    tasks = await waiting(engine, asking(session=session), asking("bare"))

    await engine.drain()

    assert [[], []] == [(await task).jobs for task in tasks]


async def test_many_claimers_get_every_job_once(engine: Engine) -> None:
    """Twenty workers empty a queue of 300; no job is handed out twice, none is forgotten."""
    ids = set(await submit(engine, 300))
    seen: list[UUID] = []

    async def work(name: str) -> None:
        session = await opened(engine, name)
        while jobs := (await engine.claim(asking(name, session, count=7, wait_s=0))).jobs:
            seen.extend(handed.job.id for handed in jobs)
            done = [Complete(job_id=h.job.id, fence=h.job.fence, worker=name, session=session) for h in jobs]
            assert all(answer.status is Status.APPLIED for answer in await engine.report(done))

    await asyncio.gather(*(work(f"w{n}") for n in range(20)))

    assert (300, ids) == (len(seen), set(seen))


async def test_a_limited_queue_keeps_its_order_over_its_lanes(engine: Engine) -> None:
    """S4: with a limit of one, jobs of two tasks come by turns as they were submitted, not task by task."""
    await engine.acts.configure_queue(LaneName("default", "mail"), max_running=1)
    ids = [(await submit(engine, task=task, queue="mail"))[0] for task in "abababab"]
    session = await opened(engine, "w")

    handed = []
    for _ in ids:
        claim = engine.claim(asking(session=session, queues=("mail",)))
        job = (await asyncio.wait_for(claim, PATIENCE_S)).jobs[0].job
        handed.append(job.id)
        await engine.report([Complete(job_id=job.id, fence=job.fence, worker="w", session=session)])

    assert ids == handed


async def test_claims_of_one_session_get_their_own_jobs(engine: Engine) -> None:
    """A worker may wait at two queues at once; each claim gets what it asked for."""
    session = await opened(engine, "w")
    tasks = await waiting(
        engine, asking(session=session, queues=("a",), count=5), asking(session=session, queues=("b",), count=5)
    )

    jobs = [NewJob(id=engine.ids.new(), task="t", queue=queue) for queue in "abababab"]
    await engine.submit(jobs)
    handouts = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    assert [{"a"}, {"b"}] == [{handed.lane.queue for handed in handout.jobs} for handout in handouts]


async def test_rel_x21_a_busy_bell_does_not_keep_the_look_away(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost wake-up is made good in due time, however often other lanes ring."""
    monkeypatch.setattr(dispatch, "LOOK_S", 0.05)
    monkeypatch.setattr(dispatch, "LOOK_WITHOUT_NOTIFY_S", 0.05)
    heard, engine.wake.on_ready = engine.wake.on_ready, []
    session = await opened(engine, "w")
    [task] = await waiting(engine, asking(session=session))
    [job_id] = await submit(engine)

    async with asyncio.timeout(PATIENCE_S):
        while not task.done():
            for ring in heard:
                ring(10_000_000, 0)
            await asyncio.wait([task], timeout=0.005)

    assert [job_id] == ids_of(task.result())


async def test_a_rate_set_later_is_followed(timely: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that this server knew without limits hands out at its new rate, not at the pace of the looks."""
    await submit(timely, queue="mail")
    await timely.claim(asking(queues=("mail",), wait_s=0))
    await timely.acts.configure_queue(LaneName("default", "mail"), rate_per_s=1000, burst=1)
    ids = set(await submit(timely, 20, queue="mail"))
    session = await opened(timely, "w")

    got: list[UUID] = []
    monkeypatch.setattr(dispatch, "LOOK_S", 1000.0)
    monkeypatch.setattr(dispatch, "LOOK_WITHOUT_NOTIFY_S", 1000.0)
    while len(got) < 20:
        got += ids_of(await timely.claim(asking(session=session, queues=("mail",), count=1)))

    assert ids == set(got)


async def test_kept_retries_are_claimed_back_as_asked(engine: Engine) -> None:
    """R6: the worker that failed a job gets it first, no more than it asks for, and only where it asks."""
    session = await opened(engine, "w")
    stepped = PRESETS["stepped"]
    jobs = [NewJob(id=engine.ids.new(), task="t", queue="a", retry=stepped) for _ in range(3)]
    await engine.submit(jobs)
    first = await engine.claim(asking(session=session, queues=("a",)))
    fails = [Fail(job_id=h.job.id, fence=h.job.fence, worker="w", session=session, error="no") for h in first.jobs]
    await engine.report(fails)

    elsewhere = await engine.claim(asking(session=session, queues=("b",), wait_s=0))
    one = await engine.claim(asking(session=session, queues=("a",), count=1, wait_s=0))
    rest = await engine.claim(asking(session=session, queues=("a",), wait_s=0))

    assert [0, 1, 2] == [len(handout.jobs) for handout in (elsewhere, one, rest)]
    assert {2} == {handed.job.fence for handout in (one, rest) for handed in handout.jobs}


async def test_rel_x9_calls_under_a_dead_workers_name_do_not_keep_its_session(engine: Engine) -> None:
    """A bare caller that has the name of a registered worker is its own sign of life, not that worker's."""
    session = await opened(engine, "w")
    await submit(engine)
    await engine.claim(asking(session=session))
    before = (await workers.find_sessions(engine.db, [session]))[session]

    await engine.claim(asking("w", wait_s=0))

    caller = await engine.seen("default", "w")
    assert before.alive
    assert session != caller.session


async def test_nobody_keeps_a_job_unsaid(engine: Engine) -> None:
    """However the rounds go, a worker that has jobs is answered at once, also beside others that can run the same."""
    one = await opened(engine, "one")
    other = await opened(engine, "other")

    for count in (16, 48, 112):
        tasks = await waiting(
            engine,
            asking("one", one, count=1000),
            asking("other", other, count=1000, tasks=frozenset({"t", "u"})),
        )
        ids = await submit(engine, count)
        got: list[UUID] = []
        async with asyncio.timeout(PATIENCE_S / 2):
            while len(got) < count:
                done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                got += [job_id for task in done for job_id in ids_of(task.result())]
                tasks = list(pending)
        assert sorted(ids) == sorted(got)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_claim_that_comes_when_the_server_stops_is_answered(engine: Engine) -> None:
    """Who joins the line just after it was let go does not wait for its whole time."""
    session = await opened(engine, "w")
    await engine._dispatch.stop()

    handout = await asyncio.wait_for(engine.claim(asking(session=session)), PATIENCE_S / 2)

    assert [] == handout.jobs


async def test_one_bad_claim_refuses_nobody_else(engine: Engine) -> None:
    """A caller whose claim makes no sense is told so; those who wait beside it go on."""
    session = await opened(engine, "w")
    [task] = await waiting(engine, asking(session=session))

    with pytest.raises(InvalidInput):
        await engine.claim(Ask(tenant="default", worker="bad", lease_ms=0))

    [job_id] = await submit(engine)
    assert [job_id] == ids_of(await asyncio.wait_for(task, PATIENCE_S))


async def test_a_tenant_erased_during_a_claim_refuses_nobody_else(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T24: the lanes of that tenant are forgotten at once; another tenant's claim of the same round is answered."""
    own = engine.ids.new()
    await engine.register(NewSession(id=own, worker="w", tenant="erased", capacity=10))
    tasks = await waiting(
        engine,
        asking(session=await opened(engine, "w")),
        Ask(tenant="erased", worker="w", session=own, wait_s=POLL_S, queues=("default",)),
    )

    async def beside(*arguments: Any, **named: Any) -> list[Claimed]:
        jobs = await claim(*arguments, **named)
        if any(job.session == own for job in jobs):
            engine.lanes.forget("erased")
        return jobs

    monkeypatch.setattr(dispatch, "claim", beside)
    jobs = [NewJob(id=engine.ids.new(), task="t", tenant=tenant) for tenant in ("erased", "default")]
    await engine.submit(jobs)

    assert [jobs[1].id] == ids_of(await asyncio.wait_for(tasks[0], PATIENCE_S))
    tasks[1].cancel()
