"""Duties that are parts of one, as `fire-0`, `fire-1`, …, and how people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"(.+)-\d+")


def grouped(names: Iterable[str], *, among: Iterable[str]) -> dict[str, list[str]]:
    """Return how to call these duties, with the names behind each: parts of one are told together.

    `among` are all duties there are, so that `fire (3 of 16 shards)` says how many of them these are.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_whole(name), []).append(name)
    totals: dict[str, int] = {}
    for name in among:
        totals[_whole(name)] = totals.get(_whole(name), 0) + 1
    return {
        whole if parts == [whole] else f"{whole} ({len(parts)} of {totals.get(whole, len(parts))} shards)": parts
        for whole, parts in found.items()
    }


def _whole(name: str) -> str:
    part = _PART.fullmatch(name)
    return part[1] if part else name
