"""The link over HTTP: each call is one request, its answer decoded, its refusal one of our errors.

Whatever goes wrong on the way (nobody listens, a broken connection, a time-out, a proxy's own page) is Unavailable.
Time-outs stand here; when to try again is for who calls (claims.py, reports.py, keeping.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID

import httpx2
import msgspec

from windlass.config import Settings
from windlass.config.redact import any_form
from windlass.errors import InvalidInput, Unavailable, WindlassError
from windlass.httpclient import AsyncClient, trusted_for
from windlass.wire import work as wire
from windlass.wire.base import Problem

BASE = "/api/v1"
_JSON = {"content-type": "application/json"}
_HUMP = re.compile(r"(?<!^)(?=[A-Z])")
_INDEXED = re.compile(r"^(\w+)\[(\d+)\]\.(.+)$")
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})

Answer = TypeVar("Answer")


class HttpLink:
    """A worker's connections to the servers behind one URL."""

    def __init__(self, settings: Settings, *, client: httpx2.AsyncClient | None = None) -> None:
        key = settings.client.key
        self._client = client or AsyncClient(
            base_url=settings.server.url.rstrip("/") + BASE,
            headers=None if key is None else {"authorization": f"Bearer {key}"},
            # A fleet shares it, and each of its workers has requests that wait.
            limits=httpx2.Limits(max_connections=None),
            verify=trusted_for(settings.server.url),
        )
        self._claim_s = settings.worker.claim_timeout_seconds
        self._beat_s = settings.worker.heartbeat_timeout_seconds
        self._report_s = settings.worker.report_timeout_seconds
        self._encode = msgspec.json.Encoder().encode
        self._registered = msgspec.json.Decoder(wire.Registered)
        self._beat = msgspec.json.Decoder(wire.Beat)
        self._claim = msgspec.json.Decoder(wire.Claim)
        self._answers = msgspec.json.Decoder(wire.Answers)

    async def register(self, request: wire.RegisterRequest) -> wire.Registered:
        """Open a session; Conflict if it has ended."""
        return _read(await self._post("/workers/register", request, timeout_s=self._claim_s), self._registered)

    async def heartbeat(self, request: wire.BeatRequest) -> wire.Beat:
        """Renew the session; NotFound or Conflict if it has ended."""
        return _read(await self._post("/workers/heartbeat", request, timeout_s=request.wait + self._beat_s), self._beat)

    async def claim(self, request: wire.ClaimRequest) -> wire.Claim:
        """Wait for jobs as long as asked; an empty claim when none came."""
        answer = await self._post("/jobs/claim", request, timeout_s=request.wait + self._claim_s)
        return wire.Claim(jobs=[], cancel=[]) if answer.status_code == 204 else _read(answer, self._claim)

    async def report(self, request: wire.ReportRequest) -> wire.Answers:
        """Tell how attempts ended, and take the next jobs with the answer."""
        return _read(await self._post("/jobs/report", request, timeout_s=self._report_s), self._answers)

    async def close(self, worker_id: str, *, session: UUID, lost: bool = False) -> None:
        """End a session; `lost`: its process died."""
        query = {"session": str(session)} | ({"lost": "true"} if lost else {})
        await self._ask("DELETE", f"/workers/{quote(worker_id, safe='')}", timeout_s=self._report_s, params=query)

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._client.aclose()

    async def _post(self, path: str, body: msgspec.Struct, *, timeout_s: float) -> httpx2.Response:
        return await self._ask("POST", path, timeout_s=timeout_s, content=self._encode(body), headers=_JSON)

    async def _ask(self, method: str, path: str, *, timeout_s: float, **parts: Any) -> httpx2.Response:
        try:
            answer = await self._client.request(method, path, timeout=timeout_s, **parts)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            where = any_form(str(self._client.base_url))
            raise Unavailable(f"{where} did not answer ({type(error).__name__} {error}). Is a server there?") from error
        if answer.status_code >= 300:
            raise error_of(answer.status_code, answer.content, retry_after=answer.headers.get("retry-after"))
        return answer


def _read(answer: httpx2.Response, decoder: msgspec.json.Decoder[Answer]) -> Answer:
    try:
        return decoder.decode(answer.content)
    except msgspec.DecodeError as error:
        where = any_form(str(answer.url))
        raise Unavailable(f"{where} answered what no server of ours does ({error}). Check the URL.") from error


def error_of(status: int, body: bytes, *, retry_after: str | None = None) -> WindlassError:
    """Return the error that an answer stands for; Unavailable for what is no problem+json of ours."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        text = body[:200].decode(errors="replace")
        return _delayed(Unavailable(f"The server, or a proxy before it, answered {status}: {text}"), retry_after)
    kind = _KINDS.get(problem.code)
    if kind is not None and issubclass(kind, InvalidInput) and problem.errors:
        [first, *_] = problem.errors
        indexed = _INDEXED.match(first.field)
        if indexed is None:
            return kind(first.field, first.problem)
        return kind(indexed[3], first.problem, index=int(indexed[2]), batch=indexed[1])
    if kind is None or kind.__init__ is not Exception.__init__:
        kind = Unavailable if status in _TRANSIENT else WindlassError
    return _delayed(kind(problem.detail), retry_after)


def _delayed(error: WindlassError, retry_after: str | None) -> WindlassError:
    if hasattr(error, "retry_after_s") and retry_after is not None and retry_after.isdecimal():
        error.retry_after_s = float(retry_after)
    return error


def _kinds(root: type[WindlassError]) -> Iterator[tuple[str, type[WindlassError]]]:
    yield root.code or _HUMP.sub("_", root.__name__).lower(), root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


_KINDS: dict[str, type[WindlassError]] = dict(_kinds(WindlassError))
