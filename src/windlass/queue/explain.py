"""Explain: why a job that waits is not running.

Reads only. Of one job: its pauses, its time, what blocks it, and whether a live worker serves its queue, its task and
its labels. Of a list: the lanes with ready jobs that are paused or that no live worker serves, in one bounded look.
A worker that did not say what it serves when it registered may serve everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass.db import Row, Statements, load
from windlass.job import State, WaitCode
from windlass.queue.views import Job

SQL = load(__file__)

KINDS = 1000
"""How many different kinds of workers are looked at; where there are more, none is said to be missing."""
LANES = 1000
"""How many lanes with ready jobs are looked at for a list."""
_TIMED = (State.SCHEDULED, State.SLEEPING)


class Reason(msgspec.Struct, frozen=True):
    """One reason: a code for programs, a sentence for people."""

    code: WaitCode
    detail: str


class StuckLane(msgspec.Struct, frozen=True):
    """A queue, task and labels whose ready jobs nobody is handed, and why."""

    queue: str
    task: str
    labels: str
    reason: Reason


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Live workers that can run the same; None: they did not say."""

    queues: frozenset[str] | None
    tasks: frozenset[str] | None
    labels: frozenset[str] | None
    workers: int
    threads: int
    busy: int

    @property
    def tells(self) -> bool:
        """Whether they said what they run: who only claims did not."""
        return self.queues is not None or self.tasks is not None


async def reasons(db: Statements, job: Job) -> list[Reason]:
    """Return why a job waits, what must end first at the top; an empty list if it does not wait."""
    if job.state not in (State.QUEUED, State.BLOCKED, *_TIMED):
        return []
    rows = await db.fetch(SQL.pauses_of, tenant=job.tenant, queue=job.queue, name=str(job.id))
    found = [_paused(row, job) for row in rows]
    [servers] = await db.fetch(SQL.servers_live)
    if job.state in _TIMED and job.next_run_at is not None:
        if servers["now_at"] < job.next_run_at:
            again = f"Attempt {job.attempt + 1}" if job.attempt else "The job"
            return [*found, Reason(WaitCode.NOT_DUE, f"{again} is due at {_instant(job.next_run_at)}.")]
        found.append(
            Reason(WaitCode.NOT_PROMOTED, f"It was due at {_instant(job.next_run_at)}; a server makes it ready soon.")
        )
    if job.state is State.BLOCKED:
        before = "the run of its schedule before it" if job.schedule_id else "the jobs before it"
        return [*found, Reason(WaitCode.BLOCKED, f"It waits until {before} has ended.")]
    if found and job.state is State.QUEUED:
        return found
    kinds = await _kinds(db, job.tenant)
    if not kinds and not servers["live"]:
        return [*found, Reason(WaitCode.NO_SERVER, "No server and no worker runs. `windlass up` starts both.")]
    serving = _serving(kinds, queue=job.queue, task=job.task, labels=job.labels)
    return [*found, serving if isinstance(serving, Reason) else _turn(serving)]


async def stuck_lanes(db: Statements, tenant: str, *, most: int = LANES) -> list[StuckLane]:
    """Return the lanes of a tenant, by name, whose ready jobs are paused or that no live worker serves."""
    lanes = await db.fetch(SQL.ready_lanes, tenant=tenant, most=LANES)
    kinds = await _kinds(db, tenant) if lanes else []
    found: dict[tuple[str, str, str], StuckLane] = {}
    for lane in lanes:
        name = (lane["queue"], lane["task"], lane["labels"])
        reason: Reason | list[Kind]
        if lane["paused"] & 1:
            reason = Reason(WaitCode.PAUSED_QUEUE, f"Queue {name[0]} is paused.")
        elif lane["paused"]:
            reason = Reason(WaitCode.PAUSED_TENANT, f"Tenant {tenant} is paused.")
        else:
            reason = _serving(kinds, queue=name[0], task=name[1], labels=name[2])
        if isinstance(reason, Reason):
            found.setdefault(name, StuckLane(*name, reason))
    return list(found.values())[:most]


async def _kinds(db: Statements, tenant: str) -> list[Kind]:
    return [_kind(row) for row in await db.fetch(SQL.capabilities, tenant=tenant, most=KINDS)]


def _kind(row: Row) -> Kind:
    queues, tasks, labels = (None if row[name] is None else _names(row[name]) for name in ("queues", "tasks", "labels"))
    kind = Kind(
        queues=queues, tasks=tasks, labels=labels, workers=row["workers"], threads=row["threads"], busy=row["busy"]
    )
    # Who says what it runs and names no label has none.
    return msgspec.structs.replace(kind, labels=frozenset()) if kind.tells and labels is None else kind


def _serving(kinds: Sequence[Kind], *, queue: str, task: str, labels: str) -> list[Kind] | Reason:
    """Return the live workers that can run the jobs of a lane; where none can, what is missing first.

    A caller that has never registered may ask for other jobs only: it counts where nobody else is there.
    """
    if not kinds:
        return Reason(WaitCode.NO_WORKER, "No worker runs. Start one with `windlass worker MODULE:APP`.")
    telling, silent = [kind for kind in kinds if kind.tells], [kind for kind in kinds if not kind.tells]
    of_queue = [kind for kind in telling if kind.queues is None or queue in kind.queues]
    of_task = [kind for kind in of_queue if kind.tasks is None or task in kind.tasks]
    able = [kind for kind in of_task if kind.labels is None or _names(labels) <= kind.labels]
    if able or not telling or len(kinds) >= KINDS:
        return able or silent
    silent_count = sum(kind.workers for kind in silent)
    some = f"{silent_count} caller that has" if silent_count == 1 else f"{silent_count} callers that have"
    who = f" ({some} not registered may ask for it)" if silent_count else ""
    if not of_queue:
        return Reason(WaitCode.NO_WORKER_FOR_QUEUE, f"No live worker serves queue {queue}{who}. Start one that does.")
    if not of_task:
        missing = f"No live worker of queue {queue} has the task {task}{who}."
        return Reason(WaitCode.NO_WORKER_FOR_TASK, f"{missing} Check the name, or start a worker that has it.")
    missing = f"No live worker with the task {task} has the labels {labels}{who}."
    return Reason(WaitCode.NO_WORKER_FOR_LABELS, f"{missing} Start one with --label.")


def _turn(able: Sequence[Kind]) -> Reason:
    busy, threads = sum(kind.busy for kind in able), sum(kind.threads for kind in able)
    count = sum(kind.workers for kind in able)
    workers = f"{count} worker{'' if count == 1 else 's'}"
    told = any(kind.tells for kind in able)
    can = "can run it" if told else f"may run it, but {'does' if count == 1 else 'do'} not say so"
    return Reason(WaitCode.TURN, f"It waits for its turn: {workers} {can}; {busy} of {threads} threads are busy.")


def _paused(row: Row, job: Job) -> Reason:
    named = {"queue": f"Queue {job.queue}", "tenant": f"Tenant {job.tenant}", "schedule": "The schedule"}
    by = f" by {row['actor']}" if row["actor"] else ""
    until = f" until {_instant(row['resume_at'])}" if row["resume_at"] else ""
    why = f": {row['reason']}" if row["reason"] else ""
    what = named.get(row["kind"], "The job")
    return Reason(
        WaitCode(f"paused_{row['kind']}"), f"{what} is paused{until}{by}{why}{'' if why.endswith('.') else '.'}"
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
