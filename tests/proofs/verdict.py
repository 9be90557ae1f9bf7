"""The verdict: what was acknowledged compared with what the database holds, one line for each invariant.

The names are those of the reliability handbook. `windlass check` has the last word, as a process of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import msgspec

from tests.databases import connected
from tests.proofs import witness
from tests.proofs.ledger import Ledger
from tests.proofs.processes import started
from tests.proofs.witness import Connection
from windlass.job import FINAL_STATES, Outcome

SHOWN = 5

JOBS = "SELECT id, state, fence, result FROM windlass.jobs WHERE schedule_id IS NULL"
SUCCEEDED = f"""
SELECT job_id, run, count(*) AS count FROM windlass.attempts WHERE outcome = {int(Outcome.SUCCEEDED)} GROUP BY 1, 2
"""
DOUBLED = "SELECT job_id, fence, count(*) FROM windlass.attempts GROUP BY 1, 2 HAVING count(*) > 1"
# A claim is dated by the beginning of its transaction, which may be some milliseconds before its statement.
EARLY = """
SELECT a.job_id FROM windlass.attempts a JOIN windlass.jobs j ON j.id = a.job_id
 WHERE a.claimed_at < j.scheduled_at - interval '100 milliseconds'
"""


class Line(msgspec.Struct, frozen=True):
    """What was found of one invariant; good if nothing stands against it."""

    name: str
    detail: str
    against: list[str]

    @property
    def text(self) -> str:
        """The line as it is printed."""
        shown = "".join(f"\n         {item}" for item in self.against[:SHOWN])
        return f"{'ok  ' if not self.against else 'FAIL'}  {self.name}: {self.detail}{shown}"


async def verdict(ledger: Ledger, database_url: str) -> list[Line]:
    """Return a line for each invariant, after everything has ended."""
    async with connected(database_url) as connection:
        lines = [*await _jobs(ledger, connection), *await _ends(connection), *_said(ledger), *await _duties(connection)]
    return [*lines, await checked(database_url)]


async def _jobs(ledger: Ledger, connection: Connection) -> list[Line]:
    rows = await connection.fetch(JOBS)
    counts = Counter(row["id"] for row in rows)
    missing = [job_id for job_id in ledger.submitted if counts[job_id] != 1]
    live = [row["id"] for row in rows if row["state"] not in FINAL_STATES]
    unasked = [job_id for job_id in counts if job_id not in ledger.submitted]
    phantoms = unasked if len(unasked) > ledger.unknown_count else []
    two_ids = [key for key, ids in ledger.ids_of_key.items() if len(ids) > 1]
    wrong = [row["id"] for row in rows if row["state"] == "succeeded" and not _is_said(ledger, row["id"], row)]
    states = ", ".join(f"{count} {state}" for state, count in Counter(row["state"] for row in rows).most_common())
    return [
        Line("I1 nothing lost", f"{len(ledger.submitted)} acknowledged, {len(missing)} missing", _shown(missing)),
        Line("I2 no phantom", f"{len(unasked)} of {ledger.unknown_count} unanswered are there", _shown(phantoms)),
        Line("I3 one job per key", f"{len(ledger.ids_of_key)} keys, {len(two_ids)} with two", two_ids),
        Line("I8 the result is its body's", f"{len(wrong)} results of nobody", _shown(wrong)),
        Line("I29 everything ended", states, _shown(live)),
    ]


def _is_said(ledger: Ledger, job_id: UUID, row: dict[str, object]) -> bool:
    said = ledger.said.get((job_id, row["fence"]))  # type: ignore[arg-type]
    return said is not None and row["result"] == f'"{said.nonce}"'


async def _ends(connection: Connection) -> list[Line]:
    ends = await connection.fetch(SUCCEEDED)
    twice = [f"{row['job_id']} run {row['run']}: {row['count']}" for row in ends if row["count"] > 1]
    doubled = [f"{row['job_id']} fence {row['fence']}" for row in await connection.fetch(DOUBLED)]
    early = [str(row["job_id"]) for row in await connection.fetch(EARLY)]
    return [
        Line("I4 one result per job", f"{len(ends)} results, {len(twice)} doubled", twice),
        Line("I7 one end per lease", f"{len(doubled)} leases ended twice", doubled),
        Line("I11 nothing early", f"{len(early)} claimed before they were due", early),
    ]


def _said(ledger: Ledger) -> list[Line]:
    twice = [f"{job_id} fence {fence}: {count}" for (job_id, fence), count in ledger.grants.items() if count > 1]
    won = Counter(job_id for job_id, fence in ledger.accepted if ledger.said[job_id, fence].kind == "complete")
    more = [f"{job_id}: {count}" for job_id, count in won.items() if count > 1]
    late = [f"{job_id} fence {fence}" for job_id, fence in ledger.wrongly_taken]
    answers = ", ".join(f"{count} × {status}" for status, count in sorted(ledger.answers.items()))
    refused = ", ".join(f"{count} {status}" for status, count in ledger.refused.items()) or "none"
    return [
        Line("I5 each fence granted once", f"{len(ledger.grants)} grants, {len(twice)} doubled", twice),
        Line("I4 one report taken per job", f"{len(ledger.accepted)} reports taken, {len(more)} jobs with two", more),
        Line("I7 late reports refused", f"refused: {refused}", late),
        Line("I31 no answer but those documented", f"{answers}, {ledger.silences} not answered", ledger.faults),
    ]


async def _duties(connection: Connection) -> list[Line]:
    fallen = [f"{row['duty']}: {row['before']} → {row['term']}" for row in await connection.fetch(witness.FALLEN)]
    outside = [
        f"{row['duty']} by {row['role']} at {row['at']:%H:%M:%S.%f}, held by {row['holder_role']} in term {row['term']}"
        f" until {row['expires_at']:%H:%M:%S.%f}"
        for row in await connection.fetch(witness.OUTSIDE)
    ]
    acts = await connection.fetch("SELECT duty, sum(count) AS count FROM proof.act GROUP BY 1 ORDER BY 1")
    done = ", ".join(f"{row['duty']} {row['count']}" for row in acts)
    terms = await connection.fetchval("SELECT count(DISTINCT (duty, term)) FROM proof.lease")
    return [
        Line("I14 terms rise", f"{terms} terms, {len(fallen)} that did not rise", fallen),
        Line("I14 only the holder acts", f"{done}; {len(outside)} acts by another", outside),
    ]


async def checked(database_url: str) -> Line:
    """Return what `windlass check` says."""
    async with started("check", "--database", database_url) as process:
        code = await process.ended()
    return Line("windlass check", f"exit code {code}", process.lines if code else [])


def _shown(ids: Iterable[UUID]) -> list[str]:
    return [str(job_id) for job_id in ids]
