"""Redaction: what must not be seen is hidden by its name, wherever it is shown. Pure.

Used by the log, by `windlass config show`, and by answers that show a job's arguments.
Too much hidden is a nuisance, too little is a leak: in doubt it hides.
Callers choose the texts, so each is read in a time that grows with its length and no faster: no expression here looks
at a character again for every place it may have begun at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
MAX_DEPTH = 64
MAX_KNOWN = 1000
"""Names whose verdict is kept: those of our own fields, and not all that callers can think of."""
LONGEST_KNOWN = 100

SECRET_NAMES = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "api_key",
    "access_key",
    "private_key",
    "bootstrap_key",
    "client_key",
    "credential",
    "authorization",
    "cookie",
    "session_key",
    "signature",
)

_URL = re.compile(r"(://[^\s:/@]{0,256}:)(\S*+)")
_USER = re.compile(r"[^\s/@]{0,256}")
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^:]*)(?::[0-9]*)?")
# From the beginning to the last @, also one that is written as in a URL.
_TO_LAST_AT = re.compile(r"\A('?(?:\W*[a-z]{1,12}://)?).*(?:@|%40)", re.DOTALL)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s++[\w.~+/=-]{4,}")
_VALUE = re.compile(r"""\\?"[^"]*+"?|'[^']*+'?|[^\s"',;&})\]]++""")
# An id, a number or a word: most of what is logged, and nothing in it to hide.
_HARMLESS = re.compile(r"(?!wl_)[\w.-]{0,64}")
# The key's id, before the second underscore, is public.
_OWN_KEY = re.compile(r"\b(wl_[a-zA-Z0-9]+_)[\w-]+")


def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


class Redactor:
    """Hides values whose names contain one of the patterns, without regard to case, `-` and `_`."""

    def __init__(self, patterns: Iterable[str] = SECRET_NAMES) -> None:
        self._patterns = tuple(filter(None, map(_plain, patterns)))
        self._known: dict[str, bool] = {}
        # A pattern may have other characters than most names; what parts a name from its value is never one of them.
        odd = "".join(sorted({c for c in "".join(self._patterns) if not c.isalnum()} - set("=:\"'\\")))
        letter = rf"[\w{re.escape(odd)}-]"
        self._name = re.compile(rf"""(?<!{letter})({letter}++)\\?["']?\s*+[=:]\s*+""")

    def hides(self, name: str) -> bool:
        """Say whether what stands under this name is hidden."""
        known = self._known.get(name)
        if known is None:
            known = self._holds_name(name)
            if len(self._known) < MAX_KNOWN and len(name) <= LONGEST_KNOWN:
                self._known[name] = known
        return known

    def _holds_name(self, text: str) -> bool:
        return any(map(_plain(text).__contains__, self._patterns))  # no generator: a text may have thousands of names

    def text(self, text: str) -> str:
        """Return the text without the secrets that can be told: in URLs, after names, bearer tokens, our keys."""
        if _HARMLESS.fullmatch(text):
            return text
        text, folded = url(text), text.casefold()
        # To look for a word is ten times faster than to look for what may follow it.
        if "bearer" in folded or "basic" in folded:
            text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        if "wl_" in text:
            text = _OWN_KEY.sub(rf"\1{HIDDEN}", text)
        return self._named(text)

    def _named(self, text: str) -> str:
        """Return the text without the values that follow a hidden name."""
        if not self._holds_name(text):
            return text
        parts: list[str] = []
        done = 0
        for found in self._name.finditer(text):
            start, end = found.span()
            if start >= done and self.hides(found[1]) and (value := _VALUE.match(text, end)):
                parts += (text[done:end], HIDDEN)
                done = value.end()
        return "".join((*parts, text[done:]))

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON-like value in which everything under a hidden name is hidden, at any depth."""
        if depth > MAX_DEPTH:
            return HIDDEN
        # The kinds of JSON first: to find that a text is no Mapping takes as long as to redact a short one.
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item, depth + 1) for item in value]
        if isinstance(value, Mapping):
            return {key: HIDDEN if self.hides(str(key)) else self.value(item, depth + 1) for key, item in value.items()}
        return [self.value(item, depth + 1) for item in value] if isinstance(value, tuple) else value


def url(text: str) -> str:
    """Return the text with the passwords of its URLs hidden."""
    return _URL.sub(_without_password, text)


def whole_url(text: str) -> str:
    """Return a text that is one URL with its password hidden, whatever characters that has."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return HIDDEN
    if "@" in rest.partition("?")[2]:
        return f"{scheme}://{HIDDEN}"  # an @ of the password or of an option: which, cannot be told
    place, asked, options = rest.partition("?")
    who, at, where = place.rpartition("@")
    if at and not place.startswith("/"):  # else a file
        name, colon, _ = who.partition(":")
        place = f"{name}{colon and f':{HIDDEN}'}@{where}" if _USER.fullmatch(name) else f"{HIDDEN}@{where}"
    elif not at:
        hosts = place.partition("/")[0]
        if not all(map(_HOST.fullmatch, hosts.split(","))):
            place = f"{hosts.partition(':')[0]}:{HIDDEN}"  # a password; its host was forgotten
    return f"{scheme}://{place}{asked}{'&'.join(map(_option, options.split('&')))}"


def any_form(text: str) -> str:
    """Return a text that may hold a URL, however wrongly it is written, without what may be its user or a secret."""
    return _SECRETS.text(_TO_LAST_AT.sub(lambda found: f"{found[1]}{HIDDEN}@", text))


def _option(text: str) -> str:
    name, given, _ = text.partition("=")
    return f"{name}={HIDDEN}" if given and _SECRETS.hides(name) else text


def _without_password(found: re.Match[str]) -> str:
    # To the last @, so that an unescaped @ or / in a password is hidden too.
    _, at, host = found[2].rpartition("@")
    return f"{found[1]}{HIDDEN}@{host}" if at else found[0]


_SECRETS = Redactor()
