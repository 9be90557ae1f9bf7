"""What schemathesis is told about this API: which calls to cut short, and which of its complaints are not one.

Loaded by the process that makes the requests (schemathesis.toml). Each exception is one case, with its reason.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.generation.meta import TestPhase
from schemathesis.openapi.checks import IgnoredAuth, RejectedPositiveData, UseAfterFree

OWN_KEY = "WINDLASS_FUZZ_KEY_ID"
"""The variable with the id of the key of this run."""
SHORT_S = 0.01
APART = (
    *("tenant", "queue", "queues", "labels", "tasks", "capabilities"),
    *("run_at", "delay", "start_deadline", "start_within"),
)


GOOD = {
    "cron": ("30 2 * * *", "*/15 * * * MON-FRI", "@daily", "H H(0-7) * * *", "0 0 0 1 1 *"),
    "schedule": ("0 * * * *", "0 8 * * MON"),
    "timezone": ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York"),
}
UNSAID = ("stands twice in the request", "is among the schedules too", "cannot be limited to queues")
OF_ONE_TENANT = ("PUT /api/v1/schedules/{schedule}", "POST /api/v1/schedules/declared")


@schemathesis.hook
def before_call(_: schemathesis.HookContext, case: schemathesis.Case[Any], __: dict[str, Any]) -> None:
    """Make a call that is allowed to last long a short one; the answer is the same."""
    for fields in (case.query, case.body):
        if isinstance(fields, dict) and 0 < _seconds(fields.get("wait")) <= 30:
            fields["wait"] = 0
    if case.operation.label == "GET /api/v1/events" and 0 < _seconds(case.query.get("seconds", 1)) <= 86_400:
        case.query["seconds"] = SHORT_S
    if case.operation.label == "GET /api/v1/jobs/{id}/logs" and str(case.query.get("follow")) in ("true", "True", "1"):
        case.query["follow"] = "false"
    if case.meta is not None and case.meta.phase.name is TestPhase.STATEFUL and case.meta.generation.mode.is_positive:
        for fields in (case.query, case.body):
            _let_meet(fields)
    if case.meta is not None and case.meta.generation.mode.is_positive:
        _let_fire(case.body)
        if case.operation.label in OF_ONE_TENANT:
            _drop_tenant(case.body)
    if case.path_parameters.get("key") == os.environ.get(OWN_KEY):
        case.path_parameters["key"] = "unknown"  # without its own key the run would see nothing but 401


def _let_fire(fields: object) -> None:
    """Put good values where a text stands whose language no schema can say, so that what is stored is tried too."""
    if not isinstance(fields, dict):
        return
    for name, good in GOOD.items():
        if isinstance(text := fields.get(name), str):
            fields[name] = good[len(text) % len(good)]
    if fields.get("exclude"):
        fields["exclude"] = ["2026-12-25", "--02-29", "SAT"][: len(fields["exclude"])]
    if "since" in fields and "until" in fields:
        # Slots are remembered for some weeks only.
        yesterday = datetime.now(UTC).date() - timedelta(days=1)
        fields["since"], fields["until"] = f"{yesterday}T00:00:00Z", f"{yesterday}T06:00:00Z"
    for schedule in fields.get("schedules") or ():
        _let_fire(schedule)


def _drop_tenant(fields: object) -> None:
    """Name no tenant for what is of the tenant of the request."""
    for part in (fields, *(fields.get("schedules") or ())) if isinstance(fields, dict) else ():
        part.pop("tenant", None)


def _let_meet(fields: object) -> None:
    """Keep calls that follow one another to one tenant and one queue, or no worker would ever find a job."""
    if isinstance(fields, dict):
        for name in APART:
            fields.pop(name, None)
        for part in (*fields.get("jobs", ()), *(fields.get("schedules") or ())):
            _let_meet(part)


@schemathesis.hook
def filter_failure(
    _: schemathesis.HookContext, failure: Failure, case: schemathesis.Case[Any], response: schemathesis.Response
) -> bool:
    """Say whether a complaint is one."""
    # After ten wrong keys in a minute the answer is 429: refused all the same.
    if isinstance(failure, IgnoredAuth) and "429" in failure.message:
        return False
    # A key that was used for other content is refused, which no schema of one request can say.
    if isinstance(failure, RejectedPositiveData) and '"code":"key_reused"' in response.text:
        return False
    # Whether start, end, days left out and jitter leave a slot no schema can say.
    if isinstance(failure, RejectedPositiveData) and '"code":"invalid_schedule"' in response.text:
        return False
    # What the time is now no schema can say either.
    if isinstance(failure, RejectedPositiveData) and '"detail":"until: ' in response.text and "passed" in response.text:
        return False
    # How the names of a batch differ, and which scopes go with queues, no schema can say.
    if isinstance(failure, RejectedPositiveData) and any(words in response.text for words in UNSAID):
        return False
    # A body that is too long is refused before it is looked at.
    if isinstance(failure, AcceptedNegativeData) and response.status_code == 413:
        return False
    # Deleting a job cancels it, deleting a worker ends its session: both are shown until retention takes them.
    kept = ("DELETE /api/v1/jobs/", "DELETE /api/v1/workers/")
    return not (isinstance(failure, UseAfterFree) and failure.free.startswith(kept))


def _seconds(value: object) -> float:
    """Return a number of seconds, also from a text; what is none is -1."""
    try:
        return -1.0 if isinstance(value, bool) else float(str(value))
    except ValueError:
        return -1.0
