"""A route: one line of the table in routes.py, and how a path finds its line.

From the same line come the routing, the check of the scope, the decoding, the audit and the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

import msgspec

from windlass.errors import NotFound, SetupError, WrongMethod
from windlass.server.call import Call
from windlass.server.decoding import BodyDecoder
from windlass.server.queries import QueryDecoder

Scope = Literal["submit", "work", "read", "operate", "admin"]
Bound = Literal["whole", "queue", "job", "schedule", "own"]
"""How a route keeps to its queues a key that is limited to some.

whole: it is about more than queues, so such a key is refused. queue, job, schedule: the parameter of its path is a
queue, or belongs to one, which must be one of them. own: its endpoint sees to it, as the queues stand in the query or
the body.
"""
Handler = Callable[[Call], Awaitable[Any]]

BASE = "/api/v1"
MIB = 1 << 20
OPEN_PATHS = frozenset({"/health", "/healthz", "/readyz", "/version", "/openapi.json", "/docs"})
"""The only paths that are answered without a key."""
IDENTIFIED = {"id": "job", "backfill": "backfill"}
"""Parameters of paths that are ids, and of what."""
_PARAMETER = re.compile(r"\{(\w+)\}")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint: what calls it, who may, what goes in and what comes out."""

    method: str
    path: str
    handler: Handler
    scopes: tuple[Scope, ...]
    """One of them is needed; none: open to everybody."""
    summary: str
    answers: Mapping[int, Any]
    """Type of the body by status, the usual one first, or types of which it is one; None: no body."""
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    query: type[msgspec.Struct] | None = None
    query_is_body: bool = False
    """Fields of the body may stand in the query instead."""
    errors: tuple[int, ...] = ()
    """Statuses of problems beyond those that every route of its kind can have."""
    audit: str | None = None
    """Under which action the audit keeps it."""
    items: str | None = None
    """The list in the body that the index of a refused item counts."""
    body_bytes: int = MIB
    media_type: str = "application/json"
    followed: type[msgspec.Struct] | None = None
    """What each event holds where the caller asks to follow; None: it cannot."""
    notes: str = ""
    bound: Bound = "whole"
    tenanted: bool = True
    """Whether the answer depends on a tenant, so that one may be named."""

    @property
    def parameter(self) -> str | None:
        """The name of the parameter in its path."""
        found = _PARAMETER.search(self.path)
        return found[1] if found else None

    @property
    def status(self) -> int:
        """The status of its usual answer."""
        first: int = next(iter(self.answers))
        return first

    @property
    def may_wait(self) -> bool:
        """Whether a caller may ask it to wait, or to go on, so that its time says nothing."""
        if self.media_type == "text/event-stream" or self.followed is not None:
            return True
        return any("wait" in struct.__struct_fields__ for struct in (self.body, self.query) if struct is not None)

    @property
    def is_list(self) -> bool:
        """Whether it reads many rows of a tenant, so that it waits for its turn."""
        one = self.parameter is not None and self.path.endswith("}")
        return self.method == "GET" and bool(self.scopes) and self.tenanted and not self.may_wait and not one

    @property
    def name(self) -> str:
        """What it is called in figures and logs."""
        return f"{self.method} {self.path}"


class Ready(msgspec.Struct, frozen=True):
    """A route made ready to serve: its decoders are built once."""

    route: Route
    decode_body: BodyDecoder | None
    decode_query: QueryDecoder
    index: int | None
    """Where the parameter stands in the split path."""
    is_list: bool


class Router:
    """Finds the route of a request: exact paths by one look-up, then those with a parameter by their shape."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact: dict[str, dict[str, Ready]] = {}
        self._shapes: dict[tuple[int, str | None], list[tuple[list[str], int, dict[str, Ready]]]] = {}
        for route in routes:
            _check_scope(route)
            body = BodyDecoder(route.body) if route.body is not None else None
            query = QueryDecoder(route.query, route.body if route.query_is_body else None)
            for path in paths_of(route):
                self._add(path, route, body, query)

    def find(self, method: str, path: str, raw_path: bytes) -> tuple[Ready, str]:
        """Return the route and what stands for its parameter; NotFound, or WrongMethod."""
        methods, value = self._exact.get(path), ""
        if methods is None or b"%" in raw_path:
            methods, value = self._by_shape(raw_path)
        # Load balancers probe by HEAD; the connection itself leaves the body out.
        ready = methods.get("GET" if method == "HEAD" and path in OPEN_PATHS else method)
        if ready is None:
            allow = sorted(methods)
            raise WrongMethod(f"{method[:20]!r} is not for this path. Use {' or '.join(allow)}.", allow)
        return ready, value

    def _add(self, path: str, route: Route, body: BodyDecoder | None, query: QueryDecoder) -> None:
        segments = path.split("/")
        index = next((i for i, part in enumerate(segments) if part.startswith("{")), None)
        ready = Ready(route, body, query, index, route.is_list)
        if index is None:
            methods = self._exact.setdefault(path, {})
        else:
            last = None if index == len(segments) - 1 else segments[-1]
            shapes = self._shapes.setdefault((len(segments), last), [])
            methods = next((m for known, _, m in shapes if known == segments), {})
            if not methods:
                shapes.append((segments, index, methods))
        if route.method in methods:
            raise SetupError(f"{route.method} {path} stands twice in the table of routes.")
        methods[route.method] = ready

    def _by_shape(self, raw_path: bytes) -> tuple[dict[str, Ready], str]:
        try:
            segments = [unquote_to_bytes(part).decode() for part in raw_path.split(b"/")]
        except UnicodeDecodeError:
            raise NotFound("There is nothing at this path.") from None
        if (exact := self._exact.get("/".join(segments))) is not None and not any("/" in part for part in segments):
            return exact, ""
        size = len(segments)
        for last in (segments[-1], None):
            for known, index, methods in self._shapes.get((size, last), ()):
                if known[:index] == segments[:index] and known[index + 1 :] == segments[index + 1 :]:
                    return methods, segments[index]
        raise NotFound("There is nothing at this path.")


def paths_of(route: Route) -> list[str]:
    """Return the paths a route is served at, its documented one first."""
    if route.path.startswith(("/jobs", "/workers", "/admin/queue/status")):
        return [BASE + route.path, route.path]
    return [documented_path(route)]


def documented_path(route: Route) -> str:
    """Return the path that the document names."""
    return route.path if route.path in OPEN_PATHS or route.path == "/metrics" else BASE + route.path


def _check_scope(route: Route) -> None:
    if not route.scopes and route.path not in OPEN_PATHS:
        raise SetupError(f"{route.method} {route.path} declares no scope and is not among the open paths.")
    if route.scopes and route.path in OPEN_PATHS:
        raise SetupError(f"{route.method} {route.path} declares a scope and is among the open paths.")
