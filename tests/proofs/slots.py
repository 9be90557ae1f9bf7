"""Slots: who fires schedules is killed, or stopped for longer than its lease, again and again, under load.

    python -m tests.proofs slots [--faults 50] [--fast]

Two servers on one PostgreSQL; so many kills and so many stops, in turn. The slots that should have fired come from
arithmetic of their own; at the end each has exactly one job, and nothing else has one. Beside them are schedules that
are edited, paused, left out and backfilled meanwhile (slotpolicies.py).
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import httpx2

from tests.databases import connected
from tests.proofs import fleet as fleets
from tests.proofs import slotpolicies, witness
from tests.proofs.failover import described, drained
from tests.proofs.fleet import Fleet, Member
from tests.proofs.load import Load
from tests.proofs.slotkinds import BATCH_PATH, JITTER_S, KINDS, Kind, asked_of
from tests.proofs.stops import FAST_AFTER_S, FAST_STOPPED_S, STOPPED_S, until
from tests.proofs.takeover import PATIENCE_S, takeovers
from tests.proofs.verdict import Line, verdict
from tests.proofs.witness import Connection, Leader

LEAD_S = 10.0
"""Between making the schedules and their first slot."""
MOST_LATE_S = 10.0
"""Outside faults a slot fires within a second; the worst takeover is below this."""

JOBS = """
SELECT s.name, j.slot_at, count(*) AS count FROM windlass.job AS j JOIN windlass.schedule s ON s.id = j.schedule_id
 WHERE j.slot_at <= $1 GROUP BY 1, 2
"""
UNDECIDED = "SELECT count(*) FROM windlass.schedule_next WHERE next_at <= $1"
LATE = """
SELECT max(extract(epoch FROM decided_at - slot_at)) AS most, count(DISTINCT term) AS terms
  FROM windlass.schedule_runs WHERE decision IN (0, 1) AND slot_at <= $1
"""


async def prove(url: str, *, faults: int = 50, fast: bool = True, log: Path | None = None) -> list[Line]:
    """Kill and stop who fires, so many times each; return what was found."""
    settings = fleets.FAST if fast else None
    async with fleets.running(url, settings=settings, log=log) as fleet, connected(url) as connection:
        first_at = await made(fleet, connection)
        await slotpolicies.made(fleet, first_at)
        load, edits = Load(fleet.urls), slotpolicies.Edits(fleet.urls)
        async with slotpolicies.worked(fleet), load.flowing():
            await until(connection, first_at, seconds=0)
            async with edits.flowing():
                for turn in range(2 * faults):
                    await _fault(connection, fleet, turn=turn, fast=fast)
            await slotpolicies.backfilled(connection)
            until_at = await witness.now(connection)
            await decided(connection, until_at)
            drained_s = await load.drain(connection)
        bounds = {"first_at": first_at, "until_at": until_at - timedelta(seconds=1)}
        lines = await judged(connection, **bounds, kinds=(*KINDS, *slotpolicies.FIRING))
        lines += [*await slotpolicies.judged(connection, **bounds), edits.line()]
        return [*lines, drained(drained_s), *await verdict(load.ledger, url)]


async def made(fleet: Fleet, connection: Connection) -> datetime:
    """Make the schedules; return their first slot."""
    first_at = (await witness.now(connection)).replace(microsecond=0) + timedelta(seconds=LEAD_S)
    asked = [{**asked_of(kind, first_at), "name": f"{kind.name}-{n}"} for kind in KINDS for n in range(kind.count)]
    async with httpx2.AsyncClient(base_url=fleet.urls[0], timeout=PATIENCE_S) as client:
        answer = await client.post(BATCH_PATH, json={"schedules": asked})
        assert answer.status_code == 201, answer.text
    return first_at


async def _fault(connection: Connection, fleet: Fleet, *, turn: int, fast: bool) -> None:
    victim, lost = await _firing(connection, fleet, turn=turn)
    since_at = await witness.now(connection)
    if turn % 2 == 0:
        await victim.kill()
        took = await takeovers(connection, lost, since_at=since_at)
        await victim.start()
    else:
        victim.process.send(signal.SIGSTOP)
        took = await takeovers(connection, lost, since_at=since_at)
        await until(connection, since_at, seconds=FAST_STOPPED_S if fast else STOPPED_S)
        victim.process.send(signal.SIGCONT)
        await connection.execute("SELECT pg_sleep($1)", FAST_AFTER_S)
    verb = "stopped" if turn % 2 else "killed"
    print(f"{turn + 1:3}. {verb} {victim.role} in {len(lost)} duties: " + described(took[:3]), flush=True)


async def _firing(connection: Connection, fleet: Fleet, *, turn: int) -> tuple[Member, dict[str, Leader]]:
    """Return a server that fires, and the duties it holds."""
    while True:
        found = await witness.leaders(connection)
        pids = sorted({leader.pid for name, leader in found.items() if name.startswith("fire") and leader.pid})
        member = fleet.by_pid(pids[turn // 2 % len(pids)]) if pids else None
        if member is not None:
            return member, {name: leader for name, leader in found.items() if leader.pid == member.process.pid}
        await connection.execute("SELECT pg_sleep(0.05)")


async def decided(connection: Connection, until_at: datetime) -> None:
    """Wait until every slot up to an instant has been decided."""
    for _ in range(int(PATIENCE_S / 0.1)):
        if not await connection.fetchval(UNDECIDED, until_at):
            return
        await connection.execute("SELECT pg_sleep(0.1)")
    raise AssertionError("Slots that were due stay undecided.")


async def judged(
    connection: Connection, *, first_at: datetime, until_at: datetime, kinds: Sequence[Kind] = KINDS
) -> list[Line]:
    """Compare the jobs of slots with arithmetic."""
    until_at -= timedelta(seconds=JITTER_S)
    seconds = int((until_at - first_at).total_seconds())
    expected = {
        (f"{kind.name}-{number}", first_at + timedelta(seconds=since))
        for kind in kinds
        for since in range(seconds + 1)
        if kind.is_slot(since, (first_at.second + since) % 60)
        for number in range(kind.count)
    }
    names = {f"{kind.name}-{number}" for kind in kinds for number in range(kind.count)}
    rows = [row for row in await connection.fetch(JOBS, until_at) if row["name"] in names]
    found = {(row["name"], row["slot_at"]): row["count"] for row in rows}
    missed = sorted(f"{name} {slot:%H:%M:%S}" for name, slot in expected - found.keys())
    unasked = sorted(f"{name} {slot:%H:%M:%S.%f}" for name, slot in found.keys() - expected)
    doubled = sorted(f"{name} {slot:%H:%M:%S}: {count}" for (name, slot), count in found.items() if count > 1)
    late = await connection.fetchrow(LATE, until_at)
    assert late is not None
    most = float(late["most"])
    return [
        Line("I13 no slot missed", f"{len(expected)} slots expected, {len(missed)} missed", missed),
        Line("I13 no slot doubled", f"{len(found)} slots fired, {len(doubled)} with two jobs", doubled),
        Line("I13 no slot nobody asked for", f"{len(unasked)} of them", unasked),
        Line(
            "slots fire soon after a takeover",
            f"the latest after {most:.1f} s, in {late['terms']} terms",
            [f"{most:.1f} s"] if most > MOST_LATE_S else [],
        ),
    ]
