"""Links of the document: which answer names the thing that another operation is about.

From the id of a submitted job to all that can be asked of it, from a claim to its reports; for programs that read the
document (openapi.py), and for the fuzzer, which follows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.server.route import Route


class Source(msgspec.Struct, frozen=True):
    """What an answer names."""

    value: str
    """Where it stands in the answer."""
    below: str
    """The path of what can be asked of it."""
    lease: bool = False
    """Whether it was claimed: the reports about it need more than its id."""


_SOURCES: dict[str, Source] = {
    "POST /jobs": Source("$response.body#/id", "/jobs/{id}"),
    "POST /jobs/batch": Source("$response.body#/jobs/0/id", "/jobs/{id}"),
    "POST /jobs/{id}/replay": Source("$response.body#/id", "/jobs/{id}"),
    "POST /jobs/claim": Source("$response.body#/jobs/0/id", "/jobs/{id}", lease=True),
    "POST /workers/register": Source("$response.body#/worker_id", "/workers/{worker}"),
    "POST /schedules": Source("$response.body#/name", "/schedules/{schedule}"),
    "POST /schedules/batch": Source("$response.body#/schedules/0/id", "/schedules/{schedule}"),
    "POST /schedules/{schedule}/run": Source("$response.body#/id", "/jobs/{id}"),
    "POST /schedules/{schedule}/backfill": Source("$response.body#/id", "/backfills/{backfill}"),
    "PUT /queues/{name}": Source("$response.body#/name", "/queues/{name}"),
    "POST /tenants": Source("$response.body#/name", "/tenants/{name}"),
    "POST /keys": Source("$response.body#/id", "/keys/{key}"),
}
_LEASE = {
    "worker_id": "$request.body#/worker_id",
    "fence": "$response.body#/jobs/0/fence",
    "session": "$response.body#/jobs/0/session",
}


def operation_id(route: Route) -> str:
    """Return what an operation is called in the document."""
    words = f"{route.method} {route.path}".replace("/", " ").replace("{", "").replace("}", "")
    return "_".join(words.replace("-", " ").replace(".", " ").split()).lower()


def links(route: Route, routes: Sequence[Route]) -> dict[str, Any]:
    """Return the links of a route's usual answer; none where it names nothing."""
    source = _SOURCES.get(route.name)
    if source is None:
        return {}
    found: dict[str, Any] = {}
    for target in routes:
        # What is claimed is for its worker, what is not has no lease to speak of.
        if target.path.startswith(source.below) and ("work" in target.scopes) == source.lease:
            link: dict[str, Any] = {"operationId": operation_id(target), "parameters": {target.parameter: source.value}}
            if source.lease:
                link["requestBody"] = _LEASE
            found[operation_id(target)] = link
    return found
