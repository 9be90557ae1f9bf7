"""What servers say of themselves, and of the whole."""

from __future__ import annotations

from typing import Literal

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this server can do its work."""

    status: Literal["ok", "unavailable"]
    reasons: list[str] = []
    """Why it cannot."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """What runs here."""

    name: Literal["windlass"] = "windlass"
    version: str
    api: list[str]
