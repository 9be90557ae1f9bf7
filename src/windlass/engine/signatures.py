"""Signatures: a payload that no worker would take is refused at submit, not after hours in the queue.

What workers published (queue/tasks.py) is kept in memory: own registrations are known at once, those at other servers
within a few seconds, by a look that no submit waits for. A payload is good if any published signature takes it; a task
without one is not checked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec

from windlass.db import Database
from windlass.engine.outside import Outside
from windlass.errors import InvalidInput, WindlassError
from windlass.queue import tasks
from windlass.queue.newjob import NewJob
from windlass.wire.tasks import Parameter, Signature

LOOK_S = 5.0
OVERLAP_S = 120.0
"""Each look begins so long before the last one: a transaction may commit late, and clocks differ."""
RENEW_S = 3600.0
"""How often a worker that is heard makes its signatures count for another day."""
MOST_SESSIONS = 20_000
MOST_EACH = 20
"""Signatures of one task that are remembered, the newest."""

logger = logging.getLogger("windlass")


class _Known(msgspec.Struct):
    signature: Signature
    told_at: float


class _Told(msgspec.Struct):
    tenant: str
    signatures: Mapping[str, Signature]
    told_at: float


class Signatures:
    """What tasks take, as this server knows it."""

    def __init__(self, db: Database, *, outside: Outside) -> None:
        self._db = db
        self._outside = outside
        self._known: dict[tuple[str, str], dict[str, _Known]] = {}
        self._sessions: dict[UUID, _Told] = {}
        self._looked_at: float | None = None
        self._looking: asyncio.Task[None] | None = None

    async def publish(self, tenant: str, signatures: Mapping[str, Signature], *, session: UUID | None = None) -> None:
        """Keep what a worker tells of its tasks, and check against it from now on, and as long as it is heard."""
        if session is not None and signatures:
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session] = _Told(tenant, signatures, self._outside.monotonic())
        texts = {name: msgspec.json.encode(signature).decode() for name, signature in signatures.items()}
        await tasks.publish(self._db, tenant, texts)
        for name, signature in signatures.items():
            self._note(tenant, name, tasks.fingerprint(texts[name]), signature, 0.0)

    async def heard(self, session: UUID) -> None:
        """Take the heartbeat of a session as its word that what it has published still holds, once in a while."""
        told = self._sessions.get(session)
        if told is None or self._outside.monotonic() - told.told_at < RENEW_S:
            return
        told.told_at = self._outside.monotonic()
        with suppress(WindlassError):  # there is another heartbeat, and a day's time
            await self.publish(told.tenant, told.signatures)

    async def check(self, jobs: Sequence[NewJob]) -> None:
        """Return if the payloads of the jobs can be taken; InvalidInput names the argument, and the job of a list."""
        await self._refresh()
        for index, job in enumerate(jobs):
            known = self._known.get((job.tenant, job.task))
            if known is None:
                continue
            now = self._outside.monotonic()
            valid = [k.signature for k in known.values() if now - k.told_at < tasks.VALID_MS / 1000]
            problem = refusal(valid, job.payload, task=job.task)
            if problem is not None:
                raise problem if len(jobs) == 1 else problem.at(index)

    async def _refresh(self) -> None:
        """Look again if the last look was long ago; only the first one is waited for."""
        now = self._outside.monotonic()
        if self._looked_at is None:
            self._looked_at = now
            await self._look(tasks.VALID_MS)
        elif now - self._looked_at > LOOK_S and self._looking is None:
            age_s = now - self._looked_at + OVERLAP_S
            self._looked_at = now
            self._looking = asyncio.create_task(self._look(round(age_s * 1000)), name="signatures")
            self._looking.add_done_callback(self._done)

    def _done(self, _: asyncio.Task[None]) -> None:
        self._looking = None

    async def _look(self, age_ms: int) -> None:
        try:
            found = await tasks.recent(self._db, age_ms=age_ms)
        except WindlassError as error:  # the worker refuses what is wrong all the same
            logger.warning("Which arguments tasks take could not be looked up: %s", error)
            self._looked_at = None
            return
        for item in found:
            try:
                signature = msgspec.json.decode(item.signature, type=Signature)
            except msgspec.DecodeError:  # of a later version, which says more than we know
                continue
            self._note(item.tenant, item.name, item.fingerprint, signature, item.age_s)

    def _note(self, tenant: str, name: str, fingerprint: str, signature: Signature, age_s: float) -> None:
        known = self._known.setdefault((tenant, name), {})
        known.pop(fingerprint, None)
        known[fingerprint] = _Known(signature, self._outside.monotonic() - age_s)
        while len(known) > MOST_EACH:
            del known[next(iter(known))]


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
