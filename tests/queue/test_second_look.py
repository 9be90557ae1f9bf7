"""Rules that a second look at the code found broken; each is mended, and stays so."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.clock import START
from tests.queue.races.pausing import Pausing
from tests.queue.steps import ANN, Steps
from windlass.db import Query, open_database
from windlass.errors import AlreadyExists, DatabaseLocked, SchemaMismatch
from windlass.job import State
from windlass.queue.claim import Group, Want, claim
from windlass.queue.control import change, pause_queue, resume_due
from windlass.queue.lanes import LaneName
from windlass.queue.retry import PRESETS
from windlass.queue.submit import submit_requests

DEFAULT = LaneName("default", "default")


async def test_at_most_once_is_not_retried_by_its_policy(steps: Steps) -> None:
    """A policy with attempts of its own gives none to a job that may run once."""
    lease = await steps.lease(await steps.worker(), delivery="at_most_once", retry=PRESETS["stepped"])

    await steps.fail(lease)

    assert State.DEAD is await steps.state_of(lease.id)


async def test_at_most_once_is_lost_when_its_worker_forgets_it(steps: Steps) -> None:
    """A job that began and is no longer named by its worker is not run again, if it may run at most once."""
    ann = await steps.worker()
    lease = await steps.running(ann, delivery="at_most_once")
    steps.clock.advance(16)

    await steps.beat(ann)

    assert State.DEAD is await steps.state_of(lease.id)


async def test_an_id_that_is_taken_fails_its_own_request_alone(steps: Steps) -> None:
    """Neighbours in the transaction of a request with a taken id are stored."""
    taken = steps.job()
    await steps.submit(taken)
    fine = steps.job()

    refused, stored = await submit_requests(steps.db, steps.lanes, [[taken], [fine]])

    assert isinstance(refused, AlreadyExists)
    assert isinstance(stored, list)
    assert State.QUEUED is await steps.state_of(fine.id)


async def test_a_lane_named_twice_hands_a_job_out_once(steps: Steps) -> None:
    """A lane counts in the first group that names it, and there once."""
    ann = await steps.worker()
    await steps.submit_one()
    [lane] = await steps.serving()

    taken = await claim(
        steps.db, [Group([Want(lane.id), Want(lane.id)], [ann.session] * 2), Group([Want(lane.id)], [ann.session])]
    )

    assert 1 == len(taken)


async def test_submit_joins_no_transaction(steps: Steps) -> None:
    """What a refused request took must be rolled back, and lanes remembered must exist: both need an own commit."""
    async with steps.db.transaction() as transaction:
        with pytest.raises(TypeError, match="cannot join"):
            await submit_requests(transaction, steps.lanes, [[steps.job()]])
        with pytest.raises(TypeError, match="of their own"):
            await steps.lanes.resolve(transaction, [LaneName("default", "new")])


class _Meanwhile(Pausing):
    """A database on which something happens before a query of a given name, once."""

    def __init__(self, steps: Steps, name: str, act: Any) -> None:
        super().__init__(steps.db)
        self._name, self._act = name, act

    async def fetch(self, query: Any, /, **parameters: Any) -> Any:
        """Let it happen, then run the query."""
        found = await super().fetch(query, **parameters)
        if query.name == self._name and self._act is not None:
            act, self._act = self._act, None
            await act()
        return found


async def test_a_pause_prolonged_meanwhile_stays(steps: Steps) -> None:
    """Whoever ends pauses whose time is over leaves one alone that was prolonged after it looked."""
    until = steps.clock.now() + timedelta(minutes=1)
    await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN, until=until)
    steps.clock.advance(minutes=2)

    async def prolong() -> None:
        later = steps.clock.now() + timedelta(hours=1)
        await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN, until=later)

    await resume_due(_Meanwhile(steps, "pauses_over", prolong))

    await steps.submit_one()
    assert [] == await steps.claim(await steps.worker())


async def test_a_change_does_not_undo_another(steps: Steps) -> None:
    """A change of priority leaves the job in the queue that a change in between has put it into."""
    job_id = await steps.submit_one()

    async def move() -> None:
        await change(steps.db, steps.lanes, job_id, tenant="default", actor=ANN, queue="other")

    db = _Meanwhile(steps, "find_waiting", move)
    await change(db, steps.lanes, job_id, tenant="default", actor=ANN, priority=5)

    job = await steps.get(job_id)
    assert ("other", 5) == (job.queue, job.priority)


async def test_a_newer_schema_is_refused_at_the_door(database_url: str) -> None:
    """A database with a migration that this program does not know is not opened."""
    db = await open_database(database_url)
    table = "windlass.migration" if db.dialect == "postgres" else "migration"
    when = "now()" if db.dialect == "postgres" else "0"
    await db.run(f"INSERT INTO {table} (number, name, checksum, applied_at) VALUES (9999, 'later', 'x', {when});\n")
    try:
        with pytest.raises(SchemaMismatch, match="9999"):
            await open_database(database_url, role="client")
    finally:
        await db.run(f"DELETE FROM {table} WHERE number = 9999;\n")
        await db.close()


async def test_a_link_to_a_served_file_is_refused(tmp_path: Path) -> None:
    """The server's role is of the file, by whatever name it is opened."""
    db = await open_database(f"sqlite:///{tmp_path}/a.db", clock=lambda: START)
    (tmp_path / "b.db").symlink_to(tmp_path / "a.db")
    try:
        with pytest.raises(DatabaseLocked):
            await open_database(f"sqlite:///{tmp_path}/b.db")
    finally:
        await db.close()


async def test_a_policy_of_another_version_keeps_nobody_from_being_rescued(steps: Steps) -> None:
    """Servers one version apart: a stored policy with a field not known here is read as far as it is known."""
    ann = await steps.worker()
    odd = await steps.lease(ann, retry=PRESETS["immediate"])
    plain = await steps.lease(ann)
    text = "UPDATE job SET retry = :retry WHERE retry IS NOT NULL"
    await steps.db.fetch(Query("newer", "Store it as a newer version would.", text, text), retry='{"new": 1}')

    await steps.lose(plain)

    assert [State.QUEUED] * 2 == [await steps.state_of(lease.id) for lease in (odd, plain)]
