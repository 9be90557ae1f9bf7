"""Fuzz a server with its own document: prints what was found, and ends with 0 if nothing was, else with 1.

    python -m tests.fuzz [--requests 10000] [--seed N] [--database URL]

Without a database it is a SQLite file that is removed afterwards. The seed is another one each time, and printed.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import PHASES, Round, faults, target

EXAMPLES = 30
"""For each operation in each round; with stateful sequences a round is some thousand requests."""


def main(arguments: list[str]) -> int:
    """Fuzz until so many requests are answered; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--requests", type=int, default=10_000, help="at least so many  [default: 10000]")
    parser.add_argument("--seed", type=int, help="of the first round  [default: another one each time]")
    parser.add_argument("--database", metavar="URL", help="an empty one  [default: a temporary SQLite file]")
    asked = parser.parse_args(arguments)
    seed = secrets.randbits(31) if asked.seed is None else asked.seed
    with tempfile.TemporaryDirectory(prefix="windlass-fuzz-") as folder:
        url = asked.database or f"sqlite:///{folder}/windlass.db?synchronous=off"
        return asyncio.run(_fuzz(url, Path(folder), requests=asked.requests, seed=seed))


async def _fuzz(database_url: str, folder: Path, *, requests: int, seed: int) -> int:
    rounds: list[Round] = []
    async with target(database_url, folder) as server:
        answered = await server.answered()
        while answered.total() < requests:
            # The edges are the same in every round.
            phases = [phase for phase in PHASES if not rounds or phase not in ("examples", "coverage")]
            rounds.append(await server.fuzz(phases, examples=EXAMPLES, seed=seed + len(rounds)))
            answered = await server.answered()
            if not rounds[-1].passed:
                print(rounds[-1].said)
            print(f"round {len(rounds)}, seed {seed + len(rounds) - 1}: {answered.total()} requests so far", flush=True)
        found = faults(server.process)
    print(f"{answered.total()} requests; answers by status: {dict(sorted(answered.items()))}")
    for line in found:
        print(line)
    bad = [round_ for round_ in rounds if not round_.passed]
    print(f"{len(bad)} of {len(rounds)} rounds found something; {len(found)} faults in the log.")
    return 1 if bad or found or any(status >= 500 for status in answered) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
