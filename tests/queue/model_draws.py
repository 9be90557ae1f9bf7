"""What the machine draws: jobs, reports and clock steps, few values of each kind so that they meet."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from tests.clock import START
from tests.queue.model_rows import Memory
from windlass.job import Outcome
from windlass.queue.lanes import LaneName
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Fail, Release, Report, Snooze
from windlass.queue.retry import PRESETS, RetryPolicy

TENANTS = ("default", "acme")
QUEUES = ("mail", "images", "limited")
LIMITED = "limited"
TASKS = ("send", "resize")
WORKERS = ("w1", "w2")
CHANCES = st.sampled_from((0.0, 0.5, 1.0))
POLICIES = (
    None,
    *PRESETS.values(),
    RetryPolicy(kind="linear", base_s=3.0, jitter=0.5),
    RetryPolicy(kind="fixed", base_s=1.0, by_error={"net": RetryPolicy(kind="fixed", base_s=7.0, max_attempts=5)}),
)


DELAYS_MS = st.sampled_from((0, 1, 5000))
TENANT = st.sampled_from(("default", "default", "default", "acme"))


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Draw the usual value half of the time, else one of the others."""
    return st.sampled_from((*(usual for _ in others or (usual,)), *others))


def seconds(*spans: float) -> st.SearchStrategy[timedelta]:
    """Draw a span."""
    return st.sampled_from([timedelta(seconds=span) for span in spans])


def new_jobs(job_id: UUID, now: datetime, *, simple: bool = False) -> st.SearchStrategy[NewJob]:
    """Draw a job to submit; a simple one is due at once and has no keys."""
    if simple:
        return st.builds(
            NewJob,
            id=st.just(job_id),
            task=st.sampled_from(TASKS),
            queue=st.sampled_from(QUEUES),
            priority=mostly(0, 1, -1),
            timeout_s=mostly(1, 60),
            max_attempts=st.integers(1, 3),
            max_lost=mostly(5, 1, 2),
            retry=st.sampled_from(POLICIES),
            start_by=mostly(None, now + timedelta(seconds=60), now + timedelta(hours=1)),
        )
    instants = seconds(-3600, -0.0005, 0, 0.0005, 2, 60, 86_400).map(lambda span: now + span)
    at_once, both = st.just((None, None)), st.just((now, 5))  # both is refused
    timings = st.one_of(*[at_once] * 16, *[st.tuples(instants, st.none()), st.tuples(st.none(), DELAYS_MS)] * 6, both)
    return st.builds(
        lambda timing, **fields: NewJob(run_at=timing[0], delay_ms=timing[1], **fields),
        timing=timings,
        id=st.just(job_id),
        task=st.sampled_from(TASKS),
        payload=mostly("null", '{"a": 1}', '"é\\u0000"'),
        tenant=TENANT,
        queue=st.sampled_from(QUEUES),
        labels=mostly((), (), (), ("gpu",), ("gpu", "big")),
        tags=mostly((), ("x", "y")),
        priority=st.sampled_from((*[0] * 20, *[1, -1, 2, -2, 127, -127] * 3, 128)),
        start_by=mostly(None, *[now + timedelta(seconds=span) for span in (-1, 0, 3, 60, 3600, 3600)]),
        timeout_s=mostly(3600, None, 1, 60),
        max_attempts=st.integers(1, 3),
        max_lost=mostly(5, 1, 2, 3),
        retry=st.sampled_from(POLICIES),
        idempotency_key=mostly(None, "k1", "k2"),
        idempotency_ms=mostly(86_400_000, 5000),
        unique_key=mostly(None, "u1", "u2"),
        unique_ms=mostly(None, 3000),
    )


def reports(job_id: UUID, fence: int, worker: str, session: UUID | None, tenant: str) -> st.SearchStrategy[Report]:
    """Draw a report about a lease."""
    lease = {
        "job_id": st.just(job_id),
        "fence": st.just(fence),
        "worker": st.just(worker),
        "session": st.just(session),
        "tenant": st.just(tenant),
    }
    spent = mostly(None, 0, 700, 10**9)
    outcomes = mostly(Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED)
    return st.one_of(
        st.builds(Complete, **lease, result=mostly(None, "1"), metrics=mostly(None, "{}"), duration_ms=spent),
        st.builds(
            Fail,
            **lease,
            outcome=outcomes,
            error=st.just("it broke"),
            error_type=mostly(None, "net"),
            retryable=mostly(True, True, True, False),
            duration_ms=spent,
        ),
        st.builds(Snooze, **lease, delay_ms=mostly(1000, 0, 60_000), reason=mostly(None, "later")),
        st.builds(Release, **lease, reason=mostly(None, "drain"), started=st.booleans()),
        st.builds(Release, **lease, error=mostly(None, None, "bad")),
    )


def steps(memory: Memory) -> st.SearchStrategy[timedelta]:
    """Draw how far the clock moves: a fixed step, or to just before, at or after an instant that matters."""
    instants = [instant for row in memory.jobs.values() for instant in (row.due_at, row.deadline_at, row.start_by)]
    instants += [session.expires_at for session in memory.sessions.values()]
    instants += [key.expires_at for key in memory.keys.values()] + [p.resume_at for p in memory.pauses.values()]
    ahead = sorted({instant - memory.now for instant in instants if instant is not None and instant > memory.now})
    fixed = seconds(0.0004, 0.0015, 1, 6, 9, 11, 15, 16, 31, 3700)
    if not ahead:
        return fixed
    edges = seconds(-0.001, 0, 0.000001, 0.001)
    jumps = st.tuples(st.sampled_from(ahead), edges).map(lambda pair: max(sum(pair, timedelta()), timedelta(0)))
    return fixed | jumps


def shown(value: Any) -> str:
    """Return `value` as a failure prints it: ids by number, instants in seconds since the start, no defaults."""
    if isinstance(value, UUID):
        return f"#{value.int & 0xFFFFFFFF}"
    if isinstance(value, datetime):
        return f"@{(value - START).total_seconds():g}"
    if isinstance(value, Enum):
        return str(value.name)
    if isinstance(value, LaneName):
        return "/".join(filter(None, (value.tenant, value.queue, value.task, value.labels, value.key)))
    if isinstance(value, msgspec.Struct):
        defaults = dict(zip(value.__struct_fields__[::-1], value.__struct_defaults__[::-1], strict=False))
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        said = [f"{name}={shown(field)}" for name, field in fields if name not in defaults or defaults[name] != field]
        return f"{type(value).__name__}({', '.join(said)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(inner) for inner in value)}]"
    return repr(value)
