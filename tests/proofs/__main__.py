"""Proofs with real processes: long runs that print what they found and end with 0 if all of it holds, else with 1.

    python -m tests.proofs NAME [--faults N] [--jobs N] [--fast]

Each has a PostgreSQL of its own, as durable as in production; `dst` needs none.
Summaries of runs stand in docs/proofs.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from tests import cluster
from tests.proofs import (
    clocks,
    deaths,
    dst,
    failover,
    idle,
    memory,
    neighbours,
    refusals,
    restarts,
    scale,
    show,
    slots,
    starts,
    stops,
    year,
)

PROOFS = (
    *("failover", "stops", "restarts", "memory", "deaths", "scale", "slots", "clocks", "starts", "idle"),
    *("refusals", "neighbours", "year", "dst"),
)


def main(arguments: list[str]) -> int:
    """Run one proof; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.proofs")
    parser.add_argument("proof", choices=PROOFS)
    parser.add_argument(
        "--faults",
        type=int,
        help="kills, stops, restarts; seconds of neighbours; days of year  [20; 3 restarts, 40 deaths, 50 slots]",
    )
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs through the server  [default: 1000000]")
    parser.add_argument("--fast", action="store_true", help="a duty lease of 2 s in place of the default of 6 s")
    parser.add_argument("--log", type=Path, help="a file for what the servers say")
    asked = parser.parse_args(arguments)
    if asked.proof == "dst":
        print(f"dst: {show.machine()}", flush=True)
        return show.finish(dst.prove())
    binaries = cluster.find()
    if binaries is None:
        print("There is no PostgreSQL on this machine to run the proof with.")
        return 1
    print(f"{asked.proof}: {show.machine()}, PostgreSQL {binaries.version}", flush=True)
    with cluster.running(binaries, durable=True) as running:
        match asked.proof:
            case "failover":
                proof = failover.prove(running.url, faults=asked.faults or 20, fast=asked.fast, log=asked.log)
            case "stops":
                proof = stops.prove(running.url, faults=asked.faults or 20, fast=asked.fast, log=asked.log)
            case "restarts":
                proof = restarts.prove(running, faults=asked.faults or 3, log=asked.log)
            case "deaths":
                proof = deaths.prove(running.url, faults=asked.faults or 40)
            case "slots":
                proof = slots.prove(running.url, faults=asked.faults or 50, fast=asked.fast, log=asked.log)
            case "clocks":
                proof = clocks.prove(running.url, rounds=asked.faults or clocks.ROUNDS, log=asked.log)
            case "idle":
                proof = idle.prove(running)
            case "refusals":
                proof = refusals.prove(running.url, looks=asked.faults or refusals.LOOKS)
            case "neighbours":
                proof = neighbours.prove(running.url, seconds=asked.faults or neighbours.SECONDS)
            case "year":
                proof = year.prove(running, days=asked.faults or year.DAYS)
            case "starts":
                proof = starts.prove(running.url, rounds=asked.faults or 20)
            case "scale":
                proof = scale.prove(running.url)
            case _:
                proof = memory.prove(running.url, jobs=asked.jobs, log=asked.log)
        return show.finish(asyncio.run(proof))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
