"""Crontabs, read as cron reads them: lines, variables, `%`, and the name that each line keeps. Pure.

A line asks for a time and a command; `windlass schedules import crontab` (importing.py) makes schedules of them.
Nothing is guessed: a line that cron would refuse, or that means something only on the machine where cron runs, is
refused here with its number and the reason. Whether a time can ever come is decided in queue/cron/.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from windlass.errors import InvalidInput
from windlass.queue.cron import Cron, check_trigger, check_zone

MAX_BYTES = 4 * 1024 * 1024
MAX_LINE = 10_000
"""Characters; cron itself takes a thousand."""
ZONE = "CRON_TZ"
CLOCK_OF_COMMANDS = "TZ moves no times, here as in cron: commands see it. Say CRON_TZ to move the lines below."
IGNORED = {
    "MAILTO": "Windlass sends no mail; what a command writes is in the log of its job",
    "MAILFROM": "Windlass sends no mail",
    "CONTENT_TYPE": "Windlass sends no mail",
    "CONTENT_TRANSFER_ENCODING": "Windlass sends no mail",
    "RANDOM_DELAY": "give schedules a jitter instead",
}
_VARIABLE = re.compile(r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s='"]+))\s*=\s*(?P<value>.*)""")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")
_BLANKS = re.compile(r"[ \t]+")
_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line that asks for a command."""

    line: int
    expression: str
    zone: str
    command: str
    """As the shell gets it."""
    stdin: str | None = None
    """What follows the first `%`."""
    user: str | None = None
    env: Mapping[str, str] = {}
    raw: str
    """Times, user and command as they stand in the file: what its name is made of."""

    @property
    def payload(self) -> dict[str, Any]:
        """What its task is called with; what the line does not say is left out."""
        found: dict[str, Any] = {"command": self.command}
        if self.stdin is not None:
            found["stdin"] = self.stdin
        if self.user is not None:
            found["user"] = self.user
        if self.env:
            found["env"] = dict(self.env)
        return found


class Remark(msgspec.Struct, frozen=True):
    """Something to say about a line."""

    line: int
    text: str


class Crontab(msgspec.Struct, frozen=True, kw_only=True):
    """What a file asks for."""

    entries: list[Entry]
    refused: list[Remark]
    """Lines that cannot be taken, and why."""
    ignored: list[Remark]
    """Lines that are taken and change nothing here, and what looks like a mistake."""


def read_crontab(content: bytes, *, zone: str, is_system: bool = False) -> Crontab:
    """Return what a crontab asks for; `zone` holds until it names one itself, `is_system`: its lines name a user."""
    check_zone(zone)
    if len(content) > MAX_BYTES:
        raise InvalidInput("crontab", f"it has {len(content):,} bytes; {MAX_BYTES:,} are read at most. Split it.")
    found = Crontab(entries=[], refused=[], ignored=[])
    reader = _Reader(zone, is_system=is_system)
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            said = reader.read(number, _text(line))
        except InvalidInput as error:
            found.refused.append(Remark(number, error.problem))
            continue
        if isinstance(said, Entry):
            found.entries.append(said)
            if not is_system and said.command.startswith("root "):
                hint = "the command begins with `root`. If that is a user, as in /etc/crontab, say --system."
                found.ignored.append(Remark(number, hint))
        elif said is not None:
            found.ignored.append(Remark(number, said))
    return found


def names(entries: Sequence[Entry], prefix: str) -> list[str]:
    """Return a name for each: the same line has the same name in every import; a second one like it a number more."""
    seen = Counter[str]()
    found = []
    for entry in entries:
        first = entry.command.split(maxsplit=1)[0].rpartition("/")[2]
        slug = _SLUG.sub("-", first).strip("-.")[:40] or "command"
        digest = hashlib.blake2b(entry.raw.encode(), digest_size=5).hexdigest()
        name = f"{prefix}{slug}-{digest}"
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def split_percent(text: str) -> tuple[str, str | None]:
    r"""Return a command and its stdin as cron parts them: at the first `%`; later ones are line breaks, `\%` is `%`."""
    command, rest = "", None
    escaped = False
    for place, letter in enumerate(text):
        if escaped and letter == "%":
            command = command[:-1] + letter
        elif letter == "%":
            rest = text[place + 1 :]
            break
        else:
            command += letter
        escaped = not escaped and letter == "\\"
    return command, None if rest is None else "".join(_stdin(rest))


def _stdin(text: str) -> Iterator[str]:
    escaped, last = False, "\n"
    for letter in text:
        if escaped and letter != "%":
            yield "\\"
        shown = "\n" if letter == "%" and not escaped else letter
        escaped = letter == "\\"
        if not escaped:
            last = shown
            yield shown
    if escaped:
        yield "\\"
    if escaped or last != "\n":
        yield "\n"


class _Reader:
    """Reads lines in order, for a variable holds for the lines below it."""

    def __init__(self, zone: str, *, is_system: bool) -> None:
        self._first_zone = self._zone = zone
        self._lost_zone: int | None = None
        self._is_system = is_system
        self._env: dict[str, str] = {}

    def read(self, number: int, line: str) -> Entry | str | None:
        """Return what a line asks for, or why it changes nothing, or None; InvalidInput says what is wrong."""
        text = line.lstrip(" \t")
        if not text.strip() or text.startswith("#"):
            return None
        if variable := _VARIABLE.fullmatch(text):
            return self._set(number, variable)
        return self._entry(number, text)

    def _set(self, number: int, variable: re.Match[str]) -> str | None:
        name = variable["double"] or variable["single"] or variable["bare"]
        if not name:
            raise InvalidInput("crontab", "the variable has no name.")
        value = _unquoted(variable["value"])
        if name in IGNORED:
            return f"{name} is ignored: {IGNORED[name]}."
        if name != ZONE:
            self._env[name] = value
            return CLOCK_OF_COMMANDS if name == "TZ" else None
        self._lost_zone = number
        zone = value.removeprefix(":")
        if zone:
            check_zone(zone)
        self._zone, self._lost_zone = zone or self._first_zone, None
        return None

    def _entry(self, number: int, text: str) -> Entry:
        count = (1 if text.startswith("@") else 5) + self._is_system
        *fields, command = _BLANKS.split(text, count)
        if len(fields) < count or not command:
            asked = "a user and a command" if self._is_system else "a command"
            raise InvalidInput("crontab", f"{_short(text)} is neither a time followed by {asked} nor NAME=value.")
        user = fields.pop() if self._is_system else None
        expression = " ".join(fields)
        if expression.lower() == "@reboot":
            raise InvalidInput("crontab", "@reboot is no time: a schedule does not know when a machine starts.")
        if self._lost_zone is not None:
            raise InvalidInput("crontab", f"its zone is that of line {self._lost_zone}, which cannot be taken.")
        check_trigger(Cron(expression, self._zone))
        if user is not None and not _USER.fullmatch(user):
            raise InvalidInput("crontab", f"{_short(user)} is no user. Leave --system out if lines name none.")
        run, stdin = split_percent(command)
        if not run.strip():
            raise InvalidInput("crontab", "there is no command before the first %.")
        return Entry(
            line=number,
            expression=expression,
            zone=self._zone,
            command=run,
            stdin=stdin,
            user=user,
            env=dict(self._env),
            raw="\0".join((expression, user or "", command)),
        )


def _text(line: bytes) -> str:
    try:
        text = line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("crontab", f"byte {error.start + 1} of the line is not UTF-8.") from None
    if len(text) > MAX_LINE:
        raise InvalidInput("crontab", f"it has {len(text):,} characters; {MAX_LINE:,} are read at most.")
    for place, letter in enumerate(text, 1):
        if letter != "\t" and not letter.isprintable() and ord(letter) < 0xA0:
            raise InvalidInput("crontab", f"character {place} of the line is a control character, {letter!r}.")
    return text


def _unquoted(text: str) -> str:
    value = text.rstrip(" \t")
    if not value.startswith(('"', "'")):
        return value
    if len(value) < 2 or value[0] != value[-1] or value[0] in value[1:-1]:
        raise InvalidInput("crontab", f"{_short(value)} begins with a quote and does not end with it.")
    return value[1:-1]


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
