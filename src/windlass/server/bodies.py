"""The body of a request: read within bounds, then decoded strictly.

Decoding is one call of a typed decoder. Only where that finds a field it does not know, the names are looked at one by
one: an older name or the camelCase form of a field is put into ours, and what `extras` of the struct takes goes there.
In an object that names a field twice the last one counts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from windlass.errors import BodyTooLarge, InvalidInput, SlowBody, WrongMedia
from windlass.server.call import ClientGone, Message, Receive
from windlass.wire.base import Body, snake_case
from windlass.wire.problems import named_problem

BODY_SECONDS = 10.0
"""In which the whole body must have come."""
_WHOLE = re.compile(rb"-?[0-9]{1,18}(\.0{1,20})")


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


class BodyDecoder:
    """Decodes bodies of one type. The decoder is made for the first body: making all of them slows a server's start."""

    def __init__(self, struct: type[msgspec.Struct]) -> None:
        self._struct = struct

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self._struct)

    def decode(self, body: bytes, others: Mapping[str, Any] | None = None) -> Any:
        """Return the struct; `others` are fields that stood elsewhere. InvalidInput names the field that is wrong."""
        if others:
            body = self._joined(body, others)
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            # A whole number may be written as 1.0.
            if "unknown field" not in str(error) and "got `float`" not in str(error):
                raise named_problem(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _malformed(error) from None
        try:
            return self._decoder.decode(_renamed(body, self._struct))
        except msgspec.ValidationError as error:
            raise named_problem(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _malformed(error) from None

    def _joined(self, body: bytes, others: Mapping[str, Any]) -> bytes:
        try:
            fields = msgspec.json.decode(_renamed(body or b"{}", self._struct), type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _malformed(error) from None
        for name, value in others.items():
            if name in fields:
                raise InvalidInput(name, "it stands in the query and in the body. Give it once.")
            fields[name] = msgspec.Raw(msgspec.json.encode(value))
        return msgspec.json.encode(fields)


def _malformed(error: Exception) -> InvalidInput:
    if isinstance(error, RecursionError):
        return InvalidInput("body", "it is nested too deep.")
    if isinstance(error, UnicodeDecodeError):
        return InvalidInput("body", "it is not UTF-8.")
    return InvalidInput("body", f"it is not JSON: {error}.")


def _renamed(body: bytes | msgspec.Raw, struct: type[msgspec.Struct]) -> bytes:
    """Return the object with older names and camelCase put into ours, here and in the structs inside it."""
    try:
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return bytes(body)  # not an object: the typed decoder says so
    aliases: Mapping[str, str] = getattr(struct, "aliases", {})
    extras: str | None = getattr(struct, "extras", None)
    shape = _shape(struct)
    own_names = {*struct.__struct_fields__, struct.__struct_config__.tag_field}
    fields: dict[str, Any] = {}
    spare: dict[str, msgspec.Raw] = {}
    for name, raw in given.items():
        known = name if name in own_names else aliases.get(snake_case(name), snake_case(name))
        if known not in own_names:
            (spare if extras else fields)[name] = raw
        elif known in fields:
            raise InvalidInput(name[:100], f"it is {known}, which is given too. Give it once.")
        else:
            fields[known] = _inside(raw, known, shape)
    if extras and spare:
        own = msgspec.json.decode(fields.get(extras, b"null"), type=dict[str, msgspec.Raw] | None)
        fields[extras] = {**(own or {}), **spare}
    return msgspec.json.encode(fields)


class _Shape(msgspec.Struct, frozen=True):
    """Which fields of a struct are to be looked into."""

    bodies: dict[str, list[type[Body]]]
    """They hold a body of their own, or many; and what it can be."""
    by_name: frozenset[str]
    """They hold such bodies by names that are the caller's."""
    whole: frozenset[str]
    """They take whole numbers."""


@cache
def _shape(struct: type[msgspec.Struct]) -> _Shape:
    bodies: dict[str, list[type[Body]]] = {}
    by_name, whole = set(), set()
    for field, hint in get_type_hints(struct).items():
        waiting = [hint]
        while waiting:
            part = waiting.pop(0)
            waiting += get_args(part)
            if get_origin(part) is dict:
                by_name.add(field)
            elif part is int:
                whole.add(field)
            elif isinstance(part, type) and get_origin(part) is None and issubclass(part, Body):
                bodies.setdefault(field, []).append(part)
    return _Shape(bodies, frozenset(by_name), frozenset(whole))


def _inside(raw: msgspec.Raw, field: str, shape: _Shape) -> Any:
    if field not in shape.bodies:
        return _whole(raw) if field in shape.whole else raw
    structs = shape.bodies[field]
    text = bytes(raw).lstrip()
    if text.startswith(b"{") and field in shape.by_name:
        named = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return {name: _one(bytes(part).lstrip(), structs) for name, part in named.items()}
    if text.startswith(b"["):
        return [_one(bytes(part).lstrip(), structs) for part in msgspec.json.decode(text, type=list[msgspec.Raw])]
    return _one(text, structs)


def _one(text: bytes, structs: Sequence[type[Body]]) -> msgspec.Raw:
    if not text.startswith(b"{"):
        return msgspec.Raw(text)
    struct = structs[0]
    if (field := struct.__struct_config__.tag_field) is not None:
        tag = msgspec.json.decode(text, type=dict[str, Any]).get(field)
        struct = next((kind for kind in structs if kind.__struct_config__.tag == tag), struct)
    return msgspec.Raw(_renamed(text, struct))


def _whole(raw: msgspec.Raw) -> msgspec.Raw:
    text = bytes(raw)
    return msgspec.Raw(text[: found.start(1)]) if (found := _WHOLE.fullmatch(text)) else raw
