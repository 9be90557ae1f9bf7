"""Large requests and large answers: bodies up to the limit in the worst shapes, and lists over large rows.

The shapes of bodies are made from the table of routes: each list and each map of each body, filled up to the bytes
that its route takes. `fill` stores what lists are then asked over: large payloads, errors, tracebacks and lines, and
workers that say much of themselves beside jobs that none of them can run.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx2
from msgspec import inspect

from tests.fuzz.caller import Request
from tests.fuzz.hostile import Hostile, sites
from tests.server.world import SINCE, Ask, Named, asks
from windlass.server.route import Route
from windlass.server.routes import ROUTES

KIB = 1 << 10
PAYLOAD_BYTES = 254 * KIB
LARGE_JOBS = 60
FAILED_JOBS = 480
ERROR = "".join(f"password{number}=x " for number in range(5_000))[: 64 * KIB - 1]
"""Not a line of it is one that redaction can pass over quickly."""
SHAPES: tuple[Any, ...] = ("://:", "a b", [""], {"": ""})
"""Items of payloads that take longest to redact."""
LARGE_ITEMS = 8
"""Jobs or results of the largest size in one body."""
SIGNATURES = 30
SAYING = 500
"""Workers that say all they may, and as many that could run a job but for their labels."""
UNREAD = 12
UNREAD_PAGES = 16
"""Asked for over each connection that reads nothing: more than the system takes from the server."""
TCP_ESTABLISHED = 1
ROUTES_BY_NAME = {route.name: route for route in ROUTES}
ITEMS = (b"{}", b"0", b'""', b"null", b"[]", b'{"a":{}}', b'{"task":"t"}', b'{"zzz":1}')


async def fill(client: httpx2.AsyncClient) -> list[str]:
    """Store large jobs, failed ones with long errors, a long log and a large fleet; return the ids of some jobs."""
    stuck = await _fleet(client)
    large = [{"task": "large", "queue": "large", "payload": "x" * PAYLOAD_BYTES}] * (LARGE_JOBS // 2)
    costly = [{"task": "large", "queue": "large", "payload": _costly(SHAPES[0])}] * (LARGE_JOBS // 2)
    [first_large, *_], [first_costly, *_] = [await _batch(client, jobs) for jobs in (large, costly)]
    failing = await _batch(client, [{"task": "failing", "queue": "failing", "max_attempts": 1}] * FAILED_JOBS)
    lease = {"worker_id": "filler", "session": str(uuid4())}
    await _post(client, "/workers/register", {**lease, "max_threads": 1000, "lease_seconds": 3600})
    claimed = await _post(client, "/jobs/claim", {**lease, "queues": ["failing"], "count": FAILED_JOBS})
    first, *others = claimed["jobs"]
    beat = {**lease, "fence": first["fence"], "checkpoint": _costly(SHAPES[0])}
    await _post(client, f"/jobs/{first['id']}/heartbeat", beat)
    line = {"at": SINCE, "text": ERROR[: 16 * KIB]}
    for seq in range(4):
        chunk = {"job_id": first["id"], "fence": first["fence"], "seq": seq, "lines": [line] * 400}
        await _post(client, "/jobs/report", {**lease, "logs": [chunk]})
    for start in range(0, len(others), 50):
        reports = [
            {
                "kind": "fail",
                "job_id": job["id"],
                "fence": job["fence"],
                "retryable": False,
                "error_message": ERROR,
                "traceback": ERROR,
            }
            for job in others[start : start + 50]
        ]
        await _post(client, "/jobs/report", {**lease, "reports": reports})
    return [others[0]["id"], failing[-1], first_large, first_costly, first["id"], stuck]


async def _fleet(client: httpx2.AsyncClient) -> str:
    """Register workers, and submit jobs that wait because of their labels; return the id of one."""
    tasks = [f"stuck-{number}" for number in range(1_000)]
    for number in range(SAYING):
        names = {"tasks": [f"{number}-{n}-".ljust(64, "x") for n in range(1_000)]}
        queues = [f"{number}-{n}-".ljust(200, "q") for n in range(300)]
        few = {"tasks": tasks, "queues": ["stuck"], "labels": [f"label-{number}"]}
        for kind, said in (("much", {**names, "queues": queues}), ("few", few)):
            worker = {"worker_id": f"{kind}-{number}", "session": str(uuid4()), "lease_seconds": 3600}
            await _post(client, "/workers/register", {**worker, **said})
    labels = [f"wanted-{number}" for number in range(32)]
    return (await _batch(client, [{"task": task, "queue": "stuck", "labels": labels} for task in tasks]))[0]


def _costly(item: Any) -> list[Any]:
    """Return a payload that is as large as it may be."""
    return [item] * (PAYLOAD_BYTES // (len(_text(item)) + 1))


def _text(body: Any) -> bytes:
    """Return JSON without a space."""
    return json.dumps(body, separators=(",", ":")).encode()


async def _batch(client: httpx2.AsyncClient, jobs: list[dict[str, Any]]) -> list[str]:
    return [job["id"] for job in (await _post(client, "/jobs/batch", {"jobs": jobs}))["jobs"]]


async def _post(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code < 300, f"{answer.status_code} to {path}: {answer.text[:300]}"
    return answer.json()


def lists(hostile: Hostile, ids: Sequence[str]) -> Iterator[Request]:
    """Return reads that show as much as they may, of every route that reads."""
    for ask in (ask for route in ROUTES if route.scopes and route.method == "GET" for ask in asks(route)):
        if ask.query or ask.by_name or ask.route.media_type == "text/event-stream":
            continue
        most = "500" if "limit" in (ask.route.query.__struct_fields__ if ask.route.query else ()) else ""
        for job_id in ids if ask.route.parameter == "id" else ids[:1]:
            named = Named(
                tenant="a",
                number=1,
                fence=1,
                key="x",
                job=job_id,
                session=job_id,
                schedule=job_id,
                backfill=job_id,
            )
            url = ask.url(named) + (f"?limit={most}" if most else "")
            yield hostile.request(ask.route, url, b"", f"of large rows {job_id if most else ''}")


def bodies(hostile: Hostile, named: Named) -> Iterator[Request]:
    """Return bodies in which one list or one map is as long as the route takes bytes."""
    for route in ROUTES:
        if route.body is None:
            continue
        ask = next(iter(asks(route)))
        for site in sites(ask):
            for place in _places(site.kind) if site.path.count(".") <= 1 else ():
                for item in ITEMS:
                    what = f"{site.path}: {json.dumps(place)} of {item.decode()}"
                    yield _filled(hostile, ask, site.build(named, place), item, what)
        yield _filled(hostile, ask, {**(ask.content(named) or {}), "zzz": "@odd@"}, b'{"a":1}', "an unknown list")
        deep = b'{"a":' * (route.body_bytes // 6 - 200)
        yield hostile.request(route, ask.url(named), deep, "as deep as it goes")
        text = json.dumps({**(ask.content(named) or {}), "reason": "@odd@"}).encode()
        yield hostile.request(
            route, ask.url(named), text.replace(b"@odd@", b"\\u0041" * (route.body_bytes // 6 - 200)), "a long text"
        )


def _filled(hostile: Hostile, ask: Ask, body: dict[str, Any], item: bytes, what: str) -> Request:
    """Return a body whose list has a first item that is good but for one name, then this one as often as it fits."""
    frame = json.dumps(body).encode()
    room = ask.route.body_bytes - len(frame) - 100
    first = b'{"task":"t","name":"n","worker_id":"w","zzz":1}'
    raw = b"[" + first + (b"," + item) * (room // (len(item) + 1) - 100) + b"]"
    return hostile.request(ask.route, ask.url(_ANY), frame.replace(b'"@odd@"', raw), what)


def _places(kind: Any) -> Iterator[Any]:
    """Return the values of a field in which a long list may stand: in its place, or inside the values of a map."""
    if _is_long(kind):
        yield "@odd@"
    if _maps_to_lists(kind):
        yield from ({"a": "@odd@"}, {"a": ["@odd@"]}, {"a": {"b": "@odd@"}})


def _maps_to_lists(kind: Any) -> bool:
    match kind:
        case inspect.Metadata():
            return _maps_to_lists(kind.type)
        case inspect.UnionType():
            return any(_maps_to_lists(inner) for inner in kind.types)
        case inspect.StructType():
            return getattr(kind.cls, "extras", None) is not None
        case inspect.DictType():
            return _is_long(kind.value_type)
    return False


def _is_long(kind: Any) -> bool:
    match kind:
        case inspect.Metadata():
            return _is_long(kind.type)
        case inspect.UnionType():
            return any(_is_long(inner) for inner in kind.types)
        case inspect.ListType() | inspect.VarTupleType() | inspect.DictType():
            return True
    return False


_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
_ANY = Named(tenant="a", number=1, job=_ID, fence=1, session=_ID, schedule=_ID, backfill=_ID, key="x")


def _of(name: str) -> Route:
    return ROUTES_BY_NAME[name]


async def ends(hostile: Hostile, client: httpx2.AsyncClient) -> list[Request]:
    """Claim jobs; return reports that end a thousand leases each: dead, to be tried again, given back."""
    lease = {"worker_id": "ender", "session": str(uuid4())}
    await _post(client, "/workers/register", {**lease, "max_threads": 1000, "lease_seconds": 3600})
    texts = {"error_message": ERROR[: 4 * KIB - 200], "traceback": ERROR[: 4 * KIB - 200]}
    made: list[Request] = []
    for kind, attempts, told in (
        ("fail", 1, texts),
        ("fail", 3, texts),
        ("release", 3, {"error_message": ERROR[: 4 * KIB]}),
        ("release", 3, {"reason": ERROR[:2_000]}),
    ):
        queue = f"ending-{len(made)}"
        await _batch(client, [{"task": "ending", "queue": queue, "max_attempts": attempts}] * 1_000)
        jobs: list[dict[str, Any]] = []
        while len(jobs) < 1_000:
            asked = {**lease, "queues": [queue], "count": 1_000 - len(jobs), "wait": 5}
            jobs += (await _post(client, "/jobs/claim", asked))["jobs"]
        reports = [{"kind": kind, "job_id": job["id"], "fence": job["fence"], **told} for job in jobs]
        body = _text({**lease, "reports": reports})
        route, what = _of("POST /jobs/report"), f"1,000 ends of leases: {kind}"
        made.append(hostile.request(route, "/api/v1/jobs/report", body, what, key=hostile.key))
    return made


def costly(hostile: Hostile) -> Iterator[Request]:
    """Return well-formed requests that ask for much: renaming, hostile schedules, signatures, words of no lease."""
    old = [{"name": "t", "workKind": None} | {"scheduledAt": SINCE, "payload": "x" * 7_000}] * 1_000
    named = [
        {"name": "t", "timeoutSeconds": 5, "retryPolicy": {"byError": {f"E{n}": {"maxAttempts": 3} for n in range(32)}}}
    ]
    for jobs in (old, named * 1_000, [{"name": "t", "labels": ["l" * 200] * 32, "payload": "x" * 100}] * 1_000):
        yield _to(hostile, "POST /jobs/batch", {"jobs": jobs}, "older names")
    parameter = {"types": ["string"], "required": True}
    for number in range(SIGNATURES):
        tasks = {f"task-{number}-{n}": {"parameters": {f"p{m}": parameter for m in range(20)}} for n in range(500)}
        body = {"worker_id": f"signer-{number}", "session": str(uuid4()), "signatures": tasks}
        yield _to(hostile, "POST /workers/register", body, "a megabyte of signatures")
    line = {"at": SINCE, "text": ERROR[: 16 * KIB]}
    chunks = [{"job_id": str(uuid4()), "fence": 1, "seq": 0, "lines": [line] * 100} for _ in range(4)]
    yield _to(hostile, "POST /jobs/report", {"worker_id": "nobody", "logs": chunks}, "lines of no lease")
    notes = [{"job_id": str(uuid4()), "fence": 1, "progress": ERROR[:7_000], "checkpoint": 1} for _ in range(1_000)]
    yield _to(hostile, "POST /jobs/report", {"worker_id": "nobody", "notes": notes}, "notes of no lease")
    reports = [
        {"kind": "fail", "job_id": str(uuid4()), "fence": 1, "error": ERROR, "traceback": ERROR} for _ in range(60)
    ]
    yield _to(hostile, "POST /jobs/report", {"worker_id": "nobody", "reports": reports}, "ends of no lease")
    result = {"kind": "complete", "fence": 1, "result": _costly(SHAPES[0])}
    reports = [{**result, "job_id": str(uuid4())} for _ in range(LARGE_ITEMS)]
    yield _to(hostile, "POST /jobs/report", {"worker_id": "nobody", "reports": reports}, "results of no lease")
    held = [{"job_id": str(uuid4()), "fence": 1, "progress": "x" * 700} for _ in range(10_000)]
    yield _to(
        hostile, "POST /workers/heartbeat", {"worker_id": "w", "session": str(uuid4()), "held": held}, "10,000 leases"
    )
    ids = [str(uuid4()) for _ in range(1_000)]
    yield _to(hostile, "POST /dead-letter/retry", {"ids": ids, "payload": "x" * 200_000}, "1,000 unknown")
    yield _to(hostile, "POST /dead-letter/retry", {"task": "failing"}, "1,000 at once")
    yield _to(hostile, "POST /dead-letter/purge", {"task": "failing"}, "1,000 at once")
    payloads = [{"task": "t", "payload": _costly(SHAPES[0])}] * LARGE_ITEMS
    yield _to(hostile, "POST /jobs/batch", {"jobs": payloads}, "large payloads")
    yield from _payloads(hostile)
    yield from _schedules(hostile)


def _payloads(hostile: Hostile) -> Iterator[Request]:
    """Return schedules with large payloads, and all that shows or compares these."""
    for number, shape in enumerate(SHAPES):
        name, payload = f"costly-{number}", _costly(shape)
        same = {"payload": payload}
        made = {"name": name, "task": "t", "cron": "0 2 * * *", **same}
        other = {"payload": [payload]}
        bodies: list[tuple[str, dict[str, Any] | None]] = [
            ("POST /schedules", made),
            ("POST /jobs", {"task": "t", "schedule": "0 2 * * *", "schedule_name": f"costly-job-{number}"} | same),
            ("GET /schedules/{schedule}", None),
            ("PATCH /schedules/{schedule}", {**other, "dry_run": True}),
            ("POST /schedules", {**made, **other, "replace_existing": True, "dry_run": True}),
            ("PATCH /schedules/{schedule}", other),
            ("PUT /schedules/{schedule}", made),
            ("POST /schedules/{schedule}/pause", {}),
            ("POST /schedules/{schedule}/resume", {}),
            ("POST /schedules/{schedule}/run", other),
        ]
        for route_name, body in bodies:
            route = _of(route_name)
            url = f"/api/v1{route.path}".replace("{schedule}", name)
            content = b"" if body is None else _text(body)
            yield hostile.request(route, url, content, f"a payload of {shape}", key=hostile.key)


SECONDLY = 6
"""Which of the hard triggers has a slot in every second."""
MADE = [
    *(f"hard-{SECONDLY}-{number}" for number in range(1_000)),
    *(f"{kind}-{number}" for kind in ("costly", "costly-job") for number in range(len(SHAPES))),
]
"""Schedules that would be a load for the parts after this one."""


def _schedules(hostile: Hostile) -> Iterator[Request]:
    """Return schedules and previews whose next slot is far away or never comes."""
    shut = {"timezone": "America/New_York", "exclude": ["2026-01-01/2074-12-31"]}
    hard: list[dict[str, Any]] = [
        {"cron": "{minute} {hour} * * *", **shut},
        {"cron": "* 2 * * 0#5"},
        {"cron": "0 0 29 2 1#5", "timezone": "Africa/Casablanca"},
        {"cron": "0 0 31 2 *"},
        {"cron": "{minute} {hour} 29 2 *", "exclude": [f"{year}-02-29" for year in range(2028, 2400, 4)]},
        {"cron": "* * * * * *", "exclude": ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]},
        {
            "every": 1,
            "start": "1970-01-01T00:00:00Z",
            "exclude": [f"--{n % 12 + 1:02}-{n % 28 + 1:02}" for n in range(400)],
        },
        {"cron": "@yearly", "jitter": 1_000_000_000},
        {"every": 1_000_000_000, "start": "9980-01-01T00:00:00Z"},
    ]
    for number, trigger in enumerate(hard):
        many = [_schedule(trigger, n, f"hard-{number}-{n}") for n in range(1_000)]
        yield _to(hostile, "POST /schedules/batch", {"schedules": many}, f"hard {trigger}")
        skipped = {"owner": f"o{number}", "schedules": many, "skip_refused": True}
        yield _to(hostile, "POST /schedules/declared", {**skipped, "dry_run": True}, f"hard {trigger}")
        for minute in range(20):
            preview = {**_trigger(trigger, minute), "count": 100}
            yield _to(hostile, "POST /schedules/preview", preview, f"hard {trigger}")


def _trigger(trigger: dict[str, Any], number: int) -> dict[str, Any]:
    cron = {"cron": trigger["cron"].format(minute=number % 60, hour=number // 60)} if "cron" in trigger else {}
    return {**trigger, **cron}


def _schedule(trigger: dict[str, Any], number: int, name: str) -> dict[str, Any]:
    return {**_trigger(trigger, number), "name": name, "task": "t"}


def _to(hostile: Hostile, name: str, body: dict[str, Any], what: str) -> Request:
    route = _of(name)
    return hostile.request(route, next(iter(asks(route))).url(_ANY), _text(body), what[:120])


def at_once(hostile: Hostile, count: int) -> list[Request]:
    """Return bodies of 8 MiB to be sent at the same time: together more than one server takes."""
    body = b'{"jobs":[' + b" " * (8 * KIB * KIB - 100) + b"]}"
    return [hostile.request(_of("POST /jobs/batch"), "/api/v1/jobs/batch", body, "8 MiB at once")] * count


class Unread:
    """Connections that ask for large pages and take nothing of them."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._sockets: list[socket.socket] = []

    async def open(self, request: Request) -> None:
        """Ask, over every connection; the pipe is kept small, so that the server has to keep the rest."""
        loop = asyncio.get_running_loop()
        for _ in range(UNREAD):
            made = socket.socket()
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            await loop.sock_connect(made, self._address)
            await loop.sock_sendall(made, request.data * UNREAD_PAGES)
            self._sockets.append(made)

    async def ask_again(self, request: Request) -> None:
        """Ask once more: what the system keeps for a connection may hold the first pages."""
        for made in self._sockets:
            with suppress(OSError):
                await asyncio.get_running_loop().sock_sendall(made, request.data * UNREAD_PAGES)

    def close(self) -> int:
        """Close them; return how many of them the server has not ended."""
        open_count = 0
        for made in self._sockets:
            state = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            open_count += state == TCP_ESTABLISHED
            made.close()
        return open_count
