"""Attack a server, on SQLite and on PostgreSQL: prints what was found, and ends with 0 if nothing was, else with 1.

    python -m tests.fuzz [--requests 120000] [--document 10000] [--seed N] [--database URL] [--only PART]

At least so many hostile requests are sent, spread over the databases, and to the first one at least so many that
schemathesis makes from the server's own document. Without a database there are two: a SQLite file and a cluster of
PostgreSQL, both removed afterwards. The seed is another one each time, and printed.

It fails where an answer is 500 or above, comes more than 1 s after the wait that was asked for, or is a refusal
without a problem; where one callback holds the event loop for more than 50 ms of CPU; where the server's memory is more
than twice what it was before; where a reader that takes nothing is still there after 40 s; and where the server tells
of a fault of its own. Three parts ask for more at once than a server has a budget for: there 503 with Retry-After is an
answer. They are `costly` (computing), `lists` (rows) and `at once` (sixty bodies of 8 MiB).
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import cluster
from tests.fuzz.attack import PARTS, Attack
from tests.fuzz.run import target


def main(arguments: list[str]) -> int:
    """Attack each database; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--requests", type=int, default=120_000, help="hostile ones, at least  [default: 120000]")
    parser.add_argument("--document", type=int, default=10_000, help="made from the document  [default: 10000]")
    parser.add_argument("--seed", type=int, help="[default: another one each time]")
    parser.add_argument("--database", metavar="URL", help="an empty one  [default: SQLite, then PostgreSQL]")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part of it; may be given again")
    asked = parser.parse_args(arguments)
    seed = secrets.randbits(31) if asked.seed is None else asked.seed
    begun_s = time.monotonic()
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="windlass-fuzz-") as folder, databases(asked.database, folder) as urls:
        for number, url in enumerate(urls):
            kind = url.partition(":")[0]
            print(f"{kind}, seed {seed + number}", flush=True)
            share = -(-asked.requests // len(urls))
            # What the document says does not depend on the database.
            parts = [part for part in asked.only or PARTS if part != "document" or not number]
            place = Path(folder) / kind
            place.mkdir()
            faults += asyncio.run(
                _attack(url, place, requests=share, document=asked.document, seed=seed + number, only=parts)
            )
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults, in {time.monotonic() - begun_s:.0f} s.")
    return 1 if faults else 0


@contextmanager
def databases(given: str | None, folder: str) -> Iterator[list[str]]:
    """Give the URLs of empty databases, for a block."""
    if given is not None:
        yield [given]
        return
    file = f"sqlite:///{folder}/windlass.db?synchronous=off"
    binaries = cluster.find()
    if binaries is None:
        print("There is no PostgreSQL on this machine: SQLite alone.")
        yield [file]
        return
    with cluster.running(binaries) as running:
        yield [file, running.url]


async def _attack(url: str, folder: Path, *, requests: int, document: int, seed: int, only: Sequence[str]) -> list[str]:
    async with target(url, folder, measured=True) as server:
        attack = Attack(server, seed=seed, requests=requests, document=document)
        await attack.run(only)
        return attack.faults()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
