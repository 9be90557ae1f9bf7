"""A job that is asked for with `schedule`: what its schedule is called, and how a second asking is known."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from windlass.engine.recurring import check_same, schedule_of
from windlass.errors import InvalidSchedule, KeyReused
from windlass.wire.jobs import JobRequest
from windlass.wire.schedules import ScheduleRequest

FIRST = UUID("0197a000-0000-7000-8000-0000000000aa")
SECOND = UUID("0197a000-0001-7000-8000-0000000000bb")


def asked(**fields: Any) -> JobRequest:
    """Return a request for a recurring job."""
    return msgspec.json.decode(
        msgspec.json.encode({"task": "report", "schedule": "0 2 * * *", **fields}), type=JobRequest
    )


def plan(fresh: UUID, tenant: str = "a", **fields: Any) -> tuple[UUID, ScheduleRequest]:
    """Return the id and the settings of its schedule."""
    return schedule_of(asked(**fields), fresh, tenant=tenant)


def test_the_settings_of_the_job_are_those_of_the_schedule() -> None:
    """S8: whatever both have; `run_at` is its start."""
    _, made = plan(
        FIRST, queue="mail", priority=5, max_retries=1, timezone="Europe/Berlin", run_at="2026-05-01T00:00:00Z"
    )

    assert ("report", "0 2 * * *", "Europe/Berlin", "mail", 5, 1) == (
        made.task,
        made.cron,
        made.timezone,
        made.queue,
        made.priority,
        made.max_retries,
    )
    assert made.start is not None


def test_each_has_a_name_of_its_own_unless_one_is_given() -> None:
    """The task with a part of the id; never longer than a name may be."""
    names = [plan(fresh)[1].name for fresh in (FIRST, SECOND)]

    assert 2 == len(set(names))
    assert all(name.startswith("report-") for name in names)
    assert "nightly" == plan(FIRST, schedule_name="nightly")[1].name
    assert len(plan(FIRST, task="t" * 200)[1].name) <= 200


def test_the_same_request_under_a_key_is_known_again() -> None:
    """S6: the key names the schedule, and the id carries a mark of what was asked."""
    (one_id, one), (other_id, other) = (plan(fresh, idempotency_key="k") for fresh in (FIRST, SECOND))

    assert one.name == other.name
    assert one_id != other_id
    check_same(asked(idempotency_key="k"), other_id, stored_id=one_id)


@pytest.mark.parametrize("fields", [{"payload": 1}, {"schedule": "0 3 * * *"}, {"queue": "mail"}, {"task": "other"}])
def test_another_request_under_the_same_key_is_refused(fields: dict[str, Any]) -> None:
    """S6: same key, other content, whatever differs; it finds the name taken by the first."""
    first_id, first = plan(FIRST, idempotency_key="k")
    other_id, other = plan(SECOND, **{"idempotency_key": "k"} | fields)

    with pytest.raises(KeyReused):
        check_same(asked(idempotency_key="k", **fields), other_id, stored_id=first_id)
    assert first.name == other.name


@pytest.mark.parametrize("field", ["delay", "unique_key", "unique_for", "start_deadline", "start_within"])
def test_what_is_of_one_job_alone_is_refused(field: str) -> None:
    """A schedule makes many: what could only hold for the first of them is a mistake."""
    value = "2027-01-01T00:00:00Z" if field == "start_deadline" else "1h"

    with pytest.raises(InvalidSchedule) as caught:
        plan(FIRST, **{field: value})

    assert field == caught.value.field
