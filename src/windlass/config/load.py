"""Load the settings: flags before environment before `windlass.toml` before the shipped file. No global state.

The same flags, environment and files give the same settings; whoever calls hands in all three.
What cannot be accepted is one error with the key, the value and where it came from, never a traceback.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from windlass.config.check import check, derive, value_of, warnings
from windlass.config.keys import (
    KEYS,
    OLD_VARIABLES,
    RETRIES,
    SAME,
    SECRETS,
    SHORT_VARIABLES,
    WORK_KINDS,
    Key,
    convert,
    kind_key,
    nearest,
    printable,
    shown,
    variable_of,
)
from windlass.config.redact import any_form, whole_url
from windlass.config.settings import Section, Settings
from windlass.config.workkinds import FIELDS, WorkKind
from windlass.errors import InvalidInput, SetupError

FILE_NAME = "windlass.toml"
MAX_FILE_BYTES = 1_048_576
DEFAULT_FILE = Path(__file__).parent / "default.toml"

_OURS = "WINDLASS_"
_NOT_SETTINGS = re.compile(r"WINDLASS_(CONFIG|HYPOTHESIS_PROFILE|TEST_.*)")
# What Kubernetes sets in every pod for a Service whose name begins with windlass.
_SERVICE_LINK = re.compile(
    r"WINDLASS(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.*")


class Given(msgspec.Struct, frozen=True):
    """A value as somebody gave it, and who."""

    value: object
    source: str


class Loaded(msgspec.Struct, frozen=True):
    """The settings, where each came from by key, and what is allowed but weak."""

    settings: Settings
    sources: dict[str, str]
    warnings: tuple[str, ...] = ()


def load(flags: Mapping[str, object], environment: Mapping[str, str], directory: Path) -> Loaded:
    """Return the settings; InvalidInput or SetupError names what cannot be accepted and its source.

    `flags` are by key (`server.port`), None where not given; `config` is the path of the file.
    `directory` is where relative paths begin.
    """
    path, required = _file_path(flags, environment, directory)
    shown_path = _shown_path(str(path.relative_to(directory) if path.is_relative_to(directory) else path))
    in_file = _from_file(path, shown_path) if required or os.path.lexists(path) else {}
    layers = (
        _from_file(DEFAULT_FILE, "default"),
        in_file,
        _from_old_names(environment),
        _from_environment(environment, directory),
        _from_flags(flags),
    )
    given: dict[str, Given] = {}
    for layer in layers:
        given.update(layer)
    settings = _build(
        {name: convert(_key(name, found.source), found.value, found.source) for name, found in given.items()}
    )
    settings, derived = derive(settings, {name for name, found in given.items() if found.source != "default"})
    sources = {name: given[name].source if name in given else "default" for name in flat(settings)} | derived
    check(settings, sources)
    weak = [*warnings(settings), *_open_to_all(path, shown_path, in_file)]
    return Loaded(settings, sources, tuple(weak))


def flat(settings: Settings) -> dict[str, object]:
    """Return every key with its value, in the order of the sections."""
    kinds = {
        f"{WORK_KINDS}.{kind}.{written}": getattr(fields, field)
        for kind, fields in settings.work_kinds.items()
        for written, field in FIELDS.items()
    }
    return {name: value_of(settings, name) for name in KEYS} | kinds


def _key(name: str, source: str) -> Key:
    return KEYS[name] if name in KEYS else kind_key(name, source)


def _build(values: Mapping[str, Any]) -> Settings:
    sections: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    for name, value in values.items():
        section, _, field = name.rpartition(".")
        if section.startswith(f"{WORK_KINDS}."):
            kinds.setdefault(section.removeprefix(f"{WORK_KINDS}."), {})[FIELDS[field]] = value
        elif section:
            sections.setdefault(section, {})[field] = value
        else:
            sections[field] = value
    default = Settings(work_kinds={kind: WorkKind(**fields) for kind, fields in kinds.items()})
    changed = {
        name: msgspec.structs.replace(getattr(default, name), **value) if isinstance(value, dict) else value
        for name, value in sections.items()
    }
    return msgspec.structs.replace(default, **changed)


def _file_path(flags: Mapping[str, object], environment: Mapping[str, str], directory: Path) -> tuple[Path, bool]:
    """Return where the file is, and whether somebody named it, so that it must be there."""
    named = flags.get("config") or environment.get("WINDLASS_CONFIG")
    if named is not None and "\x00" in str(named):
        raise InvalidInput("config", "the path has a NUL character.")
    return (directory / str(named), True) if named else (directory / FILE_NAME, False)


def _from_file(path: Path, source: str) -> dict[str, Given]:
    try:
        tables = tomllib.loads(_read(path, source))
    except (ValueError, RecursionError) as error:  # also numbers too long for Python, and nesting too deep for it
        problem = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise SetupError(f"Cannot read {source}: it is not TOML: {problem}. Correct it and try again.") from None
    names = [*KEYS, *SAME, *(f"{name}_file" for name in SECRETS)]
    found: dict[str, Given] = {}
    for name, value in _leaves(tables, source):
        if name.startswith(f"{WORK_KINDS}."):
            found[kind_key(name, source).name] = Given(value, source)
            continue
        if name not in names:
            raise InvalidInput(printable(name), f"there is no such setting (in {source}); {nearest(name, names)}")
        key, given = _resolved(name, Given(value, source), path.parent)
        _add(found, key, given, name=f"{name} in {source}")
    return found


def _leaves(tables: Mapping[str, Any], source: str) -> Iterator[tuple[str, object]]:
    """Yield `section.name` and value; what is no section stands for itself."""
    for name, value in tables.items():
        if name == WORK_KINDS and isinstance(value, dict):
            for kind, fields in value.items():
                if not isinstance(fields, dict) or not fields:
                    raise InvalidInput(
                        printable(f"{name}.{kind}"),
                        f"a table with at least one of {', '.join(FIELDS)} is expected (in {source}).",
                    )
                yield from ((f"{name}.{kind}.{field}", item) for field, item in fields.items())
        elif isinstance(value, dict) and isinstance(getattr(Settings(), name, None), Section):
            yield from ((f"{name}.{field}", item) for field, item in value.items())
        else:
            yield name, value


def _resolved(name: str, given: Given, directory: Path) -> tuple[str, Given]:
    """Return the key that a name of a file leads to, with its value as the key has it."""
    if name.endswith("_file") and name.removesuffix("_file") in SECRETS:
        key = name.removesuffix("_file")
        return key, _secret(given, name, directory)
    key = SAME.get(name, name)
    return key, _one_more(given, name) if name in RETRIES else given


def _one_more(given: Given, name: str) -> Given:
    """Return a number of retries as a number of attempts: the first try is none."""
    value = given.value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1000:
        problem = f"{shown(name, value)} is not accepted (from {given.source}). Expected: a whole number to 999."
        raise InvalidInput(name, problem)
    return Given(value + 1, given.source)


def _secret(given: Given, name: str, directory: Path) -> Given:
    """Return what stands in the file that is named, without the newline at its end."""
    if not isinstance(given.value, str) or not given.value or "\x00" in given.value:
        raise InvalidInput(name, f"a path is expected (from {given.source}).")
    source = f"{given.source}: {_shown_path(given.value)}"
    text = _read(directory / given.value, source).rstrip("\r\n")
    if not text:
        raise SetupError(f"Cannot read {source}: it is empty. Write the secret into it.")
    return Given(text, source)


def _shown_path(path: str) -> str:
    """Return a path as it may stand in a message: it may be the secret itself, where a file was to be named."""
    return printable(any_form(path) if ":" in path or "@" not in path else path)


def _read(path: Path, source: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise SetupError(f"Cannot read {source}: it has more than 1 MiB. Is it the right file?")
        return content.decode("utf-8-sig")
    except OSError as error:
        problem = error.strerror or str(error)
        raise SetupError(f"Cannot read {source}: {problem}. Name a file that this user may read.") from None
    except UnicodeDecodeError as error:
        raise SetupError(f"Cannot read {source}: it is not UTF-8 at byte {error.start}. Save it as UTF-8.") from None


def _from_environment(environment: Mapping[str, str], directory: Path) -> dict[str, Given]:
    names = {variable_of(name): name for name in (*KEYS, *SAME)} | SHORT_VARIABLES
    names |= {f"{variable}_FILE": f"{key}_file" for variable, key in names.items() if key in SECRETS}
    found: dict[str, Given] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(_OURS) or _is_anothers(variable, value):
            continue
        if variable not in names:
            raise InvalidInput(printable(variable), f"there is no such setting; {nearest(variable, names)}")
        if value.strip():  # compose files set what is absent to an empty text
            key, given = _resolved(names[variable], Given(value, variable), directory)
            _add(found, key, given, name=variable)
    return found


def _is_anothers(variable: str, value: str) -> bool:
    if _NOT_SETTINGS.fullmatch(variable) or _SERVICE_LINK.fullmatch(variable):
        return True
    return variable.endswith("_PORT") and _SERVICE_URL.fullmatch(value) is not None


def _from_old_names(environment: Mapping[str, str]) -> dict[str, Given]:
    found: dict[str, Given] = {}
    for variable, key in OLD_VARIABLES.items():
        value = environment.get(variable, "")
        if value.strip() and key not in found:
            given = Given(value, variable)
            found[key] = _one_more(given, variable) if variable in RETRIES else given
    return found


def _from_flags(flags: Mapping[str, object]) -> dict[str, Given]:
    found = {}
    for name, value in flags.items():
        if name != "config" and value is not None:
            if name not in KEYS:
                raise InvalidInput(name, f"there is no such setting (from the command line); {nearest(name, KEYS)}")
            found[name] = Given(value, "command line")
    return found


def _add(found: dict[str, Given], key: str, given: Given, *, name: str) -> None:
    if key in found and found[key].value != given.value:
        raise InvalidInput(key, f"set twice and differently, the second time by {name}. Keep one of them.")
    found[key] = given


def _open_to_all(path: Path, source: str, in_file: Mapping[str, Given]) -> list[str]:
    """Return a warning if the file itself has a secret and everyone on the machine may read it."""
    held = [key for key in sorted(SECRETS & in_file.keys()) if in_file[key].source == source]
    held = [key for key in held if not key.endswith("url") or whole_url(str(in_file[key].value)) != in_file[key].value]
    if not held or not path.stat().st_mode & stat.S_IROTH:  # it was read a moment ago
        return []
    return [f"{source} has {held[0]} and everyone on this machine may read it: chmod 600, or use {held[0]}_file."]
