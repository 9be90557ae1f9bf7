"""Lanes: a number for each (tenant, queue, route, key), made on first use, never changing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.queue.steps import ANN, Steps
from windlass.errors import InvalidInput, TooMany
from windlass.queue.control import pause_queue, pause_tenant
from windlass.queue.lanes import STRICT_PRIORITY_MS, LaneName, Lanes, configure
from windlass.queue.limits import claim_limited

MAIL = LaneName("default", "default", "mail")


async def test_a_lane_is_made_on_first_use_and_keeps_its_number(steps: Steps) -> None:
    """S1: a queue exists from its first submit on; every server finds the same number by the same name."""
    first = await steps.lanes.resolve(steps.db, [MAIL])

    again = await Lanes().resolve(steps.db, [MAIL, MAIL])

    assert first[MAIL].id == again[MAIL].id
    assert {MAIL} == again.keys()


async def test_the_queues_own_row_has_the_smaller_number(steps: Steps) -> None:
    """internals 2: the queue's own row is locked before its lanes, so its number is below theirs."""
    lanes = await steps.lanes.resolve(steps.db, [MAIL, LaneName("default", "b", "t"), LaneName("default", "a", "t")])

    own = await steps.lanes.resolve(steps.db, [name.of_queue for name in lanes])

    assert all(own[name.of_queue].id < lane.id for name, lane in lanes.items())
    assert 6 == len({lane.id for lane in [*lanes.values(), *own.values()]})


async def test_racing_servers_make_one_lane(steps: Steps) -> None:
    """internals 2: lanes are made with ON CONFLICT DO NOTHING; all racers get one number."""
    found = await asyncio.gather(*(Lanes().resolve(steps.db, [MAIL]) for _ in range(4)))

    assert 1 == len({lanes[MAIL].id for lanes in found})


async def test_labels_make_one_route_in_any_order(steps: Steps) -> None:
    """L17: a route is a task with a set of labels."""
    jobs = [steps.job(labels=labels) for labels in [("a", "b"), ("b", "a"), ("b", "a", "b")]]

    answers = await steps.submit(*jobs)

    assert 1 == len({answer.lane for answer in answers})


async def test_a_worker_is_served_by_what_it_can_run(steps: Steps) -> None:
    """L17: tasks it knows (None: all) and labels it has; the queue's own row is never a lane to claim from."""
    for task, labels in [("a", ()), ("a", ("gpu",)), ("b", ()), ("b", ("eu", "gpu"))]:
        await steps.submit_one(task, labels=labels)

    async def routes(tasks: list[str] | None, labels: str) -> list[tuple[str, str]]:
        lanes = await steps.serving(tasks=tasks, labels=labels)
        return sorted((lane.name.task, lane.name.labels) for lane in lanes)

    assert [("a", ""), ("b", "")] == await routes(None, "")
    assert [("a", ""), ("a", "gpu")] == await routes(["a", "z"], "gpu")
    assert [("a", ""), ("a", "gpu"), ("b", ""), ("b", "eu,gpu")] == await routes(None, "ssd gpu eu")
    assert [] == await routes([], "gpu")


async def test_serving_keeps_to_the_tenant_and_its_queues(steps: Steps) -> None:
    """N1: lanes of another tenant are not seen, whatever the queue is called."""
    await steps.submit_one(queue="a")
    await steps.submit_one(queue="b")
    await steps.submit_one(queue="a", tenant="acme")

    found = await steps.lanes.serving(steps.db, "default", ["a", "none"], tasks=None, labels=[])

    assert [LaneName("default", "a", "mail")] == [lane.name for lane in found]


async def test_a_tenant_has_a_cap_of_lanes(steps: Steps) -> None:
    """S1: past the cap nothing is made, and what exists goes on; other tenants have their own cap."""
    lanes = Lanes(per_tenant=3)
    await lanes.resolve(steps.db, [MAIL, LaneName("default", "default", "b")])
    before = await steps.dump(["lane"])

    with pytest.raises(TooMany):
        await lanes.resolve(steps.db, [LaneName("default", "default", "c")])

    assert before == await steps.dump(["lane"])
    await Lanes(per_tenant=3).resolve(steps.db, [MAIL])
    await lanes.resolve(steps.db, [LaneName("acme", "default", "c")])


async def test_a_lower_cap_refuses_only_what_is_new(steps: Steps) -> None:
    """S1: lanes that exist are found by a server whose cap they are past; none is made there."""
    other = LaneName("default", "default", "b")
    first = await Lanes(per_tenant=3).resolve(steps.db, [MAIL, other])

    lowered = Lanes(per_tenant=1)

    assert first == await lowered.resolve(steps.db, [MAIL, other])
    for names in ([LaneName("default", "default", "c")], [LaneName("default", "new")]):
        with pytest.raises(TooMany):
            await lowered.resolve(steps.db, names)


async def test_a_queue_is_configured_at_the_cap(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: the settings of a queue that exists can be changed past the cap; a new queue is not made by them."""
    await steps.submit_one()
    monkeypatch.setattr("windlass.queue.lanes.LANES_PER_TENANT", 1)

    await configure(steps.db, MAIL.of_queue, max_running=1)

    with pytest.raises(TooMany):
        await configure(steps.db, LaneName("default", "new"), max_running=1)


async def test_a_queue_is_configured_as_a_whole(steps: Steps) -> None:
    """S4, L15: how jobs rank holds for all lanes, those made later too; limits stand on the queue's own row."""
    await steps.submit_one("a")
    await configure(steps.db, MAIL.of_queue, credit_ms=1000, fifo=True, max_running=3, rate_per_s=2.5, burst=4)
    await steps.submit_one("b")

    lanes = await Lanes().serving(steps.db, "default", ["default"], tasks=None, labels=[])
    own = (await Lanes().resolve(steps.db, [MAIL.of_queue]))[MAIL.of_queue]

    assert [(1000, 1, 2), (1000, 1, 2)] == [(lane.credit_ms, lane.fifo, lane.limited) for lane in lanes]
    assert (3, 2.5, 4, 2) == (own.max_running, own.rate_per_s, own.burst, own.limited)


async def test_a_configuration_is_replaced_whole(steps: Steps) -> None:
    """What is not named goes back to its default: strict priority, no limits."""
    await steps.submit_one()
    await configure(steps.db, MAIL.of_queue, fifo=True, max_running=3)

    await configure(steps.db, MAIL.of_queue)

    own = (await Lanes().resolve(steps.db, [MAIL.of_queue]))[MAIL.of_queue]
    assert (STRICT_PRIORITY_MS, 0, None, 0) == (own.credit_ms, own.fifo, own.max_running, own.limited)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("credit_ms", -1),
        ("credit_ms", 2**60),
        ("max_running", -1),
        ("max_running", 2**40),
        ("rate_per_s", 0.0),
        ("rate_per_s", -1.0),
        ("rate_per_s", 1e-300),
        ("rate_per_s", 1e300),
        ("rate_per_s", float("nan")),
        ("rate_per_s", float("inf")),
        ("burst", 0),
        ("burst", 2**40),
    ],
)
async def test_a_setting_that_cannot_be_computed_with_is_refused(steps: Steps, field: str, value: float) -> None:
    """A setting is bounded when it is made, by name: afterwards it would fail claims and others' submits."""
    await steps.submit_one()
    before = await steps.dump()
    settings: dict[str, Any] = {field: value}

    with pytest.raises(InvalidInput) as refused:
        await configure(steps.db, MAIL.of_queue, **settings)

    assert field == refused.value.field
    assert before == await steps.dump()


@pytest.mark.parametrize(("field", "name"), [("tenant", LaneName("a\x00b", "q")), ("queue", LaneName("a", "\ud800"))])
async def test_a_queue_is_configured_by_a_name_it_can_have(steps: Steps, field: str, name: LaneName) -> None:
    """No queue is made by its settings that a job could not be submitted to."""
    with pytest.raises(InvalidInput) as refused:
        await configure(steps.db, name)

    assert field == refused.value.field


async def test_the_bounds_of_settings_can_be_claimed_with(steps: Steps) -> None:
    """What is just accepted works, from submit to claim, at either end."""
    worker = await steps.worker()
    for ends in [
        {"credit_ms": 0, "max_running": 0, "rate_per_s": 1e-6, "burst": 1},
        {"credit_ms": STRICT_PRIORITY_MS, "max_running": 2**31 - 1, "rate_per_s": 1e6, "burst": 1_000_000},
    ]:
        settings: dict[str, Any] = ends
        await configure(steps.db, MAIL.of_queue, **settings)
        await steps.submit(steps.job(priority=127), steps.job(priority=-127))
        lanes = [lane.id for lane in await steps.serving()]
        leases = (await claim_limited(steps.db, await steps.own_row(), lanes, [worker.session] * 4)).jobs
        assert (4 if settings["max_running"] else 0) == len(leases)


@pytest.mark.parametrize(("rate_per_s", "claimed"), [(0.001, 0), (10.0, 1), (0.0005, 1)])
async def test_a_changed_rate_holds_at_once(steps: Steps, rate_per_s: float, claimed: int) -> None:
    """L15: another rate does not wait until the old one is paid off; the same one set again gives nothing away."""
    worker = await steps.worker()
    await steps.submit(*(steps.job() for _ in range(3)))
    own, lanes = await steps.own_row(), [lane.id for lane in await steps.serving()]
    await configure(steps.db, MAIL.of_queue, rate_per_s=0.001, burst=1)
    assert 1 == len((await claim_limited(steps.db, own, lanes, [worker.session] * 3)).jobs)

    await configure(steps.db, MAIL.of_queue, rate_per_s=rate_per_s, burst=1, fifo=True)

    assert claimed == len((await claim_limited(steps.db, own, lanes, [worker.session] * 3)).jobs)


async def test_configuring_touches_no_other_queue(steps: Steps) -> None:
    """N1: the same queue name of another tenant, and other queues, stay as they are."""
    for queue, tenant in [("default", "default"), ("other", "default"), ("default", "acme")]:
        await steps.submit_one(queue=queue, tenant=tenant)

    await configure(steps.db, MAIL.of_queue, max_running=1, fifo=True)

    for name in (LaneName("default", "other"), LaneName("acme", "default")):
        own = (await Lanes().resolve(steps.db, [name]))[name]
        assert (None, 0) == (own.max_running, own.fifo)


async def test_a_changed_order_holds_for_jobs_ranked_afterwards(steps: Steps) -> None:
    """internals 2: a changed credit applies to rows ranked afterwards, also by a server that knew the lane before."""
    await steps.submit_one(priority=5)
    await configure(steps.db, MAIL.of_queue, fifo=True)

    [answer] = await steps.submit(steps.job(priority=5))

    assert int(steps.clock.now().timestamp() * 1000) == answer.rank


@pytest.mark.parametrize("kind", ["queue", "tenant", "both"])
async def test_a_lane_of_something_paused_is_born_paused(steps: Steps, kind: str) -> None:
    """X5: a new task in a paused queue or tenant is not a way around the pause."""
    await steps.submit_one("a")
    if kind != "tenant":
        await pause_queue(steps.db, steps.lanes, MAIL, actor=ANN)
    if kind != "queue":
        await pause_tenant(steps.db, "default", actor=ANN)

    await steps.submit_one("b")

    assert [] == await steps.claim(await steps.worker(), 5)
    assert {{"queue": 1, "tenant": 2, "both": 3}[kind]} == {lane.paused for lane in await steps.serving()}


async def test_a_queue_may_be_configured_before_its_first_job(steps: Steps) -> None:
    """Settings of a queue that does not exist yet make it, and its lanes follow them."""
    await configure(steps.db, LaneName("default", "new"), fifo=True, max_running=3)

    lanes = await steps.lanes.resolve(steps.db, [LaneName("default", "new"), LaneName("default", "new", "t")])

    assert (3, 1) == (lanes[LaneName("default", "new")].max_running, lanes[LaneName("default", "new", "t")].fifo)
