"""How commands call a server: its address and key from the settings, its problems as our errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import httpx2
import msgspec

from windlass.cli.config import config_option, load_settings
from windlass.config import Settings
from windlass.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    TooMany,
    Unauthorized,
    Unavailable,
    WindlassError,
)

API = "/api/v1"
TIMEOUT_S = 10.0
PAGE = 500
_ERRORS: dict[int, type[WindlassError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: TooMany,
    503: Unavailable,
}
Command = TypeVar("Command", bound=Callable[..., Any])


class Server:
    """A server, as a command calls it."""

    def __init__(self, settings: Settings, *, tenant: str | None = None) -> None:
        self.url = settings.server.url.rstrip("/")
        headers = {"authorization": f"Bearer {settings.client.key}"} if settings.client.key else {}
        self._tenant = tenant
        self._client = httpx2.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def health(self) -> Any:
        """Return how the server says it is, also when it is not well."""
        return _decoded(self._answer("GET", "/health"))

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer's JSON; the server's problem as an error."""
        return self.call("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """Send the body as JSON and return the answer's JSON; the server's problem as an error."""
        return self.call("POST", path, body=body, **query)

    def call(self, method: str, path: str, *, body: Any = None, **query: Any) -> Any:
        """Return the answer's JSON, None for an empty one; the server's problem as an error."""
        content = None if body is None else msgspec.json.encode(body)
        answer = self._answer(method, f"{API}{path}", content=content, query=query)
        if not answer.is_success:
            raise _error(answer)
        return _decoded(answer) if answer.content else None

    def pages(self, path: str, name: str, *, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """Yield the items called `name` of a list, page by page, `limit` of them at most."""
        cursor: str | None = None
        while limit is None or limit > 0:
            page = self.get(path, limit=min(PAGE, limit or PAGE), cursor=cursor, **query)
            yield from page[name]
            cursor = page["next_cursor"]
            limit = None if limit is None else limit - len(page[name])
            if cursor is None:
                return

    def stream(self, path: str, **query: Any) -> Iterator[Any]:
        """Yield the data of server-sent events until the server ends the stream."""
        with self._client.stream("GET", f"{API}{path}", params=self._query(query), timeout=None) as answer:
            if not answer.is_success:
                answer.read()
                raise _error(answer)
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    yield msgspec.json.decode(line.removeprefix("data:").strip())

    def _answer(
        self, method: str, path: str, *, content: bytes | None = None, query: dict[str, Any] | None = None
    ) -> httpx2.Response:
        asked = self._query(query or {})
        headers = {} if content is None else {"content-type": "application/json"}
        timeout_s = TIMEOUT_S + float(asked.get("wait", 0))
        try:
            return self._client.request(method, path, params=asked, content=content, headers=headers, timeout=timeout_s)
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"No server answers at {self.url}: {str(error) or type(error).__name__}. "
                "Start one with `windlass up`, or set WINDLASS_URL."
            ) from error

    def _query(self, query: dict[str, Any]) -> dict[str, Any]:
        asked = {name: value for name, value in query.items() if value is not None}
        return asked if self._tenant is None else {**asked, "tenant": self._tenant}


def asks_server(command: Command) -> Command:
    """Add `--url`, `--tenant` and `--config`; the command gets the server they lead to as its first argument."""

    @functools.wraps(command)
    def asking(*arguments: Any, config_path: str | None, url: str | None, tenant: str | None, **options: Any) -> Any:
        settings = load_settings({"config": config_path, "server.url": url}).settings
        with Server(settings, tenant=tenant) as server:
            return command(server, *arguments, **options)

    with_tenant = click.option("--tenant", metavar="NAME", help="Whose things; for keys above tenants.")(asking)
    with_url = click.option("--url", metavar="URL", help="Where a server is.  [default: server.url]")(with_tenant)
    return config_option(with_url)  # type: ignore[return-value]


def _decoded(answer: httpx2.Response) -> Any:
    try:
        return msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        raise Unavailable(f"{answer.url} does not answer as a Windlass server does. Check WINDLASS_URL.") from None


def _error(answer: httpx2.Response) -> WindlassError:
    problem = _decoded(answer)
    detail = problem.get("detail") if isinstance(problem, dict) else None
    text = str(detail or f"{answer.url} answered {answer.status_code}.")
    if answer.status_code == 422:
        return InvalidInput("request", text)
    return _ERRORS.get(answer.status_code, WindlassError)(text)
