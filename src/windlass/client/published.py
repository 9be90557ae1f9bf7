"""What workers publish of a task: its parameters and the JSON types of their values. Pure.

Servers refuse a submitted payload that no published form takes, so in doubt a parameter takes anything:
the annotations themselves decide when the job runs (arguments.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from msgspec import inspect as kinds

from windlass.wire import tasks as wire

_STRINGS = (
    kinds.StrType,
    kinds.BytesType,
    kinds.ByteArrayType,
    kinds.MemoryViewType,
    kinds.DateTimeType,
    kinds.DateType,
    kinds.TimeType,
    kinds.TimeDeltaType,
    kinds.UUIDType,
)
_ARRAYS = (
    kinds.ListType,
    kinds.SetType,
    kinds.FrozenSetType,
    kinds.VarTupleType,
    kinds.TupleType,
    kinds.NamedTupleType,
    kinds.CollectionType,
)
_OBJECTS = (kinds.DictType, kinds.TypedDictType, kinds.DataclassType)
_PLAIN: dict[type[kinds.Type], tuple[wire.JsonType, ...]] = {
    kinds.NoneType: ("null",),
    kinds.BoolType: ("boolean",),
    kinds.IntType: ("integer",),
    kinds.FloatType: ("integer", "number"),
    kinds.DecimalType: ("integer", "number", "string"),
    **dict.fromkeys(_STRINGS, ("string",)),
    **dict.fromkeys(_ARRAYS, ("array",)),
    **dict.fromkeys(_OBJECTS, ("object",)),
}
_NO_OBJECT: tuple[wire.JsonType, ...] = ("array", "boolean", "integer", "null", "number", "string")
"""What the single argument may be that no annotation bounds: an object is arguments by name."""
_LONGEST = 255
"""Parameters that are published; a function with more takes any names as far as servers know."""


def published(signature: inspect.Signature, hints: Mapping[str, Any]) -> wire.Signature:
    """Return the wire form of a task's parameters, its context left out."""
    parameters: dict[str, wire.Parameter] = {}
    extra = len(signature.parameters) > _LONGEST
    single = False
    single_types: tuple[wire.JsonType, ...] | None = None
    for position, parameter in enumerate(list(signature.parameters.values())[:_LONGEST]):
        if position == 0:
            single = parameter.kind not in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
            if single:
                single_types = json_types(hints.get(parameter.name, Any)) or _NO_OBJECT
        elif parameter.default is Parameter.empty and parameter.kind in (
            Parameter.POSITIONAL_ONLY,
            Parameter.POSITIONAL_OR_KEYWORD,
            Parameter.KEYWORD_ONLY,
        ):
            single = False
        if parameter.kind is Parameter.VAR_KEYWORD:
            extra = True
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            parameters[parameter.name] = wire.Parameter(types=("array",))
        else:
            types = json_types(hints.get(parameter.name, Any))
            parameters[parameter.name] = wire.Parameter(types=types, required=parameter.default is Parameter.empty)
    return wire.Signature(
        parameters=parameters, extra=extra, single=single, single_types=single_types if single else None
    )


def json_types(annotation: Any) -> tuple[wire.JsonType, ...] | None:
    """Return the JSON types that a value of an annotated type may have; None: any."""
    try:
        found = _types(kinds.type_info(annotation))
    except (TypeError, NameError, ValueError, NotImplementedError):
        return None
    return None if found is None else tuple(sorted(found))


def _types(kind: kinds.Type) -> set[wire.JsonType] | None:
    if isinstance(kind, kinds.Metadata):
        return _types(kind.type)
    if isinstance(kind, kinds.UnionType):
        parts = [_types(part) for part in kind.types]
        return None if any(part is None for part in parts) else {name for part in parts for name in part or ()}
    if isinstance(kind, kinds.EnumType):
        return _of_values(member.value for member in kind.cls)
    if isinstance(kind, kinds.LiteralType):
        return _of_values(kind.values)
    if isinstance(kind, kinds.StructType):
        return {"array"} if kind.array_like else {"object"}
    if isinstance(kind, kinds.CustomType):
        return None
    found = _PLAIN.get(type(kind))
    return None if found is None else set(found)


def _of_values(members: Any) -> set[wire.JsonType] | None:
    found: set[wire.JsonType] = set()
    for member in members:
        part = json_types(type(member))
        if part is None:
            return None
        found.update(part)
    return found
