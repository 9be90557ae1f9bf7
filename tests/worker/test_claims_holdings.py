"""What a worker holds: from the answer to a claim until the report is acknowledged or the lease is gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from msgspec import Raw

from windlass.wire import work as wire
from windlass.worker.capacity import Capacity
from windlass.worker.frames import Lease, Opened
from windlass.worker.holdings import Holdings

SESSION = uuid4()


class Told:
    """A keeping that remembers what it is told."""

    def __init__(self) -> None:
        self.held: list[UUID] = []
        self.dropped: list[Lease] = []

    def hold(self, jobs: Sequence[wire.ClaimedJob]) -> None:
        """Remember leases."""
        self.held += [job.id for job in jobs]

    def drop(self, jobs: Sequence[Lease]) -> None:
        """Remember their ends."""
        self.dropped += jobs


def claimed(job_id: UUID | None = None, *, fence: int = 1) -> wire.ClaimedJob:
    """Return a job as a claim hands it out."""
    given: dict[str, Any] = {"headers": Raw(b"null"), "tags": Raw(b"null"), "payload": Raw(b"null"), "labels": []}
    named: dict[str, Any] = {"definition_id": None, "schedule_id": None, "tenant": "default", "queue": "default"}
    counts: dict[str, Any] = {"attempt": 1, "max_attempts": 3, "priority": 0, "max_execution_time": 60}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rest: dict[str, Any] = {"run_id": "", "session": SESSION, "scheduled_at": at, "lease_seconds": 30.0}
    return wire.ClaimedJob(id=job_id or uuid4(), task="add", fence=fence, **given, **named, **counts, **rest)


class World:
    """Holdings with four slots, under a lease of 30 s that began now."""

    def __init__(self) -> None:
        self.now = 100.0
        self.told = Told()
        told: Any = self.told
        self.holdings = Holdings(told, Capacity(4), monotonic=lambda: self.now)
        self.holdings.open(Opened("ann", SESSION, 30.0, self.now))


def test_what_is_held_takes_room_until_it_is_acknowledged() -> None:
    """An ended body has its place until its report is answered; a report that goes out now may count it as free."""
    world, job = World(), claimed()
    holdings = world.holdings

    begun = holdings.take([job])
    to_report = holdings.ended(job.id, 1)

    assert ([job], True) == (begun, to_report)
    assert (3, 4) == (holdings.room(), holdings.room(1))
    holdings.drop([(job.id, 1)])
    assert 4 == holdings.room()
    assert ([job.id], [(job.id, 1)]) == (world.told.held, world.told.dropped)


def test_a_lost_body_keeps_its_slot_until_it_has_ended() -> None:
    """Its lease is gone at once, its slot is not; its end is not reported."""
    world, job = World(), claimed()
    holdings = world.holdings
    holdings.take([job])

    stopping = holdings.lose([(job.id, 1), (uuid4(), 1), (job.id, 2)])

    assert [(job.id, 1)] == stopping
    assert ([(job.id, 1)], 0, 3) == (world.told.dropped, holdings.held_count, holdings.room())
    assert not holdings.ended(job.id, 1)
    assert 4 == holdings.room()


def test_a_lost_lease_whose_body_has_ended_stops_nothing() -> None:
    """What only waits for its report is let go of."""
    world, job = World(), claimed()
    holdings = world.holdings
    holdings.take([job])
    holdings.ended(job.id, 1)

    assert [] == holdings.lose([(job.id, 1)])
    assert 4 == holdings.room()


def test_a_job_claimed_again_waits_for_its_earlier_body() -> None:
    """The same job under a new fence begins only when the body that lost its lease has ended here."""
    world = World()
    holdings = world.holdings
    first = claimed()
    again, other = claimed(first.id, fence=2), claimed()
    holdings.take([first])
    holdings.lose([(first.id, 1)])

    begun = holdings.take([again, other])
    due_before = holdings.due()
    reported = holdings.ended(first.id, 1)
    due_after = holdings.due()

    assert [other] == begun
    assert ([], False, [again], []) == (due_before, reported, due_after, holdings.due())
    assert holdings.ended(first.id, 2)


def test_a_job_that_waits_for_its_earlier_body_may_be_lost_too() -> None:
    """It never begins, and nothing of it is to be stopped."""
    world = World()
    holdings = world.holdings
    first = claimed()
    holdings.take([first])
    holdings.lose([(first.id, 1)])
    holdings.take([claimed(first.id, fence=2)])

    stopping = holdings.lose([(first.id, 2)])
    holdings.ended(first.id, 1)

    assert ([], []) == (stopping, holdings.due())
    assert 4 == holdings.room()


def test_an_end_under_another_fence_is_not_reported() -> None:
    """Only the fence that is held counts."""
    world, job = World(), claimed(fence=2)
    world.holdings.take([job])

    assert not world.holdings.ended(job.id, 1)
    assert not world.holdings.ended(uuid4(), 2)
    assert world.holdings.ended(job.id, 2)


def test_an_answer_to_an_earlier_report_lets_go_of_that_lease_only() -> None:
    """A job that failed, was claimed anew and runs is held under its new fence, whatever is said of the old one."""
    world, first = World(), claimed()
    holdings = world.holdings
    holdings.take([first])
    holdings.ended(first.id, 1)
    holdings.take([claimed(first.id, fence=2)])

    holdings.drop([(first.id, 1)])
    again = holdings.lose([(first.id, 1)])

    assert ([], [(first.id, 2)]) == (again, holdings.unfinished)
    assert [(first.id, 1)] == world.told.dropped


def test_a_lease_is_trusted_for_five_sixths() -> None:
    """Past it there is no room, until it is renewed; an older word renews nothing (L14)."""
    world = World()
    holdings = world.holdings

    world.now = 124.9
    before = holdings.trusted, holdings.room()
    world.now = 125.1
    after = holdings.trusted, holdings.room()
    holdings.renew(90.0)
    still = holdings.trusted
    holdings.renew(120.0)

    assert ((True, 4), (False, 0), False) == (before, after, still)
    assert holdings.trusted


def test_a_lapse_gives_up_only_what_is_exclusive() -> None:
    """Exclusive bodies are to be stopped, others go on, ends that are known stay held; renewed, all is as before."""
    world = World()
    holdings = world.holdings
    running, over, exclusive = claimed(), claimed(), claimed()
    holdings.take([running, over, exclusive])
    holdings.ended(over.id, 1)
    world.now = 130.0

    stopping = holdings.lapse([(exclusive.id, 1), (over.id, 1), (uuid4(), 1)])
    holdings.renew(100.0)
    lapsed = holdings.lapsed
    holdings.renew(130.0)

    assert [(exclusive.id, 1)] == stopping
    assert [(running.id, 1), (over.id, 1)] == holdings.held
    assert (True, False) == (lapsed, holdings.lapsed)
    assert 1 == holdings.room()


def test_nothing_is_taken_before_a_session_or_on_the_way_out() -> None:
    """No session, or leaving: no room. Before its last jobs: only so many."""
    world = World()
    told: Any = world.told
    without = Holdings(told, Capacity(4), monotonic=lambda: 0.0)
    world.holdings.jobs_left = 3
    world.holdings.take([claimed()])
    few = world.holdings.room()
    world.holdings.claims_closed = True

    assert (0, 2, 0) == (without.room(), few, world.holdings.room())
