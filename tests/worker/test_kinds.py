"""Work kinds: what a worker runs without code of a user."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.running import Plain, Work, quick, until, working
from windlass.client.context import Context
from windlass.config.workkinds import WorkKind
from windlass.db import Database
from windlass.errors import SetupError
from windlass.job import Outcome, State
from windlass.queue.retry import PRESETS
from windlass.worker.kinds import KindTask, with_kinds


async def outcomes(work: Work, task: str, payload: Any = None) -> list[Outcome]:
    """Run a job of this kind to its end; return how its attempts ended."""
    job = await work.submit(task, payload, retry=PRESETS["immediate"])
    await work.ended(job)
    return [attempt.outcome for attempt in await work.attempts(job)]


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        (WorkKind(), [Outcome.SUCCEEDED]),
        (WorkKind(duration_s=0.01), [Outcome.SUCCEEDED]),
        (WorkKind(outcome="fail"), [Outcome.FAILED] * 3),
        (WorkKind(outcome="fail", retryable=False), [Outcome.FAILED]),
        (WorkKind(outcome="cancel"), [Outcome.CANCELLED]),
        (WorkKind(fail_first=2), [Outcome.FAILED, Outcome.FAILED, Outcome.SUCCEEDED]),
    ],
)
async def test_a_kind_ends_as_it_says(db: Database, kind: WorkKind, ends: list[Outcome]) -> None:
    """The same every time, whatever the payload says."""
    tasks: Any = with_kinds({}, {"kind": kind})
    async with working(db, tasks) as work:
        first = await outcomes(work, "kind")
        second = await outcomes(work, "kind", {"outcome": "fail", "duration": 9, "retryable": False})

    assert (ends, ends) == (first, second)


async def test_the_result_of_a_kind_is_always_the_same(db: Database) -> None:
    """Same input, same result: it has neither time nor chance in it."""
    tasks: Any = with_kinds({}, {"kind": WorkKind(duration_s=0.01)})
    async with working(db, tasks) as work:
        results = [await work.result(await work.submit("kind")) for _ in range(2)]

    assert [{"work_kind": "kind", "duration_seconds": 0.01}] * 2 == results


async def test_a_kind_can_be_cancelled_while_it_lasts(db: Database) -> None:
    """A kind that takes an hour ends as soon as it is cancelled."""
    tasks: Any = with_kinds({}, {"long": WorkKind(duration_s=3600)})
    async with working(db, tasks, settings=quick()) as work:
        job = await work.submit("long")
        await until(lambda: work.worker._pools.busy_count == 1)

        await work.cancel(job)

        assert State.CANCELLED is (await work.ended(job)).state


def test_a_name_is_a_task_or_a_kind() -> None:
    """The configuration adds tasks and replaces none; a name that is both is refused, and so is nothing at all."""

    def echo(payload: Any, context: Context) -> Any:
        return payload

    own = Plain(echo, name="quick")

    tasks = with_kinds({"quick": own}, {"slow": WorkKind()})

    assert own is tasks["quick"]
    assert isinstance(tasks["slow"], KindTask)
    with pytest.raises(SetupError, match="'quick' is a task of the application and a work kind of the configuration"):
        with_kinds({"quick": own}, {"quick": WorkKind(), "slow": WorkKind()})
    with pytest.raises(SetupError, match="The application has no tasks, and the configuration no work kinds"):
        with_kinds({}, {})
