"""Values as JSON and back: what may be an argument or a result. Pure.

Plain JSON, dataclasses, msgspec and attrs classes, enums, UUID, datetime, date, timedelta, Decimal, bytes (base64),
sets and tuples; models of pydantic where a program uses it. What a value becomes on the way back is told by its
annotation; without one it is plain JSON. Next: arguments.py makes payloads of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, get_origin

import msgspec
from msgspec import inspect

from windlass.errors import InvalidInput


def _to_json(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(
        f"{type(value).__module__}.{type(value).__qualname__} is no JSON. Use plain values, a dataclass, a msgspec "
        "struct or a pydantic model"
    )


def _from_json(kind: Any, value: Any) -> Any:
    if is_model(kind):
        return kind.model_validate(value)
    wanted = get_origin(kind) or kind
    if isinstance(wanted, type) and isinstance(value, wanted):  # an abstract one, such as Iterable
        return value
    # What msgspec asks of a hook for a type that it does not know.
    raise NotImplementedError(f"{shown_type(kind)} cannot be made from JSON")


def is_model(kind: Any) -> bool:
    """Say whether a type is a model of pydantic; a program that has none need not have pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


_encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=_to_json).encode


def encode(value: Any, field: str) -> bytes:
    """Return a value as JSON; InvalidInput names `field`, and the type that is none."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(field, f"{type(value).__qualname__} cannot be written as JSON: {error}.") from error


def decoder(kind: Any, field: str) -> msgspec.json.Decoder[Any]:
    """Return a decoder for values of an annotated type; InvalidInput if JSON cannot tell them apart."""
    try:
        return msgspec.json.Decoder(kind, dec_hook=_from_json)
    except (TypeError, NameError) as error:
        raise InvalidInput(field, f"its type {shown_type(kind)} cannot be read from JSON: {error}.") from error


def check(kind: Any, field: str) -> None:
    """Return if values of an annotated type, which has a decoder, can be made from JSON; InvalidInput if not."""
    try:
        info = inspect.type_info(kind)
    except (TypeError, NameError, ValueError, NotImplementedError):  # in doubt the value itself decides
        return
    for custom in _customs(info, set()):
        if not _can_be_made(custom):
            raise InvalidInput(
                field,
                f"{shown_type(custom)} cannot be read from JSON. Use plain types, a dataclass, a msgspec struct or a "
                "pydantic model.",
            )


def _customs(part: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the classes in an annotation that msgspec itself does not know."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, inspect.CustomType):
        yield part.cls
    elif isinstance(part, inspect.Type | inspect.Field):
        for name in part.__struct_fields__:
            yield from _customs(getattr(part, name), seen)
    elif isinstance(part, tuple):
        for item in part:
            yield from _customs(item, seen)


def _can_be_made(kind: Any) -> bool:
    wanted = get_origin(kind) or kind
    try:
        return is_model(wanted) or any(issubclass(plain, wanted) for plain in _PLAIN)
    except TypeError:  # nothing that can be asked; the value itself decides
        return True


_PLAIN = (dict, list, str, int, float, bool, type(None))


def convert(value: Any, kind: Any) -> Any:
    """Return decoded JSON as an annotated type; msgspec.ValidationError if it is none."""
    return msgspec.convert(value, kind, dec_hook=_from_json)


def shown_type(kind: Any) -> str:
    """Return the name of a type for a message."""
    return kind.__qualname__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)
