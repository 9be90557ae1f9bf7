"""The OpenAPI 3.1 document, made from the table of routes: what is served is what is documented.

Types come from the structs of wire/, statuses from the route and from what every route of its kind can answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from windlass import __version__
from windlass.server.links import links, operation_id
from windlass.server.route import IDENTIFIED, Route, documented_path
from windlass.server.sentences import sentences
from windlass.wire.base import Body, Name, Problem

JSON = "application/json"
EVENTS = "text/event-stream"
_UUID = {"type": "string", "format": "uuid"}
_REF = "#/components/schemas/{name}"
_REASONS = {
    200: "Done.",
    201: "Made.",
    202: "Begun.",
    204: "Nothing to tell.",
    401: "No key, or not a good one.",
    403: "The key does not allow this.",
    404: "Unknown here, another tenant's, or past retention.",
    408: "The body did not come in time.",
    409: "The state of the thing does not allow it.",
    413: "The body, or a payload or result in it, is too large.",
    415: "The body is not plain JSON.",
    422: "A value cannot be accepted; `errors` names the field.",
    429: "A cap is reached; try again after `Retry-After` seconds.",
    503: "The database does not answer, or the server is stopping; try again after `Retry-After` seconds.",
}
_TAGS = {
    **dict.fromkeys(("admin", "autoscale", "metrics"), "figures"),
    "backfills": "schedules",
    **dict.fromkeys(("attempts", "runs", "events", "audit"), "history"),
    **dict.fromkeys(("duties", "health", "readyz", "healthz", "version", "openapi.json", "docs"), "servers"),
}
"""Headings that are not the first word of the path."""
_ABOUT = """Submit jobs, hand them to workers, see what became of them.

Send a key as `Authorization: Bearer …` or `X-API-Key`. Times are RFC 3339 with a zone; spans are seconds or texts such
as `5m`. Names are in snake_case; the camelCase form of a name is taken too. Unknown fields are refused. In an object
that names a field twice the last one counts. Lists of jobs, claims and reports are one request."""


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document of these routes."""
    types = _types(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    for struct in _structs(types):
        if issubclass(struct, Body):
            _refine(struct, components[struct.__name__])
        for field, text in sentences(struct).items():
            components[struct.__name__]["properties"][field]["description"] = text
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, by_type, components)
        if linked := links(route, routes):
            operation["responses"][str(route.status)]["links"] = linked
        paths.setdefault(documented_path(route), {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Windlass", "version": __version__, "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _types(routes: Sequence[Route]) -> list[Any]:
    types: list[Any] = [Problem, Name]
    for route in routes:
        found = [route.body, route.query, route.followed]
        for kind in route.answers.values():
            found += kind if isinstance(kind, tuple) else (kind,)
        types += [kind for kind in found if kind is not None and not any(kind is known for known in types)]
    return types


def _refine(struct: type[Body], schema: dict[str, Any]) -> None:
    """Add to the schema of a request what its struct says beyond the types of its fields."""
    if struct.expected:
        schema["required"] = sorted({*schema.get("required", ()), *struct.expected})
    if struct.exclusive:
        pairs = [_given(*pair) for pair in struct.exclusive]
        schema["not"] = pairs[0] if len(pairs) == 1 else {"anyOf": pairs}
    for rule, names in (("oneOf", struct.either), ("anyOf", struct.some)):
        if names:
            schema[rule] = [_given(name) for name in names]
    schema.update(struct.bound)
    if struct.extras is not None:
        schema["propertyNames"] = {"minLength": 1, "maxLength": 200}
        taken = schema["properties"][struct.extras]
        [values] = [kind for kind in (taken, *taken.get("anyOf", ())) if "additionalProperties" in kind]
        schema["additionalProperties"] = values["additionalProperties"]


def _structs(types: Sequence[Any]) -> set[type[msgspec.Struct]]:
    """Return the structs that these types are made of."""
    found: set[type[msgspec.Struct]] = set()
    waiting = list(types)
    while waiting:
        part = waiting.pop()
        if isinstance(part, type) and get_origin(part) is None and issubclass(part, msgspec.Struct):
            if part in found:
                continue
            found.add(part)
            waiting += get_type_hints(part).values()
        waiting += get_args(part)
    return found


def _given(*names: str) -> dict[str, Any]:
    return {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}


def _operation(route: Route, by_type: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": _parameters(route, by_type, components),
        "responses": _responses(route, by_type),
    }
    if route.scopes:
        operation["security"] = [{"bearer": []}, {"header": []}]
        needed = " or ".join(f"`{scope}`" for scope in route.scopes)
        operation["description"] = f"Needs scope {needed}. {route.notes}".strip()
    else:
        operation["security"] = []
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {JSON: {"schema": by_type[id(route.body)]}},
        }
        if route.query_is_body:
            operation["description"] += " Plain fields of the body may stand in the query instead."
    return operation


def _tag(route: Route) -> str:
    """Return under which heading a route stands."""
    first = route.path.split("/")[1]
    return "work" if route.scopes == ("work",) else _TAGS.get(first, first)


def _parameters(route: Route, by_type: dict[int, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if route.parameter is not None:
        schema: dict[str, Any] = dict(_UUID) if route.parameter in IDENTIFIED else by_type[id(Name)]
        found.append({"name": route.parameter, "in": "path", "required": True, "schema": schema})
    if route.scopes and route.tenanted:
        found.append(
            {
                "name": "tenant",
                "in": "query",
                "required": False,
                "description": "Only for keys of scope admin without a tenant of their own.",
                "schema": by_type[id(Name)],
            }
        )
    if route.query is not None:
        struct = components[by_type[id(route.query)]["$ref"].rsplit("/", 1)[-1]]
        for name, with_null in struct["properties"].items():
            schema = _without_null(with_null)
            parameter = {"name": name, "in": "query", "required": name in struct.get("required", ())}
            if said := schema.pop("description", None):
                parameter["description"] = said
            found.append({**parameter, "schema": schema})
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value in a query: what is absent is left out there, never written as null."""
    kept = {name: value for name, value in schema.items() if not (name == "default" and value is None)}
    options = [option for option in kept.get("anyOf", ()) if option.get("type") != "null"]
    if not options:
        return kept
    del kept["anyOf"]
    return {**options[0], **kept} if len(options) == 1 else {**kept, "anyOf": options}


def _responses(route: Route, by_type: dict[int, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in route.answers.items():
        response: dict[str, Any] = {"description": _REASONS[status]}
        if kind is not None or route.media_type != JSON:
            schema = _answer(kind, by_type)
            response["content"] = {
                route.media_type: {"schema": _event(schema) if route.media_type == EVENTS else schema}
            }
        if route.followed is not None:
            response["content"][EVENTS] = {"schema": _event(by_type[id(route.followed)], name="line", moment=False)}
        responses[str(status)] = response
    for status in sorted(problem_statuses(route)):
        response = {
            "description": _REASONS[status],
            "content": {"application/problem+json": {"schema": by_type[id(Problem)]}},
        }
        if status in (429, 503):
            response["headers"] = {"Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}}}
        if status == 401:
            response["headers"] = {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}}
        responses.setdefault(str(status), response)
    return responses


def _answer(kind: Any, by_type: dict[int, Any]) -> dict[str, Any]:
    if isinstance(kind, tuple):
        return {"anyOf": [by_type[id(one)] for one in kind]}
    schema: dict[str, Any] = {"type": "string"} if kind is None else by_type[id(kind)]
    return schema


def _event(data: dict[str, Any], *, name: str = "job", moment: bool = True) -> dict[str, Any]:
    """Return the schema of each event of a stream."""
    text = {"type": "string", "contentMediaType": JSON, "contentSchema": data}
    mark = {"type": "string", "format": "date-time"} if moment else {"type": "string"}
    fields = {"id": mark, "event": {"const": name}, "data": text}
    return {"type": "object", "properties": fields, "required": list(fields)}


def problem_statuses(route: Route) -> set[int]:
    """Return every status of a problem that a route can answer with."""
    statuses = {422, *route.errors}
    if route.scopes:
        statuses |= {401, 403, 429, 503}
    if route.parameter is not None:
        statuses.add(404)
    if route.body is not None:
        statuses |= {408, 413, 415}
    return statuses
