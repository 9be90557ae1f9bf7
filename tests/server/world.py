"""What a tenant has, and requests that name it, made from the table of routes: a new route enters by itself.

A `World` belongs to one tenant. `named` makes a job in a state, with a worker, a schedule, a backfill and a key beside
it. `unknown` returns the same shape for objects that never were. `asks` lists what to send to a route: the path alone,
and each field of its query and its body that can name an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import httpx2
import msgspec

from windlass.db import Database, Query
from windlass.server.route import Route, documented_path

STATES = ("queued", "paused", "scheduled", "running", "sleeping", "cancelling", "done", "cancelled", "dead")
NEEDED_STATE = {
    **dict.fromkeys(("complete", "fail", "release", "snooze", "heartbeat"), "running"),
    "resume": "paused",
    "retry": "dead",
    "replay": "done",
    "erase": "done",
}
"""The state in which an act on a job succeeds, by the last word of its path; `queued` for the others."""
SINCE, UNTIL = "2026-01-01T06:00:00Z", "2026-01-01T09:00:00Z"
_PARAMETER = re.compile(r"\{(\w+)\}")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_KEY = re.compile(r'wl_[a-z2-7]{12}_[a-z2-7]+|(?<="id":")[a-z2-7]{12}(?=")')
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may name of one tenant."""

    tenant: str
    number: int
    job: str
    fence: int
    session: str
    schedule: str
    backfill: str
    key: str

    def text(self, noun: str) -> str:
        """Return the tenant's own name for a queue, a task, a worker and so on."""
        return f"{noun}-{self.tenant}{self.number:03}"


def unknown(named: Named) -> Named:
    """Return names of the same length and order for objects that never were; they stand right behind these."""
    other = {field: _next(getattr(named, field)) for field in ("job", "session", "schedule", "backfill")}
    return msgspec.structs.replace(
        named, number=named.number + 500, key=named.key[:-1] + "q", tenant=named.tenant, **other
    )


def _next(identifier: str) -> str:
    return str(UUID(int=UUID(identifier).int ^ 1))


class World:
    """One tenant, through the client of its admin."""

    def __init__(self, tenant: str, client: httpx2.AsyncClient, root: httpx2.AsyncClient) -> None:
        self.tenant = tenant
        self._client = client
        self._root = root
        self._number = 0

    async def begin(self) -> None:
        """Make the tenant."""
        await self._root.post("/tenants", json={"name": self.tenant})

    async def named(self, state: str, *, backfills: bool = False) -> Named:
        """Make a job in this state, and everything beside it anew; a backfill only where it is asked for."""
        self._number += 1
        session = str(uuid4())
        made = Named(
            tenant=self.tenant, number=self._number, job="", fence=1, session=session, schedule="", backfill="", key=""
        )
        task, queue = made.text("task"), made.text("queue")
        signatures = {task: {"extra": True}}
        worker = {"worker_id": made.text("worker"), "session": session, "tasks": [task], "signatures": signatures}
        await self._post("/workers/register", worker)
        schedule = {"name": made.text("schedule"), "task": task, "queue": queue, "cron": "@hourly"}
        await self._post("/schedules/declared", {"owner": made.text("owner"), "schedules": [schedule]})
        found = await self._client.get(f"/schedules/{made.text('schedule')}")
        schedule_id = found.json()["id"]
        backfill = await self._backfill(schedule_id) if backfills else str(uuid4())
        key = await self._post("/keys", {"name": made.text("key"), "role": "worker"})
        await self._post(f"/queues/{made.text('shut')}/pause", {"reason": made.text("reason")})
        job = await self._job(made, state)
        return msgspec.structs.replace(made, job=job, schedule=schedule_id, backfill=backfill, key=key["id"])

    async def _backfill(self, schedule_id: str) -> str:
        """Begin a backfill, and return its id when it has made its one job: it then waits for the job's end."""
        begun = await self._post(f"/schedules/{schedule_id}/backfill", {"since": SINCE, "until": UNTIL})
        while not begun["made"]:
            begun = (await self._client.get(f"/backfills/{begun['id']}")).json()
        backfill_id: str = begun["id"]
        return backfill_id

    async def _job(self, made: Named, state: str) -> str:
        fields = {"idempotency_key": made.text("key"), "unique_key": made.text("unique"), "tags": [made.text("tag")]}
        delay = {"delay": 3600} if state == "scheduled" else {}
        job = {"task": made.text("task"), "queue": made.text("queue"), "priority": 127, **fields, **delay}
        job_id: str = (await self._post("/jobs", job))["id"]
        if state in ("queued", "scheduled"):
            return job_id
        if state in ("paused", "cancelled"):
            await self._post(f"/jobs/{job_id}/{state.removesuffix('d').removesuffix('le')}", {})
            return job_id
        worker = {"worker_id": made.text("worker"), "session": made.session}
        await self._post("/jobs/claim", {**worker, "queues": [made.text("queue")], "count": 1})
        lease = {**worker, "fence": 1}
        await self._post(f"/jobs/{job_id}/heartbeat", {**lease, "started": True, "checkpoint": 1})
        line = {"at": SINCE, "text": made.text("line")}
        await self._post(
            "/jobs/report", {**worker, "logs": [{"job_id": job_id, "fence": 1, "seq": 0, "lines": [line]}]}
        )
        ends: dict[str, tuple[str, dict[str, Any]]] = {
            "sleeping": ("snooze", {**lease, "delay": 3600}),
            "cancelling": ("cancel", {}),
            "done": ("complete", lease),
            "dead": ("fail", {**lease, "error": made.text("error"), "retryable": False}),
        }
        if state in ends:
            act, body = ends[state]
            await self._post(f"/jobs/{job_id}/{act}", body)
        return job_id

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._client.post(path, json=body)
        assert answer.status_code < 300, (path, body, answer.text)
        found: dict[str, Any] = answer.json()
        return found


Value = Callable[[Named], Any]
REFERENCES: dict[str, Value] = {
    **dict.fromkeys(("job_id", "current_page_id"), lambda n: n.job),
    "task": lambda n: n.text("task"),
    "queue": lambda n: n.text("queue"),
    "owner": lambda n: n.text("owner"),
    "tag": lambda n: n.text("tag"),
    "worker_id": lambda n: n.text("worker"),
    "session": lambda n: n.session,
    "fence": lambda n: n.fence,
    "schedule_id": lambda n: n.schedule,
    "flow_id": lambda n: n.job,
    "schedule_name": lambda n: n.text("schedule"),
    "name": lambda n: n.text("schedule"),
    "prefix": lambda n: n.text("schedule"),
    "key": lambda n: n.text("key"),
    "idempotency_key": lambda n: n.text("key"),
    "unique_key": lambda n: n.text("unique"),
    "subject": lambda n: n.job,
    "id_end": lambda n: n.job[-12:],
    "ids": lambda n: [n.job],
    "queues": lambda n: [n.text("queue")],
    "tasks": lambda n: [n.text("task")],
    "keep": lambda n: [n.text("schedule")],
    "signatures": lambda n: {n.text("task"): {}},
    "held": lambda n: [{"job_id": n.job, "fence": n.fence}],
    "reports": lambda n: [{"kind": "complete", "job_id": n.job, "fence": n.fence}],
    "logs": lambda n: [{"job_id": n.job, "fence": n.fence, "seq": 7, "lines": [{"at": SINCE, "text": "x"}]}],
    "notes": lambda n: [{"job_id": n.job, "fence": n.fence, "progress": 1, "checkpoint": 2}],
    "jobs": lambda n: [{"task": n.text("task"), "queue": n.text("queue"), "unique_key": n.text("unique")}],
    "schedules": lambda n: [{"name": n.text("schedule"), "task": n.text("task"), "every": "1h"}],
    "claim": lambda n: {"queues": [n.text("queue")], "tasks": [n.text("task")]},
    "capabilities": lambda n: {"tasks": [n.text("task")]},
}
"""What a field of a query or a body names, by the field's name."""
FREE = frozenset({"action", "reason", "host", "version", "build", "region", "labels", "tags", "tenant", "role", "kind"})
"""Fields that hold a name or an id, and name no object of a tenant."""
PLAIN: dict[str, Any] = {"delay": 1, "priority": 5, "paused": True, "since": SINCE, "until": UNTIL}
"""Good values of fields that a body must have and that name nothing."""
OPENING = ("POST /jobs/claim", "POST /workers/register", "POST /workers/heartbeat")
"""Routes that open a session under the id that the caller has made up: one of another's is refused, and so told."""
_CURSORS: dict[str, Value] = {
    "/jobs": lambda n: n.job,
    "/dead-letter": lambda n: n.job,
    "/audit": lambda n: n.job,
    "/attempts": lambda n: f"1767268800000000_{n.job}_1",
    "/runs": lambda n: f"1767268800000000_{n.job}_1",
    **dict.fromkeys(("/jobs/{id}/attempts", "/jobs/{id}/events", "/schedules/{schedule}/events"), lambda _: "1"),
    "/schedules/{schedule}/runs": lambda _: UNTIL,
}
_PATHS: dict[str, Value] = {
    "id": lambda n: n.job,
    "schedule": lambda n: n.schedule,
    "backfill": lambda n: n.backfill,
    "worker": lambda n: n.text("worker"),
    "key": lambda n: n.key,
    "/queues": lambda n: n.text("shut"),
    "/tenants": lambda n: n.text(""),
    "/duties": lambda n: n.text(""),
}


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request to a route: which fields it sends."""

    route: Route
    query: Sequence[str] = ()
    body: Sequence[str] = ()
    by_name: bool = False
    """Whether a schedule in the path is named by its name, not by its id."""

    @property
    def state(self) -> str:
        """The state of a job in which the act would succeed."""
        path = self.route.path
        return "dead" if path.startswith("/dead-letter") else NEEDED_STATE.get(path.rsplit("/", 1)[-1], "queued")

    @property
    def in_lists(self) -> bool:
        """Whether its body has a list that names objects."""
        return any(field in ("ids", "held", "reports", "logs", "notes") for field in self.body)

    def url(self, named: Named) -> str:
        """Return the URL that names this."""
        path = documented_path(self.route)
        if (parameter := self.route.parameter) is not None:
            value = _PATHS[parameter if parameter != "name" else "/" + self.route.path.split("/")[1]](named)
            path = _PARAMETER.sub(named.text("schedule") if self.by_name else value, path)
        values = {field: self.value(field)(named) for field in self.query}
        if self.route.media_type == "text/event-stream":
            values["seconds"] = 0.001
        return str(httpx2.URL(f"http://windlass.test{path}", params=values))

    def content(self, named: Named, own: Named | None = None) -> dict[str, Any] | None:
        """Return the body that names this; with `own`, its lists name that object too."""
        if self.route.body is None:
            return None
        body = {}
        for field in self.body:
            body[field] = PLAIN[field] if field in PLAIN else self.value(field)(named)
            if own is not None and field in ("ids", "held", "reports", "logs", "notes"):
                body[field] = [*self.value(field)(own), *body[field]]
        return body

    def value(self, field: str) -> Value:
        """Return what a field names."""
        if field == "cursor":
            return _CURSORS.get(self.route.path, lambda n: n.text("schedule"))
        return REFERENCES[field]


def asks(route: Route) -> Iterator[Ask]:
    """Return what is sent to a route: the least that it takes, then every field that can name an object."""
    fields = msgspec.structs.fields(route.body) if route.body is not None else ()
    least = [field.name for field in fields if field.required]
    least += [field.name for field in fields if field.name == "fence" and "worker_id" in least]
    least += [field.name for field in fields if field.name == "session" and route.name not in OPENING]
    # From the default queue a caller would get the job that the caller before it was handed.
    least += [
        field.name for field in fields if field.name == "ids" or (field.name == "queues" and route.name in OPENING)
    ]
    least += [*getattr(route.body, "some", ())[:1], *getattr(route.body, "either", ())[:1]]
    needed = [field.name for field in msgspec.structs.fields(route.query) if field.required] if route.query else []
    yield Ask(route=route, query=needed, body=least)
    if route.parameter == "schedule":
        yield Ask(route=route, query=needed, body=least, by_name=True)
    for field in references(route.query):
        yield Ask(route=route, query=[*needed, field], body=least)
    for field in references(route.body):
        if field not in least:
            kept = [name for name in least if name != "ids" or field not in ("queue", "task")]
            yield Ask(route=route, query=needed, body=[*kept, field])


def references(struct: type[msgspec.Struct] | None) -> list[str]:
    """Return the fields of a query or a body that can name an object."""
    named = {*REFERENCES, "cursor"} - {"session"}
    return [] if struct is None else [name for name in struct.__struct_fields__ if name in named]


def alike(answer: httpx2.Response, names: dict[str, str]) -> tuple[object, ...]:
    """Return an answer for comparison: all its bytes and headers, but for the request id, times, and ids made for it.

    `names` are replaced, so that what was asked for is the same text in two answers.
    """
    text = answer.text
    for name, other in names.items():
        text = text.replace(name, other)
    seen: dict[str, str] = {}
    text = _UUID.sub(lambda found: seen.setdefault(found[0], f"<{len(seen)}>"), text)
    headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "content-length")}
    # The length follows from the bytes, which are compared; a time may be written with or without a fraction.
    assert answer.headers.get("content-length", str(len(answer.content))) == str(len(answer.content))
    return answer.status_code, headers, _KEY.sub("<key>", _TIME.sub("<time>", text))


def replaced(named: Named, other: Named) -> dict[str, str]:
    """Return each name and the one that stands for it."""
    ids = {getattr(named, field): getattr(other, field) for field in ("job", "session", "schedule", "backfill", "key")}
    return {
        **ids,
        f"-{named.tenant}{named.number:03}": f"-{other.tenant}{other.number:03}",
        named.job[-12:]: other.job[-12:],
    }


_COLUMNS = (
    """
    SELECT CAST(c.relname AS text) AS t, CAST(a.attname AS text) AS c
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
     WHERE n.nspname = 'windlass' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
       AND a.attnum > 0 AND NOT a.attisdropped
    """,
    "SELECT m.name AS t, i.name AS c FROM sqlite_master m JOIN pragma_table_info(m.name) i WHERE m.type = 'table'",
)


async def rows_of(db: Database, tenant: str) -> dict[str, list[str]]:
    """Return every row of a tenant, by table: those that bear its name or its lanes, and an id of such a row."""
    every = await _every_row(db)
    lanes = {row["id"] for row in every["lane"] if row["tenant"] == tenant}
    ids: set[str] = set()
    found: dict[int, tuple[str, str]] = {}
    before = -1
    while len(found) > before:
        before = len(found)
        for table, rows in every.items():
            for row in rows:
                own = row.get("tenant") == tenant or (table == "tenant" and row["name"] == tenant)
                if own or row.get("lane") in lanes or not ids.isdisjoint(map(str, row.values())):
                    found[id(row)] = (table, repr(sorted(row.items())))
                    ids |= {text for value in row.values() if _UUID.fullmatch(text := str(value))}
    return {table: sorted(text for name, text in found.values() if name == table) for table in every}


async def _every_row(db: Database) -> dict[str, list[dict[str, Any]]]:
    """Return all rows by table. Columns are read under other names: an `id` that is no UUID would not be taken."""
    columns: dict[str, list[str]] = {}
    for row in await db.fetch(Query("columns", "All columns.", *_COLUMNS)):
        columns.setdefault(row["t"], []).append(row["c"])
    every = {}
    for table, names in columns.items():
        text = f"SELECT {', '.join(f'{name} AS {name}_' for name in names)} FROM {table}"
        rows = await db.fetch(Query(table, "All rows.", text, text))
        every[table] = [{name.removesuffix("_"): value for name, value in row.items()} for row in rows]
    return every
