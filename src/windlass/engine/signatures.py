"""Signatures: what workers publish of their tasks decides which payloads a submit takes, and what it need not say.

A payload that no worker would take is refused at submit, not after hours in the queue. A payload is good if any
published signature takes it; a task without one is not checked. Options that a submit leaves open come from the build
whose worker registered last (queue/defaults.py).

What was published (queue/tasks.py) is kept in memory. Own registrations are known at once. Of a task that is not known
the database is asked, at most once a second. Changes at other servers are heard of by a hint (wake.py); without hints
a look finds them within seconds, which a submit waits for only if the last one is long ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from windlass.config import Settings
from windlass.db import Database
from windlass.engine.asked import given_by
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import InvalidInput, WindlassError
from windlass.queue import tasks
from windlass.queue.defaults import Defaults, Named, filled
from windlass.queue.newjob import NewJob
from windlass.queue.schedule import NewSchedule
from windlass.wire.tasks import Parameter, Signature

LOOK_S = 5.0
OVERLAP_S = 120.0
"""Each look begins so long before the last one: a transaction may commit late, and clocks differ."""
ASK_S = 1.0
"""How soon the database is asked again for a task that it did not know."""
MOST_ABSENT = 10_000
RENEW_S = 3600.0
"""How often a worker that is heard makes its signatures count for another day."""
MOST_SESSIONS = 20_000
MOST_EACH = 20
"""Signatures of one task that are remembered, the newest."""

_NOTHING = Defaults()
logger = logging.getLogger("windlass")


class _Known(msgspec.Struct):
    signature: Signature
    given: Defaults
    build: tuple[datetime, str]
    """When its worker registered, and its fingerprint: the greatest is the newest."""
    told_at: float


class _Told(msgspec.Struct):
    tenant: str
    signatures: Mapping[str, Signature]
    told_at: float


class Signatures:
    """What tasks take and give, as this server knows it."""

    def __init__(self, db: Database, settings: Settings, *, wake: Wake, outside: Outside) -> None:
        self._db = db
        self._settings = settings
        self._outside = outside
        self._wake = wake
        self._known: dict[Named, dict[str, _Known]] = {}
        self._absent: dict[Named, float] = {}
        """When the database was asked in vain."""
        self._sessions: dict[UUID, _Told] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looked_at: float | None = None
        """When the last look began that went through, and with which hint."""
        self._seen = 0
        self._hints = 0
        """How often other servers said that something was published."""
        wake.on_tasks.append(self._hear)

    async def publish(self, tenant: str, signatures: Mapping[str, Signature], *, session: UUID | None = None) -> None:
        """Keep what a worker tells of its tasks, and go by it from now on, and as long as it is heard."""
        if session is not None and signatures:
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session] = _Told(tenant, signatures, self._outside.monotonic())
        written = await tasks.publish(self._db, tenant, _texts(signatures))
        if signatures:
            self._take(await tasks.of_tasks(self._db, [(tenant, name) for name in signatures]))
        if written:
            self._wake.tasks()

    async def heard(self, session: UUID) -> None:
        """Take the heartbeat of a session as its word that what it has published still holds, once in a while."""
        told = self._sessions.get(session)
        if told is None or self._outside.monotonic() - told.told_at < RENEW_S:
            return
        told.told_at = self._outside.monotonic()
        with suppress(WindlassError):  # there is another heartbeat, and a day's time
            await tasks.publish(self._db, told.tenant, _texts(told.signatures), again=True)
            self._take(await tasks.of_tasks(self._db, [(told.tenant, name) for name in told.signatures]))

    async def check(self, jobs: Sequence[NewJob]) -> None:
        """Return if the payloads of the jobs can be taken; InvalidInput names the argument, and the job of a list."""
        await self._refresh({(job.tenant, job.task) for job in jobs})
        for index, job in enumerate(jobs):
            known = self._known.get((job.tenant, job.task))
            if known is None:
                continue
            now = self._outside.monotonic()
            builds = sorted(known.values(), key=lambda one: one.build)
            valid = [k.signature for k in builds if now - k.told_at < tasks.VALID_MS / 1000]
            problem = refusal(valid, job.payload, task=job.task)
            if problem is not None:
                raise problem if len(jobs) == 1 else problem.at(index)

    async def fill(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Return the jobs with what their tasks give for the options that they left open."""
        given = await self.given({(job.tenant, job.task) for job in jobs})
        if not given:
            return list(jobs)
        return [
            filled(job, given[job.tenant, job.task], is_submitted=True) if (job.tenant, job.task) in given else job
            for job in jobs
        ]

    async def given(self, names: Set[Named]) -> dict[Named, Defaults]:
        """Return what tasks give their jobs; those that give nothing are left out."""
        await self._refresh(names)
        found = {name: self.known_of(*name) for name in names}
        return {name: given for name, given in found.items() if given.options}

    def known_of(self, tenant: str, task: str) -> Defaults:
        """Return what a task gives its jobs, as far as it is known here."""
        builds = self._known.get((tenant, task), {}).values()
        since = self._outside.monotonic() - tasks.KEPT_MS / 1000
        kept = [one for one in builds if one.told_at > since]
        return max(kept, key=lambda one: one.build).given if kept else _NOTHING

    def queue_of(self, schedule: NewSchedule) -> str:
        """Return the queue to which a job of the schedule would go, as far as it is known here."""
        given = self.known_of(schedule.tenant, schedule.task)
        queue: str = schedule.own_queue or given.values.get("queue", schedule.queue)
        return queue

    async def _refresh(self, names: Set[Named]) -> None:
        """Know what is published of these tasks; wait for it where nothing, or nothing recent, is known."""
        for _ in range(2):  # a look that is under way may have begun before what was heard of
            if self._is_known(2 * LOOK_S):
                break
            await asyncio.wait([self._look()])
        if not self._is_known(LOOK_S):
            self._look()
        now = self._outside.monotonic()
        absent = {name for name in names - self._known.keys() if now - self._absent.get(name, -ASK_S) >= ASK_S}
        if absent:
            await self._ask(absent)

    def _is_known(self, within_s: float) -> bool:
        """Say whether the last look began so shortly ago, and nothing was heard of since."""
        looked_at = self._looked_at
        return looked_at is not None and self._seen == self._hints and self._outside.monotonic() - looked_at <= within_s

    def _hear(self) -> None:
        self._hints += 1
        self._absent.clear()

    def _look(self) -> asyncio.Task[None]:
        """Return the look that is under way, or a new one."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_once(), name="signatures")
        return self._looking

    async def _look_once(self) -> None:
        begun_at, hints = self._outside.monotonic(), self._hints
        age_s = tasks.KEPT_MS / 1000 if self._looked_at is None else begun_at - self._looked_at + OVERLAP_S
        try:
            self._take(await tasks.recent(self._db, age_ms=round(age_s * 1000)))
            await self._renew()
            self._looked_at, self._seen = begun_at, hints
        except WindlassError as error:  # the worker refuses what is wrong all the same
            logger.warning("What workers publish of their tasks could not be looked up: %s", error)
        finally:
            self._looking = None

    async def _renew(self) -> None:
        """Read those again that were published before their tenant was made: perhaps by another of the same name."""
        made = await tasks.tenants_made(self._db, {tenant for tenant, _ in self._known})
        now = self._outside.monotonic()
        old = [
            name
            for name, builds in self._known.items()
            if name[0] not in made or any(one.told_at < now - made[name[0]] for one in builds.values())
        ]
        if old:
            found = await tasks.of_tasks(self._db, old)
            for name in old:
                self._known.pop(name, None)
            self._take(found)

    def forget(self, tenant: str) -> None:
        """Drop what is known of the tasks of a tenant that was deleted."""
        self._known = {name: builds for name, builds in self._known.items() if name[0] != tenant}

    async def _ask(self, names: Set[Named]) -> None:
        """Look for tasks that are not known here; what is not there is asked for again after a while."""
        now = self._outside.monotonic()
        while len(self._absent) > MOST_ABSENT:
            del self._absent[next(iter(self._absent))]
        try:
            self._take(await tasks.of_tasks(self._db, names))
        except WindlassError as error:
            logger.warning("What workers publish of their tasks could not be looked up: %s", error)
        self._absent |= dict.fromkeys(names - self._known.keys(), now)

    def _take(self, found: Iterable[tasks.Published]) -> None:
        for item in found:
            try:
                signature = msgspec.json.decode(item.signature, type=Signature)
                given = given_by(signature.defaults, self._settings)
            except (msgspec.DecodeError, InvalidInput):  # of a later version, which says more than we know
                continue
            known = self._known.setdefault((item.tenant, item.name), {})
            known.pop(item.fingerprint, None)
            told_at = self._outside.monotonic() - item.age_s
            known[item.fingerprint] = _Known(signature, given, (item.registered_at, item.fingerprint), told_at)
            while len(known) > MOST_EACH:
                del known[next(iter(known))]


def _texts(signatures: Mapping[str, Signature]) -> dict[str, str]:
    return {name: msgspec.json.encode(signature).decode() for name, signature in signatures.items()}


def refusal(signatures: Sequence[Signature], payload: str, *, task: str) -> InvalidInput | None:
    """Return why none of the signatures takes the payload, by the newest of them; None if one does or there is none."""
    try:
        value = msgspec.json.decode(payload) if signatures else None
    except (msgspec.DecodeError, RecursionError, ValueError):  # refused by the step, in its own words
        return None
    problem: InvalidInput | None = None
    for signature in signatures:
        problem = _problem(signature, value, task)
        if problem is None:
            return None
    return problem


def _problem(signature: Signature, value: Any, task: str) -> InvalidInput | None:
    if value is not None and not isinstance(value, dict):
        if not signature.single:
            return InvalidInput("payload", f"it is {_named(value)}; task {task} takes an object of arguments by name.")
        [only] = signature.parameters.items() if len(signature.parameters) == 1 else [(None, Parameter())]
        if signature.single_types is not None:
            only = (None, Parameter(types=signature.single_types))
        return _mistyped(only[0], only[1], value, task)
    arguments: dict[str, Any] = value or {}
    for name, parameter in signature.parameters.items():
        if name in arguments:
            problem = _mistyped(name, parameter, arguments[name], task)
            if problem is not None:
                return problem
        elif parameter.required:
            return InvalidInput(f"payload.{name}", f"task {task} needs it, and it is missing.")
    if not signature.extra:
        for name in arguments:
            if name not in signature.parameters:
                takes = ", ".join(signature.parameters) or "no arguments"
                return InvalidInput(f"payload.{name[:100]}", f"task {task} does not take it. It takes {takes[:500]}.")
    return None


def _mistyped(name: str | None, parameter: Parameter, value: Any, task: str) -> InvalidInput | None:
    if parameter.types is None or any(_is(value, kind) for kind in parameter.types):
        return None
    where = "payload" if name is None else f"payload.{name}"
    return InvalidInput(where, f"it is {_named(value)}; task {task} takes {' or '.join(parameter.types)}.")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float):  # 1.0 too: a worker that wants an integer does not take it
        return kind == "number"
    if isinstance(value, int):
        return kind in ("integer", "number")
    return _named(value) == kind


def _named(value: Any) -> str:
    names = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")
