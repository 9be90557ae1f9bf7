"""Signatures: what workers publish of their tasks decides which payloads a submit takes, and what it need not say.

A payload that no worker would take is refused at submit, not after hours in the queue. A payload is good if any
published signature takes it; a task without one is not checked. Options that a submit leaves open come from the build
whose worker registered last (queue/defaults.py).

What was published (queue/tasks.py) is read tenant by tenant, when a tenant is first asked for, and kept in memory; the
tenants that were asked for longest ago go when there is too much. Own registrations are known at once. Of a task that
is not known the database is asked, at most once a second. A hint says which tenant has changed its tasks at another
server (wake.py); without hints a look finds it within seconds, and a submit waits only if the last look is long ago.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import datetime
from typing import Literal, TypeVar
from uuid import UUID

import msgspec

from windlass.config import Settings
from windlass.db import Database
from windlass.engine.asked import given_by
from windlass.engine.batch import MUCH
from windlass.engine.fair import LoopTurns, Pace, Turnstile
from windlass.engine.outside import Outside
from windlass.engine.payloads import refusal
from windlass.engine.wake import Wake
from windlass.errors import InvalidInput, TooMany, WindlassError
from windlass.queue import tasks
from windlass.queue.defaults import Defaults, Named, filled
from windlass.queue.newjob import NewJob
from windlass.queue.schedule import NewSchedule
from windlass.wire.tasks import Signature

LOOK_S = 5.0
OVERLAP_S = 120.0
"""Each look begins so long before the last one: a transaction may commit late, and clocks differ."""
ASK_S = 1.0
"""How soon the database is asked again for a task that it did not know."""
MOST_ABSENT = 10_000
RENEW_S = 3600.0
"""How often a worker that is heard makes its signatures count for another day."""
MOST_SESSIONS = 5000
"""Sessions of one tenant whose signatures are renewed."""
MOST_EACH = 20
"""Signatures of one task that are remembered, the newest."""
MOST_BYTES = 16 << 20
"""Of signatures that are remembered, over all tenants; in memory each takes several times its text."""
WRITES_S = 60.0
"""Within this a tenant may publish as many bytes of new signatures as are kept of it."""

Value = TypeVar("Value")
_NOTHING = Defaults()
logger = logging.getLogger("windlass")


class _Known:
    """One signature. Its text is read when it is asked for: most are not, and take several times their text then."""

    __slots__ = ("_read", "build", "settings", "text", "told_at")

    def __init__(self, text: str, settings: Settings, *, build: tuple[datetime, str], told_at: float) -> None:
        self.text = text
        self.settings = settings
        self.build = build
        """When its worker registered, and its fingerprint: the greatest is the newest."""
        self.told_at = told_at
        self._read: tuple[Signature, Defaults] | Literal[False] | None = None

    def read(self) -> tuple[Signature, Defaults] | None:
        """Return the signature and what it gives; None if it is of a later version, which says more than we know."""
        if self._read is None:
            try:
                signature = msgspec.json.decode(self.text, type=Signature)
                self._read = signature, given_by(signature.defaults, self.settings)
            except (msgspec.DecodeError, InvalidInput):
                self._read = False
        return self._read or None


class _Told(msgspec.Struct):
    """What some sessions have published, all the same."""

    builds: frozenset[tuple[str, str]]
    """Names with fingerprints."""
    told_at: float


class _Workers(msgspec.Struct):
    """The sessions of a tenant, and what it has published here lately."""

    sessions: dict[UUID, bytes] = {}
    """By the digest of what each has published."""
    told: dict[bytes, _Told] = {}
    since_s: float = float("-inf")
    written: int = 0
    """Bytes of new signatures since then."""


_Builds = dict[str, _Known]


class _Tasks(msgspec.Struct):
    """The tasks of one tenant as of the last look: when it began, and the last hint of the tenant by then."""

    looked_at: float
    hint: object
    builds: dict[str, _Builds] = {}


class Signatures:
    """What tasks take and give, as this server knows it."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        *,
        wake: Wake,
        outside: Outside,
        turns: LoopTurns | None = None,
        large: Callable[[str], AbstractAsyncContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        """`large` are the turns of large writes."""
        self._db = db
        self._settings = settings
        self._outside = outside
        self._wake = wake
        self._loop_turns = turns or LoopTurns()
        self._large = large
        self._known: dict[str, _Tasks] = {}
        """The tenants that were read, the one asked for last at the end."""
        self._absent: dict[Named, float] = {}
        """When the database was asked in vain."""
        self._workers: dict[str, _Workers] = {}
        self._turns = Turnstile("registrations", at_once=2, at_once_each=1, room_each=1000)
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._hints: dict[str, object] = {}
        """The last hint of each tenant that is known or looked at here; two hints are never equal."""
        wake.on_tasks.append(self._hear)

    async def publish(self, tenant: str, signatures: Mapping[str, Signature], *, session: UUID | None = None) -> None:
        """Keep what a worker tells of its tasks, and go by it as long as it is heard; TooMany if too much is new."""
        if not signatures:
            return
        texts = await self.texts(tenant, signatures)
        builds = frozenset((name, tasks.fingerprint(text)) for name, text in texts.items())
        async with self._turns.turn(tenant):
            await self.load(tenant)
            self._count_writes(tenant, texts, builds)
            async with self._large(tenant) if len(texts) > MUCH else nullcontext():
                written = await tasks.publish(self._db, tenant, texts)
            if session is not None:
                self._remember(tenant, session, builds)
            if absent := written | (texts.keys() - self._builds_of(tenant).keys()):
                await self._take(tenant, await tasks.of_tasks(self._db, [(tenant, name) for name in absent]))
        if written:
            self._wake.tasks(tenant)

    async def texts(self, tenant: str, signatures: Mapping[str, Signature]) -> dict[str, str]:
        """Return signatures as they are stored; InvalidInput if they are more than is kept of a tenant."""
        pace, texts = self._pace(tenant), {}
        for name, signature in signatures.items():
            texts[name] = msgspec.json.encode(signature).decode()
            await pace.give_way()
        tasks.check_size(texts)
        return texts

    def _count_writes(self, tenant: str, texts: Mapping[str, str], builds: Set[tuple[str, str]]) -> None:
        known = self._builds_of(tenant)
        size = sum(len(texts[name]) for name, fingerprint in builds if fingerprint not in known.get(name, ()))
        workers, now = self._workers.setdefault(tenant, _Workers()), self._outside.monotonic()
        if now - workers.since_s > WRITES_S:
            workers.since_s, workers.written = now, 0
        if workers.written + size > tasks.MOST_BYTES:
            problem = TooMany(f"Tenant {tenant} has published {workers.written} bytes of new signatures. Try later.")
            problem.retry_after_s = workers.since_s + WRITES_S - now
            raise problem
        workers.written += size

    def _remember(self, tenant: str, session: UUID, builds: frozenset[tuple[str, str]]) -> None:
        """Remember what a session has published; what many have published is remembered once."""
        workers = self._workers.setdefault(tenant, _Workers())
        digest = hashlib.sha256(repr(sorted(builds)).encode()).digest()
        workers.sessions[session] = digest
        while len(workers.sessions) > MOST_SESSIONS:
            del workers.sessions[next(iter(workers.sessions))]
        workers.told.pop(digest, None)
        workers.told[digest] = _Told(builds, self._outside.monotonic())
        while len(workers.told) > 1 and sum(len(told.builds) for told in workers.told.values()) > tasks.MOST_BUILDS:
            del workers.told[next(iter(workers.told))]

    async def heard(self, tenant: str, session: UUID) -> None:
        """Take the heartbeat of a session as its word that what it has published still holds, once in a while."""
        workers = self._workers.get(tenant)
        told = None if workers is None else workers.told.get(workers.sessions.get(session, b""))
        now = self._outside.monotonic()
        if told is None or now - told.told_at < RENEW_S:
            return
        told.told_at = now
        with suppress(WindlassError):  # there is another heartbeat, and a day's time
            await tasks.renew(self._db, tenant, told.builds)
            for name, fingerprint in told.builds:
                if known := self._builds_of(tenant).get(name, {}).get(fingerprint):
                    known.told_at = now

    async def check(self, jobs: Sequence[NewJob]) -> None:
        """Return if the payloads of the jobs can be taken; InvalidInput names the argument, and the job of a list."""
        since = self._outside.monotonic() - tasks.VALID_MS / 1000

        def read(builds: _Builds) -> list[Signature]:
            return [signature for signature, _ in _newest_first(builds, since)][::-1]

        valid = await self._read_each({(job.tenant, job.task) for job in jobs}, read)
        pace = self._pace(jobs[0].tenant if jobs else "")
        for index, job in enumerate(jobs):
            problem = refusal(valid.get((job.tenant, job.task), []), job.payload, task=job.task)
            if problem is not None:
                raise problem if len(jobs) == 1 else problem.at(index)
            await pace.give_way()

    async def fill(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Return the jobs with what their tasks give for the options that they left open."""
        given = await self.given({(job.tenant, job.task) for job in jobs})
        if not given:
            return list(jobs)
        pace, result = self._pace(jobs[0].tenant), []
        for job in jobs:
            defaults = given.get((job.tenant, job.task))
            result.append(job if defaults is None else filled(job, defaults, is_submitted=True))
            await pace.give_way()
        return result

    async def given(self, names: Set[Named]) -> dict[Named, Defaults]:
        """Return what tasks give their jobs; those that give nothing are left out."""
        found = await self._read_each(names, self._newest)
        return {name: given for name, given in found.items() if given.options}

    async def _read_each(self, names: Set[Named], read: Callable[[_Builds], Value]) -> dict[Named, Value]:
        """Return what `read` returns of each task that is published; others get their turn in between."""
        result: dict[Named, Value] = {}
        found = await self._builds(names)
        pace = self._pace(next(iter(found), ("", ""))[0])
        for name, builds in found.items():
            result[name] = read(builds)
            await pace.give_way()
        return result

    def known_of(self, tenant: str, task: str) -> Defaults:
        """Return what a task gives its jobs, as far as it is known here."""
        return self._newest(self._builds_of(tenant).get(task, {}))

    def _builds_of(self, tenant: str) -> dict[str, _Builds]:
        return self._known[tenant].builds if tenant in self._known else {}

    def _pace(self, tenant: str) -> Pace:
        return Pace(self._loop_turns, tenant, self._outside.monotonic)

    def _newest(self, builds: _Builds) -> Defaults:
        since = self._outside.monotonic() - tasks.KEPT_MS / 1000
        return next((given for _, given in _newest_first(builds, since)), _NOTHING)

    def queue_of(self, schedule: NewSchedule) -> str:
        """Return the queue to which a job of the schedule would go, as far as it is known here."""
        given = self.known_of(schedule.tenant, schedule.task)
        queue: str = schedule.own_queue or given.values.get("queue", schedule.queue)
        return queue

    async def _builds(self, names: Set[Named]) -> dict[Named, _Builds]:
        """Return what is published of these tasks; wait for it where nothing, or nothing recent, is known."""
        found: dict[Named, _Builds] = {}
        for tenant in {tenant for tenant, _ in names}:
            await self.load(tenant)
            now, own = self._outside.monotonic(), {name for name in names if name[0] == tenant}
            known = self._builds_of(tenant)
            absent = {name for name in own if name[1] not in known and now - self._absent.get(name, -ASK_S) >= ASK_S}
            if absent:
                await self._ask(tenant, absent)
            # Taken before the next tenant is read, for which this one may have to go.
            known = self._builds_of(tenant)
            found |= {(tenant, task): known[task] for _, task in own if task in known}
        return found

    async def load(self, tenant: str) -> None:
        """Know what is published by a tenant; wait for a look of its own where nothing, or nothing recent, is known."""
        for _ in range(2):  # a look that is under way may have begun before what was heard of
            if self._is_known(tenant, 2 * LOOK_S):
                break
            await asyncio.wait([self._look(tenant)])
        if tenant in self._known:
            self._known[tenant] = self._known.pop(tenant)
            if not self._is_known(tenant, LOOK_S):
                self._look(tenant)

    def _is_known(self, tenant: str, within_s: float) -> bool:
        """Say whether the last look at a tenant began so shortly ago, and nothing was heard of since."""
        known, now = self._known.get(tenant), self._outside.monotonic()
        return known is not None and known.hint is self._hints.get(tenant) and now - known.looked_at <= within_s

    def _hear(self, tenant: str | None) -> None:
        here, hint = self._known.keys() | self._looking.keys(), object()
        self._hints = {name: hint if tenant in (None, name) else self._hints.get(name) for name in here}
        self._absent = {name: at for name, at in self._absent.items() if tenant not in (None, name[0])}

    def _look(self, tenant: str) -> asyncio.Task[None]:
        """Return the look at a tenant that is under way, or a new one."""
        if tenant not in self._looking:
            self._looking[tenant] = asyncio.create_task(self._look_once(tenant), name="signatures")
        return self._looking[tenant]

    async def _look_once(self, tenant: str) -> None:
        begun_at, hint = self._outside.monotonic(), self._hints.get(tenant)
        try:
            if tenant in self._known and await self._is_former(tenant):
                self.forget(tenant)
            known = self._known.get(tenant)
            age_s = tasks.KEPT_MS / 1000 if known is None else begun_at - known.looked_at + OVERLAP_S
            found = await tasks.recent(self._db, tenant, age_ms=round(age_s * 1000))
            known = self._known.setdefault(tenant, _Tasks(begun_at, hint))
            await self._take(tenant, found)
            known.looked_at, known.hint = begun_at, hint
        except WindlassError as error:  # the worker refuses what is wrong all the same
            logger.warning("What workers publish of their tasks could not be looked up: %s", error)
        finally:
            del self._looking[tenant]

    async def _is_former(self, tenant: str) -> bool:
        """Say whether a tenant was deleted, or made anew after something was published that is known of it."""
        made_s = await tasks.tenant_made(self._db, tenant)
        if made_s is None:
            return True
        since = self._outside.monotonic() - made_s
        return any(one.told_at < since for builds in self._builds_of(tenant).values() for one in builds.values())

    def forget(self, tenant: str) -> None:
        """Drop what is known of the tasks of a tenant."""
        self._known.pop(tenant, None)

    async def _ask(self, tenant: str, names: Set[Named]) -> None:
        """Look for tasks that are not known here; what is not there is asked for again after a while."""
        now = self._outside.monotonic()
        while len(self._absent) > MOST_ABSENT:
            del self._absent[next(iter(self._absent))]
        try:
            await self._take(tenant, await tasks.of_tasks(self._db, names))
        except WindlassError as error:
            logger.warning("What workers publish of their tasks could not be looked up: %s", error)
        self._absent |= {name: now for name in names if name[1] not in self._builds_of(tenant)}

    async def _take(self, tenant: str, found: Iterable[tasks.Published]) -> None:
        """Remember what was found of a tenant that is known here; forget others if that is too much."""
        pace = self._pace(tenant)
        for item in found:
            await pace.give_way()
            if tenant not in self._known:
                return
            builds = self._builds_of(tenant).setdefault(item.name, {})
            builds.pop(item.fingerprint, None)
            told_at, build = self._outside.monotonic() - item.age_s, (item.registered_at, item.fingerprint)
            builds[item.fingerprint] = _Known(item.signature, self._settings, build=build, told_at=told_at)
            while len(builds) > MOST_EACH:
                del builds[next(iter(builds))]
        _trim(self._builds_of(tenant))
        sizes = {
            name: sum(len(one.text) for builds in known.builds.values() for one in builds.values())
            for name, known in self._known.items()
        }
        while len(sizes) > 1 and sum(sizes.values()) > MOST_BYTES:
            first = next(iter(sizes))
            del sizes[first], self._known[first]


def _trim(known: dict[str, _Builds]) -> None:
    """Forget the signatures of a tenant that were told longest ago, where they are more than are stored of one."""
    told = sorted(
        ((one.told_at, name, fingerprint) for name, builds in known.items() for fingerprint, one in builds.items()),
        reverse=True,
    )
    size = 0
    for number, (_, name, fingerprint) in enumerate(told):
        size += len(known[name][fingerprint].text)
        if number and (number >= tasks.MOST_BUILDS or size > tasks.MOST_BYTES):
            del known[name][fingerprint]
            if not known[name]:
                del known[name]


def _newest_first(builds: _Builds, since: float) -> Iterator[tuple[Signature, Defaults]]:
    """Return the builds that were told since then and can be read, the newest first."""
    for one in sorted(builds.values(), key=lambda one: one.build, reverse=True):
        if one.told_at > since and (read := one.read()) is not None:
            yield read
