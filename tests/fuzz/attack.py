"""The parts of an attack on one server, what each is measured by, and what is a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import httpx2
import msgspec

from tests.fuzz import framing, large
from tests.fuzz.caller import Tally, call_all
from tests.fuzz.hostile import Hostile
from tests.fuzz.loopmeter import Measured
from tests.fuzz.run import PHASES, Target, faults
from tests.proofs.memory import look
from tests.server.frame import bearer
from tests.server.world import STATES, World

PARTS = ("document", "hostile", "framing", "bodies", "costly", "lists", "at once")
EXAMPLES = 30
"""Of schemathesis, for each operation in each round; with stateful sequences a round is some thousand requests."""
CALLERS = 16
READERS = 8
AT_ONCE = 60
GROWTH = 2.0
"""What memory after all of it may be, over what it was before."""
UNREAD_S = 40.0
STILL_S, STILL = 3.0, 2
"""Fewer answers than this in this time, the page by which we look being one: the server is still."""
REST_S = 3.0
"""In which a large write on SQLite, and the writer's rest after it, are over: else the next would be late by design."""
SETTLE_S = 15.0
"""In which a server gives back what it needs no more."""
HOSTILE_S = 600.0
WARM_UP = 5_000
PROVOKED = dict.fromkeys(("costly", "lists", "at once"), frozenset({503}))
"""Statuses of 500 and above that a part provokes, with Retry-After: it asks for more computing, more rows or more bytes
at once than a server has a budget for."""


class Part(msgspec.Struct, frozen=True):
    """What one part of an attack came to."""

    name: str
    tally: Tally
    measured: Measured
    rss_mb: float


class Attack:
    """One server and what was done to it so far."""

    def __init__(self, server: Target, *, seed: int, requests: int, document: int) -> None:
        self._server = server
        self._seed = seed
        self._wanted = {"document": document, "hostile": requests}
        self._others: list[str] = []
        self._before_mb = 0.0
        self.parts: list[Part] = []

    async def run(self, names: Sequence[str]) -> None:
        """Run these parts, and print what each came to."""
        await self._prepare()
        acts = {
            "document": self._from_document,
            "hostile": self._odd_values,
            "framing": self._broken_framing,
            "bodies": self._large_bodies,
            "costly": self._costly_requests,
            "lists": self._large_answers,
            "at once": self._bodies_at_once,
        }
        for name in PARTS:
            if name in names:
                await self._server.measured()
                tally = Tally(allowed=PROVOKED.get(name, frozenset()))
                await acts[name](tally)
                measured = await self._server.measured()
                self.parts.append(Part(name, tally, measured, look(self._server.process.pid, 0).rss_mb))
                print(row(self.parts[-1]), flush=True)
                if (status := (await self._client.get("/queues?limit=1")).status_code) != 200:
                    self._others.append(f"{name}: after it a good request is {status}; later parts say nothing")
        await _pass(SETTLE_S)
        after_mb = look(self._server.process.pid, 0).rss_mb
        print(f"memory: {self._before_mb:.0f} MB before, {after_mb:.0f} MB after", flush=True)
        if after_mb > GROWTH * self._before_mb:
            self._others.append(f"memory is {after_mb / self._before_mb:.1f} times what it was")
        await self._client.aclose()

    def faults(self) -> list[str]:
        """Return what was wrong."""
        found = [f"{part.name}: {count} × {fault}" for part in self.parts for fault, count in part.tally.faults.items()]
        for part in self.parts:
            found += [f"{part.name}: held for {hold.seconds * 1000:.0f} ms: {hold.what}" for hold in part.measured.long]
        return [*found, *self._others, *faults(self._server.process)]

    async def _prepare(self) -> None:
        """Make what requests name, and look at the memory of a server that has worked a little."""
        server = self._server
        base = f"{server.url}/api/v1"
        async with httpx2.AsyncClient(base_url=base, headers=bearer(server.token), timeout=60) as above:
            await above.post("/tenants", json={"name": "a"})
            made = await above.post("/keys", json={"name": "hostile", "role": "admin", "tenant": "a"})
            token = made.json()["token"]
            self._client = httpx2.AsyncClient(base_url=base, headers=bearer(token), timeout=60)
            world = World("a", self._client, above)
            named = [await world.named(state) for state in STATES]
        self._key, self._named = f"Authorization: Bearer {token}".encode(), named[0]
        self._hostile = Hostile(named, token, above=server.token, seed=self._seed)
        await call_all(self._hostile.drawn(WARM_UP), server.address, Tally(), callers=CALLERS)
        self._before_mb = look(server.process.pid, 0).rss_mb
        print(HEAD, flush=True)

    async def _from_document(self, tally: Tally) -> None:
        """Let schemathesis call what the document names."""
        before = await self._server.answered()
        rounds = 0
        while tally.sent < self._wanted["document"]:
            # The edges are the same in every round.
            phases = [phase for phase in PHASES if not rounds or phase not in ("examples", "coverage")]
            found = await self._server.fuzz(phases, examples=EXAMPLES, seed=self._seed + rounds)
            rounds += 1
            tally.statuses = await self._server.answered() - before
            tally.sent = tally.statuses.total()
            if not found.passed:
                tally.fault(found.said[found.said.find("= FAILURES =") :])
        for status in (status for status in tally.statuses if status >= 500):
            tally.fault(f"{tally.statuses[status]} answers of {status}")

    async def _odd_values(self, tally: Tally) -> None:
        drawn = self._hostile.drawn(self._wanted["hostile"])
        await call_all(drawn, self._server.address, tally, callers=CALLERS, limit_s=HOSTILE_S)

    async def _broken_framing(self, tally: Tally) -> None:
        await framing.send_all(framing.forms(self._key), self._server.address, tally)

    async def _large_bodies(self, tally: Tally) -> None:
        await call_all(large.bodies(self._hostile, self._named), self._server.address, tally, callers=2)

    async def _costly_requests(self, tally: Tally) -> None:
        for request in await large.ends(self._hostile, self._client):
            await call_all([request], self._server.address, tally, callers=1)
            await _pass(REST_S)
        await call_all(large.costly(self._hostile), self._server.address, tally, callers=2)
        for schedule in large.MADE:
            await self._client.delete(f"/schedules/{schedule}")

    async def _large_answers(self, tally: Tally) -> None:
        """Ask for lists over large rows, eight at a time; before that, readers ask and take nothing."""
        ids = await large.fill(self._client)
        requests = list(large.lists(self._hostile, ids))
        unread = large.Unread(self._server.address)
        route = large.ROUTES_BY_NAME["GET /jobs"]
        # One above tenants has no large jobs.
        largest = self._hostile.request(route, "/api/v1/jobs?limit=500", b"", "unread", key=self._hostile.key)
        await unread.open(largest)
        await self._until_still()
        await unread.ask_again(largest)
        await self._until_still()
        begun_s = asyncio.get_running_loop().time()
        asked = [request for request in requests for _ in range(READERS)]
        await call_all(asked, self._server.address, tally, callers=READERS)
        await _pass(begun_s + UNREAD_S - asyncio.get_running_loop().time())
        if left := unread.close():
            tally.fault(f"{left} of {large.UNREAD} readers that take nothing are still there after {UNREAD_S:g} s")

    async def _until_still(self) -> None:
        """Return when the server has no more to answer: its readers have asked for all, or take no more."""
        before, answered = -STILL, 0
        while answered - before >= STILL:
            await _pass(STILL_S)
            before, answered = answered, (await self._server.answered()).total()

    async def _bodies_at_once(self, tally: Tally) -> None:
        await call_all(large.at_once(self._hostile, AT_ONCE), self._server.address, tally, callers=AT_ONCE)


async def _pass(seconds: float) -> None:
    """Let so much time pass: what the server does by itself in the meantime is what is looked at."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0)):
            await asyncio.Event().wait()


HEAD = f"{'part':9} {'requests':>8}  {'latest':>7}  {'hold':>6}  {'ticker':>7}  {'memory':>7}  answers by status"


def row(part: Part) -> str:
    """Return a part as a line: requests, the latest answer beyond its wait, the longest hold, memory, statuses."""
    measured = part.measured
    statuses = " ".join(f"{status}:{count}" for status, count in sorted(part.tally.statuses.items()))
    return (
        f"{part.name:9} {part.tally.sent:8}  {part.tally.late_s:5.2f} s  {measured.longest.seconds * 1000:3.0f} ms  "
        f"{measured.latest_tick_s * 1000:4.0f} ms  {part.rss_mb:4.0f} MB  {statuses}\n"
        f"{'':9} longest hold: {measured.longest.what}; latest answer: {part.tally.latest}"
    )
