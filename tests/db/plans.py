"""Plans of PostgreSQL: the real statement, explained on a connection with the real settings, and what it read.

plan = await explained(connection, SQL.claim, wants=…, slots=…)
plan.read("queue")        rows that scans of `queue` gave, by the index they used
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg

from tests.clock import START
from windlass.db import Query
from windlass.db.postgres import HOT_SETTINGS, READ_SETTINGS

Connection: TypeAlias = "asyncpg.Connection[Any]"
Node = dict[str, Any]
CLOCK = {"windlass.now": START.isoformat()}


@dataclass(frozen=True)
class Plan:
    """An executed plan."""

    root: Node

    def nodes(self) -> Iterator[Node]:
        """Yield every node, CTEs and subplans included."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])

    def read(self, table: str) -> Counter[str]:
        """Return how many rows of a table scans have given or thrown away, by the index they used."""
        found: Counter[str] = Counter()
        for node in self.nodes():
            if whole(node.get("Relation Name", "")) == table and node["Node Type"] != "ModifyTable":
                found[whole(str(node.get("Index Name", node["Node Type"])))] += round(
                    (node["Actual Rows"] + removed(node)) * node["Actual Loops"]
                )
        return found

    def most_rows_per_loop(self, index: str) -> float:
        """Return the most rows that one pass over an index gave or threw away."""
        return max(
            float(node["Actual Rows"] + removed(node)) for node in self.nodes() if node.get("Index Name") == index
        )

    def most_rows(self) -> int:
        """Return the greatest number of rows that any node gave or threw away, sorts and joins included."""
        return max(int((node["Actual Rows"] + removed(node)) * node["Actual Loops"]) for node in self.nodes())

    def removed(self) -> int:
        """Return how many rows of tables were read and thrown away."""
        return int(sum(removed(n) * int(n["Actual Loops"]) for n in self.nodes() if "Relation Name" in n))

    def kinds(self, *tables: str) -> set[str]:
        """Return the ways in which these tables were scanned, partitions that were left out not counted."""
        return {
            node["Node Type"]
            for node in self.nodes()
            if whole(node.get("Relation Name", "")) in tables
            and node["Node Type"] != "ModifyTable"
            and node["Actual Loops"]
        }

    def blocks(self) -> int:
        """Return how many pages it looked at."""
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])


def whole(name: str) -> str:
    """Return the name of what a partition of `job`, or its index, is a part of."""
    return re.sub(r"^job_(old|[0-9]{8})", "job", name)


def removed(node: Node) -> float:
    """Return the rows that a node has thrown away, per loop."""
    return float(
        node.get("Rows Removed by Filter", 0)
        + node.get("Rows Removed by Join Filter", 0)
        + node.get("Rows Removed by Index Recheck", 0)
    )


@asynccontextmanager
async def hot(url: str, **settings: str) -> AsyncIterator[Connection]:
    """Open a connection with the settings of those that write."""
    connection: Connection = await asyncpg.connect(url, server_settings={**HOT_SETTINGS, **CLOCK, **settings})
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Connection]:
    """Open a connection with the settings of those that read."""
    settings = READ_SETTINGS | CLOCK | {"default_transaction_read_only": "off"}
    connection: Connection = await asyncpg.connect(url, server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


async def explained(connection: Connection, query: Query, **parameters: Any) -> Plan:
    """Run a query as the product would, and undo it; return its plan with what it really read."""
    assert parameters.keys() == query.parameters
    text, slots = query.postgres
    values = [
        parameters[name] if column is None else [row[column] for row in parameters[name]] for name, column in slots
    ]
    prepared = await connection.prepare(text)
    arguments = f"({', '.join(map(literal, values))})" if values else ""
    transaction = connection.transaction()
    await transaction.start()
    try:
        # By the statement's name, because only so the setting for generic plans counts.
        answer = await connection.fetchval(
            f'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE "{prepared.get_name()}"{arguments}'
        )
    finally:
        await transaction.rollback()
    return Plan(json.loads(answer)[0]["Plan"])


def literal(value: Any) -> str:
    """Return a value as SQL, without a type: the prepared statement knows it."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "'{" + ",".join("NULL" if element is None else f'"{element}"' for element in value) + "}'"
    return f"'{value}'"
