"""Replay the mutants: `python -m tests.mutants [--only ID] [--list] [--jobs N]`; exit 1 unless all are caught."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests import cluster
from tests.mutants import (
    asides,
    bodies,
    claims,
    control,
    database,
    door,
    duties,
    engine,
    erasure,
    faults,
    firing,
    keepers,
    keys,
    lists,
    outbox,
    planning,
    polls,
    reports,
    sessions,
    shown,
    spans,
    submits,
    timetable,
    trail,
    workers,
)
from tests.mutants.mutant import Mutant
from tests.mutants.replay import Outcome, replay, unmutated
from tests.postgres_run import URL_VARIABLE

ALL: tuple[Mutant, ...] = (
    *submits.MUTANTS,
    *timetable.MUTANTS,
    *asides.MUTANTS,
    *claims.MUTANTS,
    *sessions.MUTANTS,
    *shown.MUTANTS,
    *spans.MUTANTS,
    *reports.MUTANTS,
    *control.MUTANTS,
    *lists.MUTANTS,
    *keys.MUTANTS,
    *database.MUTANTS,
    *door.MUTANTS,
    *duties.MUTANTS,
    *engine.MUTANTS,
    *erasure.MUTANTS,
    *faults.MUTANTS,
    *firing.MUTANTS,
    *keepers.MUTANTS,
    *bodies.MUTANTS,
    *outbox.MUTANTS,
    *planning.MUTANTS,
    *polls.MUTANTS,
    *trail.MUTANTS,
    *workers.MUTANTS,
)


@contextmanager
def postgres() -> Iterator[str]:
    """Give the URL of a PostgreSQL for the whole run: the one named, or a temporary one."""
    if named := os.environ.get(URL_VARIABLE):
        yield named
        return
    binaries = cluster.find()
    if binaries is None:
        sys.exit(f"Mutants need PostgreSQL: install it, or set {URL_VARIABLE}.")
    with cluster.running(binaries) as running:
        yield running.url


async def replay_all(mutants: Sequence[Mutant], url: str, *, jobs: int) -> dict[str, Outcome]:
    """Replay the mutants, `jobs` at a time, and tell of each as it ends."""
    outcomes: dict[str, Outcome] = {}
    turns = asyncio.Semaphore(jobs)

    async def one(mutant: Mutant) -> None:
        async with turns:
            outcome = outcomes[mutant.id] = await replay(mutant, url)
        word = "caught  " if outcome.caught else "SURVIVED"
        what = f"{mutant.rule} ({outcome.why})" if outcome.caught else f"{mutant.rule}\n           {outcome.why}"
        print(
            f"[{len(outcomes):>3}/{len(mutants)}] {word} {outcome.seconds:5.1f} s  {mutant.id:<34} {what}", flush=True
        )

    await asyncio.gather(*(one(mutant) for mutant in mutants))
    return outcomes


def chosen(only: Sequence[str]) -> list[Mutant]:
    """Return the mutants whose ids begin with one of `only`; all without any."""
    doubles = [name for name, count in Counter(mutant.id for mutant in ALL).items() if count > 1]
    if doubles:
        sys.exit(f"Two mutants have the same id: {', '.join(doubles)}.")
    return [mutant for mutant in ALL if not only or mutant.id.startswith(tuple(only))]


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Remove each guard; see its test fail."
    )
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="those whose id begins so")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="how many at a time")
    given = parser.parse_args()
    mutants = chosen(given.only)
    if given.list or not mutants:
        print("\n".join(f"{mutant.id:<34} {mutant.rule}" for mutant in mutants) or "There is no such mutant.")
        return 0 if mutants else 2
    begun = time.monotonic()
    with postgres() as url:
        print(f"{len(mutants)} mutants; first their tests without any of them …", flush=True)
        wrong = asyncio.run(unmutated(mutants, url, jobs=given.jobs))
        if wrong:
            print(wrong)
            return 1
        outcomes = asyncio.run(replay_all(mutants, url, jobs=given.jobs))
    survivors = sorted(name for name, outcome in outcomes.items() if not outcome.caught)
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} mutants caught in {time.monotonic() - begun:.0f} s.")
    if survivors:
        print(f"Survived: {', '.join(survivors)}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
