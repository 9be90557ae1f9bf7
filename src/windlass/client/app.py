"""The application: its tasks, and the way to a server.

Nothing is opened before it is used: an `App` at the top of a module costs nothing, in programs that only import it too.
Which way leads to a server is found out by find.py; what is sent there is built by requests.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload
from uuid import UUID

import msgspec

from windlass.client import requests, values
from windlass.client.context import Context
from windlass.client.find import Finder
from windlass.client.handle import Job
from windlass.client.options import JobOptions, Options, Span
from windlass.client.shell import Shell
from windlass.client.task import AsyncTask, Call, Isolation, SyncTask, Task
from windlass.config import Settings
from windlass.errors import InvalidInput, WindlassError
from windlass.wire import jobs as wire

P = ParamSpec("P")
R = TypeVar("R")


class _Anything:
    """Stands for every type: who takes this as a first argument takes anything, so no context is meant."""


class TaskMaker:
    """`@app.task(...)` with its options said: takes the function."""

    def __init__(self, app: App, name: str | None, *, isolation: Isolation | None, options: Options) -> None:
        self._app = app
        self._name = name
        self._isolation = isolation
        self._options = options

    @overload
    def __call__(self, fn: Callable[Concatenate[_Anything, P], Coroutine[Any, Any, R]]) -> AsyncTask[..., R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[_Anything, P], R]) -> SyncTask[..., R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R]) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R]) -> SyncTask[P, R]: ...
    def __call__(self, fn: Callable[..., Any]) -> Any:
        """Make the task."""
        return self._app.add_task(fn, name=self._name, isolation=self._isolation, options=self._options)


class App:
    """Tasks, and the way to a server.

    `url` and `key` name a server; `database` a SQLite file or PostgreSQL to open here. Without either the settings
    decide: WINDLASS_URL, else the server that runs on the SQLite file, else the file itself.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        database: str | None = None,
        name: str | None = None,
        queue: str | None = None,
        settings: Settings | None = None,
        patience: Span = 10.0,
        keyed: bool = True,
    ) -> None:
        """`queue` is that of tasks which name none; `patience`, how long a call waits for a server to be back.

        `keyed`: a job submitted alone gets an idempotency key if it has none, so that it can be said again when the
        answer was lost, and is one job all the same. Batches get none: a key for each would double their cost.
        """
        self.name = name
        self.tasks: dict[str, Task[..., Any]] = {}
        self._keyed = keyed
        self._defaults = Options() if queue is None else Options(queue=queue)
        finder = Finder(url, key=key, database=database, settings=settings)
        self._shell = Shell(finder, patience=patience)

    def __repr__(self) -> str:
        return f"<App {self.name or ''} with {len(self.tasks)} tasks>"

    @overload
    def task(self, fn: Callable[Concatenate[_Anything, P], Coroutine[Any, Any, R]], /) -> AsyncTask[..., R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, fn: Callable[Concatenate[_Anything, P], R], /) -> SyncTask[..., R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self, *, name: str | None = None, isolation: Isolation | None = None, **options: Unpack[JobOptions]
    ) -> TaskMaker: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **said: Any) -> Any:  # type: ignore[misc]
        """Make a function a task of this application; it can still be called.

        `name` is what jobs call it, the function's own without one; `isolation` where it runs, thread or process;
        the rest are the options of its jobs.
        """
        name, isolation = said.pop("name", None), said.pop("isolation", None)
        maker = TaskMaker(self, name, isolation=isolation, options=self._defaults.over(**said))
        return maker if fn is None else maker(fn)

    def add_task(
        self, fn: Callable[..., Any], *, name: str | None, isolation: Isolation | None, options: Options
    ) -> Task[..., Any]:
        """Return a new task; InvalidInput if another function has its name."""
        if isinstance(fn, Task):
            fn = fn.fn
        if not inspect.isroutine(fn):
            raise InvalidInput("task", f"{fn!r} is no function. Put @app.task over a `def` or an `async def`.")
        name = fn.__name__ if name is None else name
        if isolation not in (None, "thread", "process"):
            raise InvalidInput("isolation", f"{isolation!r} is neither thread nor process.")
        known = self.tasks.get(name)
        if known is not None and _place(known.fn) != _place(fn):
            raise InvalidInput(
                "name",
                f"{name!r} names two tasks, {_place(known.fn)} and {_place(fn)}. Give one another: @app.task(name=…).",
            )
        kind = AsyncTask if inspect.iscoroutinefunction(fn) else SyncTask
        made: Task[..., Any] = kind(self, fn, name=name, job_options=options, isolation=isolation)
        self.tasks[name] = made
        return made

    def enqueue(self, task: str, payload: Any = None, **options: Unpack[JobOptions]) -> Job[Any]:
        """Submit a job of a task by its name, which need not be known here; `payload` is any JSON."""
        return self._call(task, payload, options).enqueue()

    async def aenqueue(self, task: str, payload: Any = None, **options: Unpack[JobOptions]) -> Job[Any]:
        """Submit a job of a task by its name, which need not be known here; `payload` is any JSON."""
        return await self._call(task, payload, options).aenqueue()

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Submit calls, up to 1,000 in one request and all of these or none; return their handles in order.

        If a request fails, `stored` of its error has the handles of the requests before it.
        """
        made = list(calls)
        stored: list[Job[R]] = []
        for request in requests.submits(self._jobs(made)):
            try:
                answer = self._shell.call(request)
            except WindlassError as error:
                raise requests.failed_after(error, request, stored=stored, count=len(made)) from error
            stored += self._handles(made[len(stored) :], answer)
        return stored

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Submit calls, up to 1,000 in one request and all of these or none; return their handles in order.

        If a request fails, `stored` of its error has the handles of the requests before it.
        """
        made = list(calls)
        stored: list[Job[R]] = []
        for request in requests.submits(self._jobs(made)):
            try:
                answer = await self._shell.acall(request)
            except WindlassError as error:
                raise requests.failed_after(error, request, stored=stored, count=len(made)) from error
            stored += self._handles(made[len(stored) :], answer)
        return stored

    def job(self, job_id: UUID | str) -> Job[Any]:
        """Return the handle of a job that was submitted before; nothing is asked yet."""
        return Job(self._shell, job_id if isinstance(job_id, UUID) else UUID(job_id), decode=msgspec.json.decode)

    @property
    def where(self) -> str:
        """Where its jobs go now: the address of a server, or a database."""
        return self._shell.where

    @property
    def database(self) -> str | None:
        """The database that the application itself names, as it was written; None: the settings decide."""
        return self._shell.database

    def use(self, settings: Settings) -> None:
        """Go to the server of these settings, a worker's own, whatever the application says itself."""
        self._shell.use(settings)

    def close(self) -> None:
        """Let go of connections and of what was opened here; it is opened again when it is used again."""
        self._shell.close()

    async def aclose(self) -> None:
        """Let go of connections and of what was opened here; it is opened again when it is used again."""
        await self._shell.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _call(self, task: str, payload: Any, options: JobOptions) -> Call[Any]:
        known = self.tasks.get(task)
        said = (self._defaults if known is None else known.job_options).over(**options)
        decode = msgspec.json.decode if known is None else known.decode
        return Call(self, task, payload=values.encode(payload, "payload"), options=said, decode=decode)

    def _jobs(self, calls: Sequence[Call[R]]) -> list[dict[str, Any]]:
        now = self._shell.now()
        jobs = [
            requests.job_fields(call.name, call.payload, call.options.fields(call.name, call.payload, now=now))
            for call in calls
        ]
        if self._keyed and len(jobs) == 1:
            jobs[0].setdefault("idempotency_key", self._shell.new_key())
        return jobs

    def _handles(self, calls: Sequence[Call[R]], answer: wire.Submitted | wire.Batch) -> list[Job[R]]:
        jobs = answer.jobs if isinstance(answer, wire.Batch) else [answer]
        return [
            Job(self._shell, job.id, decode=call.decode, duplicate=job.duplicate)
            for call, job in zip(calls, jobs, strict=False)
        ]


def _place(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}.{getattr(fn, '__qualname__', fn)}"
