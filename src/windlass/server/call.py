"""One request as its endpoint sees it, and what the endpoint answers.

The frame (app.py) has let the caller in, checked the scope and decoded path, query and body before an endpoint is
called; an endpoint calls the engine and returns a struct, or a Reply where the status is not the usual one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

import msgspec

from windlass.config.redact import Redactor
from windlass.engine.fair import Cap, Pace
from windlass.errors import Forbidden, InvalidInput, NotFound, Unauthorized
from windlass.queue import schedules
from windlass.queue.control import Actor
from windlass.queue.keys import queues_held, queues_of
from windlass.queue.schedule import Reach
from windlass.server.auth import Principal
from windlass.wire.vocabulary import word

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.engine.computing import Budget
    from windlass.engine.engine import Engine
    from windlass.job import State
    from windlass.queue.schedule import NewSchedule
    from windlass.queue.schedules import Schedule
    from windlass.server.bodies import BodyShare

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Value = TypeVar("Value")

DEFAULT_TENANT = "default"
LOOK_S = 2.0
"""How often the key of a caller that waits is looked at; with what the gate believes, a revoked one ends within 5 s."""
_GOOD_NO_MORE = "The key of this call is good no more: it was revoked, or has expired. Use another."
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
NOBODY = Principal(None, "anonymous", None, frozenset(), None)
"""Who calls an open route."""


def is_uuid(text: str) -> bool:
    """Say whether a text is an id as it is written in a path."""
    return _UUID.fullmatch(text) is not None


class ClientGone(Exception):
    """The caller has closed the connection: nobody is there to be answered."""


class Reply(msgspec.Struct, frozen=True):
    """An answer whose status, headers or media type are not the usual ones of its route."""

    status: int
    content: Any = None
    """A struct to encode, bytes to send as they are, or None for no body."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = b"application/json"


class Described(NamedTuple):
    """The OpenAPI document, and the reference page made from it."""

    json: bytes
    html: bytes


class Lobby(Protocol):
    """The routes that need no key: the description of this API, and whether the server is ready."""

    async def described(self) -> Described:
        """Return the document of this API, and its page."""
        ...

    async def reasons(self) -> list[str]:
        """Return why this server cannot do its work; an empty list when it can."""
        ...


class Watch(Protocol):
    """Who knows whether a caller that was let in is still welcome."""

    async def still_good(self, principal: Principal) -> bool:
        """Say whether who was let in before would be let in now."""
        ...


class Call:
    """A request that has been let in and decoded."""

    __slots__ = (
        "_budget",
        "acted",
        "action",
        "address",
        "answer",
        "audit_tenant",
        "became",
        "begun_at",
        "body",
        "engine",
        "headers",
        "lobby",
        "look_s",
        "named_tenant",
        "path",
        "principal",
        "query",
        "receive",
        "redactor",
        "request_id",
        "settings",
        "subject",
        "tenant",
        "waiting",
        "was",
        "watch",
    )

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        *,
        receive: Receive,
        lobby: Lobby,
        redactor: Redactor,
        watch: Watch,
        waiting: Cap,
        look_s: float = LOOK_S,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.principal = NOBODY
        self.tenant = DEFAULT_TENANT
        self.named_tenant: str | None = None
        """The tenant of the key or of the query; None: the caller is above tenants and has named none."""
        self.path = ""
        """What stands in the path for its one parameter."""
        self.query: Any = None
        self.body: Any = None
        self.headers: dict[str, str] = {}
        self.request_id = ""
        self.begun_at = engine.outside.monotonic()
        self.address = ""
        self.acted = True
        """False: nothing was done, so the audit keeps nothing."""
        self.action: str | None = None
        """Under which action the audit keeps it, if not that of the route."""
        self.audit_tenant: str | None = None
        """Whose audit keeps it, if not that of `tenant`; empty for an act above tenants."""
        self.subject: str | None = None
        """What the audit says was acted on, if not the parameter of the path."""
        self.was: Any = None
        """How what is acted on was, for the audit; read by the frame where the path names it."""
        self.became: Any = None
        """How it is now, if the answer does not tell."""
        self.answer: BodyShare
        """The share of its answer in the budget of answers, until it is read."""
        self.lobby = lobby
        self.redactor = redactor
        self.receive = receive
        self.watch = watch
        self.waiting = waiting
        """The calls and streams that wait on this server, of all callers."""
        self.look_s = look_s
        self._budget: Budget | None = None

    @property
    def budget(self) -> Budget:
        """What this request may compute of the times of schedules."""
        if self._budget is None:
            self._budget = self.engine.schedules.computing.budget(self.tenant, self.principal.key_id)
        return self._budget

    @property
    def job_id(self) -> UUID:
        """The id in the path, which the frame has found to be one."""
        return UUID(self.path)

    @property
    def schedule_ref(self) -> UUID | str:
        """The schedule in the path: its id, or its name, which never looks like an id."""
        return UUID(self.path) if is_uuid(self.path) else self.path

    async def schedule(self) -> Schedule:
        """Return the schedule in the path, whose task is then known; NotFound if there is none."""
        await self.engine.signatures.load(self.tenant)
        return await schedules.get(self.engine.db, self.schedule_ref, tenant=self.tenant)

    @property
    def vocabulary(self) -> str:
        """In which words this caller wants `status`."""
        chosen: str | None = getattr(self.query, "vocabulary", None)
        return chosen or self.settings.server.vocabulary

    def word(self, state: State) -> str:
        """Return the caller's word for a state."""
        return word(state, self.vocabulary)

    async def give_way(self) -> None:
        """Let others have their turn on the event loop."""
        await self.engine.loop_turns.wait(self.tenant)

    def pace(self) -> Pace:
        """Return what cuts a long computation into turns."""
        return Pace(self.engine.loop_turns, self.tenant, self.engine.outside.monotonic)

    def hidden(self, text: str | None) -> str | None:
        """Return a text of a worker's or a person's without the secrets that can be told in it."""
        return None if text is None else self.redactor.text(text)

    def actor(self, reason: str | None = None) -> Actor:
        """Return who acts here, and why."""
        return Actor(self.principal.name, reason)

    def name_tenant(self, name: str) -> str:
        """Return the tenant that the caller has named; InvalidInput if it may name none."""
        if self.principal.tenant is not None or "admin" not in self.principal.scopes:
            raise InvalidInput(
                "tenant",
                "it comes from the key; only a key of scope admin without a tenant may name one. Leave it out.",
            )
        return name

    def require_no_tenant(self) -> None:
        """Return if the caller's key is above tenants; Forbidden otherwise."""
        if self.principal.tenant is not None:
            raise Forbidden("This is above tenants, and the key is of one. Use a key without a tenant.")

    def own_tenant(self, name: str) -> str:
        """Return the name of a tenant that the caller may see; another's is like one that never was."""
        if self.principal.tenant not in (None, name):
            raise NotFound(f"There is no tenant {name}.")
        return name

    def allow_queue(self, queue: str) -> str:
        """Return the queue if the caller's key is not kept to others; Forbidden otherwise."""
        if self.principal.queues is not None and queue not in self.principal.queues:
            raise Forbidden(f"This key is not for queue {queue}. Use a key that is.")
        return queue

    @property
    def reach(self) -> Reach | None:
        """The schedules that the caller may touch; None: all."""
        queues = self.principal.queues
        return None if queues is None else Reach(queues, self.engine.signatures.queue_of)

    async def may_touch(self, schedule: NewSchedule) -> bool:
        """Say whether the jobs of a stored schedule go to a queue of the caller's key."""
        await self.engine.signatures.given({(schedule.tenant, schedule.task)})
        return self.reach is None or self.reach.holds(schedule)

    async def foreign_jobs(self, ids: Sequence[UUID]) -> frozenset[UUID]:
        """Return those of the jobs that a key kept to some queues may not touch; unknown ones it may ask for."""
        queues = self.principal.queues
        if queues is None or not ids:
            return frozenset()
        found = await queues_of(self.engine.db, ids, tenant=self.tenant)
        return frozenset(job_id for job_id, queue in found.items() if queue not in queues)

    async def allow_sessions(self, *sessions: UUID | None) -> None:
        """Raises Forbidden if a session holds jobs of queues that the caller's key is not for: they live by it."""
        queues, named = self.principal.queues, [session for session in sessions if session is not None]
        if queues is None or not named:
            return
        if foreign := await queues_held(self.engine.db, named, tenant=self.tenant) - queues:
            raise Forbidden(f"The session holds jobs of queue {min(foreign)}. Use the key of its worker.")

    async def foreign_schedule(self) -> bool:
        """Say whether the path names a schedule that a key kept to some queues may not touch."""
        try:
            return not await self.may_touch((await self.schedule()).definition)
        except NotFound:
            return False

    def one_queue(self, queue: str | None) -> str | None:
        """Return the queue that a list is to be of, None for all; Forbidden if the key is not for that."""
        queues = self.principal.queues
        if queue is not None or queues is None:
            return None if queue is None else self.allow_queue(queue)
        if len(queues) > 1:
            raise Forbidden(f"This key is only for queues {', '.join(sorted(queues))}. Say which, by queue.")
        return next(iter(queues))

    async def while_connected(
        self, work: Coroutine[Any, Any, Value], undo: Callable[[Value], Awaitable[None]] | None = None
    ) -> Value:
        """Return what `work` returns; cancel it as soon as the caller has gone, or its key is good no more.

        ClientGone for the one, Unauthorized for the other. What is ready for such a caller goes to `undo`.
        Raises TooMany if the tenant or the key has too many calls that wait.
        """
        try:
            with self.waiting.place(self.tenant, self.principal.key_id):
                return await self._while_connected(work, undo)
        finally:
            work.close()  # if it has not begun

    async def _while_connected(
        self, work: Coroutine[Any, Any, Value], undo: Callable[[Value], Awaitable[None]] | None
    ) -> Value:
        working = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(disconnected(self.receive))
        welcome = True
        try:
            welcome = await self.while_welcome(working, gone)
        finally:
            left = gone.done()
            gone.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait((working,))
        if welcome and not left:
            return working.result()
        if not working.cancelled() and working.exception() is None and undo is not None:
            await undo(working.result())
        if left:
            raise ClientGone
        raise Unauthorized(_GOOD_NO_MORE)

    async def look_again(self) -> None:
        """Raise Unauthorized if the key was looked at a while ago, since when the body came, and is good no more."""
        is_late = self.engine.outside.monotonic() - self.begun_at > self.look_s / 2
        if is_late and not await self.watch.still_good(self.principal):
            raise Unauthorized(_GOOD_NO_MORE)

    async def while_welcome(self, *tasks: asyncio.Future[Any]) -> bool:
        """Return True when one of the tasks is done, False as soon as the caller's key is good no more."""
        while True:
            done, _ = await asyncio.wait(tasks, timeout=self.look_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return True
            if not await self.watch.still_good(self.principal):
                return False


async def disconnected(receive: Receive) -> None:
    """Return when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
