"""The reference page at /docs: the OpenAPI document as one page of HTML, without script, network or other files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from html import escape
from typing import Any

POLICY = b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_COMMON = ("401", "403", "408", "413", "415", "422", "429", "503")
"""Statuses of refusals that are told once, at the head of the page."""
_CODE = re.compile(r"`([^`]+)`")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:62rem;padding:1rem;color:#1c1c1c;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #ccc}summary{cursor:pointer;padding:.3rem 0}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:#f4f4f2;padding:.6rem;overflow-x:auto}
table{border-collapse:collapse;margin:.5rem 0}
td,th{border:1px solid #ddd;padding:.2rem .5rem;text-align:left;vertical-align:top}
.m{display:inline-block;min-width:4.5rem;font-weight:700}nav a{margin-right:1rem}
details[open]{margin-bottom:1.5rem}summary code{margin-right:.5rem}
@media(prefers-color-scheme:dark){
body{color:#ddd;background:#181818}pre{background:#242424}td,th{border-color:#444}a{color:#8bf}}
"""


def page(document: dict[str, Any]) -> str:
    """Return the page of this document."""
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(document['info']['title'])} API</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(document['info']['title'])} {escape(document['info']['version'])}</h1>",
        *(f"<p>{_prose(text)}</p>" for text in document["info"]["description"].split("\n\n")),
        '<p>The same for programs: <a href="/openapi.json">/openapi.json</a>. The examples take the address of the ',
        "server from <code>$WINDLASS_URL</code>, the key from <code>$WINDLASS_KEY</code>, and what stands in a path ",
        "from a variable of its name.</p><nav>",
        *(f'<a href="#{escape(tag)}">{escape(tag)}</a>' for tag in (*by_tag, "refusals", "types")),
        "</nav>",
    ]
    schemas = document["components"]["schemas"]
    for tag, operations in by_tag.items():
        parts.append(f'<h2 id="{escape(tag)}">{escape(tag)}</h2>')
        for method, path, operation in operations:
            parts += _operation(method, path, operation, schemas)
    parts += _refusals([operation for operations in by_tag.values() for _, _, operation in operations])
    parts.append('<h2 id="types">types</h2>')
    for name, schema in sorted(schemas.items()):
        # The mark stands inside: a browser opens what it is led into.
        parts.append(f"<details><summary><code>{escape(name)}</code>")
        parts.append(f' {_prose(schema.get("description", ""))}</summary><div id="type-{escape(name)}">')
        parts.append(f"{_fields(schema)}</div></details>")
    parts.append("</body></html>")
    return "".join(parts)


def _refusals(operations: list[dict[str, Any]]) -> Iterator[str]:
    said: dict[str, dict[str, Any]] = {}
    for operation in operations:
        said = operation["responses"] | said
    yield '<h2 id="refusals">refusals</h2><p>Besides what stands with each operation: wherever a key is asked for, '
    yield 'or there is a body or a value to refuse. All have the body <a href="#type-Problem">Problem</a>.</p>'
    yield "<table><tr><th>status</th><th>meaning</th></tr>"
    for status in (status for status in _COMMON if status in said):
        yield f"<tr><td>{status}</td><td>{_prose(said[status]['description'])}</td></tr>"
    yield "</table>"


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    yield f'<details><summary><span class="m">{method}</span>'
    yield f"<code>{escape(path)}</code> {escape(operation['summary'])}</summary>"
    yield f'<p id="{escape(operation["operationId"])}">{_prose(operation.get("description", ""))}</p>'
    if operation["parameters"]:
        yield "<table><tr><th>parameter</th><th>in</th><th>type</th><th>default</th><th></th></tr>"
        for parameter in operation["parameters"]:
            schema = parameter["schema"]
            yield f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{parameter['in']}</td>"
            yield f"<td>{_type(schema)}</td><td>{'required' if parameter['required'] else _default(schema)}</td>"
            yield f"<td>{_prose(parameter.get('description', schema.get('description', '')))}</td></tr>"
        yield "</table>"
    body = operation.get("requestBody")
    example = None
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        example = _example(schema, schemas)
        optional = "" if body["required"] else ", which may be left out"
        yield f"<p>Body: {_type(schema)}{optional}</p>"
        yield _fields(schemas[_name(schema)])
    yield f"<pre>{escape(_curl(method, path, operation, example))}</pre>"
    yield "<table><tr><th>status</th><th>meaning</th><th>body</th></tr>"
    for status, response in operation["responses"].items():
        if status in _COMMON and "application/json" not in response.get("content", {}):
            continue
        kinds = [_type(content["schema"]) for content in response.get("content", {}).values()]
        yield f"<tr><td>{status}</td><td>{_prose(response['description'])}</td><td>{' '.join(kinds)}</td></tr>"
    yield "</table></details>"


def _prose(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _name(schema: dict[str, Any]) -> str:
    name: str = schema["$ref"].rsplit("/", 1)[-1]
    return name


def _fields(schema: dict[str, Any]) -> str:
    if not schema.get("properties"):
        return f"<p>{_type(schema)}</p>"
    rows = [
        f"<tr><td><code>{escape(name)}</code></td><td>{_type(inner)}</td>"
        f"<td>{'required' if name in schema.get('required', ()) else _default(inner)}</td>"
        f"<td>{_prose(inner.get('description', ''))}</td></tr>"
        for name, inner in schema["properties"].items()
    ]
    return f"<table><tr><th>field</th><th>type</th><th>default</th><th></th></tr>{''.join(rows)}</table>"


def _default(schema: dict[str, Any]) -> str:
    return f"<code>{escape(json.dumps(schema['default']))}</code>" if "default" in schema else ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(_name(schema))
        return f'<a href="#type-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "contentSchema" in schema:
        return f"JSON of {_type(schema['contentSchema'])}"
    if "properties" in schema:
        return ", ".join(f"<code>{escape(name)}</code>: {_type(inner)}" for name, inner in schema["properties"].items())
    length = [str(schema[key]) for key in ("minLength", "maxLength") if key in schema]
    bounds = [
        f"{label} {schema[key]}"
        for key, label in (("exclusiveMinimum", ">"), ("minimum", "≥"), ("maximum", "≤"))
        if key in schema
    ]
    words = [str(schema.get("format") or schema.get("type") or "any JSON"), *bounds]
    if length:
        words.append(f"of {'up to ' if 'minLength' not in schema else ''}{' to '.join(length)} characters")
    return escape(" ".join(words))


def _example(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return a small value that the schema takes: its examples, and what is required."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rsplit("/", 1)[-1]], schemas)
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        required = [*schema.get("required", ()), *schema.get("oneOf", [{}])[0].get("required", ())]
        return {name: _example(schema["properties"][name], schemas) for name in required}
    if kind == "array":
        return [_example(schema["items"], schemas)]
    if schema.get("format") == "uuid":
        return "01890a5d-ac96-774b-bcce-b302099a8057"
    return {"integer": schema.get("minimum", 1), "number": 1, "boolean": True, "null": None}.get(str(kind), "text")


def _curl(method: str, path: str, operation: dict[str, Any], example: Any) -> str:
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", f"${parameter['name'].upper()}")
    words = ["curl"] if method == ("GET" if example is None else "POST") else ["curl", "-X", method]
    if any("text/event-stream" in answer.get("content", {}) for answer in operation["responses"].values()):
        words.append("-N")
    lines = [" ".join([*words, f'"$WINDLASS_URL{path}"'])]
    if operation["security"]:
        lines.append('  -H "Authorization: Bearer $WINDLASS_KEY"')
    if example is not None:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(example))}")
    return " \\\n".join(lines)
