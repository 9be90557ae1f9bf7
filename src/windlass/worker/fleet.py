"""The fleet: as many runners as there should be, each with its keeper (keeper.py), in a process without user code.

`windlass worker` keeps a fixed number; the local pool of `windlass up` follows the servers' recommendation (scaler.py).
One that crashes is replaced after a pause that doubles. Scaling in drains, idle ones first, and never ends work (H8).
The first signal drains all, the second gives everything back at once, the third kills (W10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from windlass import log
from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.errors import SetupError, WindlassError
from windlass.worker.child import StartChild
from windlass.worker.frames import Ready
from windlass.worker.keeper import Ending, Keeper
from windlass.worker.link import Link
from windlass.worker.session import REGISTER_S

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
LONG_LIFE_S = 60.0
"""A runner that lived so long begins its back-off anew."""
UNHURRIED_S = 366 * 86_400.0
"""How long one that is scaled in may finish its jobs: longer than any of them may run."""
LAST_WORDS_S = 2.0
"""How long after the third signal the servers are told whose jobs are lost."""
HURRY_S = 0.3
"""How long after the second signal the runners may give their jobs back themselves; then their keepers do."""
END_S = 3.0
"""How long after the second signal a server may take to hear of it: without a word each job would cost an attempt."""
SHORT_LIFE_S = 5.0
"""A runner that asks to be replaced so soon would do so again."""
INTERRUPTED = 130
SIGNALLED = "The worker stops."


@dataclass
class Place:
    """A place of the fleet: one runner after the other."""

    number: int
    worker_id: str
    keeper: Keeper | None = None
    leaving: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def load(self) -> tuple[bool, int, int]:
        """What is chosen first to leave: without a session, then with the fewest jobs, then the newest."""
        keeper = self.keeper
        is_open = keeper is not None and keeper.opened.is_set()
        return is_open, 0 if keeper is None else len(keeper.held), -self.number


class Fleet:
    """Runners and their keepers."""

    def __init__(
        self,
        settings: Settings,
        start: StartChild,
        *,
        link: Link,
        name: str,
        count: int,
        is_scaled: bool = False,
        outside: Outside | None = None,
        on_ready: Callable[[Ready | None], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.finished_count = 0
        """Jobs that ended in order while the fleet drained: reported, or given back."""
        self.reason: str | None = None
        """Why it stops; none while it does not."""
        self._settings = settings
        self._start = start
        self._link = link
        self._count = count
        self._is_scaled = is_scaled
        self._outside = outside or Outside()
        self._on_ready = on_ready
        self._places: dict[int, Place] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._has_opened = self._is_ready = False
        self._was_killed = self._is_ended = False
        self._signal_count = 0
        self._fatal: WindlassError | None = None

    @property
    def held_count(self) -> int:
        """Jobs that its runners hold."""
        return sum(len(keeper.held) for keeper in self._keepers())

    @property
    def staying_count(self) -> int:
        """Places that are not about to leave."""
        return sum(not place.leaving.is_set() for place in self._places.values())

    async def run(self) -> int:
        """Keep runners until the fleet is told to stop, or none is left; return the exit code, or raise why not."""
        self.scale(self._count)
        if self._count == 0:
            self._on_ready(None)
        try:
            while not self._is_over():
                self._changed.clear()
                await self._changed.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._fatal is not None:
            raise self._fatal
        return INTERRUPTED if self._was_killed else 0

    def scale(self, count: int) -> None:
        """Have so many places: more at once, fewer by letting the least busy finish and leave."""
        if self._is_stopping:
            return
        # Those that leave still take memory: together they are never more than may be.
        most = self._settings.workers.max_count if self._is_scaled else count
        while self.staying_count < count and len(self._places) < most:
            self._add()
        staying = sorted((place for place in self._places.values() if not place.leaving.is_set()), key=lambda p: p.load)
        for place in staying[: max(0, len(staying) - count)]:
            self._leave(place, "Scaled in.", within_s=UNHURRIED_S)

    def drain(self, reason: str, *, within_s: float) -> None:
        """Let every runner finish within so long, give the rest back, and leave; said again, the sooner end counts."""
        self._is_stopping = True
        self.reason = self.reason or reason
        for place in self._places.values():
            self._leave(place, reason, within_s=within_s)
        self._changed.set()

    def signalled(self) -> None:
        """A signal came: the first drains, the second gives everything back now, the third kills."""
        self._signal_count += 1
        if self._signal_count == 1:
            self.drain(SIGNALLED, within_s=self._settings.worker.drain_seconds)
        elif self._signal_count == 2:
            self._was_killed = True
            self.drain(SIGNALLED, within_s=0.0)
            loop = asyncio.get_running_loop()
            loop.call_later(HURRY_S, self._give_back)
            loop.call_later(END_S, self._end_now)
        else:
            self._kill()
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self._end_now)

    def problems(self) -> list[str]:
        """Return what is wrong, for /healthz; empty while all is well."""
        now = self._outside.monotonic()
        found = []
        for place in self._places.values():
            problem = f"{place.worker_id} has ended and is not back yet" if place.keeper is None else None
            if place.keeper is not None:
                problem = place.keeper.problem(now)
            if problem is not None:
                found.append(problem)
        return found

    def _keepers(self) -> list[Keeper]:
        return [place.keeper for place in self._places.values() if place.keeper is not None]

    def _end_now(self) -> None:
        self._is_ended = True
        self._changed.set()

    def _is_over(self) -> bool:
        if self._fatal is not None or self._is_ended:
            return True
        return not self._places and (self._is_stopping or not self._is_scaled)

    def _add(self) -> None:
        number = next(n for n in range(1, len(self._places) + 2) if n not in self._places)
        alone = self._count == 1 and not self._is_scaled
        place = Place(number, self.name if alone else f"{self.name}-{number}")
        self._places[number] = place
        task = asyncio.create_task(self._occupy(place), name=place.worker_id)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal = error if isinstance(error, WindlassError) else SetupError(f"The worker failed: {error!r}.")
            self._kill()
        self._changed.set()

    def _leave(self, place: Place, reason: str, *, within_s: float) -> None:
        place.leaving.set()
        if place.keeper is not None:
            place.keeper.drain(reason, within_s=within_s)

    def _kill(self) -> None:
        self._is_stopping = True
        for place in self._places.values():
            place.leaving.set()
        for keeper in self._keepers():
            keeper.kill()

    def _give_back(self) -> None:
        for keeper in self._keepers():
            keeper.give_back()

    async def _occupy(self, place: Place) -> None:
        """Keep one runner after the other in this place, until it is to leave."""
        backoff_s: float | None = None
        try:
            while not place.leaving.is_set():
                ending = await self._one_life(place)
                if place.leaving.is_set() or (ending.kind == "left" and not ending.replace):
                    return
                self._raise_if_hopeless(ending)
                if ending.kind == "left" and not self._is_too_soon(ending):
                    backoff_s = None
                    continue
                backoff_s = next_backoff_s(backoff_s, ending.lived_s)
                log.event("worker.replaced", worker=place.worker_id, reason=ending.reason, pause_s=backoff_s)
                await self._pause(place, backoff_s)
        finally:
            self._places.pop(place.number, None)

    def _is_too_soon(self, ending: Ending) -> bool:
        """Say whether a runner is replaced so soon that something is wrong, as a memory limit below its own size."""
        return ending.lived_s < SHORT_LIFE_S and not self._settings.worker.max_jobs

    async def _one_life(self, place: Place) -> Ending:
        # Once it is known that the servers can be reached, an outage is waited for.
        within_s = None if self._has_opened else REGISTER_S
        place.keeper = keeper = Keeper(
            place.worker_id,
            self._start,
            link=self._link,
            settings=self._settings,
            outside=self._outside,
            register_within_s=within_s,
        )
        watching = asyncio.create_task(self._note_opened(keeper))
        try:
            return await keeper.run()
        except OSError as error:  # no more processes, or no more memory
            return Ending(kind="died", reason=str(error), lived_s=0.0, was_open=False)
        finally:
            watching.cancel()
            self.finished_count += keeper.finished_count
            place.keeper = None

    async def _note_opened(self, keeper: Keeper) -> None:
        await keeper.opened.wait()
        self._has_opened = True
        if not self._is_ready and all(place.load[0] for place in self._places.values()):
            self._is_ready = True
            self._on_ready(keeper.ready)

    def _raise_if_hopeless(self, ending: Ending) -> None:
        """Give up at the first start: nobody gains by a module that is imported in vain again and again."""
        if self._has_opened:
            return
        if ending.error is not None:
            raise ending.error
        if ending.kind == "failed":
            raise SetupError(ending.reason)
        raise SetupError(f"The worker's process ended before it was ready: {ending.reason}.")

    async def _pause(self, place: Place, seconds: float) -> None:
        pausing = asyncio.ensure_future(self._outside.pause(seconds))
        waking = asyncio.create_task(place.leaving.wait())
        await asyncio.wait([pausing, waking], return_when=asyncio.FIRST_COMPLETED)
        for task in (pausing, waking):
            task.cancel()


def next_backoff_s(last_s: float | None, lived_s: float) -> float:
    """Return how long to wait before a runner that crashed is replaced."""
    if last_s is None or lived_s >= LONG_LIFE_S:
        return FIRST_BACKOFF_S
    return min(MAX_BACKOFF_S, last_s * 2)


def pool_settings(settings: Settings) -> Settings:
    """Return the settings of a runner of the local pool: what `[workers]` says in place of `[worker]`."""
    pool = settings.workers
    worker = msgspec.structs.replace(
        settings.worker, threads=pool.threads, poll_interval_seconds=pool.poll_interval_ms / 1000
    )
    return msgspec.structs.replace(settings, worker=worker)
