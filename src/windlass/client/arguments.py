"""Arguments and payloads: how a call becomes the JSON of a job, and a job's JSON a call again. Pure.

The payload is an object of arguments by the names of the parameters; those given by position are bound to names.
`*args` stand under their own name as a list, `**kwargs` beside the rest. A payload that is no object is the single
argument; without one, or with null, the function is called without arguments. So a job of `curl` and one of `enqueue`
are the same. Defaults are not sent: those of the function that runs count.

What would not fit when the job runs does not fit when it is submitted: both look at the same annotations (values.py).
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from typing import Any, Union

import msgspec
from msgspec import UNSET, UnsetType

from windlass.client import values
from windlass.client.context import Context
from windlass.errors import InvalidInput

_BY_NAME = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_AT = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<path>.*)`", re.DOTALL)


class Arguments:
    """The parameters of a task's function, without its context."""

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self._fn = fn
        self._name = name
        self._signature = inspect.signature(fn)

    def check(self) -> None:
        """Return if payloads can be read by the annotations; InvalidInput names the one that makes it impossible.

        Names that are not known yet, because they are defined further down, are left for the first call.
        """
        if not self.is_known:
            return
        _Form(self.own, self.hints)
        for parameter in self.own.parameters.values():
            # One that need not be given may be for callers in this program only.
            if parameter.kind in _BY_NAME and parameter.default is Parameter.empty:
                values.check(self.hints.get(parameter.name, Any), parameter.name)

    @property
    def is_known(self) -> bool:
        """Whether everything that the annotations name is defined by now."""
        try:
            typing.get_type_hints(self._fn, include_extras=True)
        except (NameError, AttributeError, TypeError, SyntaxError):
            return False
        return True

    @cached_property
    def wants_context(self) -> bool:
        """Whether the first parameter is annotated as Context; InvalidInput if another one is."""
        wants = [
            parameter.name
            for parameter in self._signature.parameters.values()
            if _is_context(self.hints.get(parameter.name))
        ]
        if wants and wants != [next(iter(self._signature.parameters))]:
            raise InvalidInput(
                wants[-1], f"the Context of task {self._name} must be its first parameter, and only that."
            )
        return bool(wants)

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The annotations as types; one whose name is not known where the function stands is Any."""
        # Not when the task is defined: what its annotations name may be defined further down.
        try:
            return typing.get_type_hints(self._fn, include_extras=True)
        except (NameError, AttributeError, TypeError, SyntaxError):
            return {name: self._hint(text) for name, text in getattr(self._fn, "__annotations__", {}).items()}

    def _hint(self, annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        if annotation.rpartition(".")[2] == "Context":
            return Context
        module = vars(sys.modules.get(self._fn.__module__, typing))
        try:
            return typing.get_type_hints(_Annotated(annotation), globalns=dict(module), include_extras=True)["value"]
        except (NameError, AttributeError, TypeError, SyntaxError):
            return Any

    @cached_property
    def own(self) -> inspect.Signature:
        """The signature without the context: what a caller gives."""
        parameters = list(self._signature.parameters.values())
        return self._signature.replace(parameters=parameters[1:] if self.wants_context else parameters)

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Return the payload of a call; TypeError if Python would refuse it, InvalidInput for what is no JSON."""
        try:
            bound = self.own.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}") from None
        given: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if self.own.parameters[name].kind is not Parameter.VAR_KEYWORD:
                given[name] = value
                continue
            if double := given.keys() & value.keys():
                raise InvalidInput(min(double), f"task {self._name} has a parameter and an argument of this name.")
            given |= value
        try:
            payload = values.encode(given, "payload")
        except InvalidInput:
            for name, value in given.items():
                values.encode(value, name)
            raise
        self.read(payload)
        return payload

    def read(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments that a payload holds; InvalidInput names the one that does not fit."""
        try:
            return self._form.read(payload if payload[:1] == b"{" else self._object(payload))
        except (msgspec.MsgspecError, UnicodeDecodeError, NotImplementedError, ValueError) as error:
            raise self._misfit(error) from error

    def _object(self, payload: bytes) -> bytes:
        start = payload.lstrip()[:4]
        if start[:1] == b"{":
            return payload
        if start in (b"", b"null"):
            return b"{}"
        first = next(iter(self.own.parameters.values()), None)
        if first is None or first.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
            raise InvalidInput("payload", f"task {self._name} takes no argument by position. Send an object, by name.")
        value = b"[%b]" % payload if first.kind is Parameter.VAR_POSITIONAL else payload
        return b"{%b:%b}" % (msgspec.json.encode(first.name), value)

    @cached_property
    def _form(self) -> _Form:
        return _Form(self.own, self.hints)

    def _misfit(self, error: Exception) -> InvalidInput:
        text = str(error)
        if found := _MISSING.fullmatch(text):
            return InvalidInput(found["name"], f"task {self._name} needs this argument.")
        if found := _UNKNOWN.fullmatch(text):
            takes = ", ".join(self.own.parameters) or "none"
            return InvalidInput(found["name"], f"task {self._name} has no such argument; it takes {takes}.")
        if found := _AT.fullmatch(text):
            name = re.split(r"[.\[]", found["path"], maxsplit=1)[0]
            kind = values.shown_type(self.hints.get(name, Any))
            return InvalidInput(found["path"], f"{found['problem']}; task {self._name} wants {kind}.")
        return InvalidInput("payload", f"it does not fit task {self._name}: {text}.")


class _Form:
    """The parameters as one struct, so that a payload is read in one go."""

    def __init__(self, signature: inspect.Signature, hints: Mapping[str, Any]) -> None:
        self._named = [parameter for parameter in signature.parameters.values() if parameter.kind in _BY_NAME]
        self._list = _only(signature, Parameter.VAR_POSITIONAL)
        self._rest = _only(signature, Parameter.VAR_KEYWORD)
        fields: list[Any] = []
        names = {}
        for parameter in [*self._named, *filter(None, [self._list])]:
            kind = hints.get(parameter.name, Any)
            if parameter is self._list:
                kind = list[kind]  # type: ignore[valid-type]
            values.decoder(kind, parameter.name)
            # Fields are numbered: a parameter may be called like something that every struct has.
            field = f"p{len(fields)}"
            names[field] = parameter.name
            if parameter is self._list or parameter.default is not Parameter.empty:
                fields.append((field, Union[kind, UnsetType], UNSET))  # noqa: UP007  (not every type has `|`)
            else:
                fields.append((field, kind))
        rest = hints.get(self._rest.name, Any) if self._rest else Any
        self._rest_kind = dict[str, rest]  # type: ignore[valid-type]
        form = msgspec.defstruct("Payload", fields, rename=names, kw_only=True, forbid_unknown_fields=True)
        self._kind = form
        self._decode = values.decoder(form, "payload").decode
        self._defaults = [parameter.default for parameter in self._named]
        self._simple = (
            self._rest is None
            and self._list is None
            and all(parameter.kind is not Parameter.KEYWORD_ONLY for parameter in self._named)
        )

    def read(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments."""
        rest: dict[str, Any] = {}
        if self._rest is None:
            form = self._decode(payload)
        else:
            rest = msgspec.json.decode(payload)
            names = [parameter.name for parameter in [*self._named, *filter(None, [self._list])]]
            known = {name: rest.pop(name) for name in names if name in rest}
            form, rest = values.convert(known, self._kind), values.convert(rest, self._rest_kind)
        found = msgspec.structs.astuple(form)
        given = [usual if value is UNSET else value for usual, value in zip(self._defaults, found, strict=False)]
        if self._simple:
            return given, rest
        by_name = {
            parameter.name: value
            for parameter, value in zip(self._named, given, strict=True)
            if parameter.kind is Parameter.KEYWORD_ONLY
        }
        args = given[: len(given) - len(by_name)]
        if self._list is not None and found[-1] is not UNSET:
            args += found[-1]
        return args, rest | by_name


class _Annotated:
    """Something with one annotation, for `get_type_hints`."""

    def __init__(self, annotation: str) -> None:
        self.__annotations__ = {"value": annotation}


def _only(signature: inspect.Signature, kind: Any) -> Parameter | None:
    return next((parameter for parameter in signature.parameters.values() if parameter.kind is kind), None)


def _is_context(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Context)
