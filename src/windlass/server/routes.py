"""The table of contents of the API: one line per endpoint.

Method, path, endpoint, scope, what it does; then what goes in and what comes out. Paths stand below `/api/v1`, but for
the open ones; `/jobs…`, `/workers…` and `/admin/queue/status` are served at the root too. From this table come the
routing, the checks, the audit and the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.server import (
    admin,
    audit,
    dead_letters,
    duties,
    jobs,
    keys,
    live,
    logs,
    queues,
    scale,
    tasks,
    tenants,
    whole,
    work,
    workers,
)
from windlass.server.route import MIB, Handler, Route, Scope
from windlass.wire import admin as w
from windlass.wire import jobs as j
from windlass.wire import people as p
from windlass.wire import trail as t
from windlass.wire import work as k
from windlass.wire.base import Because, NamePages, PauseRequest, Words
from windlass.wire.live import EventsQuery, StreamedEvent
from windlass.wire.tasks import TaskList


def _line(
    method: str,
    path: str,
    handler: Handler,
    scope: Scope | tuple[Scope, ...] | None,
    summary: str,
    answers: Mapping[int, Any],
    **more: Any,
) -> Route:
    scopes = () if scope is None else (scope,) if isinstance(scope, str) else scope
    return Route(method=method, path=path, handler=handler, scopes=scopes, summary=summary, answers=answers, **more)


# fmt: off
ROUTES: tuple[Route, ...] = (
    # jobs, for users
    _line("POST", "/jobs", jobs.submit, "submit", "Submit a job",
          {201: j.Submitted, 200: j.Submitted}, body=j.JobRequest, query=Words, errors=(409,),
          notes="`Idempotency-Key` as a header is the same as `idempotency_key`.", bound="own"),
    _line("POST", "/jobs/batch", jobs.submit_batch, "submit", "Submit up to 1,000 jobs, all or none",
          {201: j.Batch}, body=j.BatchRequest, query=Words, body_bytes=8 * MIB, items="jobs", errors=(409,),
          bound="own"),
    _line("GET", "/jobs", jobs.find, "read", "List jobs, newest first", {200: j.JobList}, query=j.JobsQuery,
          bound="own"),
    _line("GET", "/jobs/{id}", jobs.get, "read", "Look at a job, or wait for its end", {200: j.Job}, query=j.JobQuery,
          bound="job"),
    _line("PATCH", "/jobs/{id}", jobs.change, "operate", "Change priority, queue or due time of a job that waits",
          {200: j.Job}, body=j.ChangeRequest, query=Words, errors=(409,), audit="job.change", bound="job"),
    _line("DELETE", "/jobs/{id}", jobs.cancel, ("submit", "operate"), "Cancel a job",
          {200: j.Cancelled, 202: j.Cancelled}, query=j.CancelQuery, errors=(409,), audit="job.cancel", bound="job"),
    _line("POST", "/jobs/{id}/cancel", jobs.cancel, ("submit", "operate"), "Cancel a job, saying why",
          {200: j.Cancelled, 202: j.Cancelled}, body=j.CancelRequest, body_optional=True, query=j.CancelQuery,
          errors=(409,), audit="job.cancel", bound="job"),
    _line("POST", "/jobs/{id}/pause", jobs.pause, "operate", "Keep a job from being claimed",
          {200: j.Moved}, body=PauseRequest, body_optional=True, query=Words, errors=(409,), audit="job.pause",
          bound="job"),
    _line("POST", "/jobs/{id}/resume", jobs.resume, "operate", "Let a paused job go on",
          {200: j.Moved}, body=Because, body_optional=True, query=Words, errors=(409,), audit="job.resume",
          bound="job"),
    _line("POST", "/jobs/{id}/retry", jobs.retry, "operate", "Run a dead, cancelled or expired job again",
          {200: j.Moved}, body=j.RetryRequest, body_optional=True, query=Words, errors=(409,), audit="job.retry",
          bound="job"),
    _line("POST", "/jobs/{id}/replay", jobs.replay, "operate", "Submit a finished job once more, as a new one",
          {201: j.Submitted}, body=j.RetryRequest, body_optional=True, query=Words, errors=(409,), audit="job.replay",
          bound="job"),
    _line("GET", "/jobs/{id}/attempts", jobs.attempts, "read", "The ended attempts of a job", {200: j.AttemptList},
          bound="job"),
    _line("GET", "/jobs/{id}/report", jobs.report, "read", "Everything about a job",
          {200: j.JobReport}, query=Words, bound="job"),
    _line("GET", "/jobs/{id}/events", jobs.events, "read", "What happened to a job", {200: j.EventList}, bound="job"),
    _line("GET", "/jobs/{id}/logs", logs.find, "read", "What the attempts of a job wrote, or follow it",
          {200: t.LogPage}, query=t.LogsQuery, followed=t.ShownLine, bound="job",
          notes="With `follow` the lines come as server-sent events until the job has ended; each has its place as id: "
                "come back with `Last-Event-ID`, or `after`, to go on from there."),
    # jobs, for workers
    _line("POST", "/jobs/claim", work.claim, "work", "Claim jobs, waiting for them up to 20 s",
          {200: k.Claim, 204: None}, body=k.ClaimRequest, query_is_body=True, errors=(404, 409), bound="own"),
    _line("POST", "/jobs/report", work.report, "work", "Tell how up to 1,000 attempts ended",
          {200: k.Answers}, body=k.ReportRequest, body_bytes=8 * MIB, items="reports", errors=(404,), bound="own"),
    _line("POST", "/jobs/{id}/heartbeat", work.heartbeat, "work", "Renew the lease of one job",
          {200: k.JobBeat}, body=k.JobBeatRequest, query_is_body=True, errors=(409,), bound="job"),
    _line("POST", "/jobs/{id}/complete", work.complete, "work", "Tell that the task has succeeded",
          {200: k.Completed}, body=k.CompleteRequest, errors=(409,), bound="job"),
    _line("POST", "/jobs/{id}/fail", work.fail, "work", "Tell that the task has failed, timed out or was stopped",
          {200: k.Ended}, body=k.FailRequest, errors=(409,), bound="job"),
    _line("POST", "/jobs/{id}/release", work.release, "work", "Give a job back",
          {200: k.Ended}, body=k.ReleaseRequest, errors=(409,), bound="job"),
    _line("POST", "/jobs/{id}/snooze", work.snooze, "work", "Run a job again later",
          {200: k.Ended}, body=k.SnoozeRequest, errors=(409,), bound="job"),
    # dead letters
    _line("GET", "/dead-letter", dead_letters.find, "read", "List dead letters, newest first",
          {200: j.JobList}, query=p.DeadQuery, bound="own"),
    _line("POST", "/dead-letter/retry", dead_letters.retry_many, "operate", "Run up to 1,000 dead letters again",
          {200: p.DeadAnswers}, body=p.DeadRetryRequest, audit="dead_letter.retry", bound="own"),
    _line("POST", "/dead-letter/purge", dead_letters.purge_many, "operate", "Remove up to 1,000 dead letters for good",
          {200: p.DeadAnswers}, body=p.DeadRequest, audit="dead_letter.purge", bound="own"),
    _line("POST", "/dead-letter/{id}/retry", jobs.retry, "operate", "Run a dead letter again",
          {200: j.Moved}, body=j.RetryRequest, body_optional=True, query=Words, errors=(409,), audit="job.retry",
          bound="job"),
    _line("DELETE", "/dead-letter/{id}", dead_letters.purge, "operate", "Remove a dead letter for good",
          {204: None}, errors=(409,), audit="dead_letter.purge", bound="job"),
    # workers
    _line("POST", "/workers/register", workers.register, "work", "Open a session for a worker",
          {200: k.Registered}, body=k.RegisterRequest, query_is_body=True, errors=(409,), bound="own"),
    _line("POST", "/workers/heartbeat", workers.heartbeat, "work", "Say that a worker lives, and what it holds",
          {200: k.Beat}, body=k.BeatRequest, body_bytes=8 * MIB, errors=(404, 409), bound="own"),
    _line("GET", "/workers", workers.find, "read", "List workers by name", {200: p.WorkerList}, query=p.WorkersQuery),
    _line("GET", "/workers/status", workers.statuses, "read", "How the workers are, in the words of item workers",
          {200: p.WorkerStatuses}, query=Words),
    _line("GET", "/workers/{worker}", workers.get, "read", "Look at a worker", {200: p.Worker}),
    _line("POST", "/workers/{worker}/drain", workers.drain, "operate", "Tell a worker to finish and claim no more",
          {202: p.Draining}, body=Because, body_optional=True, audit="worker.drain"),
    _line("DELETE", "/workers/{worker}", workers.close, ("work", "operate"), "End a worker's session",
          {204: None}, query=p.CloseQuery, audit="worker.close", bound="own"),
    _line("GET", "/tasks", tasks.find, "read", "List tasks that workers have published, by name",
          {200: TaskList}, query=NamePages),
    # queues
    _line("GET", "/queues", queues.find, "read", "List queues by name", {200: p.QueueList}, query=NamePages),
    _line("GET", "/queues/{name}", queues.get, "read", "Look at a queue", {200: p.Queue}, bound="queue"),
    _line("PUT", "/queues/{name}", queues.put, "operate", "Set limits and order of a queue",
          {200: p.Queue}, body=p.QueueRequest, audit="queue.set", bound="queue"),
    _line("POST", "/queues/{name}/pause", queues.pause, "operate", "Hand out nothing from a queue",
          {200: p.Queue}, body=PauseRequest, body_optional=True, audit="queue.pause", bound="queue"),
    _line("POST", "/queues/{name}/resume", queues.resume, "operate", "Hand out from a queue again",
          {200: p.Queue}, body=Because, body_optional=True, audit="queue.resume", bound="queue"),
    _line("GET", "/queues/{name}/scale", scale.queue, "read", "How many workers a queue wants", {200: p.Scale},
          bound="queue"),
    # the whole
    _line("GET", "/autoscale", scale.whole, ("read", "work"), "How many workers there should be", {200: p.Scale}),
    _line("GET", "/admin/queue/status", whole.status, "read", "What waits, runs and ended", {200: p.Overview}),
    _line("GET", "/attempts", whole.attempts, "read", "List ended attempts, newest first",
          {200: j.AttemptPage}, query=j.AttemptsQuery),
    _line("GET", "/runs", whole.attempts, "read", "The same as /attempts", {200: j.AttemptPage}, query=j.AttemptsQuery),
    _line("GET", "/events", live.events, "read", "Follow what happens to jobs, as server-sent events",
          {200: StreamedEvent}, query=EventsQuery, media_type="text/event-stream",
          notes="Each event has its time as id: come back with `Last-Event-ID`, or `since`, to go on from there."),
    _line("GET", "/metrics", whole.metrics, "read", "Figures for Prometheus",
          {200: None}, media_type="text/plain", tenanted=False),
    # duties
    _line("GET", "/duties", duties.find, "read", "Which server does which chore", {200: p.DutyList}, tenanted=False),
    _line("POST", "/duties/{name}/release", duties.release, "admin", "Take a duty from the server that has it",
          {200: p.Duty}, body=Because, body_optional=True, tenanted=False, audit="duty.release"),
    # tenants, keys, audit
    _line("GET", "/tenants", tenants.find, "admin", "List tenants by name",
          {200: p.TenantList}, query=NamePages, tenanted=False),
    _line("POST", "/tenants", tenants.create, "admin", "Make a tenant",
          {201: p.Tenant}, body=p.TenantRequest, tenanted=False, errors=(409,), audit="tenant.create"),
    _line("GET", "/tenants/{name}", tenants.get, "read", "Look at a tenant", {200: p.Tenant}, tenanted=False),
    _line("DELETE", "/tenants/{name}", tenants.delete, "admin", "Remove a tenant that has nothing left",
          {204: None}, tenanted=False, errors=(409,), audit="tenant.delete"),
    _line("POST", "/tenants/{name}/pause", tenants.pause, "operate", "Hand out nothing of a tenant",
          {200: p.Tenant}, body=PauseRequest, body_optional=True, tenanted=False, audit="tenant.pause"),
    _line("POST", "/tenants/{name}/resume", tenants.resume, "operate", "Hand out a tenant's jobs again",
          {200: p.Tenant}, body=Because, body_optional=True, tenanted=False, audit="tenant.resume"),
    _line("GET", "/keys", keys.find, "admin", "List keys by id", {200: p.KeyList}, query=NamePages),
    _line("POST", "/keys", keys.create, "admin", "Make a key; its token is shown this once",
          {201: p.NewKey}, body=p.KeyRequest, tenanted=False, errors=(404, 409), audit="key.create"),
    _line("DELETE", "/keys/{key}", keys.revoke, "admin", "End a key, everywhere within five seconds",
          {200: p.Key}, audit="key.revoke"),
    _line("GET", "/audit", audit.find, "admin", "What people did by hand, newest first",
          {200: p.AuditList}, query=p.AuditQuery),
    # open to everybody
    _line("GET", "/health", admin.ready, None, "Whether this server can do its work", {200: w.Health, 503: w.Health}),
    _line("GET", "/readyz", admin.ready, None, "The same as /health", {200: w.Health, 503: w.Health}),
    _line("GET", "/healthz", admin.alive, None, "Whether this process lives", {200: w.Health}),
    _line("GET", "/version", admin.version, None, "What runs here", {200: w.Version}),
    _line("GET", "/openapi.json", admin.document, None, "This document", {200: dict[str, Any]}),
    _line("GET", "/docs", admin.docs, None, "The reference page", {200: None}, media_type="text/html"),
)
