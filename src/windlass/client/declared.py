"""Declared schedules: what stands beside the code of a task, and is made so on the servers when a worker starts.

`@app.scheduled(...)` notes them, and sends nothing; `app.declare()` (app.py) sends all of them at once under the name
of the application: servers add, change and remove until they have these. worker/declaring.py does it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

import msgspec

from windlass.client import schedulerequests
from windlass.client.context import Context
from windlass.client.problems import refuse
from windlass.client.requests import Request
from windlass.client.scheduleoptions import new_fields
from windlass.client.task import Anything, AsyncTask, SyncTask, Task
from windlass.client.triggers import Trigger
from windlass.errors import InvalidInput
from windlass.wire.schedules import Declared, RefusedSchedule

if TYPE_CHECKING:
    from windlass.client.app import App

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule that the code asks for."""

    task: Task[..., Any]
    trigger: Trigger
    own_name: str | None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """What it is called: the name of its task where none was given."""
        return self.task.name if self.own_name is None else self.own_name

    def fields(self) -> dict[str, Any]:
        """Return it as the API wants it; TypeError or InvalidInput for what does not fit its task."""
        call = self.task.s(*self.args, **self.kwargs)
        return new_fields(call, self.trigger, name=self.name, said=self.options)

    def check(self) -> None:
        """Return if a server can take it; TypeError or InvalidInput says why not."""
        if self.task.is_known:
            self.fields()
        else:  # what an annotation names is defined further down: the arguments are looked at when they are sent
            call = self.task.without_arguments()
            new_fields(call, self.trigger, name=self.name, said=self.options)


class Declarations:
    """The schedules that an application declares."""

    def __init__(self) -> None:
        self._all: list[Declaration] = []
        self._implied: list[Task[..., Any]] = []
        """Tasks that only `@app.scheduled` has made; an `@app.task` above it makes the real one."""

    def by_name(self) -> dict[str, Declaration]:
        """Return them by name, in the order of the code."""
        return {declared.name: declared for declared in self._all}

    def add(self, declared: Declaration) -> None:
        """Note one more; InvalidInput if another has its name, or an error of what does not fit its task."""
        try:
            declared.check()
        except (InvalidInput, TypeError) as error:
            refuse(error)
            return
        self._all = _checked([*(known for known in self._all if not _is_defined_anew(known, declared)), declared])

    def imply(self, task: Task[..., Any]) -> None:
        """Note that nobody but `@app.scheduled` has made this task yet."""
        self._implied.append(task)

    def supersede(self, before: Task[..., Any], after: Task[..., Any]) -> bool:
        """Go over to the task that `@app.task` makes of one that was implied; say whether it was."""
        if not any(task is before for task in self._implied):
            return False
        self._implied = [task for task in self._implied if task is not before]
        replace = msgspec.structs.replace
        self._all = _checked([replace(one, task=after) if one.task is before else one for one in self._all])
        return True


def _is_defined_anew(before: Declaration, after: Declaration) -> bool:
    """Say whether the code of a task was run again, as a cell of a notebook is."""
    was, now = before.task.fn, after.task.fn
    same_place = (was.__module__, was.__qualname__) == (now.__module__, now.__qualname__)
    return before.name == after.name and was is not now and same_place


def _checked(declared: Iterable[Declaration]) -> list[Declaration]:
    found: dict[str, Declaration] = {}
    for one in declared:
        if one.name in found:
            problem = f"{one.name!r} names two declared schedules. Give one another: @app.scheduled(…, name=…)."
            refuse(InvalidInput("name", problem))
        found[one.name] = one
    return list(found.values())


class Telling(msgspec.Struct, frozen=True):
    """The declarations of an application on their way to the servers."""

    request: Request
    names: list[str]
    """Of those that are sent."""
    unsent: dict[str, str]
    """Why others are not, by name."""

    @classmethod
    def of(cls, owner: str, declared: Mapping[str, Declaration], *, dry_run: bool, skip_refused: bool) -> Telling:
        """Return what to send; TypeError or InvalidInput of one that cannot be, unless those are skipped."""
        sent: dict[str, dict[str, Any]] = {}
        unsent: dict[str, str] = {}
        for name, one in declared.items():
            try:
                sent[name] = one.fields()
            except (TypeError, InvalidInput) as error:
                if not skip_refused:
                    raise
                unsent[name] = str(error)
        request = schedulerequests.declare(
            owner, list(sent.values()), keep=list(unsent), skip_refused=skip_refused, dry_run=dry_run
        )
        return cls(request, list(sent), unsent)

    def told(self, answer: Declared) -> Declared:
        """Return what the servers answered, with those that were not sent among the refused."""
        unsent = [RefusedSchedule(name=name, reason=reason) for name, reason in self.unsent.items()]
        return msgspec.structs.replace(answer, refused=[*unsent, *answer.refused])

    def named(self, error: InvalidInput) -> InvalidInput:
        """Return the error of declaring with the name of the schedule that is meant."""
        if error.batch == "schedules" and error.index is not None and error.index < len(self.names):
            error.args = (f"{error} It is the declared schedule {self.names[error.index]!r}.",)
        return error


class ScheduledMaker:
    """`@app.scheduled(...)` with everything said: takes the task, or the function of one."""

    def __init__(
        self,
        app: App,
        trigger: Trigger,
        *,
        name: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self._app = app
        self._trigger = trigger
        self._name = name
        self._args = tuple(args)
        self._kwargs = dict(kwargs)
        self._options = options

    @overload
    def __call__(self, fn: T) -> T: ...  # type: ignore[overload-overlap]
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
        """Declare the schedule; a function becomes a task."""
        declarations = self._app.declarations
        task = fn if isinstance(fn, Task) else self._app.task(fn)
        if task is not fn:
            declarations.imply(task)
        declarations.add(
            Declaration(
                task=task,
                trigger=self._trigger,
                own_name=self._name,
                args=self._args,
                kwargs=self._kwargs,
                options=self._options,
            )
        )
        return task
