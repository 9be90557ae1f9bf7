"""Hostile requests, made from the table of routes: a new route and a new field enter by themselves.

Each field of each body at any depth, each name of each query and each path gets each odd value (values.py), beside
fields that are good and name objects that are there. Besides: unknown fields, older names, keys that let nobody in,
methods that are not there, headers. Which of them are sent is drawn; the seed tells.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import inspect

from tests.fuzz.caller import Request
from tests.fuzz.values import ODD, ODD_TEXTS, ODD_TIMES, PATHS
from tests.server.world import PLAIN, REFERENCES, SINCE, Ask, Named, asks
from windlass.queue.keys import make_token
from windlass.server.route import Route, documented_path
from windlass.server.routes import ROUTES

MARK = "@odd@"
_QUOTED = json.dumps(MARK).encode()
_WAITS = re.compile(r"(^|\.)(wait|seconds|follow)$")
_LASTS = re.compile(rb'^"?(0?\.?[0-9]*[1-9][0-9.]*(e[0-9]+)?|true)"?$', re.IGNORECASE)
"""A value that would make a request last."""
METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "HEAD",
    "CONNECT",
    "BREW",
    "PRI",
    "get",
    "PROPFIND",
)
ABOVE_SHARE = 0.1
ENDS_ALL = frozenset({"DELETE /tenants/{name}"})
"""What one above tenants is not let do: it would erase the tenant of all other requests."""
NAMES = (
    "tenant",
    "tenant_id",
    "state",
    "id",
    "__proto__",
    "constructor",
    "is_admin",
    "Id",
    "",
    "zzz",
    "\x00",
    "x" * 5_000,
)
HEADERS: list[bytes] = [
    *(
        b"Content-Type: text/plain",
        b"Content-Type: application/x-www-form-urlencoded",
        b"Content-Type: multipart/form-data",
    ),
    *(b"Content-Type: application/json; charset=latin-1", b"Content-Type:", b"Content-Type: application/json;;;"),
    *(b"Content-Encoding: gzip", b"Content-Encoding: br, identity", b"Accept: text/html", b"Accept-Encoding: gzip"),
    *(b"Range: bytes=0-", b"If-None-Match: *", b"If-Modified-Since: x", b"Expect: 100-continue", b"Expect: x"),
    *(
        b"X-Forwarded-For: 127.0.0.1",
        b"X-Forwarded-Host: evil",
        b"Forwarded: for=::1",
        b"X-HTTP-Method-Override: DELETE",
    ),
    *(b"X-Request-ID: " + b"x" * 5_000, b"X-Request-ID: a\tb", b"Origin: null", b"Origin: http://evil", b"Cookie: a=b"),
    *(b"Last-Event-ID: x", b"Last-Event-ID: " + b"9" * 500, b"Idempotency-Key: " + b"k" * 600, b"Idempotency-Key:"),
    *(
        b"Idempotency-Key: \xff",
        b"X-Odd: \xff\xfe",
        b"Accept-Language: " + b"a," * 2_000,
        b"Te: trailers",
        b"Via: 1.1 x",
    ),
]


class Site(msgspec.Struct, frozen=True):
    """A field of a body, and the body with something in its place."""

    path: str
    kind: Any
    build: Callable[[Named, Any], dict[str, Any]]


def sites(ask: Ask) -> Iterator[Site]:
    """Return every field of a body, and of the structs inside it; the rest of the body is what the request needs."""
    described = inspect.type_info(ask.route.body)
    assert isinstance(described, inspect.StructType)
    yield from _sites(described, partial(_beside, ask), "", ())


def _beside(ask: Ask, named: Named, fields: dict[str, Any]) -> dict[str, Any]:
    return {**(ask.content(named) or {}), **fields}


def _sites(
    described: inspect.StructType, put: Callable[[Named, dict[str, Any]], Any], path: str, above: tuple[type, ...]
) -> Iterator[Site]:
    for field in described.fields:
        name = field.encode_name

        def build(named: Named, value: Any, name: str = name) -> Any:
            return put(named, {name: value})

        yield Site(path + name, field.type, build)
        for wrap, inner in _structs(field.type):
            if inner.cls not in above:

                def deeper(
                    named: Named,
                    fields: dict[str, Any],
                    name: str = name,
                    wrap: Callable[[Any], Any] = wrap,
                    inner: inspect.StructType = inner,
                ) -> Any:
                    return put(named, {name: wrap({**_needed(inner, named), **fields})})

                yield from _sites(inner, deeper, f"{path}{name}.", (*above, described.cls))


def _structs(kind: Any) -> Iterator[tuple[Callable[[Any], Any], inspect.StructType]]:
    """Return the structs that a field may hold, each with how it stands there."""
    match kind:
        case inspect.StructType():
            yield (lambda value: value), kind
        case inspect.Metadata():
            yield from _structs(kind.type)
        case inspect.UnionType():
            for inner in kind.types:
                yield from _structs(inner)
        case inspect.ListType() | inspect.VarTupleType():
            for _, inner in _structs(kind.item_type):
                yield (lambda value: [value]), inner
        case inspect.DictType():
            for _, inner in _structs(kind.value_type):
                yield (lambda value: {"x": value}), inner


def _needed(described: inspect.StructType, named: Named) -> dict[str, Any]:
    """Return good values for what a struct inside a body must have."""
    tag = {} if described.tag_field is None else {described.tag_field: described.tag}
    names = [field.encode_name for field in described.fields if field.required or field.encode_name == "fence"]
    return {**tag, **{name: good(name, named) for name in names}}


def good(name: str, named: Named) -> Any:
    """Return a good value for a field that must be given."""
    if name in REFERENCES:
        return REFERENCES[name](named)
    return PLAIN.get(name, {"at": SINCE, "text": "x", "seq": 0, "lines": []}.get(name, 1))


def _with_field(ask: Ask, name: str, named: Named, value: Any) -> dict[str, Any]:
    return _beside(ask, named, {name: value})


class Hostile:
    """Requests to one server by an admin of a tenant, about objects that are there; every so often by one above."""

    def __init__(self, named: Sequence[Named], token: str, *, above: str, seed: int) -> None:
        self._named = named
        self._random = random.Random(seed)
        self.key = f"Authorization: Bearer {token}".encode()
        self._above = f"Authorization: Bearer {above}".encode()
        self._asks = {route.name: next(iter(asks(route))) for route in ROUTES if route.scopes}

    def drawn(self, count: int) -> Iterator[Request]:
        """Return so many requests: all about keys, methods and headers, the rest drawn from all there are."""
        every = [*self._bodies(), *self._queries(), *self._paths()]
        always = [*self._keys(), *self._methods(), *self._headers()]
        chosen = [*always, *self._random.sample(every, min(count - len(always), len(every)))]
        self._random.shuffle(chosen)
        return (make() for make in chosen)

    def _one(self) -> Named:
        return self._random.choice(self._named)

    def _bodies(self) -> Iterator[Callable[[], Request]]:
        for ask in self._asks.values():
            route = ask.route
            if route.body is None:
                continue
            for site in sites(ask):
                for raw in self._values(site):
                    if not (_WAITS.search(site.path) and _LASTS.match(raw)):
                        yield partial(self._body, ask, site, raw)
            for name in (*NAMES, *getattr(route.body, "aliases", {}), *map(_camel, route.body.__struct_fields__)):
                unknown = Site(f"unknown {name[:20]!r}", None, partial(_with_field, ask, name))
                for raw in (b"1", b'"x"', b"{}", b"[]", b"null"):
                    yield partial(self._body, ask, unknown, raw)

    def _values(self, site: Site) -> Iterator[bytes]:
        yield from ODD
        if "datetime" in repr(site.kind).lower():
            yield from ODD_TIMES
        if (most := _most(site.kind)) is not None and most <= 1_000:
            for item in (b"{}", b'"x"', b"1", b'"' + b"y" * 200 + b'"'):
                yield from (b"[" + b",".join([item] * count) + b"]" for count in (most - 1, most, most + 1))

    def _body(self, ask: Ask, site: Site, raw: bytes) -> Request:
        named = self._one()
        body = json.dumps(site.build(named, MARK)).encode().replace(_QUOTED, raw)
        return self.request(ask.route, ask.url(named), body, f"{site.path} = {raw[:60]!r}")

    def _queries(self) -> Iterator[Callable[[], Request]]:
        for ask in self._asks.values():
            route = ask.route
            fields = [*(route.query.__struct_fields__ if route.query else ()), "tenant", "zzz", "Limit", "token"]
            fields += route.body.__struct_fields__ if route.body and route.query_is_body else ()
            for field in fields:
                for text in ODD_TEXTS:
                    if not (_WAITS.search(field) and _LASTS.match(text.encode())):
                        yield partial(self._query, ask, f"{field}={quote(text, safe='')}")
            for raw in (
                "&&&",
                "=",
                "a",
                "%",
                "%ff=%ff",
                "limit=1&limit=2",
                "&".join(f"a{n}=1" for n in range(60)),
                "a=" + "b" * 60_000,
            ):
                yield partial(self._query, ask, raw)

    def _query(self, ask: Ask, text: str) -> Request:
        url = ask.url(self._one())
        given = text.partition("=")[0]
        url = re.sub(rf"[?&]{re.escape(given)}=[^&]*", "", url) if given == "seconds" else url
        url += ("&" if "?" in url else "?") + text
        body = json.dumps(ask.content(self._one())).encode() if ask.route.body else b""
        return self.request(ask.route, url, body, f"?{text[:60]}")

    def _paths(self) -> Iterator[Callable[[], Request]]:
        for ask in self._asks.values():
            if ask.route.parameter is not None:
                for text in (*PATHS, *(quote(text, safe="") for text in ODD_TEXTS if len(text) <= 300)):
                    yield partial(self._path, ask, text)

    def _path(self, ask: Ask, text: str) -> Request:
        path = re.sub(r"\{\w+\}", lambda _: text, documented_path(ask.route))
        query = ask.url(self._one()).partition("?")[2]
        body = json.dumps(ask.content(self._one())).encode() if ask.route.body else b""
        return self.request(ask.route, f"{path}?{query}" if query else path, body, f"path {text[:60]}")

    def _keys(self) -> Iterator[Callable[[], Request]]:
        token = make_token().encode()
        bad = [
            *(
                b"",
                b"Authorization:",
                b"Authorization: Bearer",
                b"Authorization: Bearer x",
                b"Authorization: Basic eDp5",
            ),
            *(b"Authorization: Bearer " + token, b"X-API-Key: " + token, b"X-API-Key: \xff", b"Cookie: key=x"),
            *(self.key[:-1], self.key + b"a", self.key + b" ", self.key.upper(), b"Authorization: " + b"B" * 9_000),
            b"Authorization: Bearer " + token + b"\r\nX-API-Key: x",
            self.key + b"\r\n" + self.key.replace(b"wl_", b"wl-"),
        ]
        for ask in self._asks.values():
            for header in bad:
                yield partial(self._headed, ask, header, b"")

    def _methods(self) -> Iterator[Callable[[], Request]]:
        paths = {documented_path(route) for route in ROUTES}
        for path in sorted(paths):
            for method in METHODS:
                yield partial(self._method, path, method)

    def _method(self, path: str, method: str) -> Request:
        url = re.sub(r"\{\w+\}", "nobody", path) + ("?seconds=0.001" if path.endswith("/events") else "")
        head = f"{method} {url} HTTP/1.1\r\nHost: x\r\n".encode() + self.key + b"\r\n\r\n"
        return Request(head, f"{method} {path}")

    def _headers(self) -> Iterator[Callable[[], Request]]:
        for ask in self._asks.values():
            for header in HEADERS:
                yield partial(self._headed, ask, None, header)

    def _headed(self, ask: Ask, key: bytes | None, header: bytes) -> Request:
        body = json.dumps(ask.content(self._one())).encode() if ask.route.body else b""
        what = f"header {header[:40]!r}" if key is None else f"key {key[:40]!r}"
        more = header + b"\r\n" if header else b""
        return self.request(ask.route, ask.url(self._one()), body, what, key=key, more=more)

    def request(
        self, route: Route, url: str, body: bytes, what: str, *, key: bytes | None = None, more: bytes = b""
    ) -> Request:
        """Return the bytes of a request to a route."""
        target = url.removeprefix("http://windlass.test").encode("utf-8", "replace")
        media = b"" if b"Content-Type" in more or not body else b"Content-Type: application/json\r\n"
        own = self.key if self._random.random() > ABOVE_SHARE or route.name in ENDS_ALL else self._above
        credentials = (own if key is None else key) + b"\r\n" if key != b"" else b""
        length = f"Content-Length: {len(body)}\r\n".encode() if body or route.method != "GET" else b""
        head = route.method.encode() + b" " + target + b" HTTP/1.1\r\nHost: x\r\n" + credentials + media + more + length
        return Request(head + b"\r\n" + body, f"{route.name} {what}")


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def _most(kind: Any) -> int | None:
    """Return how many items a list may have."""
    match kind:
        case inspect.Metadata():
            return _most(kind.type)
        case inspect.UnionType():
            return next((most for inner in kind.types if (most := _most(inner)) is not None), None)
        case inspect.ListType() | inspect.VarTupleType():
            return kind.max_length
    return None
