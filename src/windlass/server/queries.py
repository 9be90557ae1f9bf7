"""The query of a URL, as strictly as a body: known names, each once, numbers in plain ASCII digits."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from windlass.errors import InvalidInput
from windlass.wire.base import snake_case
from windlass.wire.problems import named_problem

_INT = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,30})?(e-[0-9]{1,3})?")
_BOOLS = {"true": True, "1": True, "false": False, "0": False}
MAX_NAMES = 50
_TOO_MANY = "\0"


def parse_query(raw: bytes) -> list[tuple[str, str]]:
    """Return names and values, as they stand; what is not UTF-8 is shown by a mark that no value may hold."""
    try:
        return parse_qsl(raw.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=MAX_NAMES)
    except ValueError:
        return [(_TOO_MANY, "")]


def names_once(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return names and values; InvalidInput if a name stands twice or the text is not UTF-8."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(twice[:100], "it stands twice in the query. Give it once.")
    for name, text in pairs:
        if name == _TOO_MANY:
            raise InvalidInput("query", f"it has more than {MAX_NAMES} names.")
        if "\N{REPLACEMENT CHARACTER}" in name + text:
            raise InvalidInput(name[:100], "it is not text in percent-encoded UTF-8.")
    return found


class QueryDecoder:
    """Turns the names and values of a query into a struct. The kinds of its fields are read for the first query."""

    def __init__(self, query: type[msgspec.Struct] | None, body: type[msgspec.Struct] | None) -> None:
        self._query = query
        self._body = body
        self._aliases: Mapping[str, str] = getattr(body, "aliases", {})

    @cached_property
    def _default(self) -> msgspec.Struct | None:
        return self._query() if self._query is not None and not _required(self._query) else None

    @cached_property
    def _fields(self) -> Mapping[str, str]:
        return _kinds(self._query)

    @cached_property
    def _body_fields(self) -> Mapping[str, str]:
        return _kinds(self._body)

    def decode(self, values: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
        """Return the struct of the query, and the fields of the body that stand in the query."""
        if not values:
            return self._default, {}
        own: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for given, text in values.items():
            name = snake_case(given)
            name = self._aliases.get(name, name) if name not in self._fields else name
            if name in self._fields:
                own[name] = _value(name, text, self._fields[name])
            elif name in self._body_fields:
                others[name] = _value(name, text, self._body_fields[name])
            else:
                known = ", ".join(sorted({*self._fields, *self._body_fields, "tenant"}))
                raise InvalidInput(given[:100], f"it is not known in this query. Known are {known}.")
        if self._query is None or (not own and self._default is not None):
            return self._default, others
        try:
            return msgspec.convert(own, self._query), others
        except msgspec.ValidationError as error:
            raise named_problem(error) from None


def _required(query: type[msgspec.Struct]) -> Collection[str]:
    return [field.name for field in msgspec.structs.fields(query) if field.required]


@cache
def _kinds(struct: type[msgspec.Struct] | None) -> Mapping[str, str]:
    """Return how the text of each field is to be read."""
    if struct is None:
        return {}
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    return {field.encode_name: _kind(field.type) for field in described.fields}


def _kind(described: inspect.Type) -> str:
    if isinstance(described, inspect.UnionType):
        kinds = {_kind(inner) for inner in described.types} - {"none"}
        return next(kind for kind in ("list", "object", "int", "float", "bool", "text", "none") if kind in kinds)
    if isinstance(described, inspect.Metadata):
        return _kind(described.type)
    names: dict[type[inspect.Type], str] = {
        inspect.IntType: "int",
        inspect.FloatType: "float",
        inspect.BoolType: "bool",
        inspect.NoneType: "none",
        inspect.ListType: "list",
        inspect.VarTupleType: "list",
        inspect.FrozenSetType: "list",
        inspect.StructType: "object",
    }
    return names.get(type(described), "text")


def _value(name: str, text: str, kind: str) -> Any:
    if kind == "int":
        if not _INT.fullmatch(text):
            raise InvalidInput(name, f"{text[:50]!r} is not a whole number in plain digits.")
        return int(text)
    if kind == "float":
        if _NUMBER.fullmatch(text):
            return float(text)
        return text
    if kind == "bool":
        if text not in _BOOLS:
            raise InvalidInput(name, f"{text[:50]!r} is neither true nor false.")
        return _BOOLS[text]
    if kind == "list":
        return text.split(",")
    if kind == "object":
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            raise InvalidInput(name, f"{text[:50]!r} is no JSON object.") from None
    return text
