"""The keys of the settings: their names everywhere, and how a value becomes one of theirs. Pure.

A key is `section.name`; its variable is WINDLASS_SECTION_NAME. Aliases and the names of older systems lead to a key.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from windlass.config.redact import HIDDEN, any_form, whole_url
from windlass.config.settings import Name, Section, Settings
from windlass.config.workkinds import FIELD_DEFAULTS, FIELD_TYPES
from windlass.durations import parse_duration
from windlass.errors import InvalidInput

WITHOUT_EFFECT = {
    "database.replica_url": "all reads go to database.url. Take it out.",
    "worker.region": "no job is routed by region. Take it out, and route by worker.labels, which jobs ask for.",
    "security.tls_client_ca": "workers, programs and commands of Windlass cannot show a certificate. Take it out, and "
    "demand keys (security.keys_required), or let a proxy ask for certificates.",
}
"""Settings that somebody may expect, and why there are none."""
SECRETS = frozenset({"database.url", "security.bootstrap_key", "client.key"})
"""Keys that may be given by a file of their own; what can be read of them is redacted."""

SAME = {
    "worker.dead_after_seconds": "worker.lease_seconds",
    "workers.lease_timeout_seconds": "worker.lease_seconds",
    "retry.base": "retry.base_seconds",
    "jobs.max_retries": "jobs.max_attempts",
}
"""Other names of a key, in files and variables alike; `max_retries` is one less than `max_attempts`."""
RETRIES = frozenset({"jobs.max_retries", "JOB_MAX_RETRIES"})

SHORT_VARIABLES = {"WINDLASS_KEY": "client.key", "WINDLASS_URL": "server.url"}
OLD_VARIABLES = {
    "WORKER_ID": "worker.id",
    "SERVER_URL": "server.url",
    "WORKER_THREADS": "worker.threads",
    "WORKER_POLL_INTERVAL": "worker.poll_interval_seconds",
    "POLL_INTERVAL": "worker.poll_interval_seconds",
    "MODE": "mode",
    "VERSION": "worker.version",
    "JOB_MAX_RETRIES": "jobs.max_attempts",
    "JOB_HEARTBEAT_TIMEOUT": "jobs.lease_seconds",
    "QUEUE_DEPTH_WARNING_THRESHOLD": "queue.depth_warning",
}
"""Names of older systems, the more particular of two first."""

WORK_KINDS = "work_kinds"

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BOOLS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


class Key(msgspec.Struct, frozen=True):
    """One setting: its name, the type of its values, and what it is when nobody sets it."""

    name: str
    type: Any
    default: Any

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return variable_of(self.name)

    @property
    def is_span(self) -> bool:
        """Whether its values may be written as durations."""
        return self.name.endswith(("_seconds", ".duration"))


def variable_of(name: str) -> str:
    """Return the environment variable of a key or alias."""
    return "WINDLASS_" + name.replace(".", "_").upper()


def _keys() -> Iterator[Key]:
    for name, kind in typing.get_type_hints(Settings, include_extras=True).items():
        default = getattr(Settings(), name)
        if isinstance(default, Section):
            types = typing.get_type_hints(kind, include_extras=True)
            yield from (Key(f"{name}.{field}", types[field], getattr(default, field)) for field in types)
        elif name != WORK_KINDS:
            yield Key(name, kind, default)


KEYS = {key.name: key for key in _keys()}
"""All settings but those of work kinds, which have names of their users' choice."""


def kind_key(name: str, source: str) -> Key:
    """Return the key `work_kinds.KIND.FIELD`; InvalidInput if there is no such field, or the kind has no good name."""
    _, _, rest = name.partition(".")
    kind, _, field = rest.rpartition(".")
    if field not in FIELD_TYPES:
        raise InvalidInput(printable(name), f"there is no such setting (in {source}); {nearest(field, FIELD_TYPES)}")
    convert(Key(printable(f"{WORK_KINDS}.{kind}"), Name, None), kind, source)
    return Key(name, FIELD_TYPES[field], FIELD_DEFAULTS[field])


def printable(name: str) -> str:
    """Return a name from outside as it may stand in a message: without control characters, and short."""
    return name if name.isprintable() and len(name) <= 200 else repr(name[:200])


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names the known name most like this one."""
    for key, why in WITHOUT_EFFECT.items():
        if name in (key, variable_of(key)):
            return why
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else "`windlass config show` lists all there are."


def convert(key: Key, value: object, source: str) -> Any:
    """Return the value as the key's type; InvalidInput says what was given where, and what is expected."""
    kinds = set(_kinds(inspect.type_info(key.type)))
    candidate = _read(value, kinds, is_span=key.is_span)
    if _has_control(candidate):
        problem = f"{shown(key.name, value)} has a control character, or is not UTF-8"
    else:
        try:
            return msgspec.convert(candidate, type=key.type)  # every number has bounds, so that NaN has no way in
        except (msgspec.ValidationError, OverflowError):
            problem = f"{shown(key.name, value)} is not accepted"
    raise InvalidInput(key.name, f"{problem} (from {source}). Expected: {expected(key)}.")


def shown(name: str, value: object) -> str:
    """Return the value of a key as it may be shown: short, without secrets."""
    if name in SECRETS and value is not None:
        return any_form(repr(whole_url(str(value))))[:80] if name.endswith("url") else HIDDEN
    if isinstance(value, int) and abs(value) > 10**300:
        return "A number of hundreds of digits"  # Python refuses to write it out
    text = any_form(repr(value) if isinstance(value, str) else str(value))
    return text if len(text) <= 80 else f"{text[:80]}…"


def expected(key: Key) -> str:
    """Return in words which values the key takes."""
    words = _words(inspect.type_info(key.type))
    return f"{words}, or a duration such as 90s or 1h" if key.is_span else words


def _kinds(info: inspect.Type) -> Iterator[type[inspect.Type]]:
    if isinstance(info, inspect.Metadata):
        yield from _kinds(info.type)
    elif isinstance(info, inspect.UnionType):
        for member in info.types:
            yield from _kinds(member)
    else:
        yield type(info)


def _read(value: object, kinds: set[type[inspect.Type]], *, is_span: bool) -> object:
    """Return what a text stands for, if the key wants something else than text; anything else as it is."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if inspect.BoolType in kinds and text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if inspect.VarTupleType in kinds:
        return [item.strip() for item in text.split(",") if item.strip()]
    if inspect.IntType in kinds and _WHOLE.fullmatch(text):
        return int(text)
    if inspect.FloatType in kinds and _NUMBER.fullmatch(text):
        return float(text)
    if is_span:
        return _span(text, whole=inspect.FloatType not in kinds)
    return value


def _span(text: str, *, whole: bool) -> object:
    try:
        seconds = parse_duration(text)
    except InvalidInput:
        return text
    return int(seconds) if whole and seconds.is_integer() else seconds


def _has_control(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_control, value))
    return isinstance(value, str) and _CONTROL.search(value) is not None


def _words(info: inspect.Type) -> str:
    if isinstance(info, inspect.Metadata):
        title = (info.extra_json_schema or {}).get("title")
        return str(title) if title else _words(info.type)
    if isinstance(info, inspect.UnionType):
        return " or ".join(_words(member) for member in info.types if not isinstance(member, inspect.NoneType))
    if isinstance(info, inspect.LiteralType):
        return ", ".join(map(str, info.values[:-1])) + " or " * (len(info.values) > 1) + str(info.values[-1])
    if isinstance(info, inspect.VarTupleType):
        return f"a list, each {_words(info.item_type)}"
    if isinstance(info, inspect.IntType | inspect.FloatType):
        what = "a whole number" if isinstance(info, inspect.IntType) else "a number"
        low = f"above {_plain(info.gt)}" if info.gt is not None else f"from {_plain(info.ge)}"
        return f"{what} {low} to {_plain(info.le)}"
    return "true or false" if isinstance(info, inspect.BoolType) else "a text"


def _plain(number: float | None) -> str:
    return f"{number:.0f}" if float(number or 0).is_integer() else f"{number:g}"
