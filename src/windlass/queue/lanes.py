"""Lanes: a small number for each (tenant, queue, route, key), carried by every hot row.

Route is (task, labels); key is empty unless a keyed limit is used.
The lane without task, labels and key is the queue itself: its settings, and the row that is locked to change them.
Lanes are made on first submit, in a transaction of their own, and cached by their names.
A lane of a paused queue or tenant is born paused: making and pausing meet on the tenant's row (control.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import BeingErased, TooMany
from windlass.queue.leftovers import remove_late
from windlass.queue.newjob import LaneName as LaneName
from windlass.queue.newjob import check_name, check_range

SQL = load(__file__)

STRICT_PRIORITY_MS = 2**45
"""What one level of priority is worth in waiting time: 1,100 years, so priority comes first."""
LANES_PER_TENANT = 10_000
MAX_RUNNING = 2**31 - 1
RATES_PER_S = (1e-6, 1e6)
"""The slowest and the fastest rate: one job in eleven days, a million in a second."""
MAX_BURST = 1_000_000


class Lane(msgspec.Struct, frozen=True, gc=False):
    """A lane with what ranks its jobs and limits them."""

    id: int
    name: LaneName
    paused: int
    limited: int
    """Whether its queue has limits: then only limits.py may claim from it."""
    credit_ms: int
    fifo: int
    max_running: int | None
    rate_per_s: float | None
    burst: int | None


class Lanes:
    """The lanes by name, as one server knows them; settings may be a moment old, numbers never change."""

    def __init__(self, *, per_tenant: int = LANES_PER_TENANT) -> None:
        self._known: dict[LaneName, Lane] = {}
        self._by_number: dict[int, Lane] = {}
        self._per_tenant = per_tenant

    def get(self, number: int) -> Lane | None:
        """Return a lane by its number, if this server has met it."""
        return self._by_number.get(number)

    async def learn(self, db: Statements, numbers: Iterable[int]) -> None:
        """Read lanes that others have made."""
        unknown = sorted(set(numbers) - self._by_number.keys())
        if unknown:
            self.remember(lane_from_row(row) for row in await db.fetch(SQL.lanes_by_number, numbers=unknown))

    async def resolve(self, db: Statements, names: Iterable[LaneName]) -> dict[LaneName, Lane]:
        """Return the lanes of `names`, making those that do not exist; TooMany past the tenant's cap."""
        wanted = set(names)
        if wanted - self._known.keys() and not db.capabilities.commits:
            raise TypeError(
                "Lanes are made in a transaction of their own: what a rollback undid must not be remembered."
            )
        for tenant in sorted({name.tenant for name in wanted - self._known.keys()}):
            self.remember(await make(db, tenant, wanted, per_tenant=self._per_tenant))
        return {name: self._known[name] for name in wanted}

    async def serving(
        self, db: Statements, tenant: str, queues: Iterable[str], *, tasks: Iterable[str] | None, labels: Iterable[str]
    ) -> list[Lane]:
        """Return the lanes of `queues` that a worker with these tasks (None: all) and labels can run."""
        known_tasks = None if tasks is None else frozenset(tasks)
        has = frozenset(labels)
        rows = await db.fetch(SQL.lanes_of_queues, tenant=tenant, queues=sorted(queues))
        lanes = [lane_from_row(row) for row in rows]
        self.remember(lanes)
        return [
            lane
            for lane in lanes
            if (known_tasks is None or lane.name.task in known_tasks)
            and has.issuperset(filter(None, lane.name.labels.split(",")))
        ]

    def forget(self, tenant: str) -> None:
        """Look the lanes of a tenant up again when they are next used: it was deleted, and first use makes it again."""
        self._known = {name: lane for name, lane in self._known.items() if name.tenant != tenant}
        self._by_number = {lane.id: lane for lane in self._known.values()}

    def remember(self, lanes: Iterable[Lane]) -> None:
        """Keep lanes as they were just read."""
        for lane in lanes:
            self._known[lane.name] = self._by_number[lane.id] = lane


async def make(db: Statements, tenant: str, names: Iterable[LaneName], *, per_tenant: int) -> list[Lane]:
    """Make what is missing of `names` in `tenant`, and return the lanes of their queues; TooMany past the cap.

    Raises BeingErased if the tenant is.
    What exists is found also past the cap, which may be lower than it was or be another server's.
    """
    names = {name for name in names if name.tenant == tenant}
    queues = sorted({name.queue for name in names})
    async with db.transaction() as transaction:
        # The common row of making, pausing and deleting: whoever comes second sees what the first has written.
        # Once more when somebody deleted the tenant while its row was waited for.
        while not (locked := await transaction.fetch(SQL.lock_tenant, tenant=tenant)):
            if await transaction.fetch(SQL.make_tenant, tenant=tenant):
                await remove_late(transaction, tenant)
        refuse_erasing(tenant, locked[0]["erasing"])
        # A queue's own row gets the smaller number, so it is locked before its lanes.
        made = 0
        for batch in (sorted({name.of_queue for name in names}), sorted(names)):
            rows = [(name.tenant, name.queue, name.task, name.labels, name.key) for name in batch]
            made += len(await transaction.fetch(SQL.make_lanes, lanes=rows, credit_ms=STRICT_PRIORITY_MS))
        [count] = await transaction.fetch(SQL.count_lanes, tenant=tenant)
        if made and count["lanes"] > per_tenant:
            raise TooMany(
                f"Tenant {tenant} would have {count['lanes']} lanes (queues, tasks and labels in use together), "
                f"more than {per_tenant}. Use fewer queue names or label sets."
            )
        rows_found = await transaction.fetch(SQL.lanes_of_queues_with_own, tenant=tenant, queues=queues)
    return [lane_from_row(row) for row in rows_found]


async def configure(
    db: Statements,
    queue: LaneName,
    *,
    credit_ms: int = STRICT_PRIORITY_MS,
    fifo: bool = False,
    max_running: int | None = None,
    rate_per_s: float | None = None,
    burst: int | None = None,
) -> None:
    """Set how a queue ranks and limits its jobs, making it if need be; ranks given before stay.

    The limits are of the queue's own row and hold over all its lanes together (limits.py).
    A changed rate holds at once, with a full burst; the same rate goes on where it was.
    InvalidInput names a setting that no claim or rank could be computed with.
    """
    check_name("tenant", queue.tenant)
    check_name("queue", queue.queue)
    check_range("credit_ms", credit_ms, 0, STRICT_PRIORITY_MS)
    check_range("max_running", max_running, 0, MAX_RUNNING)
    check_range("rate_per_s", rate_per_s, *RATES_PER_S)
    check_range("burst", burst, 1, MAX_BURST)
    async with db.transaction() as transaction:
        await make(transaction, queue.tenant, [queue.of_queue], per_tenant=LANES_PER_TENANT)
        await transaction.fetch(
            SQL.configure_queue,
            tenant=queue.tenant,
            queue=queue.queue,
            credit_ms=credit_ms,
            fifo=int(fifo),
            limited=int(max_running is not None or rate_per_s is not None),
            max_running=max_running,
            rate_per_s=rate_per_s,
            burst=burst,
        )


def refuse_erasing(tenant: str, erasing: str | None) -> None:
    """Raise BeingErased if the tenant's row says that it is being erased, or was; the caller has locked the row."""
    if erasing:
        raise BeingErased(f"Tenant {tenant} is being erased. Wait until that is done, or use another tenant.")
    if erasing is not None:
        raise BeingErased(f"Tenant {tenant} was erased. Create it again, or use another tenant.")


def lane_from_row(row: Row) -> Lane:
    """Return the lane in `row`."""
    return Lane(
        id=row["number"],
        name=LaneName(row["tenant"], row["queue"], row["task"], row["labels"], row["key"]),
        paused=row["paused"],
        limited=row["limited"],
        credit_ms=row["credit_ms"],
        fifo=row["fifo"],
        max_running=row["max_running"],
        rate_per_s=row["rate_per_s"],
        burst=row["burst"],
    )
