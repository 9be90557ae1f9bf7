"""The application: its tasks, and the way to a server.

Nothing is opened before it is used: an `App` at the top of a module costs nothing, in programs that only import it too.
Which way leads to a server is found out by find.py; what is sent there is built by requests.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack, overload
from uuid import UUID

import msgspec

from windlass.client import requests, schedulerequests, values
from windlass.client.allschedules import Schedules
from windlass.client.context import Context
from windlass.client.declared import Declaration, Declarations, ScheduledMaker, Telling
from windlass.client.find import Finder
from windlass.client.handle import Job
from windlass.client.options import JobOptions, Options, Span
from windlass.client.problems import refuse
from windlass.client.scheduleoptions import ScheduleOptions, new_fields
from windlass.client.schedules import Schedule
from windlass.client.shell import Shell
from windlass.client.task import Anything, AsyncTask, Call, Isolation, SyncTask, Task
from windlass.client.triggers import Trigger
from windlass.config import Settings
from windlass.errors import InvalidInput, WindlassError
from windlass.wire import jobs as wire
from windlass.wire.schedules import Declared, ScheduleChange

P = ParamSpec("P")
R = TypeVar("R")


class TaskMaker:
    """`@app.task(...)` with its options said: takes the function."""

    def __init__(
        self, app: App, name: str | None, *, isolation: Isolation | None, exclusive: bool, options: Options
    ) -> None:
        self._app = app
        self._name = name
        self._isolation = isolation
        self._exclusive = exclusive
        self._options = options

    @overload
    def __call__(self, fn: Callable[Concatenate[Anything, P], Coroutine[Any, Any, R]]) -> AsyncTask[..., R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[Anything, P], R]) -> SyncTask[..., R]: ...
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
        return self._app.add_task(
            fn, name=self._name, isolation=self._isolation, exclusive=self._exclusive, options=self._options
        )


class App:
    """Tasks, and the way to a server.

    `name` names the application, and owns the schedules that it declares. `url` and `key` name a server; `database`
    a SQLite file or PostgreSQL to open here. Without either the settings decide: WINDLASS_URL, else the server that
    runs on the SQLite file, else the file itself.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        url: str | None = None,
        key: str | None = None,
        database: str | None = None,
        queue: str | None = None,
        settings: Settings | None = None,
        patience: Span | None = None,
        keyed: bool = True,
    ) -> None:
        """`queue` is that of tasks which name none; `patience`, how long a call waits for a server to be back.

        Without it a call gives up after 2 s where no server is, after 10 s where one took the request and is silent.
        `keyed`: a job submitted alone gets an idempotency key if it has none, so that it can be said again when the
        answer was lost, and is one job all the same. Batches get none: a key for each would double their cost.
        """
        if name is not None and "://" in name:
            raise InvalidInput("App", f"{name!r} is no name of an application. Name the server by url=….")
        self.name = name
        self.tasks: dict[str, Task[..., Any]] = {}
        self.declarations = Declarations()
        self._keyed = keyed
        self._defaults = Options() if queue is None else Options(queue=queue)
        finder = Finder(url, key=key, database=database, settings=settings)
        self._shell = Shell(finder, patience=patience)
        self.schedules = Schedules(self._shell, self.tasks)
        """Those of the server, by name or id."""

    def __repr__(self) -> str:
        return f"<App {self.name or ''} with {len(self.tasks)} tasks>"

    @overload
    def task(self, fn: Callable[Concatenate[Anything, P], Coroutine[Any, Any, R]], /) -> AsyncTask[..., R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, fn: Callable[Concatenate[Anything, P], R], /) -> SyncTask[..., R]: ...
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
        self,
        *,
        name: str | None = None,
        isolation: Isolation | None = None,
        exclusive: bool = False,
        **options: Unpack[JobOptions],
    ) -> TaskMaker: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **said: Any) -> Any:  # type: ignore[misc]
        """Make a function a task of this application; it can still be called.

        `name` is what jobs call it, the function's own without one; `isolation` where it runs, thread or process;
        `exclusive` stops it when its worker cannot renew its lease in time, instead of letting it go on;
        the rest are the options of its jobs.
        """
        name, isolation, exclusive = said.pop("name", None), said.pop("isolation", None), said.pop("exclusive", False)
        options = self._defaults.over(**said)
        maker = TaskMaker(self, name, isolation=isolation, exclusive=exclusive, options=options)
        return maker if fn is None else maker(fn)

    def add_task(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None,
        isolation: Isolation | None,
        exclusive: bool = False,
        options: Options,
    ) -> Task[..., Any]:
        """Return a new task; InvalidInput if another function has its name."""
        before = fn if isinstance(fn, Task) else None
        if isinstance(fn, Task):
            fn = fn.fn
        if not inspect.isroutine(fn):
            raise InvalidInput("task", f"{fn!r} is no function. Put @app.task over a `def` or an `async def`.")
        name = fn.__name__ if name is None else name
        if isolation not in (None, "thread", "process"):
            refuse(InvalidInput("isolation", f"{isolation!r} is neither thread nor process."))
        known = self.tasks.get(name)
        if known is not None and (was := _place(known.fn)) != (now := _place(fn)):
            problem = f"{name!r} names two tasks, {was} and {now}. Give one another: @app.task(name=…)."
            refuse(InvalidInput("name", problem))
        kind = AsyncTask if inspect.iscoroutinefunction(fn) else SyncTask
        made: Task[..., Any] = kind(self, fn, name=name, job_options=options, isolation=isolation, exclusive=exclusive)
        if before is not None and self.declarations.supersede(before, made):
            self.tasks.pop(before.name, None)
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

    @overload
    def schedule(
        self,
        task: Task[..., R] | Call[R],
        trigger: Trigger | None,
        *,
        name: str | None = None,
        replace_existing: bool = False,
        dry_run: Literal[False] = False,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule[R]: ...
    @overload
    def schedule(
        self,
        task: Task[..., R] | Call[R],
        trigger: Trigger | None,
        *,
        name: str | None = None,
        replace_existing: bool = False,
        dry_run: Literal[True],
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleChange: ...
    def schedule(self, task: Any, trigger: Trigger | None, **said: Any) -> Any:
        """Store a schedule that makes jobs of a task, or of a call with its arguments, and return its handle.

        Its name is the task's unless it is given; NameTaken if another has it, unless `replace_existing`. Without a
        trigger it runs by hand only. With `dry_run` nothing is stored, and what would change is returned.
        """
        return self._scheduled(task, self._shell.call(self._scheduling(task, trigger, said)))

    @overload
    async def aschedule(
        self,
        task: Task[..., R] | Call[R],
        trigger: Trigger | None,
        *,
        name: str | None = None,
        replace_existing: bool = False,
        dry_run: Literal[False] = False,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule[R]: ...
    @overload
    async def aschedule(
        self,
        task: Task[..., R] | Call[R],
        trigger: Trigger | None,
        *,
        name: str | None = None,
        replace_existing: bool = False,
        dry_run: Literal[True],
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleChange: ...
    async def aschedule(self, task: Any, trigger: Trigger | None, **said: Any) -> Any:
        """Store a schedule that makes jobs of a task, or of a call with its arguments; as `schedule` does."""
        return self._scheduled(task, await self._shell.acall(self._scheduling(task, trigger, said)))

    def scheduled(
        self,
        trigger: Trigger,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
        **options: Unpack[ScheduleOptions],
    ) -> ScheduledMaker:
        """Declare a schedule of a task, above or below `@app.task`; a function without that becomes a task.

        Nothing is sent: servers are told when a worker of the application starts, or by `declare()`.
        """
        if self.name is None:
            refuse(_nameless())
        return ScheduledMaker(self, trigger, name=name, args=args, kwargs=kwargs, options=options)

    @property
    def declared(self) -> dict[str, Declaration]:
        """The schedules that were declared, by name."""
        return self.declarations.by_name()

    def declare(self, *, dry_run: bool = False, skip_refused: bool = False) -> Declared:
        """Give the servers exactly the schedules declared here: added, changed, and those declared no more removed.

        If one is refused, none is changed, and its error is raised. With `skip_refused` the others are made, and
        `refused` of the answer has the reason of each; what servers have under its name stays as it is.
        """
        telling = self._telling(dry_run=dry_run, skip_refused=skip_refused)
        try:
            return telling.told(self._shell.call(telling.request))
        except InvalidInput as error:
            raise telling.named(error) from error

    async def adeclare(self, *, dry_run: bool = False, skip_refused: bool = False) -> Declared:
        """Give the servers exactly the schedules declared here, as `declare` does."""
        telling = self._telling(dry_run=dry_run, skip_refused=skip_refused)
        try:
            return telling.told(await self._shell.acall(telling.request))
        except InvalidInput as error:
            raise telling.named(error) from error

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
        jobs = [
            requests.job_fields(call.name, call.payload, call.options.fields(call.name, call.payload)) for call in calls
        ]
        if self._keyed and len(jobs) == 1:
            jobs[0].setdefault("idempotency_key", self._shell.new_key())
        return jobs

    def _scheduling(self, task: Any, trigger: Trigger | None, said: dict[str, Any]) -> requests.Request:
        if not isinstance(task, Task | Call):
            raise InvalidInput("task", f"{task!r} is neither a task nor a call of one. Give a task, or task.s(…).")
        call = task.s() if isinstance(task, Task) else task
        name, replace, dry_run = said.pop("name", None), said.pop("replace_existing", False), said.pop("dry_run", False)
        fields = new_fields(call, trigger, name=call.name if name is None else name, said=said)
        build = schedulerequests.try_create if dry_run else schedulerequests.create
        return build(fields, replace_existing=replace)

    def _scheduled(self, task: Task[..., R] | Call[R], answer: Any) -> Schedule[R] | ScheduleChange:
        if isinstance(answer, ScheduleChange):
            return answer
        return Schedule(self._shell, answer, decode=task.decode)

    def _telling(self, *, dry_run: bool, skip_refused: bool) -> Telling:
        if self.name is None:
            raise _nameless()
        return Telling.of(self.name, self.declared, dry_run=dry_run, skip_refused=skip_refused)

    def _handles(self, calls: Sequence[Call[R]], answer: wire.Submitted | wire.Batch) -> list[Job[R]]:
        jobs = answer.jobs if isinstance(answer, wire.Batch) else [answer]
        return [
            Job(self._shell, job.id, decode=call.decode, duplicate=job.duplicate)
            for call, job in zip(calls, jobs, strict=False)
        ]


def _nameless() -> InvalidInput:
    return InvalidInput(
        "App",
        "it has no name, and one that declares schedules needs it: by it servers tell them from those of other "
        'applications. Write App("shop"), with a name of your own; it is not that of a schedule.',
    )


def _place(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}.{getattr(fn, '__qualname__', fn)}"
