"""Deaths: workers are killed in mid-job, and another runs the job within the lease and a second; one result each.

    python -m tests.proofs deaths [--faults 40]

One server and two fleets. In turn a whole fleet is killed, whose jobs come back when its lease is over, and only its
runner, whose keeper gives them back at once. Measured is from the kill until a body of the same job has begun again.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.proofs import show
from tests.proofs.processes import ServerProcess
from tests.proofs.verdict import Line, checked
from tests.worker.process.installation import LEASE_S, SHORT, Begun, Installation, installed, kill

SLACK_S = 1.0


async def prove(database_url: str, *, faults: int) -> list[Line]:
    """Kill workers; return what was found."""
    jobs: list[str] = []
    after_s: dict[str, list[float]] = {"fleet": [], "runner": []}
    with tempfile.TemporaryDirectory() as folder:
        async with installed(Path(folder)) as world:
            world.database_url = database_url
            await world.start_server()
            fleets = [await _fleet(world, number) for number in range(2)]
            for fault in range(faults):
                what = "fleet" if fault % 2 == 0 else "runner"
                job_id = await world.submit("wait", port=world.port)
                jobs.append(job_id)
                after_s[what].append(await _die(world, await world.begun(), fleets, what=what))
                await world.ended(job_id)
                print(f"{what} {fault + 1} of {faults}: {after_s[what][-1]:.2f} s", flush=True)
            outcomes = Counter([tuple(a["outcome"] for a in await world.attempts(job_id)) for job_id in jobs])
            for fleet in fleets:
                await fleet.close()
            await world.server.close()
    for what, times in after_s.items():
        print(show.distribution(f"killed {what}: the job runs again", times))
    wrong = [f"{count} jobs: {ends}" for ends, count in outcomes.items() if ends != ("lost", "succeeded")]
    return [
        show.within(f"lease of {LEASE_S:g} s", after_s["fleet"], goal_s=LEASE_S + SLACK_S, most_s=LEASE_S + SLACK_S),
        show.within("seen by the keeper", after_s["runner"], goal_s=SLACK_S, most_s=LEASE_S + SLACK_S),
        Line("one result", f"{len(jobs)} jobs, each lost once and succeeded once", wrong),
        await checked(database_url),
    ]


async def _fleet(world: Installation, number: int) -> ServerProcess:
    return await world.start_workers("--threads", "1", "--name", f"fleet-{number}", **SHORT)


async def _die(world: Installation, first: Begun, fleets: list[ServerProcess], *, what: str) -> float:
    """Kill who runs the job, let the next attempt end it, and return how long until that began."""
    [number] = [n for n, fleet in enumerate(fleets) if first.pid in _children(fleet.pid)]
    killed_at = time.monotonic()
    kill(fleets[number].pid if what == "fleet" else first.pid)
    again = await world.begun()
    after_s = time.monotonic() - killed_at
    again.go_on()
    # A fresh one in any case: the back-off of one whose runners die again and again is not what is measured.
    await fleets[number].close()
    fleets[number] = await _fleet(world, number)
    return after_s


def _children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
