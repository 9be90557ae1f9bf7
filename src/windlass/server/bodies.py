"""The body of a request, read within bounds. How it becomes a struct is in decoding.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from windlass.errors import BodyTooLarge, SlowBody, WrongMedia
from windlass.server.call import ClientGone, Message, Receive

BODY_SECONDS = 10.0
"""In which the whole body must have come."""


async def read_body(receive: Receive, headers: Mapping[str, str], *, limit: int, timeout_s: float) -> bytes:
    """Return the whole body; BodyTooLarge as soon as that is known, SlowBody if it does not come in time."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(timeout_s):
            message = await receive()
            body = _part(message)
            if message.get("more_body"):
                body = await _read_rest(receive, body, limit)
    except TimeoutError:
        raise SlowBody(f"The body did not come within {timeout_s:g} seconds. Send it at once.") from None
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _read_rest(receive: Receive, first: bytes, limit: int) -> bytes:
    parts, size, more = [first], len(first), True
    while more:
        message = await receive()
        parts.append(_part(message))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return b"".join(parts)


def _part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGone
    return bytes(message.get("body", b""))


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body has more than {limit} bytes. Send less at once.")


def check_media(headers: Mapping[str, str]) -> None:
    """Return if the body is declared as plain JSON; WrongMedia otherwise."""
    media_type = headers.get("content-type", "")
    kind, _, parameters = media_type.partition(";")
    if kind.strip().lower() != "application/json":
        raise WrongMedia(f"The body is declared as {media_type[:100]!r}. Send application/json.")
    if parameters and parameters.strip().lower().replace('"', "") not in ("charset=utf-8", "charset=utf8"):
        raise WrongMedia(f"The body is declared as {media_type[:100]!r}. JSON is UTF-8; leave the parameter out.")
    if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise WrongMedia("The body is declared as encoded. Send it uncompressed.")
