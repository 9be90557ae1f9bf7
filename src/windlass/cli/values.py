"""Values on the command line: durations, instants, URLs of databases, JSON."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from windlass.config.redact import whole_url
from windlass.durations import parse_duration
from windlass.errors import InvalidInput


class DurationType(click.ParamType[float]):
    """A span such as 90s or 1h30m; as a value, its seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            return parse_duration(value)
        except InvalidInput as error:
            self.fail(error.problem, param, ctx)


class InstantType(click.ParamType[str]):
    """A time with its zone, such as 2027-01-31T12:00:00Z; as a value, that text."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as RFC 3339 has it."""
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            instant = None
        if instant is None or instant.tzinfo is None:
            self.fail(f"{value!r} is no time like 2027-01-31T12:00:00Z.", param, ctx)
        return instant.isoformat()


class DatabaseURLType(click.ParamType[str]):
    """The URL of a database, without a password: the list of processes shows it to every user, and to tasks."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the URL; what else may be wrong with it is found where it is opened."""
        if "://" in value and whole_url(value) != value:
            self.fail(
                "it has a password, which every user of this machine can read in the list of processes. Set "
                "WINDLASS_DATABASE_URL or WINDLASS_DATABASE_URL_FILE instead, or leave the password to PGPASSFILE.",
                param,
                ctx,
            )
        return str(value)


DURATION = DurationType()
DATABASE_URL = DatabaseURLType()
INSTANT = InstantType()


def payload_of(text: str) -> msgspec.Raw:
    """Return the JSON that is meant: the text itself, `-` for what stdin has, `@path` for what a file has."""
    if text == "-":
        content = sys.stdin.buffer.read()
    elif text.startswith("@"):
        content = read_bytes(text[1:])
    else:
        content = text.encode(errors="surrogateescape")
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        raise click.UsageError(
            f"The payload {shown!r} is not JSON: {error}. In a shell write it in single quotes: '{{\"x\": 1}}'."
        ) from None
    return msgspec.Raw(content)


def read_bytes(path: str) -> bytes:
    """Return what a file has; a usage error if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise click.UsageError(f"Cannot read {path}: {error.strerror}.") from None


def read_input(path: str) -> bytes:
    """Return what a file has, or stdin for `-`; a usage error if it cannot be read."""
    return sys.stdin.buffer.read() if path == "-" else read_bytes(path)


def opened_file(path: str) -> IO[bytes]:
    """Return a file to read, or stdin for `-`; a usage error if it cannot be read."""
    try:
        file: IO[bytes] = click.open_file(path, "rb")
    except OSError as error:
        raise click.UsageError(f"Cannot read {path}: {error.strerror}. Name a file, or - for stdin.") from None
    return file
