"""Submit: a request becomes rows, all of them or none; keys let one job stand for many requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.queue.steps import Steps
from windlass.errors import InvalidInput, KeyReused, PayloadTooLarge, TooMany
from windlass.job import State
from windlass.queue.deadlines import expire
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.submit import submit_requests


def again(steps: Steps, job: NewJob, **changes: object) -> NewJob:
    """Return the same job as a caller would send it again: with an id of its own."""
    return msgspec.structs.replace(job, id=steps.ids.new(), **changes)


async def test_a_job_needs_only_its_task(steps: Steps) -> None:
    """S1: everything else has a default, and the job is claimable at once."""
    job = NewJob(id=steps.ids.new(), task="mail")

    [answer] = await steps.submit(job)

    assert (job.id, State.QUEUED, steps.clock.now(), False) == (
        answer.id,
        answer.state,
        answer.next_run_at,
        answer.duplicate,
    )
    stored = await steps.get(job.id)
    assert ("default", "default", "null", 0, 3, 3600, 5) == (
        stored.tenant,
        stored.queue,
        stored.payload,
        stored.priority,
        stored.max_attempts,
        stored.timeout_s,
        stored.max_lost,
    )
    assert (0, 0, 1, steps.clock.now()) == (stored.attempt, stored.fence, stored.run, stored.created_at)


async def test_everything_asked_for_is_stored(steps: Steps) -> None:
    """S1: tenant, queue, labels, tags, headers, limits and deadline are kept as given."""
    start_by = steps.clock.now() + timedelta(hours=1)

    job_id = await steps.submit_one(
        "render",
        tenant="acme",
        queue="video",
        labels=("gpu", "eu"),
        tags=("nightly", "große Datei"),
        headers='{"trace":"1"}',
        priority=-5,
        timeout_s=None,
        max_attempts=9,
        max_lost=2,
        start_by=start_by,
    )

    stored = await steps.get(job_id, tenant="acme")
    assert ("render", "video", "eu,gpu", ["nightly", "große Datei"]) == (
        stored.task,
        stored.queue,
        stored.labels,
        stored.tags,
    )
    assert ('{"trace":"1"}', -5, None) == (
        stored.headers,
        stored.priority,
        stored.timeout_s,
    )
    assert (9, 2, start_by) == (stored.max_attempts, stored.max_lost, stored.start_by)


@pytest.mark.parametrize("asked", ["run_at", "delay_ms"])
async def test_a_job_for_later_is_scheduled(steps: Steps, asked: str) -> None:
    """S2: a time ahead, or a delay, makes the job scheduled until then."""
    due_at = steps.clock.now() + timedelta(seconds=90)

    fields: dict[str, Any] = {asked: due_at if asked == "run_at" else 90_000}

    [answer] = await steps.submit(steps.job(**fields))

    assert (State.SCHEDULED, due_at) == (answer.state, answer.next_run_at)
    stored = await steps.get(answer.id)
    assert (State.SCHEDULED, due_at, due_at) == (stored.state, stored.scheduled_at, stored.next_run_at)


async def test_a_delay_of_nothing_is_now(steps: Steps) -> None:
    """A delay of 0 is due at once, not at the next promotion."""
    [answer] = await steps.submit(steps.job(delay_ms=0))

    assert State.QUEUED is answer.state


async def test_a_time_in_the_past_is_due_now_and_kept_as_nominal(steps: Steps) -> None:
    """S3: a past time means due now; the time asked for is still shown, so that lateness can be told."""
    asked_at = steps.clock.now() - timedelta(days=2)

    [answer] = await steps.submit(steps.job(run_at=asked_at))

    assert (State.QUEUED, steps.clock.now()) == (answer.state, answer.next_run_at)
    assert asked_at == (await steps.get(answer.id)).scheduled_at
    assert asked_at == (await steps.claim_one(await steps.worker())).scheduled_at


async def test_a_batch_is_answered_in_order(steps: Steps) -> None:
    """S7: up to 1,000 jobs in one request, one answer each, in the order of the request."""
    jobs = [steps.job(delay_ms=60_000 * (n % 2), priority=n % 5) for n in range(1000)]

    answers = await steps.submit(*reversed(jobs))

    assert [job.id for job in reversed(jobs)] == [answer.id for answer in answers]
    assert [State.SCHEDULED, State.QUEUED] * 500 == [answer.state for answer in answers]


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_batch_has_one_to_a_thousand_jobs(steps: Steps, count: int) -> None:
    """S7: an empty request and one of more than 1,000 are refused."""
    with pytest.raises(InvalidInput) as refused:
        await steps.submit(*(steps.job() for _ in range(count)))

    assert "jobs" == refused.value.field


async def test_a_bad_job_refuses_its_whole_request_with_its_index(steps: Steps) -> None:
    """S7, S9: all or nothing for the request; the answer names which job is bad, and nothing is stored."""
    before = await steps.dump()

    with pytest.raises(InvalidInput) as refused:
        await steps.submit(steps.job(), steps.job(), steps.job(payload="{"), steps.job(priority=1000))

    assert (2, "payload") == (refused.value.index, refused.value.field)
    assert before == await steps.dump()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task", ""),
        ("task", "x" * 201),
        ("task", "a\x00b"),
        ("queue", "a/b"),
        ("queue", "a,b"),
        ("tenant", "a\nb"),
        ("payload", '{"a": NaN}'),
        ("payload", "[1,]"),
        ("payload", '"\x00"'),
        ("payload", '"\ud800"'),
        ("payload", "[" * 65 + "]" * 65),
        ("headers", "nope"),
        ("labels", ("a,b",)),
        ("tags", ("",)),
        ("tags", ("t",) * 33),
        ("priority", 128),
        ("priority", -128),
        ("max_attempts", 0),
        ("max_lost", 0),
        ("timeout_s", 0),
        ("delay_ms", -1),
        ("idempotency_key", ""),
        ("idempotency_key", "k" * 513),
        ("idempotency_ms", 0),
        ("unique_key", "a\x00"),
        ("unique_ms", 0),
    ],
)
async def test_a_value_out_of_bounds_is_refused(steps: Steps, field: str, value: object) -> None:
    """S9: invalid text, JSON that is none and figures out of range never reach a statement."""
    fields: dict[str, Any] = {field: value}

    with pytest.raises(InvalidInput) as refused:
        await steps.submit(steps.job(**fields))

    assert (0, field) == (refused.value.index, refused.value.field)


async def test_a_time_without_a_zone_is_refused(steps: Steps) -> None:
    """G8: instants carry their zone, or nobody knows what they mean."""
    with pytest.raises(InvalidInput, match="zone"):
        await steps.submit(steps.job(run_at=steps.clock.now().replace(tzinfo=None)))


async def test_a_time_and_a_delay_together_are_refused(steps: Steps) -> None:
    """A job is due at a time or after a delay; both would leave it open which."""
    with pytest.raises(InvalidInput, match="run_at"):
        await steps.submit(steps.job(run_at=steps.clock.now(), delay_ms=1))


async def test_a_payload_has_a_limit_in_bytes(steps: Steps) -> None:
    """S9: 256 KiB are taken, one byte more is not; bytes count, not characters."""
    fits = '"' + "é" * (131_072 - 1) + '"'

    job_id = await steps.submit_one(payload=fits)
    with pytest.raises(PayloadTooLarge):
        await steps.submit_one(payload=fits[:-1] + 'x"')

    assert fits == (await steps.get(job_id)).payload


@pytest.mark.parametrize(
    "payload",
    [
        ' {"b" : 1,\n "a":1.0, "a":2}\t',
        '{"nul":"\\u0000","pair":"\\ud83d\\ude00","slash":"\\/"}',
        '"\u202e\ufeff\u2028\U0001f469\u200d\U0001f692 e\u0301 \u00e9 \ufffd \U0010ffff"',
        "-0.0",
        "123456789012345678901234567890.1e-7",
        '"it\'s \\"quoted\\" $1 :name %s ? ; --"',
    ],
)
async def test_a_payload_comes_back_byte_for_byte(steps: Steps, payload: str) -> None:
    """S9: JSON is stored as received, through every move: spaces, order, escapes, digits."""
    worker = await steps.worker()
    lease = await steps.lease(worker, payload=payload, headers=payload)

    await steps.complete(lease, result=payload, metrics=payload)

    stored = await steps.get(lease.id)
    assert (payload, payload) == (lease.payload, lease.headers)
    assert (payload, payload) == (stored.payload, stored.headers)
    assert (payload, payload) == (stored.result, stored.metrics)


async def test_a_repeated_request_gets_the_job_it_made(steps: Steps) -> None:
    """S6: one job per key; the repeat is answered with the first one's id and marked as a duplicate."""
    job = steps.job(idempotency_key="order-1", payload="1")
    [first] = await steps.submit(job)
    steps.clock.advance(hours=23)

    [second] = await steps.submit(again(steps, job))

    assert (first.id, State.QUEUED, True) == (second.id, second.state, second.duplicate)
    assert (first.next_run_at, None, None) == (second.next_run_at, second.lane, second.rank)
    assert 1 == len((await steps.dump())["job"])


async def test_a_key_names_the_job_also_after_its_end(steps: Steps) -> None:
    """S6: within its window a key is remembered, though the job has succeeded long ago."""
    job = steps.job(idempotency_key="order-1")
    await steps.submit(job)
    await steps.complete(await steps.claim_one(await steps.worker()))

    [second] = await steps.submit(again(steps, job))

    assert (job.id, State.SUCCEEDED, True) == (second.id, second.state, second.duplicate)


@pytest.mark.parametrize("key", ["idempotency_key", "unique_key"])
async def test_the_same_job_said_again_is_the_same_job(steps: Steps, key: str) -> None:
    """S6, I1: a caller that does not know what became of its request says it again, with the id it had given."""
    job = steps.job(**{key: "k"})
    [first] = await steps.submit(job)

    [again] = await steps.submit(job)

    assert (first.id, first.state, True) == (again.id, again.state, again.duplicate)
    assert 1 == len((await steps.dump(["job"]))["job"])


async def test_a_key_is_free_again_after_its_window(steps: Steps) -> None:
    """S6: the window is 24 hours unless asked otherwise; after it the same key makes a new job."""
    day = steps.job(idempotency_key="a")
    minute = steps.job(idempotency_key="b", idempotency_ms=60_000)
    await steps.submit(day, minute)

    steps.clock.advance(60)
    [after_minute] = await steps.submit(again(steps, minute))
    steps.clock.advance(86_400 - 61)
    [before_day] = await steps.submit(again(steps, day))
    steps.clock.advance(1)
    [after_day] = await steps.submit(again(steps, day))

    assert [False, True, False] == [after_minute.duplicate, before_day.duplicate, after_day.duplicate]


@pytest.mark.parametrize("change", [{"payload": "2"}, {"task": "other"}, {"priority": 1}, {"queue": "q"}])
async def test_a_key_with_other_content_is_refused(steps: Steps, change: dict[str, object]) -> None:
    """S6: the key names the work; the same key for other work is a mistake, and the index says where."""
    job = steps.job(idempotency_key="order-1", payload="1")
    await steps.submit(job)
    before = await steps.dump(["job", "queue", "timer", "dedup"])

    with pytest.raises(KeyReused) as refused:
        await steps.submit(steps.job(), again(steps, job, **change))

    assert (1, "idempotency_key") == (refused.value.index, refused.value.field)
    assert before == await steps.dump(["job", "queue", "timer", "dedup"])


async def test_keys_are_the_tenants_own(steps: Steps) -> None:
    """S6: one job per (tenant, key); two tenants may use the same one."""
    answers = [
        (await steps.submit(steps.job(tenant=tenant, idempotency_key="k", unique_key="u")))[0]
        for tenant in ("default", "acme")
    ]

    assert [False, False] == [answer.duplicate for answer in answers]


async def test_equal_keys_in_one_batch_are_folded(steps: Steps) -> None:
    """S6: a key twice in one request makes one job; both are answered with it, the second as a duplicate."""
    job = steps.job(idempotency_key="k")

    answers = await steps.submit(steps.job(), job, again(steps, job))

    assert [job.id, job.id] == [answer.id for answer in answers[1:]]
    assert [False, False, True] == [answer.duplicate for answer in answers]
    assert 2 == len((await steps.dump())["job"])


async def test_equal_keys_with_other_content_in_one_batch_are_refused(steps: Steps) -> None:
    """S6: also inside one request the key names one content; the later job is the bad one."""
    with pytest.raises(KeyReused) as refused:
        await steps.submit(steps.job(idempotency_key="k"), steps.job(idempotency_key="k", payload="2"))

    assert 1 == refused.value.index
    assert [] == (await steps.dump())["job"]


async def test_one_job_lives_under_a_unique_key(steps: Steps) -> None:
    """S6: while a job lives its unique key answers with it, whatever the content; its end frees the key."""
    worker = await steps.worker()
    first = await steps.submit_one(unique_key="u", payload="1")

    second = await steps.submit_one(unique_key="u", payload="2")
    lease = await steps.claim_one(worker)
    third = await steps.submit_one(unique_key="u", payload="3")
    await steps.complete(lease)
    fourth = await steps.submit_one(unique_key="u", payload="4")

    assert [first, first] == [second, third]
    assert first != fourth


@pytest.mark.parametrize("end", ["succeeded", "dead", "cancelled waiting", "cancelled timed", "expired", "cancelled"])
async def test_every_end_frees_a_unique_key(steps: Steps, end: str) -> None:
    """S6: unique while live: however the job ends, its key is free, and its retries kept it."""
    worker = await steps.worker()
    first = await steps.submit_one(
        unique_key="u",
        max_attempts=2,
        delay_ms=5000 if end == "cancelled timed" else None,
        start_by=steps.clock.now() + timedelta(seconds=5) if end == "expired" else None,
    )
    if end == "succeeded":
        await steps.complete(await steps.claim_one(worker))
    elif end == "dead":
        await steps.fail(await steps.claim_one(worker))
        assert first == await steps.submit_one(unique_key="u")
        await steps.advance(2)
        await steps.fail(await steps.claim_one(worker))
    elif end == "expired":
        await steps.advance(5)
        assert [first] == await expire(steps.db)
    elif end == "cancelled":
        lease = await steps.claim_one(worker)
        await steps.cancel(first)
        assert first == await steps.submit_one(unique_key="u")
        await steps.fail(lease)
    else:
        await steps.cancel(first)

    second = await steps.submit_one(unique_key="u")

    assert end.split()[0] == await steps.state_of(first)
    assert first != second


async def test_a_unique_key_may_hold_for_a_time(steps: Steps) -> None:
    """S6: held for a span, a unique key answers with its job until then, also after the job's end."""
    worker = await steps.worker()
    first = await steps.submit_one(unique_key="u", unique_ms=60_000)
    await steps.complete(await steps.claim_one(worker))

    steps.clock.advance(59)
    within = await steps.submit_one(unique_key="u", unique_ms=60_000)
    steps.clock.advance(1)
    after = await steps.submit_one(unique_key="u", unique_ms=60_000)

    assert first == within
    assert first != after


async def test_a_job_with_both_keys_follows_both(steps: Steps) -> None:
    """S6: a new idempotency key that meets a taken unique key names the job it was answered with, for its window."""
    worker = await steps.worker()
    holder = await steps.submit_one(unique_key="u")
    both = steps.job(unique_key="u", idempotency_key="k", payload="1")

    [answer] = await steps.submit(both)
    await steps.complete(await steps.claim_one(worker))
    [repeat] = await steps.submit(again(steps, both))
    with pytest.raises(KeyReused):
        await steps.submit(again(steps, both, payload="2"))

    assert [(holder, True), (holder, True)] == [(answer.id, answer.duplicate), (repeat.id, repeat.duplicate)]
    assert State.SUCCEEDED is repeat.state


async def test_both_keys_folded_in_one_batch_end_at_one_job(steps: Steps) -> None:
    """S6: equal idempotency keys whose job itself lost its unique key are all answered with that winner."""
    holder = await steps.submit_one(unique_key="u")
    both = steps.job(unique_key="u", idempotency_key="k")

    answers = await steps.submit(both, again(steps, both))

    assert [(holder, True)] * 2 == [(answer.id, answer.duplicate) for answer in answers]


async def test_requests_share_a_transaction_and_are_answered_by_themselves(steps: Steps) -> None:
    """S9: a bad request names its index and disturbs no other caller."""
    used = steps.job(idempotency_key="used")
    await steps.submit(used)
    requests = [
        [steps.job(), steps.job()],
        [steps.job(), again(steps, used, payload="2")],
        [steps.job(priority=999)],
        [again(steps, used)],
    ]

    answers = await submit_requests(steps.db, steps.lanes, requests)

    assert [job.id for job in requests[0]] == ids_of(answers[0])
    assert isinstance(answers[1], KeyReused)
    assert 1 == answers[1].index
    assert isinstance(answers[2], InvalidInput)
    assert [used.id] == ids_of(answers[3])
    assert 3 == len((await steps.dump())["job"])


async def test_a_request_is_not_refused_for_a_key_of_a_refused_one(steps: Steps) -> None:
    """S9: what a refused request asked for was never stored, so its neighbour's key is free."""
    used = steps.job(idempotency_key="used")
    await steps.submit(used)
    bad = [steps.job(idempotency_key="k", payload="1"), again(steps, used, payload="2")]
    good = [steps.job(idempotency_key="k", payload="3")]

    answers = await submit_requests(steps.db, steps.lanes, [bad, good])

    assert isinstance(answers[0], KeyReused)
    assert [good[0].id] == ids_of(answers[1])


async def test_the_first_bad_job_of_a_request_is_named(steps: Steps) -> None:
    """S9: of several reused keys the first one's index is told."""
    used = steps.job(idempotency_key="used")
    await steps.submit(used)

    with pytest.raises(KeyReused) as refused:
        await steps.submit(steps.job(), again(steps, used, payload="2"), again(steps, used, payload="3"))

    assert 1 == refused.value.index


async def test_a_tenant_at_its_cap_of_lanes_disturbs_no_other(steps: Steps) -> None:
    """S1, S9: queues are made on first use up to a cap; a request past it is refused alone."""
    lanes = Lanes(per_tenant=3)
    full = [steps.job(queue="a", tenant="full"), steps.job(queue="b", tenant="full")]
    fits = [steps.job(tenant="fits")]

    answers = await submit_requests(steps.db, lanes, [full, fits])

    assert isinstance(answers[0], TooMany)
    assert [fits[0].id] == ids_of(answers[1])
    assert 1 == len((await steps.dump())["job"])


def ids_of(answer: object) -> list[object]:
    """Return the ids of a request that was stored."""
    assert isinstance(answer, list), answer
    return [job.id for job in answer]
