"""The table of contents of the API: one line per endpoint.

Method, path, endpoint, scope, what it does; then what goes in and what comes out. Paths stand below `/api/v1`, but for
the open ones; `/jobs…`, `/workers…` and `/admin/queue/status` are served at the root too. From this table come the
routing, the checks, the audit and the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.server import admin, jobs
from windlass.server.route import MIB, Handler, Route, Scope
from windlass.wire import admin as w
from windlass.wire import jobs as j
from windlass.wire.base import Words


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
          {201: j.Submitted, 200: j.Submitted}, body=j.JobRequest, query=Words, errors=(409,)),
    _line("POST", "/jobs/batch", jobs.submit_batch, "submit", "Submit up to 1,000 jobs, all or none",
          {201: j.Batch}, body=j.BatchRequest, query=Words, body_bytes=8 * MIB, items="jobs", errors=(409,)),
    # open to everybody
    _line("GET", "/health", admin.health, None, "Whether this server can do its work", {200: w.Health, 503: w.Health}),
    _line("GET", "/healthz", admin.health, None, "The same as /health", {200: w.Health, 503: w.Health}),
    _line("GET", "/readyz", admin.health, None, "The same as /health", {200: w.Health, 503: w.Health}),
    _line("GET", "/version", admin.version, None, "What runs here", {200: w.Version}),
    _line("GET", "/openapi.json", admin.document, None, "This document", {200: dict[str, Any]}),
    _line("GET", "/docs", admin.docs, None, "The reference page", {200: None}, media_type="text/html"),
)
