"""Queries of tests, written as those of the product are."""

from __future__ import annotations

from pathlib import Path

from windlass.db import Queries, Query


def parse(text: str, *, origin: str) -> dict[str, Query]:
    """Return the queries of a text by name; SqlFileError where one breaks the rules."""
    return {query.name: query for query in Queries(Path(origin), text)}
