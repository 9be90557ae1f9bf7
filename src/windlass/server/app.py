"""The application: what happens to every request, from the first byte to the answer. Pure ASGI, one layer.

Find the route, let the caller in, check the scope, decode query and body, call the endpoint, keep an audit entry,
encode. Scope comes before the object: who may not do a thing at all is not told whether it is there.
Every WindlassError becomes a problem (problems.py); whatever else is raised is a fault of ours: logged, and told by id.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import secrets
from collections.abc import AsyncGenerator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import Counter, Histogram

from windlass import log
from windlass.config.redact import Redactor
from windlass.engine.fair import Cap
from windlass.errors import Forbidden, InvalidInput, NotFound, Unauthorized, Unavailable, WindlassError
from windlass.queue.newjob import check_name
from windlass.server import acted
from windlass.server.admin import Lobby
from windlass.server.auth import Principal, claimed_id, require
from windlass.server.bodies import BODY_SECONDS, SMALL_BYTES, BodyBudget, BodyShare, check_media, read_body
from windlass.server.call import DEFAULT_TENANT, LOOK_S, Call, ClientGone, Receive, Reply, Send, disconnected, is_uuid
from windlass.server.problems import REFUSED, Refusals, problem_of, told_by_database, unexpected
from windlass.server.queries import names_once, parse_query
from windlass.server.route import IDENTIFIED, Ready, Route, Router
from windlass.server.routes import ROUTES

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.engine.engine import Engine
    from windlass.server.auth import Gate


CONNECTIONS = 10_000
"""As many are reckoned with where there is no port, and nothing that limits them."""
PIECE_BYTES = SMALL_BYTES
"""Of an answer that are handed to its connection at a time: as many as a connection buffers by itself."""
LARGE_BODY = 512 << 10
"""A request with a larger body takes turns with other large ones, and with lists."""
END_S = 1.0
"""For the last piece of a stream that is ended from here."""
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_SNIFF = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")


def create_app(
    engine: Engine,
    settings: Settings,
    gate: Gate,
    *,
    routes: Sequence[Route] = ROUTES,
    body_seconds: float = BODY_SECONDS,
    look_s: float = LOOK_S,
    connections: int = CONNECTIONS,
) -> Door:
    """Return the ASGI application; SetupError if a route declares no scope and is not one of the open ones.

    `connections` says how many connections the server takes: callers that stay have shares of them.
    """
    return Door(
        engine,
        settings,
        gate,
        router=Router(routes),
        lobby=Lobby(engine, routes),
        body_seconds=body_seconds,
        look_s=look_s,
        connections=connections,
    )


class Door:
    """The ASGI application."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        gate: Gate,
        *,
        router: Router,
        lobby: Lobby,
        body_seconds: float,
        look_s: float,
        connections: int,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._gate = gate
        self._router = router
        self._body_seconds = body_seconds
        self._look_s = look_s
        self._start = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._lobby = lobby
        self._redactor = Redactor(settings.security.redact)
        self._waiting = Cap.of_connections("waiting calls", connections)
        self._bodies = BodyBudget(settings.server.body_budget_mib << 20, connections)
        self._answers = BodyBudget(settings.server.body_budget_mib << 20, connections)
        self._refusals = Refusals(engine.outside.monotonic)
        self._counters: dict[tuple[str, int], Counter] = {}
        self._timers: dict[str, Histogram] = {}
        self._encode = msgspec.json.Encoder().encode

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope["headers"])
        request_id = headers.get("x-request-id", "")
        if not _SANE_ID.fullmatch(request_id):
            request_id = f"{self._start}-{next(self._numbers)}"
        call = self._call(scope, headers, receive=receive, request_id=request_id)
        with self._answers.share() as call.answer:
            await self._serve(scope, call, send)

    async def _serve(self, scope: MutableMapping[str, Any], call: Call, send: Send) -> None:
        route: Route | None = None
        request_id, started = call.request_id, call.begun_at
        try:
            ready, value = self._router.find(scope["method"], scope["path"], _raw_path(scope))
            route = ready.route
            reply = await self._answer(ready, value, scope=scope, call=call)
        except WindlassError as error:
            if told_by_database(error):
                where = _shown(route)
                log.event("request.unserved", request=request_id, tenant=call.tenant, route=where, message=str(error))
            reply = problem_of(error, items=route.items if route else None)
            if error.status in REFUSED:
                key = call.principal.key_id or claimed_id(call.headers)
                self._refusals.tell(
                    address=call.address, status=error.status, key=key, request=request_id, route=_shown(route)
                )
        except ClientGone:
            return
        except Exception as error:
            fields = {"request": request_id, "tenant": call.tenant, "method": scope["method"], "route": _shown(route)}
            log.event("request.failed", error=error, **fields)
            reply = unexpected(request_id)
        if isinstance(reply.content, AsyncGenerator):
            await self._stream(reply, call, send)
        else:
            reply = self._encoded(reply)  # what it was made from is kept no longer
            reply = await self._send(reply, call, route, send)
        self._count(route, reply.status, self._engine.outside.monotonic() - started)

    def _call(
        self, scope: MutableMapping[str, Any], headers: dict[str, str], *, receive: Receive, request_id: str
    ) -> Call:
        call = Call(
            self._engine,
            self._settings,
            receive=receive,
            lobby=self._lobby,
            redactor=self._redactor,
            watch=self._gate,
            waiting=self._waiting,
            look_s=self._look_s,
        )
        client = scope.get("client")
        call.address = client[0] if client else ""
        call.request_id, call.headers = request_id, headers
        return call

    async def _answer(self, ready: Ready, value: str, *, scope: MutableMapping[str, Any], call: Call) -> Reply:
        route = ready.route
        pairs = parse_query(scope["query_string"]) if scope["query_string"] else []
        if route.scopes:
            call.principal = await self._gate.admit(call.headers, [name for name, _ in pairs], call.address)
            _permit(call.principal, route)
        query = names_once(pairs)
        if route.scopes:
            _choose_tenant(call, route, query)
            self._engine.recent.note(call.tenant)
        call.answer.owner = _owner(call, route)
        if ready.index is not None:
            call.path = _parameter(route, value)
        if call.principal.queues is not None:
            await _keep_to_queues(call, route)
        call.query, others = ready.decode_query.decode(query)
        if ready.is_list:
            async with self._engine.acts.list_turn(call.tenant, call.principal.key_id):
                return await _handled(call, route)
        if ready.decode_body is None:
            return await _handled(call, route)
        with self._bodies.share(*call.answer.owner) as share:
            body = await self._body(route, call=call, share=share)
            if not body and not others and not route.body_optional:
                raise InvalidInput("body", "it is missing. Send a JSON object.")
            turn: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
            if len(body) > LARGE_BODY:
                turn = self._engine.acts.large.turn(call.tenant, call.principal.key_id)
            async with turn:
                call.body = await ready.decode_body.decode_in_turns(body or b"{}", others, call.give_way)
                del body
                if not route.may_wait:
                    return await _handled(call, route)
            return await _handled(call, route)

    async def _body(self, route: Route, *, call: Call, share: BodyShare) -> bytes:
        body = b""
        if call.headers.get("content-length", "0") != "0" or "transfer-encoding" in call.headers:
            check_media(call.headers)
            limit, timeout_s = route.body_bytes, self._body_seconds
            body = await read_body(call.receive, call.headers, limit=limit, timeout_s=timeout_s, share=share)
        return body

    def _count(self, route: Route | None, status: int, seconds: float) -> None:
        name = route.name if route else "none"
        counter = self._counters.get((name, status))
        if counter is None:
            counter = self._counters[name, status] = self._engine.meters.requests.labels(name, str(status))
        counter.inc()
        if route is None or route.may_wait:
            return
        timer = self._timers.get(name)
        if timer is None:
            timer = self._timers[name] = self._engine.meters.request_seconds.labels(name)
        timer.observe(seconds)

    async def _stream(self, reply: Reply, call: Call, send: Send) -> None:
        """Send an answer piece by piece, until it ends, its reader has gone, or the reader's key is good no more."""
        parts: AsyncGenerator[bytes, None] = reply.content
        headers = [
            (b"content-type", reply.media_type),
            (b"x-request-id", call.request_id.encode()),
            _NO_SNIFF,
            _NO_STORE,
            *reply.headers,
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        sending = asyncio.create_task(_send_parts(parts, send))
        gone = asyncio.create_task(disconnected(call.receive))
        welcome = True
        try:
            welcome = await call.while_welcome(sending, gone)
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            await parts.aclose()
        if not welcome:
            # A reader that takes nothing must not be able to hold its stream open.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await send({"type": "http.response.body", "body": b""})

    async def _send(self, reply: Reply, call: Call, route: Route | None, send: Send) -> Reply:
        """Send an answer. A read without room in the budget gets a problem instead; an act is always answered."""
        if route is not None and route.method == "GET":
            try:
                call.answer.hold(len(reply.content or b""))
            except Unavailable as error:
                reply = self._encoded(problem_of(error))
        await self._send_whole(reply, call.request_id, send)
        return reply

    def _encoded(self, reply: Reply) -> Reply:
        content = reply.content
        is_ready = content is None or isinstance(content, bytes)
        return reply if is_ready else msgspec.structs.replace(reply, content=self._encode(content))

    async def _send_whole(self, reply: Reply, request_id: str, send: Send) -> None:
        body: bytes = reply.content or b""
        headers = [
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", request_id.encode()),
            _NO_SNIFF,
            *reply.headers,
        ]
        if reply.content is not None:
            headers.append((b"content-type", reply.media_type))
        if not any(name == b"cache-control" for name, _ in reply.headers):
            headers.append(_NO_STORE)
        if reply.status == 204:
            del headers[0]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if len(body) <= PIECE_BYTES:
            await send({"type": "http.response.body", "body": body})
            return
        for start in range(0, len(body), PIECE_BYTES):
            await send({"type": "http.response.body", "body": body[start : start + PIECE_BYTES], "more_body": True})
        # Each piece waits until the reader has taken most of those before it; so does the empty one, for all of them.
        await send({"type": "http.response.body", "body": b""})


def _owner(call: Call, route: Route) -> tuple[str, ...]:
    """Return by whom bytes under way are counted. Callers of open routes are one; where no key is needed, all are."""
    if not route.scopes:
        return ("", "open")
    return () if call.principal.key_id is None else (call.tenant, call.principal.key_id)


async def _handled(call: Call, route: Route) -> Reply:
    """Call the endpoint, and keep what it did in the audit."""
    await call.look_again()
    await acted.look(call, route)
    try:
        answer = await route.handler(call)
    except (ClientGone, Unauthorized):
        # Who has gone, or was refused, while waiting for the end of an act has acted all the same.
        await acted.keep(call, route)
        raise
    if not isinstance(answer, Reply):
        answer = Reply(route.status, answer)
    if answer.status < 400:
        await acted.keep(call, route, answer.content)
    return answer


async def _send_parts(parts: AsyncGenerator[bytes, None], send: Send) -> None:
    async for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name; one that is sent twice is joined, so that nothing is passed over."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _raw_path(scope: MutableMapping[str, Any]) -> bytes:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0]


def _permit(principal: Principal, route: Route) -> None:
    if any(scope in principal.scopes for scope in route.scopes[1:]):
        return
    try:
        require(principal, route.scopes[0])
    except Forbidden:
        if len(route.scopes) == 1:
            raise
        raise Forbidden(f"This key lacks the scopes {' and '.join(route.scopes)}; one of them is needed.") from None


async def _keep_to_queues(call: Call, route: Route) -> None:
    """Return if a key that is limited to queues may ask this; Forbidden otherwise, for a queue that is not its own."""
    if route.bound == "whole":
        raise Forbidden("This is about more than queues, and the key is limited to some. Use a key that is not.")
    if route.bound == "queue":
        call.allow_queue(call.path)
    # To which queue a job goes may be for its task to say.
    await call.engine.signatures.load(call.tenant)
    if route.bound == "job" and await call.foreign_jobs([call.job_id]):
        raise Forbidden(f"Job {call.path} is in a queue that this key is not for. Use a key that is.")
    # The routes of jobs take the id of a schedule too.
    if route.bound in ("schedule", "job") and await call.foreign_schedule():
        raise Forbidden(f"Schedule {call.path} is not for a queue of this key. Use another key.")


def _choose_tenant(call: Call, route: Route, query: dict[str, str]) -> None:
    call.named_tenant = call.principal.tenant
    if "tenant" in query and route.tenanted:
        call.named_tenant = call.name_tenant(query.pop("tenant"))
        check_name("tenant", call.named_tenant)
    call.tenant = call.named_tenant or DEFAULT_TENANT


def _parameter(route: Route, value: str) -> str:
    if noun := IDENTIFIED.get(route.parameter or ""):
        if not is_uuid(value):
            raise NotFound(f"There is no {noun} {value[:100]}.")
        return value.lower()
    try:
        check_name(route.parameter or "name", value)
    except InvalidInput:
        raise NotFound(f"There is no {route.parameter} {value[:100]!r}.") from None
    return value


def _shown(route: Route | None) -> str:
    return route.path if route else "?"


async def _live(receive: Receive, send: Send) -> None:
    """Say yes to start and stop: who made the engine starts and stops it."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
