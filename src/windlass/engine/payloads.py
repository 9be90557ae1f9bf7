"""Whether a task takes a payload, by the signatures that its workers publish (signatures.py). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.errors import InvalidInput
from windlass.wire.tasks import Parameter, Signature


def refusal(signatures: Sequence[Signature], payload: str, *, task: str) -> InvalidInput | None:
    """Return why none of the signatures takes the payload, by the newest of them; None if one does or there is none."""
    try:
        value = msgspec.json.decode(payload) if signatures else None
    except (msgspec.DecodeError, RecursionError, ValueError):  # refused by the step, in its own words
        return None
    problem: InvalidInput | None = None
    for signature in signatures:
        problem = _problem(signature, value, task)
        if problem is None:
            return None
    return problem


def _problem(signature: Signature, value: Any, task: str) -> InvalidInput | None:
    if value is not None and not isinstance(value, dict):
        if not signature.single:
            return InvalidInput("payload", f"it is {_named(value)}; task {task} takes an object of arguments by name.")
        [only] = signature.parameters.items() if len(signature.parameters) == 1 else [(None, Parameter())]
        if signature.single_types is not None:
            only = (None, Parameter(types=signature.single_types))
        return _mistyped(only[0], only[1], value, task)
    arguments: dict[str, Any] = value or {}
    for name, parameter in signature.parameters.items():
        if name in arguments:
            problem = _mistyped(name, parameter, arguments[name], task)
            if problem is not None:
                return problem
        elif parameter.required:
            return InvalidInput(f"payload.{name}", f"task {task} needs it, and it is missing.")
    if not signature.extra:
        for name in arguments:
            if name not in signature.parameters:
                takes = ", ".join(signature.parameters) or "no arguments"
                return InvalidInput(f"payload.{name[:100]}", f"task {task} does not take it. It takes {takes[:500]}.")
    return None


def _mistyped(name: str | None, parameter: Parameter, value: Any, task: str) -> InvalidInput | None:
    if parameter.types is None or any(_is(value, kind) for kind in parameter.types):
        return None
    where = "payload" if name is None else f"payload.{name}"
    return InvalidInput(where, f"it is {_named(value)}; task {task} takes {' or '.join(parameter.types)}.")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float):  # 1.0 too: a worker that wants an integer does not take it
        return kind == "number"
    if isinstance(value, int):
        return kind in ("integer", "number")
    return _named(value) == kind


def _named(value: Any) -> str:
    names = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")
