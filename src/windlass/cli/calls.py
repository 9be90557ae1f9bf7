"""How commands call a server: its address and key from the settings, its problems as our errors."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec

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

TIMEOUT_S = 10.0
_ERRORS: dict[int, type[WindlassError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: TooMany,
    503: Unavailable,
}


class Server:
    """A server, as a command calls it."""

    def __init__(self, settings: Settings) -> None:
        self.url = settings.server.url.rstrip("/")
        headers = {"authorization": f"Bearer {settings.client.key}"} if settings.client.key else {}
        self._client = httpx2.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, *, problems: bool = True, **query: Any) -> Any:
        """Return the answer's JSON; the server's problem as an error, unless `problems` are wanted as answers too."""
        try:
            answer = self._client.get(path, params=query)
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"No server answers at {self.url}: {str(error) or type(error).__name__}. "
                "Start one with `windlass server`, or set WINDLASS_URL."
            ) from error
        if answer.is_success or not problems:
            return _decoded(answer)
        raise _error(answer)


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
