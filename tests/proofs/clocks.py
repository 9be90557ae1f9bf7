"""Clocks: the wall clocks of servers and workers jump by an hour, and then the database's own, while schedules fire.

    python -m tests.proofs clocks

Clocks of servers and workers must not matter: each slot has one job, on time, and no lease is lost. After each jump
the process is asked what its clock shows (seen.py): one that did not move proves nothing. The database's
clock is the truth: forward means slots missed, dealt with by their policy; back means that nothing fires until it has
come again; never does a slot fire twice.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import httpx2

from tests.databases import connected
from tests.proofs import fleet as fleets
from tests.proofs import seen, slotkinds, slots, witness
from tests.proofs.processes import started
from tests.proofs.skew import Skew, built, move_database
from tests.proofs.verdict import Line, checked
from tests.proofs.witness import Connection

HOUR_S = 3600
ROUNDS = 5
STAY_S = 3.0
"""How long a clock stays wrong."""
MOST_LATE_S = 2.0
"""After a slot is due; those with jitter are due up to slotkinds.JITTER_S after their time."""
GRACE_S = 60
CLOCK = "SELECT windlass.clock()"
LATE = """
SELECT max(extract(epoch FROM decided_at - slot_at)) FROM windlass.schedule_runs WHERE decision = 0 AND slot_at <= $1
"""
BEHIND = "SELECT count(*) FROM windlass.schedule_next WHERE next_at <= windlass.clock() - interval '2 s'"
LOST = "SELECT count(*) FROM windlass.attempts WHERE outcome <> 0"
RUN = """
SELECT count(*), count(DISTINCT (j.schedule_id, j.slot_at)) FROM windlass.done d
  JOIN windlass.job j ON j.id = ANY(ARRAY[d.id]) WHERE j.slot_at <= $1 AND d.outcome = 0
"""
WAITING = """
SELECT count(*) FROM (SELECT id FROM windlass.queue UNION ALL SELECT id FROM windlass.timer) AS p
  JOIN windlass.job j ON j.id = ANY(ARRAY[p.id]) WHERE j.slot_at <= $1
"""
MADE = """
SELECT s.name, r.slot_at, r.decision, r.slot_count, r.first_at FROM windlass.schedule_runs r
  JOIN windlass.schedule s ON s.id = r.schedule_id WHERE s.name LIKE 'hour-%' ORDER BY r.slot_at
"""
DOUBLED = """
SELECT schedule_id, slot_at FROM windlass.job AS j WHERE slot_at IS NOT NULL
 GROUP BY 1, 2 HAVING count(*) > 1
"""


async def prove(url: str, *, rounds: int = ROUNDS, log: Path | None = None) -> list[Line]:
    """Move clocks forth and back; return what was found."""
    with tempfile.TemporaryDirectory(prefix="windlass-proof-") as folder:
        library = built(Path(folder))
        if library is None:
            return [Line("clocks", "not run", ["there is no C compiler to build the wrong clock with"])]
        skews = {name: Skew(library, Path(folder) / name) for name in ("server_1", "server_2", "worker")}
        per_role = {name: skew.settings for name, skew in skews.items()}
        async with fleets.running(url, per_role=per_role, log=log) as fleet, connected(url) as connection:
            arguments = ["worker", "tests.proofs.slotapp:app", "--url", fleet.urls[0], "--log-format", "text"]
            arguments += ["--name", seen.WORKER]
            # Often, so that a clock which is wrong for seconds is told.
            settings = {**skews["worker"].settings, "WINDLASS_WORKER_HEARTBEAT_SECONDS": "1"}
            async with started(*arguments, settings=settings) as worker:
                await worker.said("is ready")
                lines = await _processes(connection, fleet, skews, rounds=rounds)
            lines += await _database(connection, fleet.urls[0])
        return [*lines, await checked(url)]


async def _processes(connection: Connection, fleet: fleets.Fleet, skews: dict[str, Skew], *, rounds: int) -> list[Line]:
    first_at = await slots.made(fleet, connection)
    await connection.execute("SELECT pg_sleep_until($1)", first_at)
    urls = {member.role: member.url for member in fleet.members}
    unmoved: list[str | None] = []
    for _ in range(rounds):
        for role, skew in skews.items():
            for seconds in (HOUR_S, -HOUR_S, 0):
                skew.set(seconds)
                unmoved.append(await seen.has_jumped(role, urls, seconds=seconds, connection=connection))
                await connection.execute("SELECT pg_sleep($1)", STAY_S if seconds else 0)
    until_at = await witness.now(connection) - timedelta(seconds=1)
    await slots.decided(connection, until_at)
    lines = await slots.judged(connection, first_at=first_at, until_at=until_at)
    late = float(await connection.fetchval(LATE, until_at))
    lost = await connection.fetchval(LOST)
    settled_at = until_at - timedelta(seconds=5)
    await _finished(connection, settled_at)
    run = await connection.fetchrow(RUN, settled_at)
    assert run is not None
    is_late = late > slotkinds.JITTER_S + MOST_LATE_S
    blind = [said for said in unmoved if said is not None]
    jumped = f"{len(unmoved)} jumps of an hour, forth and back, {len(unmoved) - len(blind)} seen by the process itself"
    return [
        Line("clocks of servers and workers", jumped, blind),
        *lines,
        Line("slots on time", f"the latest {late:.2f} s after its time, jitter included", [f"{late:.2f} s"] * is_late),
        Line("each job ran once", f"{run[0]} ends of {run[1]} slots", ["more ends than slots"] * (run[0] != run[1])),
        Line("no lease lost", f"{lost} attempts that did not succeed", [f"{lost}"] * bool(lost)),
    ]


async def _finished(connection: Connection, until_at: datetime) -> None:
    for _ in range(600):
        if not await connection.fetchval(WAITING, until_at):
            return
        await connection.execute("SELECT pg_sleep(0.1)")
    raise AssertionError("jobs of slots stay")


async def _database(connection: Connection, url: str) -> list[Line]:
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
        for name in ("latest", "skip", "all"):
            asked = {"name": f"hour-{name}", "task": "slot", "queue": "slots", "every": 1, "overlap": "allow"}
            answer = await client.post("/api/v1/schedules", json=asked | {"catch_up": name, "catch_up_max": 100})
            assert answer.status_code == 201, answer.text
    await connection.execute("SELECT pg_sleep(3)")
    before_at: datetime = await connection.fetchval(CLOCK)
    await move_database(connection, "1 hour")
    await _caught_up(connection)
    forward_at: datetime = await connection.fetchval(CLOCK)
    await move_database(connection, "0")
    # What was under way when the clock moved ends by the clock it began with.
    await connection.execute("SELECT pg_sleep(2)")
    after_forward = await _counted(connection)
    await connection.execute("SELECT pg_sleep(8)")
    after_back = await _counted(connection)
    await move_database(connection, "1 hour")
    await connection.execute("SELECT pg_sleep(12)")
    await _caught_up(connection)
    again = await _counted(connection)
    rows = await connection.fetch(MADE)
    doubled = [f"{row['schedule_id']} {row['slot_at']}" for row in await connection.fetch(DOUBLED)]
    lines = [_hour(name, rows, before_at=before_at, forward_at=forward_at) for name in ("latest", "skip", "all")]
    fired = after_back - after_forward
    return [
        *lines,
        Line("database's clock an hour back", f"{fired} slots decided", [f"{fired}"] * (fired > 0)),
        Line("and forth again", f"{again - after_back} slots decided", ["none"] * (again <= after_back)),
        Line("no slot has two jobs", f"{len(doubled)} with two", doubled),
    ]


def _hour(name: str, rows: list[dict[str, object]], *, before_at: datetime, forward_at: datetime) -> Line:
    """Return whether the hour that was jumped over was dealt with as the policy says."""
    own = [row for row in rows if row["name"] == f"hour-{name}"]
    jumped = [row for row in own if before_at < row["slot_at"] <= forward_at]  # type: ignore[operator]
    fired = [row for row in jumped if row["decision"] == 0]
    missed = [row for row in jumped if row["decision"] != 0]
    lived_s = round((forward_at - before_at).total_seconds()) - HOUR_S
    expected = GRACE_S + lived_s + (100 if name == "all" else 0)
    told = f"{len(fired)} slots ran, {sum(int(str(row['slot_count'])) for row in missed)} in {len(missed)} rows did not"
    wrong = [] if abs(len(fired) - expected) <= 3 and len(missed) == 1 else [f"{expected} slots were to run"]
    return Line(f"database's clock an hour forward, catch_up {name}", told, wrong)


async def _counted(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM windlass.schedule_runs"))


async def _caught_up(connection: Connection) -> None:
    for _ in range(600):
        if not await connection.fetchval(BEHIND):
            return
        await connection.execute("SELECT pg_sleep(0.1)")
    raise AssertionError("slots that are due stay undecided")
