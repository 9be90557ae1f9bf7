"""Trusted: whoever does a duty can write as long as its lease can be trusted, and not a moment longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.clock import TestClock
from tests.queue.races.pausing import Pausing
from tests.queue.steps import Steps
from windlass.db import Database
from windlass.engine.trusted import Trusted
from windlass.errors import DutyLost
from windlass.job import State
from windlass.queue import recurring, retention, timers


class Trust:
    """Trust that a test can end."""

    def __init__(self) -> None:
        self.over = False

    def check(self) -> None:
        """Raise DutyLost when it is over."""
        if self.over:
            raise DutyLost("over")


@pytest.fixture
def steps(db: Database, clock: TestClock) -> Steps:
    """The steps of the queue."""
    clock.advance(minutes=1)
    return Steps(db, clock)


async def due_job(steps: Steps) -> Callable[[], Awaitable[State]]:
    """Store a timer that is due; return what tells the state of its job."""
    job_id = await steps.submit_one(delay_ms=1000)
    steps.clock.advance(2)
    return lambda: steps.state_of(job_id)


async def test_what_is_trusted_goes_through(steps: Steps) -> None:
    """With trust it is the database itself."""
    state = await due_job(steps)
    trusted = Trusted(steps.db, Trust().check)

    async with trusted.transaction() as transaction:
        await timers.promote(transaction)
    await retention.sweep(trusted)

    assert State.QUEUED is await state()
    assert (steps.db.dialect, await steps.db.version()) == (trusted.dialect, await trusted.version())


async def test_no_statement_without_trust(steps: Steps) -> None:
    """A statement by itself is refused and changes nothing; so are reads, scripts and maintenance."""
    state = await due_job(steps)
    trust = Trust()
    trusted = Trusted(steps.db, trust.check)

    trust.over = True
    with pytest.raises(DutyLost):
        await timers.promote(trusted)
    with pytest.raises(DutyLost):
        await recurring.read_clock(trusted)
    with pytest.raises(DutyLost):
        await trusted.run("DELETE FROM nothing_at_all;")
    with pytest.raises(DutyLost):
        await trusted.maintain("VACUUM nothing_at_all")

    assert State.SCHEDULED is await state()


async def test_a_statement_on_its_way_when_trust_ends_changes_nothing(steps: Steps) -> None:
    """B3: a process stopped after it has asked for a connection goes on by sending the statement: it is undone."""
    state = await due_job(steps)
    trust = Trust()
    held = Pausing(steps.db)
    sending = held.hold_before("promote")
    promoting = asyncio.create_task(timers.promote(Trusted(held, trust.check)))
    await sending.reached.wait()

    trust.over = True
    sending.release()

    with pytest.raises(DutyLost):
        await promoting
    assert State.SCHEDULED is await state()


async def test_no_transaction_without_trust(steps: Steps) -> None:
    """It is refused before it begins."""
    trust = Trust()
    trust.over = True

    with pytest.raises(DutyLost):
        async with Trusted(steps.db, trust.check).transaction():
            pytest.fail("It began.")


async def test_no_statement_of_a_transaction_without_trust(steps: Steps) -> None:
    """Trust that ends between two statements ends the transaction; what the first did is undone."""
    state = await due_job(steps)
    trust = Trust()

    async def twice() -> None:
        async with Trusted(steps.db, trust.check).transaction() as transaction:
            await timers.promote(transaction)
            trust.over = True
            await timers.promote(transaction)
            trust.over = False

    with pytest.raises(DutyLost):
        await twice()
    assert State.SCHEDULED is await state()


async def test_no_commit_without_trust(steps: Steps) -> None:
    """Trust that ends after the last statement still undoes them all."""
    state = await due_job(steps)
    trust = Trust()

    async def once() -> None:
        async with Trusted(steps.db, trust.check).transaction() as transaction:
            async with transaction.transaction() as joined:
                await timers.promote(joined)
            trust.over = True

    with pytest.raises(DutyLost):
        await once()
    assert State.SCHEDULED is await state()


async def test_the_server_keeps_its_database(steps: Steps) -> None:
    """Closing the view of a duty leaves the database open."""
    await Trusted(steps.db, Trust().check).close()

    assert None is await steps.left_s("promote")
